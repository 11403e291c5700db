// The state of the playground, and how it is written into an address and read again.

const POINTS = {
  query: [[1.6, 1.1], [-1.2, 0.4]],
  key: [[2.1, 0.3], [0.9, 2.0], [-0.7, 1.7], [-2.0, -0.6], [-0.4, -1.8], [1.5, -1.5]],
};
const LETTERS = { score: 'score', normalize: 'normalizer', mask: 'mask' };
const kept = new Map();

// What the server says once holds for as long as the page is open.
export async function begun(path, ask) {
  if (!kept.has(path)) kept.set(path, await ask(path));
  return kept.get(path);
}

export function partOf(catalogue, letter, name, given = {}) {
  const found = catalogue[LETTERS[letter]].find((part) => part.name === name);
  if (!found) return null;
  const settings = Object.fromEntries(found.settings.map(({ name: key, low, high, start, step }) => {
    const asked = Number(given[key] ?? start);
    const value = Number.isFinite(asked) ? Math.min(high, Math.max(low, asked)) : start;
    return [key, step === 1 ? Math.round(value) : value];
  }));
  return { name, settings, about: found };
}

export function startOf(catalogue) {
  return {
    score: partOf(catalogue, 'score', 'ScaledDot'), normalize: partOf(catalogue, 'normalize', 'softmax'), mask: null,
    query: structuredClone(POINTS.query), key: structuredClone(POINTS.key), value: null, hidden: new Set(), active: 0,
  };
}

// A kernel score takes a normalizer for kernel values, and the other way round.
export function agree(catalogue, state) {
  if (state.normalize.about.input_kind === state.score.about.output_kind) return;
  const fitting = catalogue.normalizer.find((part) => part.input_kind === state.score.about.output_kind);
  state.normalize = partOf(catalogue, 'normalize', fitting.name);
}

export function readState(given, catalogue) {
  const state = startOf(catalogue);
  for (const letter of Object.keys(LETTERS)) {
    const [name, ...values] = (given[letter] || '').split(',');
    const settings = Object.fromEntries(values.map((one) => one.split(':')));
    state[letter] = partOf(catalogue, letter, name, settings) || state[letter];
  }
  agree(catalogue, state);
  for (const kind of ['query', 'key']) state[kind] = pointsOf(given[kind]) || state[kind];
  const values = pointsOf(given.value);
  state.value = values && values.length === state.key.length ? values : null;
  const places = (given.hidden || '').split(',').filter(Boolean).map(Number);
  state.hidden = new Set(places.filter((place) => Number.isInteger(place) && place >= 0 && place < state.key.length));
  return state;
}

export function writeState(state) {
  const part = (one) => one && [one.name, ...Object.entries(one.settings).map(([key, value]) => `${key}:${value}`)].join(',');
  const points = (list) => list && list.map(([x, y]) => `${x},${y}`).join(';');
  return {
    score: part(state.score), normalize: part(state.normalize), mask: part(state.mask), query: points(state.query),
    key: points(state.key), value: points(state.value), hidden: [...state.hidden].join(','),
  };
}

function pointsOf(text) {
  const points = (text || '').split(';').map((point) => point.split(',').map(Number));
  const fine = points.length <= 10 && points.every((point) => point.length === 2 && point.every((x) => Number.isFinite(x) && Math.abs(x) <= 3));
  return fine ? points : null;
}
