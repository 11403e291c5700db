// Points on a plane that can be moved: with the mouse, a finger, or the arrow keys.

import { css, onScheme } from '../web/color.js';
import { make, makeSvg } from '../web/dom.js';
import { formatWeight } from '../web/language.js';

export const EDGE = 3; // the plane goes from -EDGE to EDGE
const LARGEST = 560; // pixels
const SHAPES = {
  query: () => makeSvg('circle', { r: 9 }),
  key: () => makeSvg('circle', { r: 9 }),
  value: () => makeSvg('path', { d: 'M0 -8 L7 5 L-7 5 Z' }),
  context: () => makeSvg('path', { d: 'M0 -9 L9 0 L0 9 L-9 0 Z' }),
};

export class Plane {
  // moved(kind, place, [x, y]), looked(place of a query), hidden(place of a key)
  constructor(container, { words, moved, looked, hidden }) {
    Object.assign(this, { words, moved, looked, hidden });
    this.lines = makeSvg('g', { class: 'lines' });
    this.ground = makeSvg('g', { class: 'ground' });
    this.dots = makeSvg('g', {});
    this.svg = makeSvg('svg', { class: 'plane', role: 'group', 'aria-label': words('plane') }, this.ground, this.lines, this.dots);
    this.says = make('p', { class: 'aloud', 'aria-live': 'polite' });
    this.points = new Map();
    container.append(this.svg, this.says);
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
    const size = Math.min(LARGEST, container.clientWidth);
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
      shares.forEach((weight, place) => weight > 0 && lines.push(this.#line(query[active], key[place], 'weight', weight)));
    }
    if (value) key.forEach((point, place) => lines.push(this.#line(point, value[place], 'belongs', 0)));
    if (context?.[active]) lines.push(this.#line(query[active], context[active], 'sees', 0));
    this.lines.replaceChildren(...lines);
    for (const kind of ['key', 'value', 'context', 'query']) this.#drawAll(kind, this.shown[kind] || [], shares, active, hidden);
    this.#drop();
  }

  #line(from, to, kind, weight) {
    const [[x1, y1], [x2, y2]] = [this.#at(from), this.#at(to)];
    const line = makeSvg('line', { class: kind, x1, y1, x2, y2 });
    if (kind === 'weight') line.style.strokeWidth = `${0.5 + 9 * Math.min(1, weight)}px`;
    return line;
  }

  #drawAll(kind, list, shares, active, hidden) {
    list.forEach((point, place) => {
      const dot = this.#dot(kind, place);
      const [x, y] = point ? this.#at(point) : [0, 0];
      const weight = kind === 'key' && shares ? shares[place] : null;
      dot.group.classList.toggle('hidden', !point);
      dot.group.classList.toggle('active', place === active && kind !== 'key' && kind !== 'value');
      dot.group.classList.toggle('unseen', kind === 'key' && hidden.has(place));
      dot.group.setAttribute('transform', `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
      if (kind === 'key') dot.shape.style.fill = css(weight ?? 0);
      if (point && kind !== 'context') dot.group.setAttribute('aria-label', this.#saying(kind, place, point, weight));
    });
  }

  #saying(kind, place, [x, y], weight) {
    const values = { name: `${this.words(kind)} ${place + 1}`, x: x.toFixed(1), y: y.toFixed(1), weight: formatWeight(weight ?? 0) };
    const hidden = kind === 'key' && this.shown.hidden.has(place) ? `, ${this.words('hiddenKey')}` : '';
    return this.words(weight === null ? 'says' : 'saysWeight', values) + hidden;
  }

  // Points stay the same elements while they move, so that a finger or the focus does not lose them.
  #dot(kind, place) {
    const name = `${kind}-${place}`;
    if (!this.points.has(name)) this.points.set(name, this.#made(kind, place, name));
    return this.points.get(name);
  }

  #made(kind, place, name) {
    const shape = SHAPES[kind]();
    const label = makeSvg('text', { x: kind === 'context' ? -5 : 12, y: kind === 'context' ? 24 : -9, 'aria-hidden': 'true' }, `${kind[0]}${place + 1}`);
    const group = makeSvg('g', { class: `dot ${kind}`, 'data-name': name }, makeSvg('circle', { class: 'reach', r: 20 }), shape, label);
    if (kind !== 'context') {
      for (const [key, value] of Object.entries({ tabindex: 0, role: 'button', 'aria-roledescription': this.words(kind) })) group.setAttribute(key, value);
      group.addEventListener('pointerdown', (event) => this.#grab(event, kind, place, group));
      group.addEventListener('keydown', (event) => this.#key(event, kind, place));
      group.addEventListener('focus', () => kind === 'query' && this.looked(place));
    }
    this.dots.append(group);
    return { group, shape, kind, place };
  }

  #drop() {
    for (const [name, { group, kind, place }] of this.points) {
      if (place < (this.shown[kind] || []).length) continue;
      group.remove();
      this.points.delete(name);
    }
  }

  #grab(event, kind, place, group) {
    if (event.button) return;
    event.preventDefault();
    group.focus({ preventScroll: true });
    group.setPointerCapture(event.pointerId);
    const move = (moving) => {
      const box = this.svg.getBoundingClientRect();
      const scale = this.size / box.width;
      this.#put(kind, place, [((moving.clientX - box.left) * scale - this.size / 2) / this.unit, (this.size / 2 - (moving.clientY - box.top) * scale) / this.unit]);
    };
    const end = () => {
      group.removeEventListener('pointermove', move);
      this.#tell(kind, place);
    };
    group.addEventListener('pointermove', move);
    for (const name of ['pointerup', 'pointercancel']) group.addEventListener(name, end, { once: true });
  }

  #put(kind, place, [x, y]) {
    const within = (value) => Math.round(Math.max(-EDGE, Math.min(EDGE, value)) * 100) / 100;
    this.moved(kind, place, [within(x), within(y)]);
  }

  #key(event, kind, place) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key in steps) {
      const far = event.shiftKey ? 0.5 : 0.1;
      const [x, y] = this.shown[kind][place];
      this.#put(kind, place, [x + far * steps[event.key][0], y + far * steps[event.key][1]]);
      this.#tell(kind, place);
    } else if (event.key.toLowerCase() === 'h' && kind === 'key') this.hidden(place);
    else return;
    event.preventDefault();
  }

  #tell(kind, place) {
    const point = this.shown[kind][place];
    const weight = kind === 'key' ? this.shown.weights?.[this.shown.active]?.[place] ?? null : null;
    this.says.textContent = this.#saying(kind, place, point, weight);
  }
}
