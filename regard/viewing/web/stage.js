// One step of a translation: source words shaded by their weights with their coverage below, the translation so far,
// and ribbons from the current target word to the source words it attends to.

import { css, isDark, onScheme } from './color.js';
import { debounced, directionOf, make, makeSvg, wordOf } from './dom.js';
import { weightedWords } from './weighted-words.js';

const MIN_RIBBON = 0.02; // weights below it have no ribbon

export class Stage {
  // onPin(place) is called with the index of a clicked target word.
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
    const redraw = debounced(() => this.#ribbons());
    new ResizeObserver(redraw).observe(this.box);
    onScheme(redraw);
  }

  // Replace the words. Without `hasAttention` no weights are shown.
  words(source, target, hasAttention) {
    this.bars = source.map(() => make('span', { class: 'bar' }));
    const under = (place) => make('span', { class: 'cover' }, this.bars[place]);
    this.source = weightedWords(this.above, source, null, hasAttention ? { under } : {});
    this.spans = target.map((word, place) =>
      wordOf(word, { class: 'written', type: 'button', onclick: () => this.onPin(place) }, 'button'),
    );
    this.below.dir = directionOf(target.join(' '));
    this.below.replaceChildren(...this.spans);
    this.box.classList.toggle('without', !hasAttention);
  }

  // at: the current target word; weights: of this step; coverage: the sum of the weights so far, where 1 is a full bar.
  show(at, weights, coverage) {
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
        bar.style.width = `${100 * Math.min(1, coverage[place])}%`;
        bar.parentNode.title = coverage[place].toFixed(2);
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
      if (weight < MIN_RIBBON) return null;
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
