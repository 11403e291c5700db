// Type a sentence, see its translations, choose one or write one, and look at it.

import { make, wordOf } from '../web/dom.js';
import { ask, Trouble } from './ask.js';
import { Look } from './look.js';
import { lookingAt } from './looking.js';
import { newsPlace } from './parts.js';

const BEST = 5;
// What to begin with, where the recipe tells what a model was trained for.
const EXAMPLES = {
  dates: ['3. Mai 2021', '2031年10月17日星期五', '<en> 10/17/31'],
  reverse: ['star', 'time'],
  multi30k: ['A man in a red shirt rides a bicycle.'],
  'multi30k-tok': ['a man in a red shirt rides a bicycle .'],
};
const PAUSE = 250; // milliseconds after the last key, before tokens are counted
const SHOWN = ['text', 'n', 'own', 'unit', 'kind', 'layer', 'head', 'row', 'column']; // in the address

export function translateView(main, help) {
  const { words, served, language } = help;
  const state = Object.fromEntries(SHOWN.map((name) => [name, help.state[name] ?? null]));
  const news = newsPlace(help);
  const found = make('section', { class: 'sheet candidates hidden' });
  const byHand = make('section', { class: 'sheet by-hand hidden' });
  const looked = make('section', { class: 'whole-look' });
  const counted = make('p', { class: 'note number', 'aria-live': 'polite' });
  const typed = make('textarea', {
    id: 'sentence', rows: 2, dir: 'auto', placeholder: words('sentenceHint'), spellcheck: 'false',
    oninput: () => count(), onkeydown: (event) => enter(event),
  });
  let turn = 0; // the number of the newest question; answers to older ones come too late
  let timer = null;

  typed.value = state.text || '';
  const offered = EXAMPLES[served.model.recipe] || [];
  const example = (text) => make('button', { type: 'button', class: 'quiet', dir: 'auto', onclick: () => take(text) }, text);
  const examples = make('p', { class: 'examples note' }, words('examples'), ...offered.map(example));
  const form = make('form', { class: 'sheet ask', onsubmit: submit },
    make('label', { class: 'title', for: 'sentence' }, words('sentence')), typed, offered.length ? examples : null,
    make('div', { class: 'line' }, counted, make('button', { class: 'main', type: 'submit' }, words('go'))));
  main.append(make('div', { class: 'top-row' }, form, found, byHand), news.place, looked);
  typed.focus();
  if (state.text) begin();

  function take(text) {
    typed.value = text;
    typed.form.requestSubmit();
  }

  function enter(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    submit(event);
  }

  function submit(event) {
    event.preventDefault();
    Object.assign(state, Object.fromEntries(SHOWN.map((name) => [name, null])), { text: written(), unit: state.unit });
    begin();
  }

  function written() {
    return typed.value.replace(/\s+/g, ' ').trim();
  }

  function tooMany(text) {
    const limit = served.limits.characters;
    const characters = [...text].length;
    return characters > limit && new Trouble('characters', '', { count: characters.toLocaleString(), limit: limit.toLocaleString() });
  }

  function count() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = written();
      if (!text || tooMany(text)) {
        counted.textContent = '';
        return;
      }
      try {
        tell(await ask('v1/tokens', { text }));
      } catch {
        counted.textContent = ''; // whoever then translates is told what is wrong
      }
    }, PAUSE);
  }

  function tell({ count: number, limit, unknown, fits }) {
    const more = unknown.length ? ` · ${words('unknown', { count: unknown.length })}` : '';
    counted.textContent = words('tokens', { count: number.toLocaleString(), limit: limit.toLocaleString() }) + more;
    counted.classList.toggle('over', !fits);
  }

  function throwIfLong({ fits, count: number, limit }) {
    if (!fits) throw new Trouble('tokens', '', { count: number.toLocaleString(), limit: limit.toLocaleString() });
  }

  // From the sentence to its translations. Limits are checked here, as the page knows them before it asks.
  async function begin() {
    const mine = ++turn;
    clearTimeout(timer);
    help.keep(state);
    for (const part of [found, byHand]) part.classList.add('hidden');
    looked.replaceChildren();
    try {
      const { text } = state;
      if (!text) throw new Trouble('empty');
      const many = tooMany(text);
      if (many) throw many;
      news.busy('translating');
      const read = await ask('v1/tokens', { text });
      if (mine !== turn) return;
      tell(read);
      throwIfLong(read);
      const { translations } = await ask('v1/translate', { texts: [text], best: Math.min(BEST, served.limits.beam) });
      if (mine !== turn) return;
      const { hypotheses } = translations[0];
      if (!hypotheses.length) throw new Trouble('none');
      news.clear();
      list(hypotheses);
    } catch (error) {
      if (mine === turn) news.trouble(error, error.code === 'gone' ? begin : null);
    }
  }

  function list(hypotheses) {
    const items = hypotheses.map((one, place) => candidate(one, () => {
      forget();
      choose(place);
    }));
    const own = make('input', { type: 'text', id: 'own', dir: 'auto', value: state.own ?? '', placeholder: words('editHint'), autocomplete: 'off' });
    const verdict = make('span', { class: 'note number', 'aria-live': 'polite' });
    found.replaceChildren(make('h2', {}, words('candidates')), make('ol', { class: 'nbest' }, ...items.map((item) => make('li', {}, item))));
    byHand.replaceChildren(make('form', { onsubmit: (event) => write(event) },
      make('label', { for: 'own', class: 'title' }, words('edit')),
      make('div', { class: 'line' }, own, make('button', { type: 'submit' }, words('look'))), verdict));
    for (const part of [found, byHand]) part.classList.remove('hidden');

    function choose(place) {
      press(place);
      Object.assign(state, { n: String(place), own: null });
      own.value = hypotheses[place].text;
      verdict.textContent = '';
      look({ token_ids: hypotheses[place].token_ids });
    }

    function write(event) {
      event.preventDefault();
      const text = own.value.replace(/\s+/g, ' ').trim();
      const many = tooMany(text);
      if (!text || many) {
        news.trouble(many || new Trouble('empty'));
        return;
      }
      press(null);
      forget();
      state.own = text;
      byOwn();
    }

    function byOwn() {
      look({ target: state.own }, ({ look: { token_log_probs: logs } }) => {
        verdict.textContent = likely(logs.reduce((sum, one) => sum + one, 0));
      });
    }

    function press(chosen) {
      items.forEach((item, place) => item.setAttribute('aria-pressed', String(place === chosen)));
    }

    if (state.own !== null) byOwn();
    else choose(Math.min(Number(state.n) || 0, hypotheses.length - 1));
  }

  function forget() {
    Object.assign(state, { row: null, column: null });
  }

  function candidate(one, choose) {
    const title = words('scoreHint', { score: one.score.toFixed(3), log: one.log_prob.toFixed(3) });
    return make('button', { type: 'button', class: 'candidate', onclick: choose, title },
      wordOf(one.text, { class: 'text' }), make('span', { class: 'note number' }, likely(one.log_prob)));
  }

  function likely(log) {
    const p = Math.exp(log);
    if (p >= 0.0005) return words('probability', { p: p >= 0.9995 ? '>0.999' : p.toFixed(3) });
    if (log < -34) return words('hardly'); // beyond a quadrillion nobody counts
    return words('unlikely', { n: Math.exp(-log).toLocaleString(language, { notation: 'compact', maximumSignificantDigits: 2 }) });
  }

  async function look(translation, then = () => {}) {
    const mine = ++turn;
    help.keep(state);
    looked.classList.add('stale');
    news.busy('looking');
    try {
      if (!served.model.has_attention) throw new Trouble('no_attention');
      if (translation.target) throwIfLong(await ask('v1/tokens', { text: translation.target, side: 'target' }));
      const seen = new Look(await ask('v1/look', { source: state.text, ...translation, within: state.kind !== null }));
      if (mine !== turn) return;
      news.clear();
      looked.classList.remove('stale');
      lookingAt(looked, seen, state, { ...help, keep: () => help.keep(state), lookWithin: () => look(translation, then), news });
      then(seen);
    } catch (error) {
      if (mine === turn) news.trouble(error, error.code === 'gone' ? () => look(translation, then) : null);
    }
  }
}
