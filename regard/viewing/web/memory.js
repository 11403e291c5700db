// The memory page: inputs, write weights, memory, read weights and outputs over time.

import { dataOf, floatsOf } from './blocks.js';
import { make } from './dom.js';
import { formatNumber, Grid } from './grid.js';
import { setLanguage, languageButton, detectLanguage, localize } from './language.js';
import { hashNumber, Transport, writeHash } from './transport.js';
import { MEMORY_TEXTS } from './memory-texts.js';

// The strips over time: the size of a vector, and the heads it belongs to.
const STRIPS = {
  inputs: ['inputs', null],
  outputs: ['outputs', null],
  targets: ['outputs', null],
  add_vectors: ['columns', 'write_weights'],
  read_vectors: ['columns', 'read_weights'],
  write_weights: ['rows', 'write_weights'],
  read_weights: ['rows', 'read_weights'],
};
const WEIGHTS = ['write_weights', 'read_weights'];
const MASKED = ['outputs', 'targets'];

class MemoryView {
  constructor(data, numbers, main) {
    this.data = data;
    this.numbers = numbers;
    this.language = detectLanguage(data.language);
    this.strips = Object.keys(STRIPS).filter((name) => numbers[name]);
    this.heads = {
      read_weights: hashNumber('read', data.heads.read_weights, data.selected.read_weights),
      write_weights: hashNumber('write', data.heads.write_weights, data.selected.write_weights),
    };
    this.#build(main);
    this.#setLanguage(this.language);
  }

  localize(key, values) {
    return localize(MEMORY_TEXTS, key, this.language, values);
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
        { class: `sheet memory-${name.replace('_', '-')}` },
        named('h2', name),
        this.places[name],
        ...more,
        named('p', 'time', { class: 'note' }),
      );
    const targets = this.places.targets
      ? [named('h2', 'targets', { class: 'memory-targets' }), this.places.targets]
      : [];
    this.current = make('div', { class: 'memory-current' });
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      this.bar,
      make(
        'div',
        { class: 'memory' },
        sheet('inputs'),
        sheet('add_vectors'),
        sheet('write_weights'),
        make('section', { class: 'sheet memory-content' }, named('h2', 'memory'), this.current),
        sheet('read_weights'),
        sheet('read_vectors'),
        sheet('outputs', ...targets),
      ),
      make('footer', { class: 'foot' }, this.how, named('p', 'keys', { class: 'note keys' })),
    );
    this.transport = new Transport(this.bar, {
      count: data.numSteps,
      language: this.language,
      onStep: () => this.#show(),
      keys: {
        h: () =>
          this.#choose({
            read_weights: (this.heads.read_weights + 1) % data.heads.read_weights,
            write_weights: (this.heads.write_weights + 1) % data.heads.write_weights,
          }),
      },
    });
    this.selects = {};
    for (const [side, key] of [
      ['write_weights', 'writeHead'],
      ['read_weights', 'readHead'],
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

  #setLanguage(language) {
    this.language = language;
    setLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    for (const [element, key] of this.named) element.textContent = this.localize(key);
    this.transport.setLanguage(language);
    this.#choose(this.heads);
  }

  // Numbers (steps, size), or of one head (steps, heads, size), transposed to (size, steps); NaN at steps without a target.
  #overTime(name) {
    const { data, numbers } = this;
    const [size, side] = STRIPS[name];
    const [count, heads, head] = [data[size], data.heads[side] ?? 1, this.heads[side] ?? 0];
    const hasTarget = (step) => !MASKED.includes(name) || !numbers.target_mask || numbers.target_mask[step];
    return Float32Array.from({ length: count * data.numSteps }, (_, place) => {
      const [row, step] = [Math.floor(place / data.numSteps), place % data.numSteps];
      return hasTarget(step) ? numbers[name][(step * heads + head) * count + row] : NaN;
    });
  }

  // The number with the full color: 1 for weights and probabilities; the same for outputs and targets.
  #maxOf(name) {
    if (WEIGHTS.includes(name)) return 1;
    if (!MASKED.includes(name)) return this.#maxAbs([name]);
    return this.#maxAbs(MASKED.filter((other) => this.numbers[other]));
  }

  #maxAbs(names) {
    let [min, max] = [0, 1e-9];
    for (const name of names)
      for (const value of this.#overTime(name)) {
        if (Number.isFinite(value)) [min, max] = [Math.min(min, value), Math.max(max, Math.abs(value))];
      }
    return min === 0 && max <= 1 && !STRIPS[names[0]][1] ? 1 : max;
  }

  #choose(heads) {
    const { data } = this;
    this.heads = heads;
    for (const [side, select] of Object.entries(this.selects)) {
      select.value = heads[side];
      writeHash({ [side === 'read_weights' ? 'read' : 'write']: heads[side] });
    }
    this.grids = {};
    this.#memory(); // first: it takes the width it needs, the strips use the remaining width
    const wide = Math.max(4, Math.min(24, Math.floor((this.places.inputs.clientWidth - 6) / data.numSteps)));
    for (const name of this.strips) {
      const count = data[STRIPS[name][0]];
      this.places[name].replaceChildren();
      const high = Math.max(3, Math.min(18, Math.floor((WEIGHTS.includes(name) ? 320 : 150) / count)));
      const grid = new Grid(this.places[name], {
        name: this.localize(name),
        values: this.#overTime(name),
        rows: count,
        columns: data.numSteps,
        sizes: [wide, high],
        max: this.#maxOf(name),
      });
      grid.onHover = (cell) =>
        this.#describe(
          grid,
          cell && [this.localize('step', { step: cell.column + 1 }), this.localize('row', { row: cell.row + 1 })],
          cell,
        );
      grid.onPin = (cell) => this.transport.go(cell.column);
      this.grids[name] = grid;
    }
    this.#show();
  }

  // The content of the memory between its write and read weights, and the added vector.
  #memory() {
    const { data } = this;
    const high = Math.max(3, Math.min(18, Math.floor(420 / data.rows)));
    const wide = Math.max(5, Math.min(20, Math.floor(200 / data.columns)));
    const part = (name, rows, columns, sizes, max = null) => {
      const box = make('figure', { class: 'matrix' }, make('figcaption', {}, this.localize(name)));
      const grid = new Grid(box, {
        name: this.localize(name),
        values: new Float32Array(rows * columns),
        rows,
        columns,
        sizes,
        max,
      });
      grid.onHover = (cell) =>
        this.#describe(
          grid,
          cell && [this.localize('row', { row: cell.row + 1 }), this.localize('column', { column: cell.column + 1 })],
          cell,
        );
      this.grids[name] = grid;
      return box;
    };
    const largest = this.numbers.memory.reduce((max, value) => Math.max(max, Math.abs(value)), 1e-9);
    const columns = [
      part('write', data.rows, 1, [22, high], 1),
      part('rows', data.rows, data.columns, [wide, high], largest),
      part('read', data.rows, 1, [22, high], 1),
    ];
    this.current.replaceChildren(
      make('div', { class: 'memory-columns' }, ...columns),
      ...(this.numbers.add_vectors ? [part('add', 1, data.columns, [wide, 18], null)] : []),
    );
  }

  #show() {
    const { data, numbers, transport, grids } = this;
    const { step } = transport;
    const of = (name, count) => {
      const side = STRIPS[name][1];
      const place = step * data.heads[side] + this.heads[side];
      return numbers[name].subarray(place * count, (place + 1) * count);
    };
    const size = data.rows * data.columns;
    for (const name of this.strips) {
      grids[name].reveal(step + 1);
      grids[name].highlight({ column: step });
    }
    grids.rows.show(numbers.memory.subarray(step * size, (step + 1) * size));
    grids.write.show(of('write_weights', data.rows));
    grids.read.show(of('read_weights', data.rows));
    if (grids.add) grids.add.show(of('add_vectors', data.columns));
    this.how.textContent = this.localize('hint');
  }

  #describe(grid, labels, cell) {
    const value = cell && grid.values[cell.row * grid.columns + cell.column];
    this.how.textContent = cell
      ? `${labels.join(', ')}: ${Number.isNaN(value) ? this.localize('noTarget') : formatNumber(value)}`
      : this.localize('hint');
  }
}

const memoryData = dataOf();
const memoryNumbers = {};
for (const name of memoryData.names) memoryNumbers[name] = await floatsOf(name);
new MemoryView(memoryData, memoryNumbers, document.getElementById('main'));
