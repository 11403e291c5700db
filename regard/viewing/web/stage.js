// The scene of a translation: source words lit by the step's weights, with how much regard each has had so far
// under it, the translation as far as it is written, and ribbons from the word being written to where it looks.

import { css, isDark, onScheme } from './color.js';
import { debounced, directionOf, make, makeSvg, wordOf } from './dom.js';
import { lit } from './words.js';

const FAINTEST = 0.02; // a ribbon below this weight would be a hair

export class Stage {
  // source, target: words. Both lists of words can be hovered; `onPin(place)` goes to a target word.
  constructor(container, { onPin }) {
    this.onPin = onPin;
    this.above = make('div', { class: 'stage-source' });
    this.below = make('div', { class: 'stage-target' });
    this.ribbons = makeSvg('svg', { class: 'ribbons', 'aria-hidden': 'true' });
    this.box = make(
      'div',
      { class: 'stage' },
      this.ribbons,
      this.above,
      make('div', { class: 'stage-gap' }),
      this.below,
    );
    container.append(this.box);
    const again = debounced(() => this.#ribbons());
    new ResizeObserver(again).observe(this.box);
    onScheme(again);
  }

  // Other words: tokens or merged ones. Without `regard` no weights are ever shown.
  words(source, target, regard) {
    this.bars = source.map(() => make('span', { class: 'bar' }));
    const under = (place) => make('span', { class: 'cover' }, this.bars[place]);
    this.source = lit(this.above, source, null, regard ? { under } : {});
    this.spans = target.map((word, place) =>
      wordOf(word, { class: 'written', type: 'button', onclick: () => this.onPin(place) }, 'button'),
    );
    this.below.dir = directionOf(target.join(' '));
    this.below.replaceChildren(...this.spans);
    this.box.classList.toggle('without', !regard);
  }

  // weights: of the current step; covered: the sum of those so far, 1 a full bar; at: the current target word.
  show(at, weights, covered) {
    this.spans.forEach((span, place) => {
      span.classList.toggle('current', place === at);
      span.classList.toggle('future', place > at);
      if (place === at) span.setAttribute('aria-current', 'step');
      else span.removeAttribute('aria-current');
    });
    this.at = at;
    this.weights = weights;
    if (weights) {
      this.source.update(weights);
      this.bars.forEach((bar, place) => {
        bar.style.width = `${100 * Math.min(1, covered[place])}%`;
        bar.parentNode.title = covered[place].toFixed(2);
      });
    }
    this.#ribbons();
  }

  #ribbons() {
    const current = this.spans && this.spans[this.at];
    if (!current || !this.weights) {
      this.ribbons.replaceChildren();
      return;
    }
    const frame = this.box.getBoundingClientRect();
    const end = current.getBoundingClientRect();
    const [x1, y1] = [end.left + end.width / 2 - frame.left, end.top - frame.top];
    const dark = isDark();
    const lines = [...this.above.children].map((child, place) => {
      const weight = this.weights[place];
      if (weight < FAINTEST) return null;
      const begin = child.getBoundingClientRect();
      const [x0, y0] = [begin.left + begin.width / 2 - frame.left, begin.bottom - frame.top];
      const middle = (y0 + y1) / 2;
      return makeSvg('path', {
        d: `M ${x0} ${y0} C ${x0} ${middle}, ${x1} ${middle}, ${x1} ${y1}`,
        fill: 'none',
        stroke: css(0.35 + 0.5 * weight, dark),
        'stroke-width': 1 + 9 * weight,
        'stroke-linecap': 'round',
        'stroke-opacity': 0.25 + 0.65 * weight,
      });
    });
    this.ribbons.replaceChildren(...lines.filter(Boolean));
  }
}
