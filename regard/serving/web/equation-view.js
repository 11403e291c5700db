// The playground of the equation: its arguments are chosen, its points are moved, and the library computes.

import { css, inkOn } from '../web/color.js';
import { make } from '../web/dom.js';
import { formatWeight } from '../web/language.js';
import { latestOnly, request } from './api.js';
import { statusArea } from './controls.js';
import { equationForm, initialState, readState, writeState } from './equation-form.js';
import { PointPlane } from './point-plane.js';

const MAX_POINTS = { query: 4, key: 10 };
let catalogue = null; // stays the same as long as the page is open

export async function equationView(main, help) {
  const { words } = help;
  const status = statusArea(help);
  main.append(status.element);
  status.busy('wait');
  try {
    catalogue ??= await request('v1/catalogue');
  } catch (error) {
    status.error(error, () => {
      main.replaceChildren();
      equationView(main, help);
    });
    return;
  }
  status.clear();
  const state = readState(help.state, catalogue);
  const board = make('div', { class: 'board' });
  const numbers = make('div', { class: 'wide' });
  const code = make('code', { class: 'code' });
  const form = equationForm(catalogue, state, help, update);
  main.append(make('div', { class: 'playground' },
    make('section', { class: 'sheet arguments' }, make('h2', {}, words('arguments')), form.element,
      make('div', { class: 'python' }, make('h2', {}, words('code')), make('div', { class: 'wide' }, code))),
    make('section', { class: 'sheet points' }, make('h2', {}, words('plane')), board, counts(), make('p', { class: 'note' }, words('planeHint'))),
    make('section', { class: 'sheet numbers' }, make('h2', {}, words('numbers')), numbers)));

  const plane = new PointPlane(board, {
    words,
    onMove: (kind, index, point) => {
      state[kind][index] = point;
      if (kind === 'query') state.active = index;
      draw();
      update();
    },
    onSelect: (index) => {
      state.active = index;
      draw();
    },
    onHide: (index) => {
      if (!state.hidden.delete(index)) state.hidden.add(index);
      update();
    },
  });

  let output = null;
  const compute = latestOnly(async () => {
    try {
      output = await request('v1/attend', requestOf(state));
      status.clear();
      draw();
    } catch (error) {
      status.error(error, error.code === 'unreachable' ? compute : null);
    }
  });
  update();

  function update() {
    help.keep(writeState(state, catalogue));
    compute();
  }

  function draw() {
    const fits = output && output.weights.length === state.query.length && output.weights[0].length === state.key.length;
    const isEmpty = (index) => output.weights[index].every((weight) => weight === 0);
    plane.show({
      ...state,
      weights: fits ? output.weights : null,
      context: fits ? output.context.map((point, index) => (isEmpty(index) ? null : point)) : [],
    });
    if (!fits) return;
    code.textContent = output.code;
    numbers.replaceChildren(makeTable());
  }

  function makeTable() {
    const keys = state.key.map((_, index) => make('th', { scope: 'col' }, `k${index + 1}`));
    const head = make('tr', {}, make('th', {}), make('th', {}), ...keys, make('th', { scope: 'col' }, words('sum')));
    const rows = state.query.flatMap((_, q) => {
      const [scores, weights] = [output.scores[q], output.weights[q]];
      const sum = weights.reduce((total, one) => total + one, 0);
      const mark = q === state.active ? 'active' : '';
      const name = make('th', { scope: 'rowgroup', rowspan: 2, class: mark }, `q${q + 1}`);
      return [
        make('tr', { class: 'scores' }, name, make('th', { scope: 'row' }, words('scores')),
          ...scores.map((one) => make('td', {}, one === null ? '−∞' : one.toFixed(2).replace('-', '−'))), make('td', {})),
        make('tr', { class: 'weights' }, make('th', { scope: 'row' }, words('weights')), ...weights.map(weightCell),
          make('td', { class: 'sum' }, sum === 0 ? words('noVisibleKey') : formatWeight(sum))),
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
    const add = (kind) => () => {
      if (state[kind].length >= MAX_POINTS[kind]) return;
      const angle = 2.4 * state[kind].length + (kind === 'query' ? 1 : 0); // the golden angle: never on top of another
      const point = [1.9 * Math.cos(angle), 1.9 * Math.sin(angle)].map((x) => Math.round(x * 100) / 100);
      state[kind].push(point);
      if (kind === 'key' && state.value) state.value.push([point[1], point[0]]);
      if (kind === 'query') state.active = state.query.length - 1;
      form.refresh();
      draw();
      update();
    };
    const remove = (kind) => () => {
      if (state[kind].length <= 1) return;
      state[kind].pop();
      if (kind === 'key' && state.value) state.value.pop();
      state.hidden.delete(state.key.length);
      state.active = Math.min(state.active, state.query.length - 1);
      form.refresh();
      draw();
      update();
    };
    const reset = () => {
      Object.assign(state, initialState(catalogue));
      form.refresh();
      draw();
      update();
    };
    const group = (kind, addLabel, removeLabel) => make('span', { class: 'count' },
      button(removeLabel, '−', remove(kind)), make('span', { class: `tag ${kind}` }, words(kind)), button(addLabel, '+', add(kind)));
    return make('div', { class: 'line counts' }, group('query', 'addQuery', 'removeQuery'), group('key', 'addKey', 'removeKey'),
      make('button', { type: 'button', class: 'quiet', onclick: reset }, words('reset')));
  }
}

function requestOf(state) {
  const part = ({ name, values }) => ({ name, arguments: values });
  return {
    queries: state.query, keys: state.key, values: state.value, hidden_keys: [...state.hidden],
    score: part(state.score), normalize: part(state.normalize), mask: state.mask ? part(state.mask) : null,
  };
}
