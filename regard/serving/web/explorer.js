// The explorer: a header with the views, and the view that the address names.

import { make } from '../web/dom.js';
import { detectLanguage, languageButton, localize, setLanguage } from '../web/language.js';
import { request } from './api.js';
import { equationView } from './equation-view.js';
import { predictView, takesText } from './predict-view.js';
import { regressionView } from './regression-view.js';
import { TEXTS } from './texts.js';

const VIEWS = { predict: predictView, equation: equationView, regression: regressionView };
const root = document.getElementById('explorer');
const lastStates = {}; // the state in which each view was left
let language = detectLanguage();
let server = null;

function words(key, values) {
  return localize(TEXTS, key, language, values);
}

// The state of a view is in the address, #view?name=value, so that a link opens the same again.
function readAddress() {
  const [view, query = ''] = location.hash.slice(1).split(/\?(.*)/s);
  return { view, state: Object.fromEntries(new URLSearchParams(query)) };
}

function formatAddress(view, state = {}) {
  const kept = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const query = new URLSearchParams(kept).toString();
  return `#${view}${query ? `?${query}` : ''}`;
}

function keepState(view, state) {
  lastStates[view] = state;
  const current = readAddress().view;
  if (current === view || !current) history.replaceState(null, '', formatAddress(view, state)); // no entry in the history
}

function availableViews() {
  return Object.keys(VIEWS).filter((view) => view !== 'predict' || takesText(server.model));
}

// The name of what the model does: its verb in the reader's language.
function verbName() {
  const verb = server.model?.verb ?? 'predict';
  return verb in TEXTS[language] ? words(verb) : verb[0].toUpperCase() + verb.slice(1);
}

function viewName(view) {
  return view === 'predict' ? verbName() : words(view);
}

function header(current) {
  const link = (view) => make('a', {
    href: formatAddress(view, lastStates[view]), class: 'view', 'aria-current': view === current ? 'page' : null,
  }, viewName(view));
  return make('header', { class: 'top' },
    make('a', { class: 'skip', href: '#main', onclick: skipToMain }, words('skip')),
    make('a', { class: 'name', href: '#' }, 'regard'),
    make('nav', { 'aria-label': words('views') }, ...availableViews().map(link)),
    languageButton(language, (other) => {
      language = other;
      show();
    }));
}

function skipToMain(event) {
  event.preventDefault();
  document.querySelector('main').focus();
}

function describeModel() {
  const { model } = server;
  if (!model) return words('noModel');
  const name = model.run || model.recipe || 'regard';
  if (!takesText(model)) return words('otherModel', { name, capabilities: model.capabilities.join(', ') });
  const kind = model.model in TEXTS[language] ? words(model.model) : model.model || model.task || '';
  const values = { name, kind, layers: model.num_layers, heads: model.num_heads, parameters: model.parameters?.toLocaleString(language) ?? '?' };
  return words(model.num_layers * model.num_heads > 1 ? 'modelWithHeads' : 'modelInfo', values);
}

function show() {
  const address = readAddress();
  const views = availableViews();
  const view = views.includes(address.view) ? address.view : views[0];
  const state = address.view === view ? address.state : lastStates[view] || {};
  lastStates[view] = state;
  document.documentElement.lang = language === 'zh' ? 'zh-Hans' : 'en';
  document.title = `${viewName(view)} · regard`;
  const main = make('main', { id: 'main', tabindex: -1, class: `${view}-view` });
  root.replaceChildren(header(view), main, make('footer', { class: 'about note' }, describeModel()));
  VIEWS[view](main, { language, server, state, words, verb: verbName(), keep: (changed) => keepState(view, changed) });
}

async function start() {
  root.replaceChildren(make('main', {}, make('p', { class: 'note', role: 'status' }, words('wait'))));
  try {
    server = await request('v1/model');
  } catch (error) {
    const retry = make('button', { type: 'button', onclick: start }, words('retry'));
    root.replaceChildren(make('main', {}, make('p', { class: 'error', role: 'alert' }, error.localized(language)), retry));
    return;
  }
  if (new URLSearchParams(location.search).has('lang')) setLanguage(language);
  show();
}

window.addEventListener('hashchange', show);
start();
