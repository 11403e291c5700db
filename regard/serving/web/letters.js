// The equation as a form: each letter is a choice, with its settings and a sentence below it.

import { make } from '../web/dom.js';
import { pick, slider } from './parts.js';
import { agree, partOf } from './playing.js';

// { element, refresh() }; changed() is called when a letter or one of its numbers is another.
export function lettersOf(catalogue, state, { words, language }, changed) {
  const element = make('div', { class: 'equation' });

  function put(letter, part) {
    state[letter] = part;
    if (letter === 'score') agree(catalogue, state);
    refresh();
    changed();
  }

  function line(before, control, after, question, details) {
    return make('div', { class: 'letter' },
      make('div', { class: 'formula' }, make('span', {}, before), control, make('span', {}, after)), make('span', { class: 'note question' }, question), details);
  }

  function details(part) {
    if (!part) return null;
    const sliders = part.about.settings.map((one) => {
      const high = ['length', 'center', 'left', 'right'].includes(one.name) ? Math.min(one.high, state.key.length) : one.high;
      const show = (value) => (one.step === 1 ? String(value) : value.toFixed(2));
      return slider(words(one.name), { ...one, high, value: part.settings[one.name], show }, (value) => {
        part.settings[one.name] = value;
        changed();
      }).element;
    });
    const equation = part.about.equation && make('span', { class: 'rule' }, part.about.equation.split('\n')[0].replace(/ {3,}/g, '   '));
    return make('div', { class: 'details' }, make('p', { class: 'note' }, part.about.sentence[language]), equation || null, ...sliders);
  }

  function refresh() {
    const here = document.activeElement?.closest?.('.letter');
    const place = here ? [...element.children].indexOf(here) : -1;
    const names = (kind) => catalogue[kind].map((part) => [part.name, part.name]);
    const fitting = catalogue.normalizer.map((part) => [part.name, part.name, part.input_kind !== state.score.about.output_kind]);
    const score = pick(words('likeMe'), names('score'), state.score.name, (name) => put('score', partOf(catalogue, 'score', name)));
    const masks = [['', words('noMask')], ...names('mask')];
    const mask = pick(words('whoMay'), masks, state.mask?.name ?? '', (name) => put('mask', name ? partOf(catalogue, 'mask', name) : null));
    const normalize = pick(words('sharedOut'), fitting, state.normalize.name, (name) => put('normalize', partOf(catalogue, 'normalize', name)));
    const values = [['', words('asKeys')], ['own', words('ofTheirOwn')]];
    const value = pick(words('seen'), values, state.value ? 'own' : '', (name) => put('value', name ? state.key.map(([x, y]) => [-y, x]) : null));
    element.replaceChildren(
      line('scores = ', score, '(query, key)', words('likeMe'), details(state.score)),
      line('scores = hide(scores, ', mask, ')', words('whoMay'), details(state.mask)),
      line('weights = ', normalize, '(scores)', words('sharedOut'), details(state.normalize)),
      line('context = weights @ ', value, '', words('seen'), null));
    if (place >= 0) element.children[place].querySelector('select').focus();
  }

  refresh();
  return { element, refresh };
}
