// The playground of the equation: its letters are chosen, its points are moved, and the library computes.

import { css, inkOn } from '../web/color.js';
import { make } from '../web/dom.js';
import { formatWeight } from '../web/language.js';
import { ask, newest } from './ask.js';
import { lettersOf } from './letters.js';
import { newsPlace } from './parts.js';
import { Plane } from './plane.js';
import { begun, readState, startOf, writeState } from './playing.js';

const MOST = { query: 4, key: 10 };

export async function equationView(main, help) {
  const { words } = help;
  const news = newsPlace(help);
  main.append(news.place);
  news.busy('wait');
  let catalogue;
  try {
    catalogue = await begun('v1/catalogue', ask);
  } catch (error) {
    news.trouble(error, () => {
      main.replaceChildren();
      equationView(main, help);
    });
    return;
  }
  news.clear();
  const state = readState(help.state, catalogue);
  const board = make('div', { class: 'board' });
  const numbers = make('div', { class: 'wide' });
  const code = make('code', { class: 'code' });
  const letters = lettersOf(catalogue, state, help, ask_);
  main.append(make('div', { class: 'playing' },
    make('section', { class: 'sheet letters' }, make('h2', {}, words('letters')), letters.element,
      make('div', { class: 'same' }, make('h2', {}, words('code')), make('div', { class: 'wide' }, code))),
    make('section', { class: 'sheet points' }, make('h2', {}, words('plane')), board, counts(), make('p', { class: 'note' }, words('planeHint'))),
    make('section', { class: 'sheet numbers' }, make('h2', {}, words('numbers')), numbers)));

  const plane = new Plane(board, {
    words,
    moved: (kind, place, point) => {
      state[kind][place] = point;
      if (kind === 'query') state.active = place;
      draw();
      ask_();
    },
    looked: (place) => {
      state.active = place;
      draw();
    },
    hidden: (place) => {
      if (!state.hidden.delete(place)) state.hidden.add(place);
      ask_();
    },
  });

  let seen = null;
  const compute = newest(async () => {
    try {
      seen = await ask('v1/attend', questionOf(state));
      news.clear();
      draw();
    } catch (error) {
      news.trouble(error, error.code === 'gone' ? compute : null);
    }
  });
  ask_();

  function ask_() {
    help.keep(writeState(state, catalogue));
    compute();
  }

  function draw() {
    const fits = seen && seen.weights.length === state.query.length && seen.weights[0].length === state.key.length;
    const blind = (place) => seen.weights[place].every((weight) => weight === 0);
    plane.show({
      ...state,
      weights: fits ? seen.weights : null,
      context: fits ? seen.context.map((point, place) => (blind(place) ? null : point)) : [],
    });
    if (!fits) return;
    code.textContent = seen.code;
    numbers.replaceChildren(tableOf());
  }

  function tableOf() {
    const keys = state.key.map((_, place) => make('th', { scope: 'col' }, `k${place + 1}`));
    const head = make('tr', {}, make('th', {}), make('th', {}), ...keys, make('th', { scope: 'col' }, words('sum')));
    const rows = state.query.flatMap((_, q) => {
      const [scores, weights] = [seen.scores[q], seen.weights[q]];
      const sum = weights.reduce((total, one) => total + one, 0);
      const mark = q === state.active ? 'active' : '';
      const name = make('th', { scope: 'rowgroup', rowspan: 2, class: mark }, `q${q + 1}`);
      return [
        make('tr', { class: 'scores' }, name, make('th', { scope: 'row' }, words('scores')),
          ...scores.map((one) => make('td', {}, one === null ? '−∞' : one.toFixed(2).replace('-', '−'))), make('td', {})),
        make('tr', { class: 'weights' }, make('th', { scope: 'row' }, words('weights')), ...weights.map(weightCell),
          make('td', { class: 'sum' }, sum === 0 ? words('nothingSeen') : formatWeight(sum))),
      ];
    });
    return make('table', { class: 'number' }, make('thead', {}, head), make('tbody', {}, ...rows));
  }

  function weightCell(weight) {
    const cell = make('td', {}, formatWeight(weight));
    cell.style.backgroundColor = css(weight);
    cell.style.color = inkOn(weight);
    return cell;
  }

  function counts() {
    const button = (key, text, work) => make('button', { type: 'button', title: words(key), 'aria-label': words(key), onclick: work }, text);
    const more = (kind) => () => {
      if (state[kind].length >= MOST[kind]) return;
      const angle = 2.4 * state[kind].length + (kind === 'query' ? 1 : 0); // the golden angle: never on top of another
      const point = [1.9 * Math.cos(angle), 1.9 * Math.sin(angle)].map((x) => Math.round(x * 100) / 100);
      state[kind].push(point);
      if (kind === 'key' && state.value) state.value.push([point[1], point[0]]);
      if (kind === 'query') state.active = state.query.length - 1;
      letters.refresh();
      draw();
      ask_();
    };
    const fewer = (kind) => () => {
      if (state[kind].length <= 1) return;
      state[kind].pop();
      if (kind === 'key' && state.value) state.value.pop();
      state.hidden.delete(state.key.length);
      state.active = Math.min(state.active, state.query.length - 1);
      letters.refresh();
      draw();
      ask_();
    };
    const over = () => {
      Object.assign(state, startOf(catalogue));
      letters.refresh();
      draw();
      ask_();
    };
    const group = (kind, add, drop) => make('span', { class: 'count' },
      button(drop, '−', fewer(kind)), make('span', { class: `tag ${kind}` }, words(kind)), button(add, '+', more(kind)));
    return make('div', { class: 'line counts' }, group('query', 'addQuery', 'dropQuery'), group('key', 'addKey', 'dropKey'),
      make('button', { type: 'button', class: 'quiet', onclick: over }, words('reset')));
  }
}

function questionOf(state) {
  const part = ({ name, settings }) => ({ name, settings });
  return {
    queries: state.query, keys: state.key, values: state.value, hidden: [...state.hidden],
    score: part(state.score), normalize: part(state.normalize), mask: state.mask ? part(state.mask) : null,
  };
}
