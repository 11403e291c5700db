// Every head in small: a row is a layer, a column a head.

import { onScheme } from '../web/color.js';
import { make } from '../web/dom.js';
import { imageOf, maxOf } from '../web/paint.js';

const LIFT = 0.6; // in a small picture faint weights need help

// { element, mark(layer, head) }; choose(layer, head) is called with null for a mean.
export function headsOf(look, kind, help, choose) {
  const { words, news } = help;
  const layers = look.layers(kind);
  const heads = Math.max(...layers.map((layer) => layer.heads));
  const single = layers.length * heads === 1;
  const buttons = [];
  const all = button(null, null, words('all'), words('all'), 'whole');
  const grid = make('div', { class: 'heads' });
  grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(26px, 56px))`;
  layers.forEach((layer, place) => {
    grid.append(button(place, null, String(place + 1), words('meanOf', { n: place + 1 }), 'row'));
    const canvases = Array.from({ length: layer.heads }, () => make('canvas', { 'aria-hidden': 'true' }));
    canvases.forEach((canvas, head) => grid.append(button(place, head, canvas, words('head', { layer: place + 1, head: head + 1 }), 'thumb')));
    draw(layer.number, canvases);
  });

  function button(layer, head, content, label, look) {
    const made = make('button', { type: 'button', class: `quiet ${look}`, title: label, 'aria-label': label, onclick: () => choose(layer, head) }, content);
    buttons.push({ made, layer, head });
    return made;
  }

  async function draw(number, canvases) {
    let small;
    try {
      small = await look.thumbnails(number);
    } catch (error) {
      news.trouble(error);
      return;
    }
    const [, rows, columns] = small.shape;
    const paint = () => canvases.forEach((canvas, head) => {
      const part = small.block.subarray(head * rows * columns, (head + 1) * rows * columns);
      canvas.width = columns;
      canvas.height = rows;
      canvas.getContext('2d').drawImage(imageOf(part, rows, columns, maxOf(part), LIFT), 0, 0);
    });
    paint();
    onScheme(paint);
  }

  const hint = single ? null : make('p', { class: 'note' }, words('headsHint'));
  return {
    element: make('div', { class: single ? 'overview hidden' : 'overview' }, all, make('div', { class: 'wide' }, grid), hint),
    mark: (layer, head) => buttons.forEach((one) => one.made.setAttribute('aria-pressed', String(one.layer === layer && one.head === head))),
  };
}
