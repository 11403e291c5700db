// Controls that several views use.

import { make } from '../web/dom.js';
import { ApiError } from './api.js';

// The place where a view says what it is doing, or what went wrong and how to try again.
export function statusArea({ words, language }) {
  const element = make('div', { class: 'status' });
  return {
    element,
    clear: () => element.replaceChildren(),
    busy: (key) => element.replaceChildren(make('p', { class: 'note busy', role: 'status' }, words(key))),
    error: (error, retry = null) => {
      if (!(error instanceof ApiError)) throw error; // a bug of this page belongs in the console
      const button = retry && make('button', { type: 'button', onclick: retry }, words('retry'));
      element.replaceChildren(make('p', { class: 'error', role: 'alert' }, error.localized(language)), ...(button ? [button] : []));
    },
  };
}

// Buttons of which one is pressed.
export function buttonGroup(label, options, selected, select) {
  const buttons = options.map(([value, text]) => make('button', {
    type: 'button', class: 'quiet', 'aria-pressed': String(value === selected), 'data-value': value,
    onclick: () => {
      buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset.value === String(value))));
      select(value);
    },
  }, text));
  return make('div', { class: 'button-group', role: 'group', 'aria-label': label }, ...buttons);
}

// A number on a slider, with its value.
export function slider(label, { min, max, step, value, format = String }, change) {
  const output = make('output', { class: 'number' }, format(value));
  const input = make('input', {
    type: 'range', min, max, step, value, 'aria-label': label,
    oninput: () => {
      output.textContent = format(Number(input.value));
      change(Number(input.value));
    },
  });
  const set = (to) => {
    input.value = to;
    output.textContent = format(Number(input.value));
  };
  return { element: make('label', { class: 'slider' }, make('span', {}, label), input, output), set };
}

export function select(label, options, selected, change) {
  const element = make('select', { 'aria-label': label, onchange: () => change(element.value) },
    ...options.map(([value, text, disabled]) => make('option', { value, selected: value === selected, disabled }, text)));
  return element;
}
