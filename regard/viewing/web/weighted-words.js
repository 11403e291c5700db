// Words shaded by their weights: the larger the weight, the darker.

import { css, inkOn, isDark, onScheme } from './color.js';
import { directionOf, make, wordOf } from './dom.js';
import { formatWeight } from './language.js';

const MANY_WORDS = 96; // above it, colors change without a transition, which would be slow

// weightedWords(container, words, weights, { onHover, onPin, under }) -> { update(weights), mark(place) }
//
// A weight of 1 has the full color. `onHover(place | null)` follows pointer and focus, `onPin(place)` a click or Enter;
// with `onPin` the words are buttons. `under(place)` returns an element below each word.
export function weightedWords(container, words, weights = null, { onHover = null, onPin = null, under = null } = {}) {
  const spans = words.map((word, place) => {
    const span = wordOf(word, { class: 'lit', type: onPin && 'button' }, onPin ? 'button' : 'span');
    if (onHover) {
      for (const event of ['pointerenter', 'focus']) span.addEventListener(event, () => onHover(place));
      for (const event of ['pointerleave', 'blur']) span.addEventListener(event, () => onHover(null));
    }
    if (onPin) span.addEventListener('click', () => onPin(place));
    return span;
  });
  const shades = new Array(words.length); // the current colors, so that only changes touch the DOM
  let last = weights;
  let marked = null;

  function update(next) {
    last = next;
    const dark = isDark();
    spans.forEach((span, place) => {
      const weight = next ? next[place] : 0;
      const title = next ? formatWeight(weight) : '';
      if (span.title !== title) span.title = title;
      const shade = css(weight, dark);
      if (shade === shades[place]) return;
      shades[place] = shade;
      span.style.backgroundColor = shade;
      span.style.color = inkOn(weight, dark);
    });
  }

  function mark(place) {
    if (place === marked) return;
    spans[marked]?.classList.remove('marked');
    spans[place]?.classList.add('marked');
    marked = place;
  }

  container.replaceChildren(
    ...spans.map((span, place) => (under ? make('span', { class: 'lit-above' }, span, under(place)) : span)),
  );
  container.classList.add('lit-words');
  container.classList.toggle('many', words.length > MANY_WORDS);
  container.dir = directionOf(words.join(' '));
  onScheme(() => update(last));
  update(weights);
  return { update, mark };
}
