// Words lit by their weights: the more regard a word has, the darker it is.

import { css, inkOn, isDark, onScheme } from './color.js';
import { directionOf, make, wordOf } from './dom.js';
import { share } from './say.js';

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
  let last = weights;

  function update(next) {
    last = next;
    spans.forEach((span, place) => {
      const weight = next ? next[place] : 0;
      const dark = isDark();
      span.style.backgroundColor = css(weight, dark);
      span.style.color = inkOn(weight, dark);
      span.title = next ? share(weight) : '';
    });
  }

  function mark(place) {
    spans.forEach((span, at) => span.classList.toggle('marked', at === place));
  }

  container.replaceChildren(
    ...spans.map((span, place) => (under ? make('span', { class: 'lit-above' }, span, under(place)) : span)),
  );
  container.classList.add('lit-words');
  container.dir = directionOf(words.join(' '));
  onScheme(() => update(last));
  update(weights);
  return { update, mark };
}
