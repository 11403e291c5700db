// A memory and its heads over time: what came in, where it was written, what stands there, where it was read.

import { dataOf, floatsOf } from './blocks.js';
import { make } from './dom.js';
import { Grid, short } from './grid.js';
import { chooseLanguage, languageButton, languageOf, say } from './say.js';
import { hashNumber, Transport, writeHash } from './transport.js';
import { TAPE_WORDS } from './tape-words.js';

// What is drawn over time: how many rows it has, and the heads that it belongs to.
const STRIPS = {
  inputs: ['inputs', null],
  outputs: ['outputs', null],
  wanted: ['outputs', null],
  adds: ['columns', 'writes'],
  returned: ['columns', 'reads'],
  writes: ['rows', 'writes'],
  reads: ['rows', 'reads'],
};
const WEIGHTS = ['writes', 'reads'];
const SAID = ['outputs', 'wanted'];

class TapePlayer {
  constructor(data, numbers, main) {
    this.data = data;
    this.numbers = numbers;
    this.language = languageOf(data.language);
    this.strips = Object.keys(STRIPS).filter((name) => numbers[name]);
    this.heads = {
      reads: hashNumber('read', data.heads.reads, data.open.reads),
      writes: hashNumber('write', data.heads.writes, data.open.writes),
    };
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
    this.places = Object.fromEntries(this.strips.map((name) => [name, make('div')]));
    const sheet = (name, ...more) =>
      this.places[name] &&
      make(
        'section',
        { class: `sheet tape-${name}` },
        named('h2', name),
        this.places[name],
        ...more,
        named('p', 'time', { class: 'note' }),
      );
    const wanted = this.places.wanted
      ? [named('h2', 'wanted', { class: 'tape-wanted' }), this.places.wanted]
      : [];
    this.now = make('div', { class: 'tape-now' });
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      this.bar,
      make(
        'div',
        { class: 'tape' },
        sheet('inputs'),
        sheet('adds'),
        sheet('writes'),
        make('section', { class: 'sheet tape-memory' }, named('h2', 'memory'), this.now),
        sheet('reads'),
        sheet('returned'),
        sheet('outputs', ...wanted),
      ),
      make('footer', { class: 'foot' }, this.how, named('p', 'keys', { class: 'note keys' })),
    );
    this.transport = new Transport(this.bar, {
      count: data.moments,
      language: this.language,
      onStep: () => this.#show(),
      keys: {
        h: () =>
          this.#choose({
            reads: (this.heads.reads + 1) % data.heads.reads,
            writes: (this.heads.writes + 1) % data.heads.writes,
          }),
      },
    });
    this.selects = {};
    for (const [side, key] of [
      ['writes', 'writeHead'],
      ['reads', 'readHead'],
    ]) {
      if (data.heads[side] < 2) continue;
      const select = make(
        'select',
        { onchange: () => this.#choose({ ...this.heads, [side]: Number(select.value) }) },
        ...Array.from({ length: data.heads[side] }, (_, n) => make('option', { value: n }, String(n))),
      );
      this.selects[side] = select;
      this.bar.append(make('label', { class: 'choice' }, named('span', key), select));
    }
  }

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    for (const [element, key] of this.named) element.textContent = this.say(key);
    this.transport.speak(language);
    this.#choose(this.heads);
  }

  // Numbers (moments, count), or of one head (moments, heads, count), as rows of moments; NaN where none is asked for.
  #overTime(name) {
    const { data, numbers } = this;
    const [size, side] = STRIPS[name];
    const [count, heads, own] = [data[size], data.heads[side] ?? 1, this.heads[side] ?? 0];
    const asked = (moment) => !SAID.includes(name) || !numbers.asked || numbers.asked[moment];
    return Float32Array.from({ length: count * data.moments }, (_, place) => {
      const [row, moment] = [Math.floor(place / data.moments), place % data.moments];
      return asked(moment) ? numbers[name][(moment * heads + own) * count + row] : NaN;
    });
  }

  // The number with full color: weights and probabilities go up to 1, and what is compared has the same.
  #topOf(name) {
    if (WEIGHTS.includes(name)) return 1;
    if (!SAID.includes(name)) return this.#upTo([name]);
    return this.#upTo(SAID.filter((one) => this.numbers[one]));
  }

  #upTo(names) {
    let [low, top] = [0, 1e-9];
    for (const name of names)
      for (const value of this.#overTime(name)) {
        if (Number.isFinite(value)) [low, top] = [Math.min(low, value), Math.max(top, Math.abs(value))];
      }
    return low === 0 && top <= 1 && !STRIPS[names[0]][1] ? 1 : top;
  }

  #choose(heads) {
    const { data } = this;
    this.heads = heads;
    for (const [side, select] of Object.entries(this.selects)) {
      select.value = heads[side];
      writeHash({ [side === 'reads' ? 'read' : 'write']: heads[side] });
    }
    this.grids = {};
    this.#memory(); // first: it takes the width that it needs, and the others share the rest
    const wide = Math.max(4, Math.min(24, Math.floor((this.places.inputs.clientWidth - 6) / data.moments)));
    for (const name of this.strips) {
      const count = data[STRIPS[name][0]];
      this.places[name].replaceChildren();
      const high = Math.max(3, Math.min(18, Math.floor((WEIGHTS.includes(name) ? 320 : 150) / count)));
      const grid = new Grid(this.places[name], {
        name: this.say(name),
        values: this.#overTime(name),
        rows: count,
        columns: data.moments,
        sizes: [wide, high],
        top: this.#topOf(name),
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
      const side = STRIPS[name][1];
      const place = moment * data.heads[side] + this.heads[side];
      return numbers[name].subarray(place * count, (place + 1) * count);
    };
    const size = data.rows * data.columns;
    for (const name of this.strips) {
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
    const value = cell && grid.values[cell.row * grid.columns + cell.column];
    this.how.textContent = cell
      ? `${words.join(', ')}: ${Number.isNaN(value) ? this.say('unasked') : short(value)}`
      : this.say('hint');
  }
}

const tapeData = dataOf();
const tapeNumbers = {};
for (const name of tapeData.named) tapeNumbers[name] = await floatsOf(name);
new TapePlayer(tapeData, tapeNumbers, document.getElementById('main'));
