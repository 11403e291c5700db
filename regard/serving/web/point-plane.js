// Points on a plane that can be moved: with the mouse, a finger, or the arrow keys.

import { css, onScheme } from '../web/color.js';
import { make, makeSvg } from '../web/dom.js';
import { formatWeight } from '../web/language.js';

export const EDGE = 3; // the plane goes from -EDGE to EDGE
const MAX_SIZE = 560; // pixels
const SHAPES = {
  query: () => makeSvg('circle', { r: 9 }),
  key: () => makeSvg('circle', { r: 9 }),
  value: () => makeSvg('path', { d: 'M0 -8 L7 5 L-7 5 Z' }),
  context: () => makeSvg('path', { d: 'M0 -9 L9 0 L0 9 L-9 0 Z' }),
};

export class PointPlane {
  // onMove(kind, index, [x, y]), onSelect(index of a query), onHide(index of a key)
  constructor(container, { words, onMove, onSelect, onHide }) {
    Object.assign(this, { words, onMove, onSelect, onHide });
    this.lines = makeSvg('g', { class: 'lines' });
    this.ground = makeSvg('g', { class: 'ground' });
    this.dots = makeSvg('g', {});
    this.svg = makeSvg('svg', { class: 'plane', role: 'group', 'aria-label': words('plane') }, this.ground, this.lines, this.dots);
    this.announcement = make('p', { class: 'aloud', 'aria-live': 'polite' });
    this.points = new Map();
    container.append(this.svg, this.announcement);
    onScheme(() => this.#draw());
    new ResizeObserver(() => this.#measure(container)).observe(container);
    this.#measure(container);
  }

  // { query, key, value, context }: lists of [x, y] or null; weights of each query; hidden: a Set; active: a query
  show(shown) {
    this.shown = shown;
    this.#draw();
  }

  #measure(container) {
    const size = Math.min(MAX_SIZE, container.clientWidth);
    if (!size || size === this.size) return;
    this.size = size;
    this.unit = size / (2 * EDGE + 0.5);
    this.svg.setAttribute('viewBox', `0 0 ${size} ${size}`);
    this.svg.setAttribute('width', size);
    this.svg.setAttribute('height', size);
    this.#drawGround();
    this.#draw();
  }

  #at([x, y]) {
    return [this.size / 2 + x * this.unit, this.size / 2 - y * this.unit];
  }

  #drawGround() {
    const lines = [];
    for (let step = -EDGE; step <= EDGE; step += 1) {
      const axis = step === 0 ? 'axis' : 'grid';
      const [[x1, y1], [x2, y2]] = [this.#at([step, -EDGE]), this.#at([step, EDGE])];
      const [[x3, y3], [x4, y4]] = [this.#at([-EDGE, step]), this.#at([EDGE, step])];
      lines.push(makeSvg('line', { class: axis, x1, y1, x2, y2 }), makeSvg('line', { class: axis, x1: x3, y1: y3, x2: x4, y2: y4 }));
    }
    this.ground.replaceChildren(...lines);
  }

  #draw() {
    if (!this.shown || !this.size) return;
    const { active, weights, key, value, query, context, hidden } = this.shown;
    const shares = weights?.[active] ?? null;
    const lines = [];
    if (shares) {
      shares.forEach((weight, index) => weight > 0 && lines.push(this.#line(query[active], key[index], 'weight', weight)));
    }
    if (value) key.forEach((point, index) => lines.push(this.#line(point, value[index], 'to-value', 0)));
    if (context?.[active]) lines.push(this.#line(query[active], context[active], 'to-context', 0));
    this.lines.replaceChildren(...lines);
    for (const kind of ['key', 'value', 'context', 'query']) this.#drawAll(kind, this.shown[kind] || [], shares, active, hidden);
    this.#removeUnused();
  }

  #line(from, to, kind, weight) {
    const [[x1, y1], [x2, y2]] = [this.#at(from), this.#at(to)];
    const line = makeSvg('line', { class: kind, x1, y1, x2, y2 });
    if (kind === 'weight') line.style.strokeWidth = `${0.5 + 9 * Math.min(1, weight)}px`;
    return line;
  }

  #drawAll(kind, list, shares, active, hidden) {
    list.forEach((point, index) => {
      const dot = this.#dot(kind, index);
      const [x, y] = point ? this.#at(point) : [0, 0];
      const weight = kind === 'key' && shares ? shares[index] : null;
      dot.group.classList.toggle('hidden', !point);
      dot.group.classList.toggle('active', index === active && kind !== 'key' && kind !== 'value');
      dot.group.classList.toggle('hidden-key', kind === 'key' && hidden.has(index));
      dot.group.setAttribute('transform', `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
      if (kind === 'key') dot.shape.style.fill = css(weight ?? 0);
      if (point && kind !== 'context') dot.group.setAttribute('aria-label', this.#describe(kind, index, point, weight));
    });
  }

  #describe(kind, index, [x, y], weight) {
    const values = { name: `${this.words(kind)} ${index + 1}`, x: x.toFixed(1), y: y.toFixed(1), weight: formatWeight(weight ?? 0) };
    const hidden = kind === 'key' && this.shown.hidden.has(index) ? `, ${this.words('hiddenKey')}` : '';
    return this.words(weight === null ? 'pointAt' : 'pointAtWeight', values) + hidden;
  }

  // Points stay the same elements while they move, so that a finger or the focus does not lose them.
  #dot(kind, index) {
    const name = `${kind}-${index}`;
    if (!this.points.has(name)) this.points.set(name, this.#makeDot(kind, index, name));
    return this.points.get(name);
  }

  #makeDot(kind, index, name) {
    const shape = SHAPES[kind]();
    const label = makeSvg('text', { x: kind === 'context' ? -5 : 12, y: kind === 'context' ? 24 : -9, 'aria-hidden': 'true' }, `${kind[0]}${index + 1}`);
    const group = makeSvg('g', { class: `dot ${kind}`, 'data-name': name }, makeSvg('circle', { class: 'hit-area', r: 20 }), shape, label);
    if (kind !== 'context') {
      for (const [key, value] of Object.entries({ tabindex: 0, role: 'button', 'aria-roledescription': this.words(kind) })) group.setAttribute(key, value);
      group.addEventListener('pointerdown', (event) => this.#grab(event, kind, index, group));
      group.addEventListener('keydown', (event) => this.#key(event, kind, index));
      group.addEventListener('focus', () => kind === 'query' && this.onSelect(index));
    }
    this.dots.append(group);
    return { group, shape, kind, index };
  }

  #removeUnused() {
    for (const [name, { group, kind, index }] of this.points) {
      if (index < (this.shown[kind] || []).length) continue;
      group.remove();
      this.points.delete(name);
    }
  }

  #grab(event, kind, index, group) {
    if (event.button) return;
    event.preventDefault();
    group.focus({ preventScroll: true });
    group.setPointerCapture(event.pointerId);
    const move = (moving) => {
      const box = this.svg.getBoundingClientRect();
      const scale = this.size / box.width;
      this.#put(kind, index, [((moving.clientX - box.left) * scale - this.size / 2) / this.unit, (this.size / 2 - (moving.clientY - box.top) * scale) / this.unit]);
    };
    const end = () => {
      group.removeEventListener('pointermove', move);
      this.#announce(kind, index);
    };
    group.addEventListener('pointermove', move);
    for (const name of ['pointerup', 'pointercancel']) group.addEventListener(name, end, { once: true });
  }

  #put(kind, index, [x, y]) {
    const clamp = (value) => Math.round(Math.max(-EDGE, Math.min(EDGE, value)) * 100) / 100;
    this.onMove(kind, index, [clamp(x), clamp(y)]);
  }

  #key(event, kind, index) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key in steps) {
      const far = event.shiftKey ? 0.5 : 0.1;
      const [x, y] = this.shown[kind][index];
      this.#put(kind, index, [x + far * steps[event.key][0], y + far * steps[event.key][1]]);
      this.#announce(kind, index);
    } else if (event.key.toLowerCase() === 'h' && kind === 'key') this.onHide(index);
    else return;
    event.preventDefault();
  }

  #announce(kind, index) {
    const point = this.shown[kind][index];
    const weight = kind === 'key' ? this.shown.weights?.[this.shown.active]?.[index] ?? null : null;
    this.announcement.textContent = this.#describe(kind, index, point, weight);
  }
}
