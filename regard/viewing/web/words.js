// Words lit by their weights: the more regard a word has, the darker it is.

import { css, inkOn, isDark, onScheme } from './color.js';
import { directionOf, make, wordOf } from './dom.js';
import { share } from './say.js';

const MANY_WORDS = 96; // words from which on colors change at once: fading hundreds would hold up the pointer

// lit(container, words, weights, { onHover, onPin }) -> { update(weights), mark(place) }
//
// A weight is shown as it is: 1 is full ink. `onHover(place | null)` follows pointer and focus, `onPin(place)`
// a click or Enter; a word that can be pinned is a button.
export function lit(container, words, weights = null, { onHover = null, onPin = null, under = null } = {}) {
  const spans = words.map((word, place) => {
    const span = wordOf(word, { class: 'lit', type: onPin && 'button' }, onPin ? 'button' : 'span');
    if (onHover) {
      for (const event of ['pointerenter', 'focus']) span.addEventListener(event, () => onHover(place));
      for (const event of ['pointerleave', 'blur']) span.addEventListener(event, () => onHover(null));
    }
    if (onPin) span.addEventListener('click', () => onPin(place));
    return span;
  });
  const shades = new Array(words.length); // what each word wears: hundreds follow the pointer, few change
  let last = weights;
  let marked = null;

  function update(next) {
    last = next;
    const dark = isDark();
    spans.forEach((span, place) => {
      const weight = next ? next[place] : 0;
      const title = next ? share(weight) : '';
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
