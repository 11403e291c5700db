// The measurements, the curve through them, and the query that can be moved.

import { css, onScheme } from '../web/color.js';
import { makeSvg } from '../web/dom.js';

const X = [0, 60];
const Y = [-190, 100];
const TICKS = [-150, -100, -50, 0, 50, 100];
const MARGIN = { left: 46, right: 12, above: 12, below: 40 };
const MAX_BAR = 34; // pixels of the largest weight

export class RegressionPlot {
  constructor(container, words, onMove) {
    Object.assign(this, { words, onMove });
    this.ground = makeSvg('g', { class: 'ground' });
    this.data = makeSvg('g', {});
    this.line = makeSvg('path', { class: 'curve' });
    this.stick = makeSvg('line', { class: 'stick' });
    this.knob = makeSvg('circle', { class: 'knob', r: 8 });
    this.handle = makeSvg('g', {
      class: 'handle', tabindex: 0, role: 'slider', 'aria-label': words('at'), 'aria-valuemin': X[0], 'aria-valuemax': X[1],
      onkeydown: (event) => this.#key(event), onpointerdown: (event) => this.#grab(event),
    }, makeSvg('rect', { class: 'hit-area', width: 36, y: MARGIN.above }), this.stick, this.knob);
    this.svg = makeSvg('svg', { class: 'regression-plot' }, this.ground, this.data, this.line, this.handle);
    this.svg.addEventListener('pointerdown', (event) => this.#grab(event));
    container.append(this.svg);
    onScheme(() => this.#draw());
    new ResizeObserver(() => this.#measure(container)).observe(container);
    this.#measure(container);
  }

  show(result) {
    this.result = result;
    this.#draw();
  }

  // The line follows the pointer at once; the height of the curve comes with the response.
  move(at) {
    this.at = at;
    this.#placeHandle();
  }

  #measure(container) {
    const width = container.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    this.height = Math.round(Math.max(280, Math.min(460, width * 0.5)));
    for (const [name, value] of Object.entries({ width, height: this.height, viewBox: `0 0 ${width} ${this.height}` })) this.svg.setAttribute(name, value);
    this.#ground();
    this.#draw();
  }

  #x(value) {
    return MARGIN.left + ((value - X[0]) / (X[1] - X[0])) * (this.width - MARGIN.left - MARGIN.right);
  }

  #y(value) {
    return this.height - MARGIN.below - ((value - Y[0]) / (Y[1] - Y[0])) * (this.height - MARGIN.above - MARGIN.below);
  }

  #ground() {
    const parts = [];
    for (const value of TICKS) {
      const y = this.#y(value);
      parts.push(makeSvg('line', { class: value ? 'grid' : 'axis', x1: this.#x(X[0]), x2: this.#x(X[1]), y1: y, y2: y }),
        makeSvg('text', { x: MARGIN.left - 8, y: y + 4, 'text-anchor': 'end' }, String(value).replace('-', '−')));
    }
    parts.push(makeSvg('line', { class: 'axis', x1: this.#x(X[0]), x2: this.#x(X[1]), y1: this.#y(Y[0]), y2: this.#y(Y[0]) }));
    for (let value = X[0]; value <= X[1]; value += 10) {
      parts.push(makeSvg('text', { x: this.#x(value), y: this.height - MARGIN.below + 18, 'text-anchor': 'middle' }, String(value)));
    }
    parts.push(makeSvg('text', { class: 'unit', x: this.#x(X[1]), y: this.height - 6, 'text-anchor': 'end' }, this.words('time')),
      makeSvg('text', { class: 'unit', x: MARGIN.left + 6, y: MARGIN.above + 12 }, this.words('force')));
    this.ground.replaceChildren(...parts);
  }

  #draw() {
    if (!this.result || !this.width) return;
    const { x, y, grid, curve, weights } = this.result;
    const max = Math.max(...weights, 1e-9);
    const base = this.height - MARGIN.below;
    const bars = x.map((value, index) => weights[index] > 0.0005 && makeSvg('line', {
      class: 'bar', x1: this.#x(value), x2: this.#x(value), y1: base, y2: base - (MAX_BAR * weights[index]) / max,
    })).filter(Boolean);
    const dots = x.map((value, index) => {
      const strength = weights[index] / max;
      const dot = makeSvg('circle', { class: 'datum', cx: this.#x(value), cy: this.#y(y[index]), r: 2.6 + 3.4 * strength });
      dot.style.fill = css(0.08 + 0.85 * strength);
      return dot;
    });
    this.data.replaceChildren(...bars, ...dots);
    let isDrawing = false;
    this.line.setAttribute('d', grid.map((value, index) => {
      if (curve[index] === null) {
        isDrawing = false;
        return '';
      }
      const step = `${isDrawing ? 'L' : 'M'}${this.#x(value).toFixed(1)} ${this.#y(curve[index]).toFixed(1)}`;
      isDrawing = true;
      return step;
    }).join(''));
    this.#placeHandle();
  }

  #placeHandle() {
    if (!this.width || this.at === undefined) return;
    const x = this.#x(this.at);
    const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
    set(this.handle, { 'aria-valuenow': this.at, 'aria-valuetext': this.words('milliseconds', { at: this.at.toFixed(1) }) });
    set(this.stick, { x1: x, x2: x, y1: MARGIN.above, y2: this.height - MARGIN.below });
    set(this.handle.firstChild, { x: x - 18, height: this.height - MARGIN.above - MARGIN.below });
    const value = this.result?.prediction ?? null;
    this.knob.classList.toggle('hidden', value === null || this.result.at !== this.at);
    if (value !== null) set(this.knob, { cx: x, cy: this.#y(value) });
  }

  #moveTo(value) {
    this.onMove(Math.round(Math.max(X[0], Math.min(X[1], value)) * 10) / 10);
  }

  #key(event) {
    const step = event.shiftKey ? 5 : 0.5;
    const steps = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step };
    if (event.key in steps) this.#moveTo(this.at + steps[event.key]);
    else if (event.key === 'Home') this.#moveTo(X[0]);
    else if (event.key === 'End') this.#moveTo(X[1]);
    else return;
    event.preventDefault();
  }

  #grab(event) {
    if (event.button) return;
    event.preventDefault();
    event.stopPropagation();
    this.handle.focus({ preventScroll: true });
    this.svg.setPointerCapture(event.pointerId);
    const move = ({ clientX }) => {
      const box = this.svg.getBoundingClientRect();
      const x = ((clientX - box.left) * this.width) / box.width;
      this.#moveTo(X[0] + ((x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right)) * (X[1] - X[0]));
    };
    move(event);
    this.svg.addEventListener('pointermove', move);
    const end = () => this.svg.removeEventListener('pointermove', move);
    for (const name of ['pointerup', 'pointercancel']) this.svg.addEventListener(name, end, { once: true });
  }
}
