// The explorer: a head with the views, and the view that the address names.

import { make } from '../web/dom.js';
import { setLanguage, languageButton, detectLanguage, localize } from '../web/language.js';
import { ask } from './ask.js';
import { equationView } from './equation.js';
import { hashOf, keep, placeNow } from './place.js';
import { regressionView } from './regression.js';
import { TEXTS } from './texts.js';
import { translateView } from './translate.js';

const VIEWS = { translate: translateView, equation: equationView, regression: regressionView };
const root = document.getElementById('explorer');
const last = {}; // the state in which each view was left, for when the reader comes back
let language = detectLanguage();
let served = null;

function words(key, values) {
  return localize(TEXTS, key, language, values);
}

function translates() {
  return Boolean(served?.model?.does.includes('translate'));
}

function link(view, current) {
  const here = view === current;
  const options = { href: hashOf(view, last[view]), class: 'view', 'aria-current': here ? 'page' : null };
  return make('a', options, words(view));
}

function head(current) {
  const change = (other) => {
    language = other;
    show();
  };
  return make('header', { class: 'top' },
    make('a', { class: 'skip', href: '#main', onclick: skip }, words('skip')),
    make('a', { class: 'name', href: '#' }, 'regard'),
    make('nav', { 'aria-label': words('views') }, ...Object.keys(VIEWS).filter((view) => translates() || view !== 'translate').map((view) => link(view, current))),
    languageButton(language, change));
}

function skip(event) {
  event.preventDefault();
  document.querySelector('main').focus();
}

function about() {
  const { model } = served;
  if (!model) return words('noModel');
  if (!translates()) return words('otherModel', { ...model, run: model.run || model.recipe || 'regard', does: model.does.join(', ') });
  const values = { ...model, run: model.run || model.recipe || 'regard', kind: words(model.model), parameters: model.parameters?.toLocaleString(language) ?? '?' };
  return words(model.layers * model.heads > 1 ? 'model' : 'model1', values);
}

// What a view may use: words, the state in the address and how to change it, what is served.
function helpOf(view, state) {
  return {
    language, served, state, words,
    keep: (changed) => {
      last[view] = changed;
      if (placeNow().view === view || !placeNow().view) keep(view, changed);
    },
  };
}

function show() {
  const asked = placeNow();
  const view = asked.view in VIEWS && (translates() || asked.view !== 'translate') ? asked.view : translates() ? 'translate' : 'equation';
  const state = asked.view === view ? asked.state : last[view] || {};
  last[view] = state;
  document.documentElement.lang = language === 'zh' ? 'zh-Hans' : 'en';
  document.title = `${words(view)} · regard`;
  const main = make('main', { id: 'main', tabindex: -1, class: `of-${view}` });
  const foot = make('footer', { class: 'about note' }, about());
  root.replaceChildren(head(view), main, foot);
  VIEWS[view](main, helpOf(view, state));
}

async function begin() {
  root.replaceChildren(make('main', {}, make('p', { class: 'note', role: 'status' }, words('wait'))));
  try {
    served = await ask('v1/model');
  } catch (trouble) {
    const again = make('button', { type: 'button', onclick: begin }, words('again'));
    root.replaceChildren(make('main', {}, make('p', { class: 'trouble', role: 'alert' }, trouble.in(language)), again));
    return;
  }
  if (new URLSearchParams(location.search).has('lang')) setLanguage(language);
  show();
}

window.addEventListener('hashchange', show);
begin();
