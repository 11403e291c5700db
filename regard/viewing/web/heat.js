// A heatmap of attention weights: queries in rows, keys in columns, from 5 tokens to 512.
//
//   const heat = new Heat(container, { rows, columns, label, language });
//   heat.show(weights);                Uint16Array in row-major order; 65535 stands for 1
//   heat.onHover = (cell) => {};       { row, column, weight } or null
//   heat.onPin = (cell) => {};
//   heat.mark(i, j);                   frames a cell; null for a full row or column
//   heat.reveal(n);                    draws only the first n rows

import { cellAfter, sameCell } from './cells.js';
import { onScheme } from './color.js';
import { debounced, isolated, make } from './dom.js';
import { HEAT_TEXTS } from './heat-texts.js';
import { marginsOf, paint, imageOf, rampOf, maxOf } from './paint.js';
import { localize, formatWeight } from './language.js';
import { MAX_CELL, Sheet } from './sheet.js';

const MANY = 48; // rows or columns: above it, small weights are emphasized and zoom tools are shown

export class Heat {
  // height: the maximum of the viewport; maxCell: pixels of a cell; full: the weight with the full color, if none is larger.
  constructor(
    container,
    { rows, columns, label = '', language = 'en', height = 560, maxCell = MAX_CELL, full = 0 },
  ) {
    this.labels = { rows, columns };
    [this.rows, this.columns] = [rows.length, columns.length];
    Object.assign(this, { language, full, shown: this.rows, cursor: null, pinned: null });
    this.onHover = this.onPin = () => {};
    this.gamma = Math.max(this.rows, this.columns) > MANY ? 0.5 : 1;
    this.draw = debounced(() => this.#draw());
    this.#build(container, { height, maxCell }, label);
    onScheme(() => this.#recolor());
    this.sheet.follow(container);
  }

  show(weights) {
    this.weights = weights;
    this.max = Math.max(maxOf(weights), 65535 * this.full);
    this.#recolor();
    this.#describe();
  }

  mark(row = null, column = null) {
    this.pinned = row === null && column === null ? null : { row, column };
    this.#describe();
    this.draw();
  }

  reveal(rows) {
    this.shown = rows;
    this.draw();
  }

  setLanguage(language) {
    this.language = language;
    this.#tools();
    this.#describe();
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
    this.status = make('p', { class: 'heat-status', 'aria-live': 'polite' });
    this.tools = make('span', { class: 'heat-tools' });
    this.#tools();
    container.classList.add('heat');
    container.replaceChildren(this.sheet.box, make('div', { class: 'heat-foot' }, this.status, this.tools));
  }

  // The color scale and, for many cells, zoom buttons.
  #tools() {
    this.maxLabel = make('span', {}, this.max ? formatWeight(this.max / 65535) : '');
    this.ramp = make('span', { class: 'heat-ramp' }, rampOf(this.gamma));
    const scale = make(
      'span',
      { class: 'heat-scale number', 'aria-hidden': 'true' },
      '0',
      this.ramp,
      this.maxLabel,
    );
    this.tools.replaceChildren(scale);
    if (Math.max(this.rows, this.columns) <= MANY) return;
    const tool = (text, key, work, pressed = null) => {
      const name = localize(HEAT_TEXTS, key, this.language);
      const attributes = {
        type: 'button',
        class: 'quiet',
        title: name,
        'aria-label': name,
        'aria-pressed': pressed,
      };
      return make('button', { ...attributes, onclick: work }, text);
    };
    this.tools.append(
      tool('−', 'zoomOut', () => this.#zoom(0.5)),
      tool('+', 'zoomIn', () => this.#zoom(2)),
      tool('□', 'fit', () => this.#zoom(0)),
      tool('√', 'root', () => this.#toggleGamma(), String(this.gamma !== 1)),
    );
  }

  #zoom(factor) {
    const at = this.cursor || this.pinned;
    this.sheet.scale(factor, at && at.row !== null && at.column !== null ? at : null);
  }

  #toggleGamma() {
    this.gamma = this.gamma === 1 ? 0.5 : 1;
    this.#recolor();
    this.tools.lastChild.focus();
  }

  #recolor() {
    if (!this.weights) return;
    this.image = imageOf(this.weights, this.rows, this.columns, this.max, this.gamma);
    this.#tools();
    this.#draw();
  }

  #draw() {
    if (!this.image || !this.sheet.cell) return;
    const style = getComputedStyle(this.sheet.box);
    const color = (name) => style.getPropertyValue(name).trim();
    const { rows, columns, labels, image, weights, max, gamma, shown, cursor, pinned } = this;
    const view = { rows, columns, labels, image, weights, max, gamma, shown, cursor, pinned };
    paint(
      this.sheet.context,
      { ...view, ...this.sheet.view(), numbers: columns <= MANY },
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
    this.#describe();
    this.draw();
    this.onHover(cell && this.#withWeight(cell));
  }

  #pin(cell) {
    if (!cell) return;
    this.pinned = sameCell(cell, this.pinned) ? null : cell;
    this.#describe();
    this.draw();
    this.onPin(this.pinned && this.#withWeight(cell));
  }

  #withWeight({ row, column }) {
    return { row, column, weight: this.weights[row * this.columns + column] / 65535 };
  }

  #describe() {
    const cell = this.cursor || this.pinned;
    const text = (key, values) => localize(HEAT_TEXTS, key, this.language, values);
    const isCell = cell && cell.row !== null && cell.column !== null && this.weights;
    this.status.textContent = isCell
      ? text('cell', {
          row: isolated(this.labels.rows[cell.row]),
          column: isolated(this.labels.columns[cell.column]),
          weight: formatWeight(this.#withWeight(cell).weight),
        })
      : text('keys');
  }

  #key(event) {
    const next = cellAfter(event.key, this.cursor || this.pinned, this.shown, this.columns);
    const zooms = { '+': 2, '=': 2, '-': 0.5 };
    if (next) {
      this.#move(next);
      this.sheet.scrollTo(next);
    } else if (event.key === 'Enter') this.#pin(this.cursor);
    else if (event.key === 'Escape') this.mark();
    else if (event.key in zooms) this.#zoom(zooms[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
