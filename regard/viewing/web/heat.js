// A heat map of weights: who looks (rows) at whom (columns). It holds 5 words and 512.
//
//   const heat = new Heat(container, { rows, columns, label, language });
//   heat.show(block);                  Uint16Array, 65535 is 1, row after row
//   heat.onHover = (cell) => {};       { row, column, weight } or null
//   heat.onPin = (cell) => {};
//   heat.mark(i, j);                   frames a cell; null for a whole row or column
//   heat.reveal(n);                    only the first n rows have been written yet

import { cellAfter, sameCell } from './cells.js';
import { onScheme } from './color.js';
import { debounced, isolated, make } from './dom.js';
import { HEAT_WORDS } from './heat-words.js';
import { marginsOf, paint, pictureOf, rampOf, topOf } from './paint.js';
import { say, share } from './say.js';
import { LARGEST, Sheet } from './sheet.js';

const MANY = 48; // columns from which on small weights are lifted and tools are shown

export class Heat {
  // height: of the window, at most; most: pixels of a cell; full: the weight that has full ink, if none is larger.
  constructor(
    container,
    { rows, columns, label = '', language = 'en', height = 560, most = LARGEST, full = 0 },
  ) {
    this.labels = { rows, columns };
    [this.rows, this.columns] = [rows.length, columns.length];
    Object.assign(this, { language, full, shown: this.rows, cursor: null, pinned: null });
    this.onHover = this.onPin = () => {};
    this.gamma = Math.max(this.rows, this.columns) > MANY ? 0.5 : 1;
    this.draw = debounced(() => this.#draw());
    this.#build(container, { height, most }, label);
    onScheme(() => this.#recolor());
    this.sheet.follow(container);
  }

  show(weights) {
    this.weights = weights;
    this.top = Math.max(topOf(weights), 65535 * this.full);
    this.#recolor();
    this.#tell();
  }

  mark(row = null, column = null) {
    this.pinned = row === null && column === null ? null : { row, column };
    this.#tell();
    this.draw();
  }

  reveal(rows) {
    this.shown = rows;
    this.draw();
  }

  speak(language) {
    this.language = language;
    this.#tools();
    this.#tell();
  }

  #build(container, sizes, label) {
    this.sheet = new Sheet({
      rows: this.rows,
      columns: this.columns,
      ...sizes,
      marginsOf: (cell, width) => marginsOf(this.sheet.context, this.labels, cell, width),
      onResize: () => this.#draw(),
      attributes: {
        role: 'application',
        'aria-label': label,
        onscroll: () => this.draw(),
        onkeydown: (event) => this.#key(event),
        onblur: () => this.#move(null),
        onpointermove: (event) => this.#move(this.#under(event)),
        onpointerleave: () => this.#move(null),
        onclick: (event) => this.#pin(this.#under(event)),
      },
    });
    this.says = make('p', { class: 'heat-says', 'aria-live': 'polite' });
    this.tools = make('span', { class: 'heat-tools' });
    this.#tools();
    container.classList.add('heat');
    container.replaceChildren(this.sheet.box, make('div', { class: 'heat-foot' }, this.says, this.tools));
  }

  // The scale of the colors and, where there are many cells, buttons to zoom.
  #tools() {
    this.most = make('span', {}, this.top ? share(this.top / 65535) : '');
    this.ramp = make('span', { class: 'heat-ramp' }, rampOf(this.gamma));
    const scale = make(
      'span',
      { class: 'heat-scale number', 'aria-hidden': 'true' },
      '0',
      this.ramp,
      this.most,
    );
    this.tools.replaceChildren(scale);
    if (Math.max(this.rows, this.columns) <= MANY) return;
    const tool = (text, key, work, pressed = null) => {
      const name = say(HEAT_WORDS, key, this.language);
      const looks = {
        type: 'button',
        class: 'quiet',
        title: name,
        'aria-label': name,
        'aria-pressed': pressed,
      };
      return make('button', { ...looks, onclick: work }, text);
    };
    this.tools.append(
      tool('−', 'farther', () => this.#zoom(0.5)),
      tool('+', 'nearer', () => this.#zoom(2)),
      tool('□', 'fit', () => this.#zoom(0)),
      tool('√', 'root', () => this.#lift(), String(this.gamma !== 1)),
    );
  }

  #zoom(factor) {
    const at = this.cursor || this.pinned;
    this.sheet.scale(factor, at && at.row !== null && at.column !== null ? at : null);
  }

  #lift() {
    this.gamma = this.gamma === 1 ? 0.5 : 1;
    this.#recolor();
    this.tools.lastChild.focus();
  }

  #recolor() {
    if (!this.weights) return;
    this.picture = pictureOf(this.weights, this.rows, this.columns, this.top, this.gamma);
    this.#tools();
    this.#draw();
  }

  #draw() {
    if (!this.picture || !this.sheet.cell) return;
    const style = getComputedStyle(this.sheet.box);
    const color = (name) => style.getPropertyValue(name).trim();
    const { rows, columns, labels, picture, weights, top, gamma, shown, cursor, pinned } = this;
    const what = { rows, columns, labels, picture, weights, top, gamma, shown, cursor, pinned };
    paint(
      this.sheet.context,
      { ...what, ...this.sheet.view(), numbers: columns <= MANY },
      { accent: color('--accent'), ink: color('--soft'), line: color('--line'), paper: color('--paper') },
    );
  }

  #under(event) {
    const cell = this.sheet.under(event);
    return cell && cell.row < this.shown ? cell : null;
  }

  #move(cell) {
    if (sameCell(cell, this.cursor)) return;
    this.cursor = cell;
    this.#tell();
    this.draw();
    this.onHover(cell && this.#valued(cell));
  }

  #pin(cell) {
    if (!cell) return;
    this.pinned = sameCell(cell, this.pinned) ? null : cell;
    this.#tell();
    this.draw();
    this.onPin(this.pinned && this.#valued(cell));
  }

  #valued({ row, column }) {
    return { row, column, weight: this.weights[row * this.columns + column] / 65535 };
  }

  #tell() {
    const cell = this.cursor || this.pinned;
    const words = (key, values) => say(HEAT_WORDS, key, this.language, values);
    const whole = cell && cell.row !== null && cell.column !== null && this.weights;
    this.says.textContent = whole
      ? words('says', {
          row: isolated(this.labels.rows[cell.row]),
          column: isolated(this.labels.columns[cell.column]),
          weight: share(this.#valued(cell).weight),
        })
      : words('keys');
  }

  #key(event) {
    const next = cellAfter(event.key, this.cursor || this.pinned, this.shown, this.columns);
    const zooms = { '+': 2, '=': 2, '-': 0.5 };
    if (next) {
      this.#move(next);
      this.sheet.into(next);
    } else if (event.key === 'Enter') this.#pin(this.cursor);
    else if (event.key === 'Escape') this.mark();
    else if (event.key in zooms) this.#zoom(zooms[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
