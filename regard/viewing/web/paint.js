// Painting of a heatmap: an image with one pixel per cell, scaled to the size of the matrix.

import { inkOn, isDark, palette } from './color.js';
import { FONT, visible } from './dom.js';
import { formatWeight } from './language.js';

const FULL = 65535;
const LABEL_HEIGHT = 14; // pixels between labels
const MIN_NUMBER_CELL = 36; // pixels of a cell that can hold its number

// A canvas with one pixel per cell; the weight `max` has the full color.
export function imageOf(weights, rows, columns, max, gamma) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const colors = palette(gamma);
  const scale = max ? 255 / max : 0;
  for (let place = 0; place < weights.length; place += 1)
    pixels[place] = colors[Math.round(weights[place] * scale)];
  context.putImageData(image, 0, 0);
  return canvas;
}

// A canvas of the color scale.
export function rampOf(gamma) {
  const steps = Uint16Array.from({ length: 64 }, (_, place) => place);
  return imageOf(steps, 1, 64, 63, gamma);
}

export function maxOf(weights) {
  let max = 0;
  for (let place = 0; place < weights.length; place += 1) if (weights[place] > max) max = weights[place];
  return max;
}

// The space for the labels: { turned, left, above }, at most a third of the width.
export function marginsOf(context, { rows, columns }, cell, width) {
  context.font = `13px ${FONT}`;
  const widest = (labels) =>
    labels.reduce((max, label) => Math.max(max, context.measureText(visible(label)).width), 0);
  const turned =
    Boolean(columns) &&
    columns.some((label) => visible(label).length > 1) &&
    widest(columns.slice(0, 600)) > cell - 2;
  return {
    turned, // column labels are rotated if one of them does not fit
    left: rows ? Math.ceil(Math.min(widest(rows.slice(0, 600)) + 14, width / 3, 150)) : 0,
    above: columns ? Math.ceil(turned ? Math.min(widest(columns.slice(0, 600)) + 14, 110) : 24) : 0,
  };
}

// view: { image, weights, rows, columns, labels: { rows, columns }, margin, cell, left, above, width, height,
//         shown, cursor, pinned, max, gamma }, in CSS pixels; `left` and `above` are the scroll offsets.
export function paint(context, view, style) {
  const { margin, cell, width, height } = view;
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.save();
  context.beginPath();
  context.rect(margin.left, margin.above, width - margin.left, height - margin.above);
  context.clip();
  context.translate(margin.left - view.left, margin.above - view.above);
  cells(context, view, style);
  context.restore();
  labels(context, view, style);
}

function cells(context, view, style) {
  const { cell, columns, rows } = view;
  const shown = Math.min(rows, view.shown);
  if (shown && columns) {
    context.drawImage(view.image, 0, 0, columns, shown, 0, 0, columns * cell, shown * cell);
  }
  if (cell >= 9) grid(context, view, style);
  if (cell >= MIN_NUMBER_CELL && view.numbers) numbers(context, view, shown);
  context.lineWidth = 1.5;
  context.strokeStyle = style.line;
  context.strokeRect(0, 0, columns * cell, rows * cell);
  for (const [place, color] of [
    [view.pinned, style.accent],
    [view.cursor, style.accent],
  ]) {
    if (place) frame(context, view, place, color);
  }
}

function grid(context, { cell, columns, rows }, style) {
  context.lineWidth = 1;
  context.strokeStyle = style.paper;
  context.beginPath();
  for (let column = 1; column < columns; column += 1) {
    context.moveTo(column * cell, 0);
    context.lineTo(column * cell, rows * cell);
  }
  for (let row = 1; row < rows; row += 1) {
    context.moveTo(0, row * cell);
    context.lineTo(columns * cell, row * cell);
  }
  context.stroke();
}

function numbers(context, view, shown) {
  const { cell, columns, weights, max, gamma } = view;
  const dark = isDark();
  context.font = `${Math.min(14, cell / 3.2)}px ${FONT}`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  const [first, last] = visibleRange(view.left, cell, columns, view.width);
  const [begin, end] = visibleRange(view.above, cell, shown, view.height);
  for (let row = begin; row < end; row += 1) {
    for (let column = first; column < last; column += 1) {
      const weight = weights[row * columns + column];
      if (weight * 100 < FULL / 2) continue; // a matrix full of zeros would be noise
      context.fillStyle = inkOn((weight / max) ** gamma, dark);
      context.fillText(formatWeight(weight / FULL), (column + 0.5) * cell, (row + 0.5) * cell);
    }
  }
}

function frame(context, { cell, columns, rows }, { row, column }, color) {
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.globalAlpha = 0.55;
  if (row !== null) context.strokeRect(0, row * cell, columns * cell, cell);
  if (column !== null) context.strokeRect(column * cell, 0, cell, rows * cell);
  context.globalAlpha = 1;
  if (row === null || column === null) return;
  context.lineWidth = 2;
  context.strokeRect(column * cell - 1, row * cell - 1, cell + 2, cell + 2);
}

function visibleRange(scrolled, cell, count, size) {
  return [Math.max(0, Math.floor(scrolled / cell)), Math.min(count, Math.ceil((scrolled + size) / cell))];
}

function labels(context, view, style) {
  context.font = `13px ${FONT}`;
  context.textBaseline = 'middle';
  const marked = [view.cursor, view.pinned].filter(Boolean);
  const { margin, cell } = view;
  side(
    view,
    view.labels.rows,
    view.rows,
    view.above,
    view.height - margin.above,
    marked.map((m) => m.row),
    (text, place, color) => {
      const y = margin.above + (place + 0.5) * cell - view.above;
      context.textAlign = 'right';
      write(context, text, margin.left - 8, y, margin.left - 10, color);
    },
    style,
  );
  side(
    view,
    view.labels.columns,
    view.columns,
    view.left,
    view.width - margin.left,
    marked.map((m) => m.column),
    (text, place, color) => {
      const x = margin.left + (place + 0.5) * cell - view.left;
      const flat = !margin.turned || text.length === 1;
      context.save();
      context.translate(x, margin.above - (flat ? 12 : 8));
      context.textAlign = flat ? 'center' : 'left';
      if (!flat) context.rotate(-Math.PI / 2);
      write(context, text, 0, 0, flat ? Math.max(cell, LABEL_HEIGHT) : margin.above - 10, color);
      context.restore();
    },
    style,
  );
}

// Every n-th label and the marked ones; labels that would overlap a marked one are left out.
function side(view, names, count, scrolled, room, marked, put, style) {
  if (!names) return;
  const stride = Math.max(1, Math.ceil(LABEL_HEIGHT / view.cell));
  const [first, last] = visibleRange(scrolled, view.cell, count, room);
  const inView = marked.filter((place) => place !== null && place >= first && place < last);
  const near = (place) =>
    inView.some((other) => other !== place && Math.abs(other - place) * view.cell < LABEL_HEIGHT);
  for (let place = first; place < last; place += 1) {
    const middle = (place + 0.5) * view.cell - scrolled;
    if (middle < 0 || middle > room) continue;
    if (inView.includes(place)) put(visible(names[place]), place, style.accent);
    else if (place % stride === 0 && !near(place)) put(visible(names[place]), place, style.ink);
  }
}

function write(context, text, x, y, room, color) {
  context.fillStyle = color;
  context.fillText(truncate(context, text, room), x, y);
}

// A text cut to a width in pixels.
export function truncate(context, text, width) {
  const letters = [...text];
  let shown = text;
  while (letters.length > 1 && context.measureText(shown).width > width) {
    letters.pop();
    shown = `${letters.join('')}…`;
  }
  return shown;
}
