// An explanation on the page: both sequences, the matrix of weights between them, every layer and head next to it.

import { directionOf, make } from '../web/dom.js';
import { Heat } from '../web/heat.js';
import { weightedWords } from '../web/weighted-words.js';
import { latestOnly } from './api.js';
import { buttonGroup } from './controls.js';
import { faithfulnessPanel, headOverview } from './explanation-panels.js';

const MAX_CELL = 46; // pixels
const FULL_WEIGHT = 65535;
// Groups of maps that are computed on request, by the option of the request.
export const SELF_ATTENTION = ['encoder_self', 'decoder_self'];

export function showExplanation(container, explanation, state, help) {
  const { words, language, status, offersSelfAttention } = help;
  const group = explanation.hasGroup(state.group) ? state.group : explanation.groups[0];
  const unit = explanation.hasTokens && state.unit === 'tokens' ? 'tokens' : 'words';
  const [rows, columns] = explanation.labels(group, unit);
  const { isSelf } = explanation.sides(group);
  const layers = explanation.layers(group);
  const isSingle = layers.length === 1 && layers[0].heads === 1;
  const valid = (value, count) => (value !== null && Number(value) < count ? Number(value) : null);
  let layer = valid(state.layer, layers.length);
  let head = layer === null ? null : valid(state.head, layers[layer].heads);
  let pinned = { row: valid(state.row, rows.length), column: valid(state.column, columns.length) };
  let hovered = null;
  let weights = null;

  const redraw = () => showExplanation(container, explanation, state, help);
  const keysElement = make('div', { class: 'sentence' });
  const queriesElement = make('div', { class: 'sentence' });
  const board = make('div', { class: 'board' });
  const title = make('h2', { 'aria-live': 'polite' });
  const measures = make('dl', { class: 'measures' });
  const unpin = make('button', { type: 'button', class: 'quiet hidden', onclick: () => pin(null, null) }, words('unpin'));

  keysElement.dir = directionOf(columns.join(' '));
  queriesElement.dir = directionOf(rows.join(' '));
  const keyWords = weightedWords(keysElement, columns, null, pointers('column'));
  const queryWords = weightedWords(queriesElement, rows, null, pointers('row'));
  const heat = new Heat(board, { rows, columns, label: words('heat'), language, height: 520, maxCell: MAX_CELL });
  heat.onHover = (cell) => hover(cell && { row: cell.row, column: cell.column });
  heat.onPin = (cell) => pin(cell ? cell.row : null, cell ? cell.column : null);
  const overview = headOverview(explanation, group, help, selectHead);
  const showWeights = latestOnly(async () => {
    try {
      weights = await explanation.weights(group, layer, head, unit);
      heat.show(weights);
      highlight();
      status.clear();
    } catch (error) {
      status.error(error, showWeights);
    }
  });

  container.replaceChildren(
    make('div', { class: 'sheet matrix' }, tools(),
      make('div', { class: 'sides' },
        make('h2', {}, sideName('keys')), keysElement,
        make('h2', {}, sideName('queries')), queriesElement),
      make('p', { class: 'note line' }, words('pinHint'), unpin), board),
    make('div', { class: 'aside' },
      make('div', { class: 'sheet' }, make('h2', {}, words(isSingle ? 'measures' : 'heads')), overview.element, isSingle ? null : title, measures),
      faithfulnessPanel(explanation, help)));
  selectHead(layer, head);
  pin(pinned.row, pinned.column);

  function tools() {
    const groups = offersSelfAttention ? ['cross', ...SELF_ATTENTION] : explanation.groups;
    const named = groups.map((one) => [one, words(one)]);
    const groupButtons = groups.length > 1 && buttonGroup(words('group'), named, group, (one) => {
      Object.assign(state, { group: one === groups[0] ? null : one, layer: null, head: null, row: null, column: null });
      help.keep();
      if (explanation.hasGroup(one)) redraw();
      else help.requestSelfAttention();
    });
    const units = explanation.hasTokens && buttonGroup(words('unit'), [['words', words('words')], ['tokens', words('tokenUnit')]], unit, (one) => {
      Object.assign(state, { unit: one === 'tokens' ? one : null, row: null, column: null });
      help.keep();
      redraw();
    });
    return groupButtons || units ? make('div', { class: 'line tools' }, groupButtons || null, units || null) : null;
  }

  // In self-attention both sequences are the same: the name says which is the query and which the key.
  function sideName(side) {
    if (group === 'cross') return words(side === 'keys' ? 'source' : 'target');
    if (!isSelf) return words(side === 'keys' ? 'input' : 'prediction');
    const name = words(group === 'encoder_self' ? 'source' : 'target');
    return words(side === 'keys' ? 'asKeys' : 'asQueries', { name });
  }

  function pointers(side) {
    const cellOf = (index) => ({ row: null, column: null, [side]: index });
    return {
      onHover: (index) => hover(index === null ? null : cellOf(index)),
      onPin: (index) => {
        const cell = cellOf(index);
        const isSame = pinned.row === cell.row && pinned.column === cell.column;
        pin(isSame ? null : cell.row, isSame ? null : cell.column);
      },
    };
  }

  function hover(cell) {
    hovered = cell;
    highlight();
  }

  function pin(row, column) {
    pinned = { row, column };
    Object.assign(state, pinned);
    help.keep();
    heat.mark(row, column);
    unpin.classList.toggle('hidden', row === null && column === null);
    highlight();
  }

  // The weights of a query are shown on the keys, those of a key on the queries.
  function highlight() {
    if (!weights) return;
    const { row, column } = hovered || pinned;
    const width = columns.length;
    keyWords.update(row === null ? null : Array.from(weights.subarray(row * width, (row + 1) * width), (weight) => weight / FULL_WEIGHT));
    queryWords.update(column === null ? null : rows.map((_, index) => weights[index * width + column] / FULL_WEIGHT));
    keyWords.mark(column);
    queryWords.mark(row);
  }

  function selectHead(newLayer, newHead) {
    [layer, head] = [newLayer, newHead];
    Object.assign(state, { layer, head });
    help.keep();
    overview.mark(layer, head);
    title.textContent = layer === null ? words('all') : head === null ? words('layerMean', { n: layer + 1 }) : words('head', { layer: layer + 1, head: head + 1 });
    showWeights();
    showMeasures();
  }

  async function showMeasures() {
    const [forLayer, forHead] = [layer, head];
    let found;
    try {
      found = await explanation.measures(group, layer, head);
    } catch (error) {
      status.error(error);
      return;
    }
    if (forLayer !== layer || forHead !== head) return;
    const known = Object.entries(found).filter(([, value]) => value !== null);
    measures.replaceChildren(...known.flatMap(([name, value]) => [
      make('dt', {}, words(name)), make('dd', { class: 'number' }, words(`${name}Unit`, { n: value.toFixed(['keys_for_mass', 'distance'].includes(name) ? 1 : 2) })),
    ]));
  }
}
