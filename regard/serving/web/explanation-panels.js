// Next to the matrix: every head in small, and how faithful the weights are.

import { onScheme } from '../web/color.js';
import { make } from '../web/dom.js';
import { imageOf, maxOf } from '../web/paint.js';

const GAMMA = 0.6; // lifts faint weights in small pictures
const CHANGES = ['permuted', 'uniform', 'most_attended', 'random', 'least_attended'];

// { element, mark(layer, head) }; select(layer, head) is called with null for a mean. A row is a layer, a column a head.
export function headOverview(explanation, group, { words, status }, select) {
  const layers = explanation.layers(group);
  const heads = Math.max(...layers.map((layer) => layer.heads));
  const isSingle = layers.length * heads === 1;
  const buttons = [];
  const all = button(null, null, words('all'), words('all'), 'mean-of-all');
  const grid = make('div', { class: 'heads' });
  grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(26px, 56px))`;
  layers.forEach((layer, row) => {
    grid.append(button(row, null, String(row + 1), words('layerMean', { n: row + 1 }), 'row'));
    const canvases = Array.from({ length: layer.heads }, () => make('canvas', { 'aria-hidden': 'true' }));
    canvases.forEach((canvas, head) => grid.append(button(row, head, canvas, words('head', { layer: row + 1, head: head + 1 }), 'thumbnail')));
    draw(layer.index, canvases);
  });

  function button(layer, head, content, label, kind) {
    const element = make('button', { type: 'button', class: `quiet ${kind}`, title: label, 'aria-label': label, onclick: () => select(layer, head) }, content);
    buttons.push({ element, layer, head });
    return element;
  }

  async function draw(index, canvases) {
    let small;
    try {
      small = await explanation.thumbnails(index);
    } catch (error) {
      status.error(error);
      return;
    }
    const [, rows, columns] = small.shape;
    const paint = () => canvases.forEach((canvas, head) => {
      const part = small.weights.subarray(head * rows * columns, (head + 1) * rows * columns);
      canvas.width = columns;
      canvas.height = rows;
      canvas.getContext('2d').drawImage(imageOf(part, rows, columns, maxOf(part), GAMMA), 0, 0);
    });
    paint();
    onScheme(paint);
  }

  const hint = isSingle ? null : make('p', { class: 'note' }, words('headsHint'));
  return {
    element: make('div', { class: isSingle ? 'overview hidden' : 'overview' }, all, make('div', { class: 'wide' }, grid), hint),
    mark: (layer, head) => buttons.forEach((one) => one.element.setAttribute('aria-pressed', String(one.layer === layer && one.head === head))),
  };
}

// Weights are not explanations: says so, and measures how much the prediction depends on them.
export function faithfulnessPanel(explanation, { words, language }) {
  const results = make('div', { 'aria-live': 'polite' });
  const button = make('button', { type: 'button', onclick: measure }, words('measure'));
  const details = make('details', {}, make('summary', {}, words('faithfulnessSummary')), make('p', {}, words('faithfulnessText')));

  async function measure() {
    button.disabled = true;
    results.replaceChildren(make('p', { class: 'note busy' }, words('measuring')));
    try {
      results.replaceChildren(...show(await explanation.faithfulness()));
      button.remove();
    } catch (error) {
      if (!error.localized) throw error;
      results.replaceChildren(make('p', { class: 'error', role: 'alert' }, error.localized(language)));
      button.disabled = false;
    }
  }

  function show(found) {
    const rows = CHANGES.flatMap((name) => {
      const bar = make('span', { class: 'bar-value' });
      bar.style.inlineSize = `${100 * found[name].probability_mass}%`;
      const percent = `${Math.round(100 * found[name].probability_mass)} %`;
      return [make('dt', {}, words(name)), make('dd', { class: 'bar-track', 'aria-hidden': 'true' }, bar), make('dd', { class: 'number' }, percent)];
    });
    return [make('p', { class: 'note' }, words('probabilityMass')), make('dl', { class: 'changes' }, ...rows), make('p', { class: 'verdict' }, found.sentence[language])];
  }

  const action = explanation.data.has_faithfulness ? button : make('p', { class: 'note' }, words('cannotMeasure'));
  return make('section', { class: 'sheet faithfulness-panel' }, make('h2', {}, words('faithfulness')), details, results, action);
}
