// Weights are not explanations: says so, and measures how much they mattered here.

import { make } from '../web/dom.js';

const CHANGES = ['permuted', 'uniform', 'most_attended', 'random', 'least_attended'];

export function honestyOf(look, { words, language }) {
  const place = make('div', { 'aria-live': 'polite' });
  const button = make('button', { type: 'button', onclick: measure }, words('measure'));
  const more = make('details', {}, make('summary', {}, words('honestyMore')), make('p', {}, words('honestyText')));

  async function measure() {
    button.disabled = true;
    place.replaceChildren(make('p', { class: 'note busy' }, words('measuring')));
    try {
      place.replaceChildren(...told(await look.faithfulness()));
      button.remove();
    } catch (error) {
      if (!error.in) throw error;
      place.replaceChildren(make('p', { class: 'trouble', role: 'alert' }, error.in(language)));
      button.disabled = false;
    }
  }

  function told(answer) {
    const rows = CHANGES.flatMap((name) => {
      const bar = make('span', { class: 'share' });
      bar.style.inlineSize = `${100 * answer[name].probability_mass}%`;
      const percent = `${Math.round(100 * answer[name].probability_mass)} %`;
      return [make('dt', {}, words(name)), make('dd', { class: 'bar-of', 'aria-hidden': 'true' }, bar), make('dd', { class: 'number' }, percent)];
    });
    return [make('p', { class: 'note' }, words('moved')), make('dl', { class: 'changes' }, ...rows), make('p', { class: 'verdict' }, answer.sentence[language])];
  }

  const offer = look.look.measurable ? button : make('p', { class: 'note' }, words('noMeasure'));
  return make('section', { class: 'sheet honesty' }, make('h2', {}, words('honesty')), more, place, offer);
}
