// One layer of self-attention, operation by operation, with all its matrices.

import { dataOf, floatsOf } from './blocks.js';
import { isolated, make } from './dom.js';
import { formatNumber, Grid } from './grid.js';
import { setLanguage, languageButton, detectLanguage, localize } from './language.js';
import { hashNumber, Transport, writeHash } from './transport.js';
import { WALKTHROUGH_TEXTS } from './walkthrough-texts.js';

const MAX_TERMS = 6; // of a sum

function isMatrix(part) {
  return part !== undefined && /^[a-z]+$/.test(part);
}

// A number as a factor, with parentheses if negative.
function factor(value) {
  return value < 0 ? `(${formatNumber(value)})` : formatNumber(value);
}

class WalkthroughView {
  constructor(data, numbers, main) {
    this.data = data;
    this.numbers = numbers;
    this.language = detectLanguage(data.language);
    this.head = hashNumber('head', data.numHeads, 0);
    this.#build(main);
    this.#setLanguage(this.language);
  }

  localize(key, values) {
    return localize(WALKTHROUGH_TEXTS, key, this.language, values);
  }

  #build(main) {
    this.corner = make('span');
    this.title = make('h1');
    this.bar = make('div', { class: 'sheet bar-top' });
    this.heading = make('h2', { class: 'walkthrough-heading' });
    this.text = make('p', { class: 'walkthrough-text' });
    this.equation = make('div', { class: 'equation' });
    this.how = make('p', { class: 'how number', 'aria-live': 'polite' });
    this.keys = make('p', { class: 'note keys' });
    main.append(
      make('header', { class: 'head' }, this.title, this.corner),
      this.bar,
      make('section', { class: 'sheet walkthrough' }, this.heading, this.text, this.equation, this.how),
      make('footer', { class: 'foot' }, this.keys),
    );
    this.transport = new Transport(this.bar, {
      count: this.data.stages.length,
      language: this.language,
      onStep: () => this.#show(),
      keys: { h: () => this.#choose((this.head + 1) % this.data.numHeads) },
    });
    this.label = make('span');
    this.select = make(
      'select',
      { onchange: () => this.#choose(Number(this.select.value)) },
      ...Array.from({ length: this.data.numHeads }, (_, n) => make('option', { value: n }, String(n))),
    );
    this.select.value = this.head;
    if (this.data.numHeads > 1) this.bar.append(make('label', { class: 'choice' }, this.label, this.select));
  }

  #setLanguage(language) {
    this.language = language;
    setLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    this.title.textContent = this.localize('title');
    this.label.textContent = this.localize('head');
    this.keys.textContent = this.localize('keys');
    this.transport.setLanguage(language);
    this.#show();
  }

  #choose(head) {
    this.head = head;
    this.select.value = head;
    writeHash({ head });
    this.#show();
  }

  // A matrix by its name; of a matrix per head, the part of the selected head.
  matrix(name) {
    const { rows, columns, perHead } = this.data.matrices[name];
    const size = rows * columns;
    const values = perHead
      ? this.numbers[name].subarray(this.head * size, (this.head + 1) * size)
      : this.numbers[name];
    return { name, rows, columns, values, at: (row, column) => values[row * columns + column] };
  }

  #show() {
    const stage = this.data.stages[this.transport.step];
    const { headDim, numHeads, score, normalize } = this.data;
    const values = { d: headDim, root: formatNumber(Math.sqrt(headDim)), heads: numHeads, score, normalize };
    this.heading.textContent = this.localize(`${stage.name}-name`, values);
    this.text.textContent = this.localize(stage.name, values);
    this.grids = {};
    this.equation.replaceChildren(
      ...stage.parts.map((part, place) => {
        const before = stage.parts[place - 1];
        return isMatrix(part)
          ? this.#grid(part, stage, !isMatrix(before))
          : make('span', { class: 'operator' }, part);
      }),
    );
    this.how.textContent = this.localize('hint');
  }

  // Of adjacent matrices only the first has row labels.
  #grid(name, stage, first) {
    const matrix = this.matrix(name);
    const labelsOf = (kind, count) => (kind === 'tokens' ? this.data.tokens : count);
    const { rows, columns } = this.data.matrices[name].labels;
    const box = make('figure', { class: 'matrix' }, make('figcaption', {}, this.localize(`m-${name}`)));
    const grid = new Grid(box, {
      name: this.localize(`m-${name}`),
      values: matrix.values,
      rows: labelsOf(first && rows, matrix.rows),
      columns: labelsOf(columns, matrix.columns),
      max: name === 'weights' ? 1 : null,
    });
    grid.onHover = (cell) => this.#explain(name, stage, cell);
    this.grids[name] = grid;
    return box;
  }

  // How a cell is computed: as text, and as highlighted rows and columns of the other matrices.
  #explain(name, stage, cell) {
    for (const grid of Object.values(this.grids)) grid.highlight(null);
    if (!cell) {
      this.how.textContent = this.localize('hint');
      return;
    }
    const rule = stage.rules[name];
    for (const [other, source] of Object.entries((rule && rule.from) || {})) {
      if (this.grids[other])
        this.grids[other].highlight({
          row: source.row ? cell[source.row] : null,
          column: source.column ? cell[source.column] : null,
        });
    }
    this.how.textContent = this.#formula(name, rule, cell);
  }

  #formula(name, rule, { row, column }) {
    const { data } = this;
    const matrix = this.matrix(name);
    const value = formatNumber(matrix.at(row, column));
    const label = (kind, place) => (kind === 'tokens' ? isolated(data.tokens[place]) : String(place + 1));
    const { labels } = data.matrices[name];
    const cell = `${this.localize(`m-${name}`)}[${label(labels.rows, row)}, ${label(labels.columns, column)}]`;
    const operation = rule ? rule.operation : 'given';
    if (operation === 'product') return `${cell} = ${this.#sum(rule, row, column)} = ${value}`;
    if (operation === 'scale')
      return `${cell} = ${formatNumber(this.matrix('dots').at(row, column))} / √${data.headDim} = ${value}`;
    if (operation === 'mask') return `${cell} = ${value}${value === '−∞' ? `: ${this.localize('hidden')}` : ''}`;
    if (operation === 'softmax') return `${cell} = ${this.#softmax(row, column)} = ${value}`;
    return `${cell} = ${value}`;
  }

  #sum({ left, right, transposed, bias }, row, column) {
    const [a, b] = [this.matrix(left), this.matrix(right)];
    const terms = Array.from(
      { length: a.columns },
      (_, i) => `${factor(a.at(row, i))} × ${factor(transposed ? b.at(column, i) : b.at(i, column))}`,
    );
    const added = bias ? ` + ${factor(this.matrix(bias).at(0, column))}` : '';
    return terms.slice(0, MAX_TERMS).join(' + ') + (terms.length > MAX_TERMS ? ` + … (${terms.length})` : '') + added;
  }

  #softmax(row, column) {
    const scores = this.matrix('scores');
    const visible = Array.from({ length: scores.columns }, (_, i) => scores.at(row, i)).filter(Number.isFinite);
    const score = scores.at(row, column);
    const power = (value) => `e^${formatNumber(value)}`;
    if (!Number.isFinite(score)) return '0';
    return `${power(score)} / (${visible.slice(0, MAX_TERMS).map(power).join(' + ')}${visible.length > MAX_TERMS ? ' + …' : ''})`;
  }
}

const walkthroughData = dataOf();
const walkthroughNumbers = {};
for (const name of Object.keys(walkthroughData.matrices)) walkthroughNumbers[name] = await floatsOf(name);
new WalkthroughView(walkthroughData, walkthroughNumbers, document.getElementById('main'));
