// The arguments of the equation: their state, how it is written into the address, and the form that changes it.

import { make } from '../web/dom.js';
import { select, slider } from './controls.js';

const POINTS = {
  query: [[1.6, 1.1], [-1.2, 0.4]],
  key: [[2.1, 0.3], [0.9, 2.0], [-0.7, 1.7], [-2.0, -0.6], [-0.4, -1.8], [1.5, -1.5]],
};
const POSITIONS = ['length', 'center', 'left', 'right']; // arguments that count keys
const KINDS = { score: 'score', normalize: 'normalizer', mask: 'mask' };
export function findPart(catalogue, argument, name, given = {}) {
  const found = catalogue[KINDS[argument]].find((part) => part.name === name);
  if (!found) return null;
  const values = Object.fromEntries(found.arguments.map(({ name: key, min, max, default: start, step }) => {
    const wanted = Number(given[key] ?? start);
    const value = Number.isFinite(wanted) ? Math.min(max, Math.max(min, wanted)) : start;
    return [key, step === 1 ? Math.round(value) : value];
  }));
  return { name, values, entry: found };
}

export function initialState(catalogue) {
  return {
    score: findPart(catalogue, 'score', 'ScaledDot'), normalize: findPart(catalogue, 'normalize', 'softmax'), mask: null,
    query: structuredClone(POINTS.query), key: structuredClone(POINTS.key), value: null, hidden: new Set(), active: 0,
  };
}

// Kernel scores need a normalizer for kernel values, and logits one for logits.
function matchNormalizer(catalogue, state) {
  if (state.normalize.entry.input_kind === state.score.entry.output_kind) return;
  const fitting = catalogue.normalizer.find((part) => part.input_kind === state.score.entry.output_kind);
  state.normalize = findPart(catalogue, 'normalize', fitting.name);
}

export function readState(given, catalogue) {
  const state = initialState(catalogue);
  for (const argument of Object.keys(KINDS)) {
    const [name, ...values] = (given[argument] || '').split(',');
    const numbers = Object.fromEntries(values.map((one) => one.split(':')));
    state[argument] = findPart(catalogue, argument, name, numbers) || state[argument];
  }
  matchNormalizer(catalogue, state);
  for (const kind of ['query', 'key']) state[kind] = parsePoints(given[kind]) || state[kind];
  const points = parsePoints(given.value);
  state.value = points && points.length === state.key.length ? points : null;
  const indices = (given.hidden || '').split(',').filter(Boolean).map(Number);
  state.hidden = new Set(indices.filter((index) => Number.isInteger(index) && index >= 0 && index < state.key.length));
  return state;
}

export function writeState(state) {
  const part = (one) => one && [one.name, ...Object.entries(one.values).map(([key, value]) => `${key}:${value}`)].join(',');
  const points = (list) => list && list.map(([x, y]) => `${x},${y}`).join(';');
  return {
    score: part(state.score), normalize: part(state.normalize), mask: part(state.mask), query: points(state.query),
    key: points(state.key), value: points(state.value), hidden: [...state.hidden].join(','),
  };
}

function parsePoints(text) {
  const points = (text || '').split(';').map((point) => point.split(',').map(Number));
  const isValid = points.length <= 10 && points.every((point) => point.length === 2 && point.every((x) => Number.isFinite(x) && Math.abs(x) <= 3));
  return isValid ? points : null;
}

// { element, refresh() }; changed() is called when an argument or one of its values changes.
export function equationForm(catalogue, state, { words, language }, changed) {
  const element = make('div', { class: 'equation' });

  function choose(argument, part) {
    state[argument] = part;
    if (argument === 'score') matchNormalizer(catalogue, state);
    refresh();
    changed();
  }

  function line(before, control, after, question, details) {
    return make('div', { class: 'equation-line' },
      make('div', { class: 'formula' }, make('span', {}, before), control, make('span', {}, after)), make('span', { class: 'note question' }, question), details);
  }

  function details(part) {
    if (!part) return null;
    const sliders = part.entry.arguments.map((one) => {
      const max = POSITIONS.includes(one.name) ? Math.min(one.max, state.key.length) : one.max;
      const format = (value) => (one.step === 1 ? String(value) : value.toFixed(2));
      return slider(words(one.name), { ...one, max, value: part.values[one.name], format }, (value) => {
        part.values[one.name] = value;
        changed();
      }).element;
    });
    const equation = part.entry.equation && make('span', { class: 'formula-text' }, part.entry.equation.split('\n')[0].replace(/ {3,}/g, '   '));
    return make('div', { class: 'details' }, make('p', { class: 'note' }, part.entry.summary[language]), equation || null, ...sliders);
  }

  function refresh() {
    const focused = document.activeElement?.closest?.('.equation-line');
    const index = focused ? [...element.children].indexOf(focused) : -1;
    const names = (kind) => catalogue[kind].map((part) => [part.name, part.name]);
    const fitting = catalogue.normalizer.map((part) => [part.name, part.name, part.input_kind !== state.score.entry.output_kind]);
    const score = select(words('scoreLabel'), names('score'), state.score.name, (name) => choose('score', findPart(catalogue, 'score', name)));
    const masks = [['', words('noMask')], ...names('mask')];
    const mask = select(words('maskLabel'), masks, state.mask?.name ?? '', (name) => choose('mask', name ? findPart(catalogue, 'mask', name) : null));
    const normalize = select(words('normalizeLabel'), fitting, state.normalize.name, (name) => choose('normalize', findPart(catalogue, 'normalize', name)));
    const values = [['', words('keysAsValues')], ['own', words('ownValues')]];
    const value = select(words('valueLabel'), values, state.value ? 'own' : '', (name) => choose('value', name ? state.key.map(([x, y]) => [-y, x]) : null));
    element.replaceChildren(
      line('scores = ', score, '(query, key)', words('scoreLabel'), details(state.score)),
      line('scores = mask(scores, ', mask, ')', words('maskLabel'), details(state.mask)),
      line('weights = ', normalize, '(scores)', words('normalizeLabel'), details(state.normalize)),
      line('context = weights @ ', value, '', words('valueLabel'), null));
    if (index >= 0) element.children[index].querySelector('select').focus();
  }

  refresh();
  return { element, refresh };
}
