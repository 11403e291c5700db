// A memory and its heads over time: what came in, where it was written, what stands there, where it was read.

import { dataOf, floatsOf } from './blocks.js';
import { make } from './dom.js';
import { Grid, short } from './grid.js';
import { chooseLanguage, languageButton, languageOf, say } from './say.js';
import { hashNumber, Transport, writeHash } from './transport.js';
import { TAPE_WORDS } from './tape-words.js';

class TapePlayer {
  constructor(data, numbers, main) {
    this.data = data;
    this.numbers = numbers;
    this.language = languageOf(data.language);
    this.head = hashNumber('head', data.heads, 0);
    this.#build(main);
    this.#speak(this.language);
  }

  say(key, values) {
    return say(TAPE_WORDS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.named = [];
    const named = (tag, key, attributes = {}) => {
      const element = make(tag, attributes);
      this.named.push([element, key]);
      return element;
    };
    this.corner = make('span');
    this.bar = make('div', { class: 'sheet bar-top' });
    this.how = make('p', { class: 'how number', 'aria-live': 'polite' });
    this.places = Object.fromEntries(
      ['inputs', 'outputs', 'writes', 'reads'].map((name) => [name, make('div')]),
    );
    const sheet = (name) =>
      make(
        'section',
        { class: `sheet tape-${name}` },
        named('h2', name),
        this.places[name],
        named('p', 'time', { class: 'note' }),
      );
    this.now = make('div', { class: 'tape-now' });
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      this.bar,
      make(
        'div',
        { class: 'tape' },
        sheet('inputs'),
        sheet('writes'),
        make('section', { class: 'sheet tape-memory' }, named('h2', 'memory'), this.now),
        sheet('reads'),
        sheet('outputs'),
      ),
      make('footer', { class: 'foot' }, this.how, named('p', 'keys', { class: 'note keys' })),
    );
    this.transport = new Transport(this.bar, {
      count: data.moments,
      language: this.language,
      onStep: () => this.#show(),
      keys: { h: () => this.#choose((this.head + 1) % data.heads) },
    });
    this.select = make(
      'select',
      { onchange: () => this.#choose(Number(this.select.value)) },
      ...Array.from({ length: data.heads }, (_, n) => make('option', { value: n }, String(n))),
    );
    if (data.heads > 1)
      this.bar.append(make('label', { class: 'choice' }, named('span', 'head'), this.select));
  }

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    for (const [element, key] of this.named) element.textContent = this.say(key);
    this.transport.speak(language);
    this.#choose(this.head);
  }

  // Numbers (moments, count), or of one head (moments, heads, count), as rows of moments.
  #overTime(name, count, head = null) {
    const { moments, heads_of: of } = this.data;
    const [values, heads] = [this.numbers[name], of[name]];
    const own = Math.min(head ?? 0, (heads ?? 1) - 1);
    return Float32Array.from({ length: count * moments }, (_, place) => {
      const [row, moment] = [Math.floor(place / moments), place % moments];
      return head === null ? values[moment * count + row] : values[(moment * heads + own) * count + row];
    });
  }

  #choose(head) {
    const { data } = this;
    this.head = head;
    this.select.value = head;
    if (data.heads > 1) writeHash({ head });
    this.grids = {};
    this.#memory(); // first: it takes the width that it needs, and the others share the rest
    const wide = Math.max(4, Math.min(24, Math.floor((this.places.inputs.clientWidth - 6) / data.moments)));
    for (const [name, count, of] of [
      ['inputs', data.inputs, null],
      ['outputs', data.outputs, null],
      ['writes', data.rows, head],
      ['reads', data.rows, head],
    ]) {
      this.places[name].replaceChildren();
      const high = Math.max(3, Math.min(18, Math.floor((of === null ? 150 : 320) / count)));
      const grid = new Grid(this.places[name], {
        name: this.say(name),
        values: this.#overTime(name, count, of),
        rows: count,
        columns: data.moments,
        sizes: [wide, high],
        top: of === null ? null : 1,
      });
      grid.onHover = (cell) =>
        this.#tell(
          grid,
          cell && [this.say('step', { step: cell.column + 1 }), this.say('row', { row: cell.row + 1 })],
          cell,
        );
      grid.onPin = (cell) => this.transport.go(cell.column);
      this.grids[name] = grid;
    }
    this.#show();
  }

  // The memory with the weights of the heads beside it, and above it what is being added.
  #memory() {
    const { data } = this;
    const high = Math.max(3, Math.min(18, Math.floor(420 / data.rows)));
    const wide = Math.max(5, Math.min(20, Math.floor(200 / data.columns)));
    const part = (name, rows, columns, sizes, top = null) => {
      const box = make('figure', { class: 'matrix' }, make('figcaption', {}, this.say(name)));
      const grid = new Grid(box, {
        name: this.say(name),
        values: new Float32Array(rows * columns),
        rows,
        columns,
        sizes,
        top,
      });
      grid.onHover = (cell) =>
        this.#tell(
          grid,
          cell && [this.say('row', { row: cell.row + 1 }), this.say('column', { column: cell.column + 1 })],
          cell,
        );
      this.grids[name] = grid;
      return box;
    };
    const most = this.numbers.memory.reduce((top, value) => Math.max(top, Math.abs(value)), 1e-9);
    const held = [
      part('write', data.rows, 1, [22, high], 1),
      part('rows', data.rows, data.columns, [wide, high], most),
      part('read', data.rows, 1, [22, high], 1),
    ];
    this.now.replaceChildren(
      make('div', { class: 'held' }, ...held),
      ...(this.numbers.adds ? [part('add', 1, data.columns, [wide, 18], null)] : []),
    );
  }

  #show() {
    const { data, numbers, transport, grids } = this;
    const moment = transport.step;
    const of = (name, count) => {
      const heads = data.heads_of[name];
      const place = moment * heads + Math.min(this.head, heads - 1);
      return numbers[name].subarray(place * count, (place + 1) * count);
    };
    const size = data.rows * data.columns;
    for (const name of ['inputs', 'outputs', 'writes', 'reads']) {
      grids[name].reveal(moment + 1);
      grids[name].light({ column: moment });
    }
    grids.rows.show(numbers.memory.subarray(moment * size, (moment + 1) * size));
    grids.write.show(of('writes', data.rows));
    grids.read.show(of('reads', data.rows));
    if (grids.add) grids.add.show(of('adds', data.columns));
    this.how.textContent = this.say('hint');
  }

  #tell(grid, words, cell) {
    this.how.textContent = cell
      ? `${words.join(', ')}: ${short(grid.values[cell.row * grid.columns + cell.column])}`
      : this.say('hint');
  }
}

const tapeData = dataOf();
const tapeNumbers = {};
for (const name of tapeData.named) tapeNumbers[name] = await floatsOf(name);
new TapePlayer(tapeData, tapeNumbers, document.getElementById('main'));
