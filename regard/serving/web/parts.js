// Small things that several views are made of.

import { make } from '../web/dom.js';
import { Trouble } from './ask.js';

// A place for news: what is under way, or what went wrong and how to try again.
export function newsPlace({ words, language }) {
  const place = make('div', { class: 'news' });
  return {
    place,
    clear: () => place.replaceChildren(),
    busy: (key) => place.replaceChildren(make('p', { class: 'note busy', role: 'status' }, words(key))),
    trouble: (error, again = null) => {
      if (!(error instanceof Trouble)) throw error; // a bug of ours belongs in the console
      const button = again && make('button', { type: 'button', onclick: again }, words('again'));
      place.replaceChildren(make('p', { class: 'trouble', role: 'alert' }, error.in(language)), ...(button ? [button] : []));
    },
  };
}

// Several buttons of which one is pressed.
export function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => make('button', {
    type: 'button', class: 'quiet', 'aria-pressed': String(value === chosen), 'data-value': value,
    onclick: () => {
      buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset.value === String(value))));
      choose(value);
    },
  }, text));
  return make('div', { class: 'choice', role: 'group', 'aria-label': label }, ...buttons);
}

// A number on a slider, with its value beside it.
export function slider(label, { low, high, step, value, show = String }, change) {
  const output = make('output', { class: 'number' }, show(value));
  const input = make('input', {
    type: 'range', min: low, max: high, step, value, 'aria-label': label,
    oninput: () => {
      output.textContent = show(Number(input.value));
      change(Number(input.value));
    },
  });
  const set = (to) => {
    input.value = to;
    output.textContent = show(Number(input.value));
  };
  return { element: make('label', { class: 'slider' }, make('span', {}, label), input, output), set };
}

export function pick(label, options, chosen, change) {
  const select = make('select', { 'aria-label': label, onchange: () => change(select.value) },
    ...options.map(([value, text, disabled]) => make('option', { value, selected: value === chosen, disabled }, text)));
  return select;
}
