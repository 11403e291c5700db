// Type a text, see its predictions, choose one or write another answer, and see the weights behind it.

import { make, wordOf } from '../web/dom.js';
import { ApiError, request } from './api.js';
import { statusArea } from './controls.js';
import { Explanation } from './explanation.js';
import { SELF_ATTENTION, showExplanation } from './explanation-view.js';

const NUM_BEST = 5;
// Inputs to begin with, by recipe.
const EXAMPLES = {
  dates: ['3. Mai 2021', '2031年10月17日星期五', '<en> 10/17/31'],
  reverse: ['star', 'time'],
  multi30k: ['A man in a red shirt rides a bicycle.'],
  'multi30k-tok': ['a man in a red shirt rides a bicycle .'],
};
const TYPING_PAUSE = 250; // milliseconds after the last key, before tokens are counted
const STATE = ['text', 'n', 'own', 'unit', 'group', 'layer', 'head', 'row', 'column']; // in the address

// Whether a model can be used on this page: it takes one text.
export function takesText(model) {
  return Boolean(model) && model.inputs.length === 1 && model.inputs[0].kind === 'text';
}

export function predictView(main, help) {
  const { words, server, language } = help;
  const { model, limits } = server;
  const state = Object.fromEntries(STATE.map((name) => [name, help.state[name] ?? null]));
  const can = (ability) => model.capabilities.includes(ability);
  const offers = (kind, option) => option in (model.options[kind].properties || {});
  const status = statusArea(help);
  const predictionList = make('section', { class: 'sheet predictions hidden' });
  const ownAnswer = make('section', { class: 'sheet own-answer hidden' });
  const explained = make('section', { class: 'explanation' });
  const tokenCount = make('p', { class: 'note number', 'aria-live': 'polite' });
  const input = make('textarea', {
    id: 'input', rows: 2, dir: 'auto', placeholder: words('inputHint'), spellcheck: 'false',
    oninput: () => countTokens(), onkeydown: (event) => onKey(event),
  });
  let turn = 0; // the number of the latest request; responses to older ones are dropped
  let timer = null;

  input.value = state.text || '';
  const texts = EXAMPLES[model.recipe] || [];
  const example = (text) => make('button', { type: 'button', class: 'quiet', dir: 'auto', onclick: () => take(text) }, text);
  const examples = make('p', { class: 'examples note' }, words('examples'), ...texts.map(example));
  const form = make('form', { class: 'sheet input-form', onsubmit: submit },
    make('label', { class: 'title', for: 'input' }, words('text')), input, texts.length ? examples : null,
    make('div', { class: 'line' }, tokenCount, make('button', { class: 'main', type: 'submit' }, help.verb)));
  main.append(make('div', { class: 'top-row' }, form, predictionList, ownAnswer), status.element, explained);
  input.focus();
  if (state.text) predict();

  function take(text) {
    input.value = text;
    input.form.requestSubmit();
  }

  function onKey(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    submit(event);
  }

  function submit(event) {
    event.preventDefault();
    Object.assign(state, Object.fromEntries(STATE.map((name) => [name, null])), { text: inputText(), unit: state.unit });
    predict();
  }

  function inputText() {
    return input.value.replace(/\s+/g, ' ').trim();
  }

  function lengthError(text) {
    const limit = limits.max_characters;
    const count = [...text].length;
    return count > limit && new ApiError('too_many_characters', '', { count: count.toLocaleString(), limit: limit.toLocaleString() });
  }

  function countTokens() {
    clearTimeout(timer);
    if (!can('tokens')) return;
    timer = setTimeout(async () => {
      const text = inputText();
      if (!text || lengthError(text)) {
        tokenCount.textContent = '';
        return;
      }
      try {
        showTokens(await request('v1/tokens', { text }));
      } catch {
        tokenCount.textContent = ''; // the error is shown when the text is sent
      }
    }, TYPING_PAUSE);
  }

  function showTokens({ count, limit, unknown, fits }) {
    const more = unknown.length ? ` · ${words('unknown', { count: unknown.length })}` : '';
    tokenCount.textContent = words('tokens', { count: count.toLocaleString(), limit: limit === null ? '∞' : limit.toLocaleString() }) + more;
    tokenCount.classList.toggle('over', !fits);
  }

  function refuseIfTooLong({ fits, count, limit }) {
    if (!fits) throw new ApiError('too_many_tokens', '', { count: count.toLocaleString(), limit: limit.toLocaleString() });
  }

  // From the text to its predictions. Limits are checked before, as the page knows them.
  async function predict() {
    const mine = ++turn;
    clearTimeout(timer);
    help.keep(state);
    for (const part of [predictionList, ownAnswer]) part.classList.add('hidden');
    explained.replaceChildren();
    try {
      const { text } = state;
      if (!text) throw new ApiError('no_text');
      const tooLong = lengthError(text);
      if (tooLong) throw tooLong;
      status.busy('computing');
      if (can('tokens')) {
        const tokens = await request('v1/tokens', { text });
        if (mine !== turn) return;
        showTokens(tokens);
        refuseIfTooLong(tokens);
      }
      const options = offers('predict', 'num_best') ? { num_best: Math.min(NUM_BEST, limits.max_candidates) } : {};
      const { predictions } = await request('v1/predict', { inputs: [text], options });
      if (mine !== turn) return;
      const { alternatives = [], ...best } = predictions[0];
      if (best.token_log_probs?.length === 0) throw new ApiError('no_prediction');
      status.clear();
      showPredictions([best, ...alternatives]);
    } catch (error) {
      if (mine === turn) status.error(error, error.code === 'unreachable' ? predict : null);
    }
  }

  function showPredictions(predictions) {
    const items = predictions.map((one, index) => candidate(one, () => {
      forgetCell();
      choose(index);
    }));
    const probabilities = probabilityTable(predictions[0]);
    predictionList.replaceChildren(make('h2', {}, words('predictions')), make('ol', { class: 'candidates' }, ...items.map((item) => make('li', {}, item))), probabilities || '');
    predictionList.classList.remove('hidden');
    const own = make('input', { type: 'text', id: 'own', dir: 'auto', value: state.own ?? '', placeholder: words('ownHint'), autocomplete: 'off' });
    const ownScore = make('span', { class: 'note number', 'aria-live': 'polite' });
    const takesTarget = offers('explain', 'target');
    ownAnswer.replaceChildren(make('form', { onsubmit: (event) => explainOwn(event) },
      make('label', { for: 'own', class: 'title' }, words('ownAnswer')),
      make('div', { class: 'line' }, own, make('button', { type: 'submit' }, words('explain'))), ownScore));
    ownAnswer.classList.toggle('hidden', !takesTarget);

    function choose(index) {
      press(index);
      Object.assign(state, { n: String(index), own: null });
      own.value = predictions[index].text;
      ownScore.textContent = '';
      const { token_ids: tokenIds } = predictions[index];
      explain(takesTarget && tokenIds?.length ? { token_ids: tokenIds } : {});
    }

    function explainOwn(event) {
      event.preventDefault();
      const text = own.value.replace(/\s+/g, ' ').trim();
      const tooLong = lengthError(text);
      if (!text || tooLong) {
        status.error(tooLong || new ApiError('no_text'));
        return;
      }
      press(null);
      forgetCell();
      state.own = text;
      explainTarget();
    }

    function explainTarget() {
      explain({ target: state.own }, ({ data }) => {
        const logProb = data.prediction.log_prob;
        ownScore.textContent = logProb === null ? '' : formatProbability(logProb);
      });
    }

    function press(chosen) {
      items.forEach((item, index) => item.setAttribute('aria-pressed', String(index === chosen)));
    }

    if (state.own !== null && takesTarget) explainTarget();
    else choose(Math.min(Number(state.n) || 0, predictions.length - 1));
  }

  function forgetCell() {
    Object.assign(state, { row: null, column: null });
  }

  // Sequences have a log-probability, classes a probability.
  function candidate(one, choose) {
    const logProb = one.log_prob ?? (one.probabilities ? Math.log(one.score) : null);
    const title = one.log_prob === undefined ? '' : words('scoreHint', { score: one.score.toFixed(3), log: one.log_prob.toFixed(3) });
    return make('button', { type: 'button', class: 'candidate', onclick: choose, title },
      wordOf(one.text, { class: 'text' }), make('span', { class: 'note number' }, logProb === null ? '' : formatProbability(logProb)));
  }

  function probabilityTable({ probabilities }) {
    const rows = Object.entries(probabilities || {}).slice(1, NUM_BEST);
    return rows.length && make('dl', { class: 'measures' }, ...rows.flatMap(([label, value]) => [make('dt', {}, label), make('dd', { class: 'number' }, value.toFixed(3))]));
  }

  function formatProbability(logProb) {
    const p = Math.exp(logProb);
    if (p >= 0.0005) return words('probability', { p: p >= 0.9995 ? '>0.999' : p.toFixed(3) });
    if (logProb < -34) return words('tinyProbability');
    return words('oneIn', { n: Math.exp(-logProb).toLocaleString(language, { notation: 'compact', maximumSignificantDigits: 2 }) });
  }

  async function explain(target, then = () => {}) {
    const mine = ++turn;
    help.keep(state);
    explained.classList.add('stale');
    status.busy('computing');
    try {
      if (!can('explanations')) throw new ApiError('no_attention');
      if (target.target) refuseIfTooLong(await request('v1/tokens', { text: target.target, side: 'target' }));
      const offersSelfAttention = offers('explain', 'self_attention') && model.model === 'transformer';
      const options = { ...target, ...(SELF_ATTENTION.includes(state.group) && offersSelfAttention ? { self_attention: true } : {}) };
      const explanation = new Explanation(await request('v1/explanations', { input: state.text, options }));
      if (mine !== turn) return;
      if (!explanation.data.maps.length) throw new ApiError('no_attention');
      status.clear();
      explained.classList.remove('stale');
      const requestSelfAttention = () => explain(target, then);
      showExplanation(explained, explanation, state, { ...help, keep: () => help.keep(state), requestSelfAttention, offersSelfAttention, status });
      then(explanation);
    } catch (error) {
      if (mine === turn) status.error(error, error.code === 'unreachable' ? () => explain(target, then) : null);
    }
  }
}
