// A small matrix of numbers: blue above 0, rust below; the numbers are written into the cells where they fit.
//
//   const grid = new Grid(container, { name, values, rows, columns, language });
//   grid.onHover = (cell) => {};       { row, column } or null, by pointer or arrow keys
//   grid.onPin = (cell) => {};         by click or Enter
//   grid.highlight({ row, column });   frames a row, a column or a cell
//   grid.reveal(n);                    draws columns from n on pale
//   grid.show(values);                 replaces the numbers

import { cellAfter, sameCell } from './cells.js';
import { inkFor, isDark, onScheme, signed } from './color.js';
import { debounced, FONT, make, visible } from './dom.js';
import { truncate } from './paint.js';

// A number with two decimals and a minus sign (U+2212).
export function formatNumber(value) {
  if (value === -Infinity) return '−∞';
  return value.toFixed(Math.abs(value) >= 99.5 ? 0 : 2).replace('-', '−');
}

export class Grid {
  // rows, columns: labels or counts; max: the number with the full color, by default the largest; sizes: [width, height] of a cell.
  constructor(container, { name = '', values, rows, columns, max = null, sizes = null }) {
    this.labels = {
      rows: Array.isArray(rows) ? rows : null,
      columns: Array.isArray(columns) ? columns : null,
    };
    this.rows = this.labels.rows ? rows.length : rows;
    this.columns = this.labels.columns ? columns.length : columns;
    this.fixedMax = max;
    this.onHover = this.onPin = () => {};
    this.cursor = this.highlighted = null;
    this.revealed = this.columns;
    const numbers = this.columns <= 10 && this.rows <= 16;
    [this.cellWidth, this.cellHeight] =
      sizes ||
      (numbers
        ? [42, 28]
        : [
            Math.max(7, Math.min(18, Math.floor(420 / this.columns))),
            Math.max(7, Math.min(18, Math.floor(420 / this.rows))),
          ]);
    this.numbers = this.cellWidth >= 40;
    this.#build(container, name);
    this.draw = debounced(() => this.#draw());
    onScheme(this.draw);
    this.show(values);
  }

  show(values) {
    this.values = values;
    this.max =
      this.fixedMax ??
      values.reduce((max, value) => (Number.isFinite(value) ? Math.max(max, Math.abs(value)) : max), 1e-9);
    this.draw();
  }

  reveal(columns) {
    this.revealed = columns;
    this.draw();
  }

  highlight(cell) {
    this.highlighted = cell;
    this.draw();
  }

  #build(container, name) {
    this.canvas = make('canvas', {
      class: 'grid',
      tabindex: 0,
      role: 'application',
      'aria-label': name,
      onpointermove: (event) => this.#move(this.#under(event)),
      onpointerleave: () => this.#move(null),
      onclick: (event) => this.#pin(this.#under(event)),
      onkeydown: (event) => this.#key(event),
      onblur: () => this.#move(null),
    });
    this.context = this.canvas.getContext('2d');
    this.context.font = `13px ${FONT}`;
    const widest = (labels) =>
      Math.max(0, ...labels.map((label) => this.context.measureText(visible(label)).width));
    this.left = this.labels.rows ? Math.min(110, widest(this.labels.rows) + 10) : 0;
    this.turned = this.labels.columns && widest(this.labels.columns) > this.cellWidth - 2;
    this.above = this.labels.columns
      ? this.turned
        ? Math.min(100, widest(this.labels.columns) + 8)
        : 20
      : 0;
    const [width, height, dpr] = [
      this.left + this.columns * this.cellWidth + 3,
      this.above + this.rows * this.cellHeight + 3,
      window.devicePixelRatio || 1,
    ];
    this.canvas.width = Math.round(width * dpr);
    this.canvas.height = Math.round(height * dpr);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.scale(dpr, dpr);
    container.append(make('div', { class: 'wide' }, this.canvas));
  }

  #draw() {
    const { context, left, above, cellWidth: wide, cellHeight: high, columns, rows } = this;
    const style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const [dark, wash, faint] = [isDark(), color('--wash'), color('--faint')];
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.textBaseline = 'middle';
    const gap = wide > 12 && high > 12 ? 1 : 0;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const value = this.values[row * columns + column];
        const shown = Number.isFinite(value) ? signed(value / this.max, dark) : null;
        context.globalAlpha = column < this.revealed ? 1 : 0.15;
        context.fillStyle = shown ? `rgb(${shown.join(' ')})` : wash;
        context.fillRect(left + column * wide + 1, above + row * high + 1, wide - gap, high - gap);
        if (this.numbers) this.#number(value, row, column, shown ? inkFor(shown) : faint);
      }
    }
    context.globalAlpha = 1;
    this.#names(color('--soft'), color('--accent'));
    context.strokeStyle = color('--line');
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, above + 0.5, columns * wide + 1, rows * high + 1);
    for (const place of [this.highlighted, this.cursor]) if (place) this.#frame(place, color('--accent'));
  }

  #number(value, row, column, ink) {
    const { context } = this;
    context.font = `12px ${FONT}`;
    context.textAlign = 'center';
    context.fillStyle = ink;
    context.fillText(
      formatNumber(value),
      this.left + (column + 0.5) * this.cellWidth + 0.5,
      this.above + (row + 0.5) * this.cellHeight + 1,
    );
  }

  #names(ink, accent) {
    const { context } = this;
    const marked = (side, place) => [this.cursor, this.highlighted].some((cell) => cell && cell[side] === place);
    const every = (size) => Math.max(1, Math.ceil(13 / size));
    context.font = `13px ${FONT}`;
    context.textAlign = 'right';
    (this.labels.rows || []).forEach((label, row) => {
      if (row % every(this.cellHeight)) return;
      context.fillStyle = marked('row', row) ? accent : ink;
      const shown = truncate(context, visible(label), this.left - 6);
      context.fillText(shown, this.left - 6, this.above + (row + 0.5) * this.cellHeight + 1);
    });
    (this.labels.columns || []).forEach((label, column) => {
      if (column % every(this.cellWidth)) return;
      context.save();
      context.fillStyle = marked('column', column) ? accent : ink;
      context.translate(this.left + (column + 0.5) * this.cellWidth, this.above - (this.turned ? 5 : 10));
      if (this.turned) context.rotate(-Math.PI / 2);
      context.textAlign = this.turned ? 'left' : 'center';
      context.fillText(truncate(context, visible(label), this.turned ? this.above - 6 : this.cellWidth), 0, 0);
      context.restore();
    });
  }

  #frame({ row = null, column = null }, accent) {
    const { context, left, above, cellWidth: wide, cellHeight: high, columns, rows } = this;
    context.strokeStyle = accent;
    context.lineWidth = 2;
    context.strokeRect(
      left + (column === null ? 0 : column * wide) + 0.5,
      above + (row === null ? 0 : row * high) + 0.5,
      (column === null ? columns * wide : wide) + 0.5,
      (row === null ? rows * high : high) + 0.5,
    );
  }

  #under(event) {
    const place = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - place.left - this.left) / this.cellWidth);
    const row = Math.floor((event.clientY - place.top - this.above) / this.cellHeight);
    return row >= 0 && row < this.rows && column >= 0 && column < this.columns ? { row, column } : null;
  }

  #move(cell) {
    if (sameCell(cell, this.cursor)) return;
    this.cursor = cell;
    this.draw();
    this.onHover(cell);
  }

  #pin(cell) {
    if (cell) this.onPin(cell);
  }

  #key(event) {
    const next = cellAfter(event.key, this.cursor, this.rows, this.columns);
    if (event.key === 'Enter') this.#pin(this.cursor);
    if (!next) return;
    this.#move(next);
    event.preventDefault();
    event.stopPropagation();
  }
}
