// A look on the page: both sentences, the matrix between them, every layer and head beside it.

import { make } from '../web/dom.js';
import { Heat } from '../web/heat.js';
import { weightedWords } from '../web/weighted-words.js';
import { newest } from './ask.js';
import { headsOf } from './heads.js';
import { honestyOf } from './honesty.js';
import { choice } from './parts.js';

const MOST = 46; // pixels of a cell
const FROM_THE_RIGHT = /^[^A-Za-z\u00c0-\u02af\u0370-\u058f\u3040-\uffdc]*[\u0590-\u08ff\ufb1d-\ufefc]/; // its first letter is Hebrew, Arabic or the like
const FULL = 65535;
const KINDS = ['across', 'reading', 'writing'];

export function lookingAt(place, look, state, help) {
  const { words, language, news } = help;
  const kind = look.has(state.kind) ? state.kind : 'across';
  const unit = look.hasPieces && state.unit === 'pieces' ? 'pieces' : 'words';
  const [rows, columns] = look.labels(kind, unit);
  const { names } = look.sides(kind);
  const layers = look.layers(kind);
  const single = layers.length === 1 && layers[0].heads === 1;
  const within = (value, count) => (value !== null && Number(value) < count ? Number(value) : null);
  let layer = within(state.layer, layers.length);
  let head = layer === null ? null : within(state.head, layers[layer].heads);
  let pin = { row: within(state.row, rows.length), column: within(state.column, columns.length) };
  let hover = null;
  let weights = null;

  const again = () => lookingAt(place, look, state, help);
  const looksAt = make('div', { class: 'sentence' });
  const looks = make('div', { class: 'sentence' });
  const board = make('div', { class: 'board' });
  const title = make('h2', { 'aria-live': 'polite' });
  const measures = make('dl', { class: 'measures' });
  const unpin = make('button', { type: 'button', class: 'quiet hidden', onclick: () => pinned(null, null) }, words('unpin'));

  looksAt.dir = directionOf(columns);
  looks.dir = directionOf(rows);
  const upper = weightedWords(looksAt, columns, null, follow('column'));
  const lower = weightedWords(looks, rows, null, follow('row'));
  const heat = new Heat(board, { rows, columns, label: words('heat'), language, height: 520, maxCell: MOST });
  heat.onHover = (cell) => over(cell && { row: cell.row, column: cell.column });
  heat.onPin = (cell) => pinned(cell ? cell.row : null, cell ? cell.column : null);
  const overview = headsOf(look, kind, help, choose);
  const show = newest(async () => {
    try {
      weights = await look.block(kind, layer, head, unit);
      heat.show(weights);
      light();
      news.clear();
    } catch (error) {
      news.trouble(error, show);
    }
  });

  place.replaceChildren(
    make('div', { class: 'sheet matrix' }, tools(),
      make('div', { class: 'pair' },
        make('h2', {}, nameOf('columns', 'lookedAt')), looksAt,
        make('h2', {}, nameOf('rows', 'looks')), looks),
      make('p', { class: 'note line' }, words('pinHint'), unpin), board),
    make('div', { class: 'aside' },
      make('div', { class: 'sheet' }, make('h2', {}, words(single ? 'inNumbers' : 'heads')), overview.element, single ? null : title, measures),
      honestyOf(look, help)));
  choose(layer, head);
  pinned(pin.row, pin.column);

  function tools() {
    const several = help.served.model.model === 'transformer';
    const kinds = several && choice(words('kind'), KINDS.map((one) => [one, words(one)]), kind, (one) => {
      Object.assign(state, { kind: one === 'across' ? null : one, layer: null, head: null, row: null, column: null });
      help.keep();
      if (look.has(one)) again();
      else help.lookWithin();
    });
    const units = look.hasPieces && choice(words('unit'), [['words', words('words')], ['pieces', words('pieces')]], unit, (one) => {
      Object.assign(state, { unit: one === 'pieces' ? one : null, row: null, column: null });
      help.keep();
      again();
    });
    return kinds || units ? make('div', { class: 'line tools' }, kinds || null, units || null) : null;
  }

  // Within a sentence, both sides are the same one: then it is said which of them looks.
  function nameOf(side, role) {
    const name = words(names[side] === 'source' ? 'source' : 'target');
    return kind === 'across' ? name : words(role, { name });
  }

  function follow(side) {
    const word = (at) => ({ row: null, column: null, [side]: at });
    return {
      onHover: (at) => over(at === null ? null : word(at)),
      onPin: (at) => {
        const same = pin.row === word(at).row && pin.column === word(at).column;
        pinned(same ? null : word(at).row, same ? null : word(at).column);
      },
    };
  }

  function over(cell) {
    hover = cell;
    light();
  }

  function pinned(row, column) {
    pin = { row, column };
    Object.assign(state, pin);
    help.keep();
    heat.mark(row, column);
    unpin.classList.toggle('hidden', row === null && column === null);
    light();
  }

  // What a word looks at is lit in the other sentence, and who looks at it.
  function light() {
    if (!weights) return;
    const { row, column } = hover || pin;
    const wide = columns.length;
    upper.update(row === null ? null : Array.from(weights.subarray(row * wide, (row + 1) * wide), (weight) => weight / FULL));
    lower.update(column === null ? null : rows.map((_, at) => weights[at * wide + column] / FULL));
    upper.mark(column);
    lower.mark(row);
  }

  function choose(newLayer, newHead) {
    [layer, head] = [newLayer, newHead];
    Object.assign(state, { kind: kind === 'across' ? null : kind, layer, head });
    help.keep();
    overview.mark(layer, head);
    title.textContent = layer === null ? words('all') : head === null ? words('meanOf', { n: layer + 1 }) : words('head', { layer: layer + 1, head: head + 1 });
    show();
    measure();
  }

  // In numbers, for what is shown; they come after the matrix, as nobody waits for them.
  async function measure() {
    const [forLayer, forHead] = [layer, head];
    let found;
    try {
      found = await look.measures(kind, layer, head);
    } catch (error) {
      news.trouble(error);
      return;
    }
    if (forLayer !== layer || forHead !== head) return;
    const known = Object.entries(found).filter(([, value]) => value !== null);
    measures.replaceChildren(...known.flatMap(([name, value]) => [
      make('dt', {}, words(name)), make('dd', { class: 'number' }, words(`${name}Unit`, { n: value.toFixed(name === 'holding' || name === 'distance' ? 1 : 2) })),
    ]));
  }
}

function directionOf(labels) {
  return FROM_THE_RIGHT.test(labels.join(' ')) ? 'rtl' : 'ltr';
}
