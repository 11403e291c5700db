// A scrollable matrix of cells, which may be larger than any canvas: the canvas covers only the viewport.
//
// The viewport (`box`) scrolls over an empty element of the full size; the visible part is repainted.

import { make } from './dom.js';

export const MAX_CELL = 56; // pixels

export class Sheet {
  // marginsOf(cell, width) returns the space { left, above } of the labels; onResize paints.
  constructor({ rows, columns, height, maxCell = MAX_CELL, marginsOf, onResize, attributes }) {
    Object.assign(this, { rows, columns, height, maxCell, marginsOf, onResize, zoom: 1 });
    this.canvas = make('canvas', { class: 'heat-canvas' });
    this.context = this.canvas.getContext('2d');
    this.paper = make('div', { class: 'heat-sheet' }, this.canvas);
    this.box = make('div', { class: 'heat-box', tabindex: 0, ...attributes }, this.paper);
    this.box.addEventListener('wheel', (event) => this.#wheel(event), { passive: false });
  }

  // Follow the width of the container.
  follow(container) {
    new ResizeObserver(() => this.box.clientWidth !== this.width && this.resize()).observe(container);
    this.resize();
  }

  resize() {
    const { box, rows, columns } = this;
    this.width = box.clientWidth;
    if (!this.width) return;
    this.fit = this.#fitCell(this.#fitCell(this.maxCell)); // twice, as smaller cells may need larger margins
    this.cell = Math.max(1, Math.min(MAX_CELL, Math.round(this.fit * this.zoom)));
    this.margin = this.marginsOf(this.cell, this.width);
    const high = this.margin.above + rows * this.cell + 2;
    this.paper.style.width = `${this.margin.left + columns * this.cell + 2}px`;
    this.paper.style.height = `${high}px`;
    box.style.height = `${Math.min(this.height, high) + 12}px`;
    this.#fill(box.clientWidth, box.clientHeight, window.devicePixelRatio || 1);
    this.onResize();
  }

  // The largest cell that fits with the margins of cells of a given size.
  #fitCell(cell) {
    const { left, above } = this.marginsOf(cell, this.width);
    const fit = Math.min((this.width - left - 2) / this.columns, (this.height - above - 2) / this.rows);
    return Math.max(1, Math.min(this.maxCell, Math.floor(fit)));
  }

  #fill(width, height, density) {
    this.canvas.width = Math.round(width * density);
    this.canvas.height = Math.round(height * density);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(density, 0, 0, density, 0, 0);
  }

  // The visible part, in CSS pixels.
  view() {
    const { box, cell, margin } = this;
    return {
      cell,
      margin,
      left: box.scrollLeft,
      above: box.scrollTop,
      width: box.clientWidth,
      height: box.clientHeight,
    };
  }

  // Zoom by a factor around a cell or the middle; 0 fits the full matrix.
  scale(factor, at = null) {
    const half = () => [
      (this.box.clientWidth - this.margin.left) / 2,
      (this.box.clientHeight - this.margin.above) / 2,
    ];
    const [right, down] = half();
    const middle = [(this.box.scrollLeft + right) / this.cell, (this.box.scrollTop + down) / this.cell];
    const [x, y] = at ? [at.column + 0.5, at.row + 0.5] : middle;
    this.zoom = factor ? Math.min(MAX_CELL / this.fit, Math.max(1 / this.fit, this.zoom * factor)) : 1;
    this.resize();
    this.box.scrollLeft = x * this.cell - half()[0];
    this.box.scrollTop = y * this.cell - half()[1];
  }

  // Scroll a cell into view.
  scrollTo({ row, column }) {
    const { box, cell, margin } = this;
    const scrolled = (offset, index, size) => Math.max(Math.min(offset, index * cell), (index + 1) * cell - size);
    box.scrollLeft = scrolled(box.scrollLeft, column, box.clientWidth - margin.left);
    box.scrollTop = scrolled(box.scrollTop, row, box.clientHeight - margin.above);
  }

  // The cell under the pointer, or null.
  under(event) {
    const place = this.box.getBoundingClientRect();
    const x = event.clientX - place.left - this.margin.left;
    const y = event.clientY - place.top - this.margin.above;
    const column = Math.floor((x + this.box.scrollLeft) / this.cell);
    const row = Math.floor((y + this.box.scrollTop) / this.cell);
    return x >= 0 && y >= 0 && row < this.rows && column < this.columns ? { row, column } : null;
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.scale(event.deltaY < 0 ? 1.5 : 1 / 1.5);
  }
}
