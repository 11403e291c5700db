// One layer of self-attention, operation by operation, with every matrix it makes.

import { dataOf, floatsOf } from './blocks.js';
import { isolated, make } from './dom.js';
import { Grid, short } from './grid.js';
import { chooseLanguage, languageButton, languageOf, say } from './say.js';
import { hashNumber, Transport, writeHash } from './transport.js';
import { WALK_WORDS } from './walk-words.js';

const TERMS = 6; // of a sum that are written out

function isMatrix(part) {
  return part !== undefined && /^[a-z]+$/.test(part);
}

// A number inside a product or sum.
function factor(value) {
  return value < 0 ? `(${short(value)})` : short(value);
}

class WalkPlayer {
  constructor(data, numbers, main) {
    this.data = data;
    this.numbers = numbers;
    this.language = languageOf(data.language);
    this.head = hashNumber('head', data.heads, 0);
    this.#build(main);
    this.#speak(this.language);
  }

  say(key, values) {
    return say(WALK_WORDS, key, this.language, values);
  }

  #build(main) {
    this.corner = make('span');
    this.title = make('h1');
    this.bar = make('div', { class: 'sheet bar-top' });
    this.heading = make('h2', { class: 'walk-heading' });
    this.text = make('p', { class: 'walk-text' });
    this.equation = make('div', { class: 'equation' });
    this.how = make('p', { class: 'how number', 'aria-live': 'polite' });
    this.keys = make('p', { class: 'note keys' });
    main.append(
      make('header', { class: 'head' }, this.title, this.corner),
      this.bar,
      make('section', { class: 'sheet walk' }, this.heading, this.text, this.equation, this.how),
      make('footer', { class: 'foot' }, this.keys),
    );
    this.transport = new Transport(this.bar, {
      count: this.data.stages.length,
      language: this.language,
      onStep: () => this.#show(),
      keys: { h: () => this.#choose((this.head + 1) % this.data.heads) },
    });
    this.label = make('span');
    this.select = make(
      'select',
      { onchange: () => this.#choose(Number(this.select.value)) },
      ...Array.from({ length: this.data.heads }, (_, n) => make('option', { value: n }, String(n))),
    );
    this.select.value = this.head;
    if (this.data.heads > 1) this.bar.append(make('label', { class: 'choice' }, this.label, this.select));
  }

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    this.title.textContent = this.say('title');
    this.label.textContent = this.say('head');
    this.keys.textContent = this.say('keys');
    this.transport.speak(language);
    this.#show();
  }

  #choose(head) {
    this.head = head;
    this.select.value = head;
    writeHash({ head });
    this.#show();
  }

  // A matrix by its name; those that every head has are cut out for the chosen one.
  matrix(name) {
    const { rows, columns, heads } = this.data.matrices[name];
    const size = rows * columns;
    const values = heads
      ? this.numbers[name].subarray(this.head * size, (this.head + 1) * size)
      : this.numbers[name];
    return { name, rows, columns, values, at: (row, column) => values[row * columns + column] };
  }

  #show() {
    const stage = this.data.stages[this.transport.step];
    const { width, heads, score, normalize } = this.data;
    this.heading.textContent = this.say(`${stage.name}-name`, { score, normalize });
    this.text.textContent = this.say(stage.name, {
      d: width,
      root: short(Math.sqrt(width)),
      heads,
      score,
      normalize,
    });
    this.grids = {};
    this.equation.replaceChildren(
      ...stage.shown.map((part, place) => {
        const before = stage.shown[place - 1];
        return isMatrix(part)
          ? this.#grid(part, stage, !isMatrix(before))
          : make('span', { class: 'operator' }, part);
      }),
    );
    this.how.textContent = this.say('hint');
  }

  // Where matrices stand side by side, the first has the names of the rows for all.
  #grid(name, stage, first) {
    const matrix = this.matrix(name);
    const named = (kind, count) => (kind === 'tokens' ? this.data.tokens : count);
    const { rows, columns } = this.data.matrices[name].labels;
    const box = make('figure', { class: 'matrix' }, make('figcaption', {}, this.say(`m-${name}`)));
    const grid = new Grid(box, {
      name: this.say(`m-${name}`),
      values: matrix.values,
      rows: named(first && rows, matrix.rows),
      columns: named(columns, matrix.columns),
      top: name === 'weights' ? 1 : null,
    });
    grid.onHover = (cell) => this.#explain(name, stage, cell);
    this.grids[name] = grid;
    return box;
  }

  // Which row and which column a cell came from, in words and in the matrices beside it.
  #explain(name, stage, cell) {
    for (const grid of Object.values(this.grids)) grid.light(null);
    if (!cell) {
      this.how.textContent = this.say('hint');
      return;
    }
    const made = stage.made[name];
    for (const [other, by] of Object.entries((made && made.from) || {})) {
      if (this.grids[other])
        this.grids[other].light({
          row: by.row ? cell[by.row] : null,
          column: by.column ? cell[by.column] : null,
        });
    }
    this.how.textContent = this.#sentence(name, made, cell);
  }

  #sentence(name, made, { row, column }) {
    const { data } = this;
    const matrix = this.matrix(name);
    const value = short(matrix.at(row, column));
    const label = (kind, place) => (kind === 'tokens' ? isolated(data.tokens[place]) : String(place + 1));
    const { labels } = data.matrices[name];
    const cell = `${this.say(`m-${name}`)}[${label(labels.rows, row)}, ${label(labels.columns, column)}]`;
    const kind = made ? made.kind : 'given';
    if (kind === 'product') return `${cell} = ${this.#sum(made, row, column)} = ${value}`;
    if (kind === 'divided')
      return `${cell} = ${short(this.matrix('dots').at(row, column))} / √${data.width} = ${value}`;
    if (kind === 'masked') return `${cell} = ${value}${value === '−∞' ? `: ${this.say('hidden')}` : ''}`;
    if (kind === 'softmax') return `${cell} = ${this.#softmax(row, column)} = ${value}`;
    return `${cell} = ${value}`;
  }

  #sum({ left, right, turned, bias }, row, column) {
    const [a, b] = [this.matrix(left), this.matrix(right)];
    const terms = Array.from(
      { length: a.columns },
      (_, i) => `${factor(a.at(row, i))} × ${factor(turned ? b.at(column, i) : b.at(i, column))}`,
    );
    const added = bias ? ` + ${factor(this.matrix(bias).at(0, column))}` : '';
    return terms.slice(0, TERMS).join(' + ') + (terms.length > TERMS ? ` + … (${terms.length})` : '') + added;
  }

  #softmax(row, column) {
    const scores = this.matrix('scores');
    const seen = Array.from({ length: scores.columns }, (_, i) => scores.at(row, i)).filter(Number.isFinite);
    const own = scores.at(row, column);
    const power = (value) => `e^${short(value)}`;
    if (!Number.isFinite(own)) return '0';
    return `${power(own)} / (${seen.slice(0, TERMS).map(power).join(' + ')}${seen.length > TERMS ? ' + …' : ''})`;
  }
}

const walkData = dataOf();
const walkNumbers = {};
for (const name of Object.keys(walkData.matrices)) walkNumbers[name] = await floatsOf(name);
new WalkPlayer(walkData, walkNumbers, document.getElementById('main'));
