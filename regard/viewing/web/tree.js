// The beam as a tree: a column per step, the best path along the top, pruned nodes in gray.
//
//   const tree = new Tree(container, { steps, path, language });
//   tree.show(step);
//
// steps[t] is a list of { text, p, score, parent, end }; `parent` is an index in steps[t - 1], path[t] one in steps[t].

import { FONT, isolated, make, makeSvg, pieceOf, visible } from './dom.js';
import { localize, formatWeight } from './language.js';
import { TREE_TEXTS } from './tree-texts.js';

const [ROW_HEIGHT, PADDING, GAP] = [26, 14, 34];

export class Tree {
  constructor(container, { steps, path, language }) {
    this.steps = steps;
    this.path = path;
    this.language = language;
    this.picked = null;
    this.marked = steps.flat().some((node) => node.text.startsWith('▁'));
    this.rows = arrangeRows(steps, path);
    this.extended = steps.map((step, t) =>
      step.map((_, index) => (steps[t + 1] || []).some((next) => next.parent === index)),
    );
    this.svg = makeSvg('svg', { class: 'tree' });
    this.box = make(
      'div',
      { class: 'wide tree-box', tabindex: 0, role: 'application', onkeydown: (event) => this.#key(event) },
      this.svg,
    );
    this.status = make('p', { class: 'heat-status', 'aria-live': 'polite' });
    container.append(this.box, this.status);
    this.#build();
    this.setLanguage(language);
  }

  setLanguage(language) {
    this.language = language;
    this.box.setAttribute('aria-label', localize(TREE_TEXTS, 'label', language));
    this.#describe();
  }

  show(step) {
    this.step = step;
    const active = this.#activeNodes(step);
    this.nodes.forEach((column, t) =>
      column.forEach((node, index) => {
        const isBest = this.path[t] === index;
        node.group.setAttribute(
          'class',
          [
            'node',
            t > step && 'future',
            t === step && 'now',
            active[t].has(index) ? 'on-beam' : 'pruned',
            isBest && 'best',
          ]
            .filter(Boolean)
            .join(' '),
        );
      }),
    );
    this.svg.setAttribute(
      'height',
      2 * PADDING + ROW_HEIGHT * (1 + Math.max(0, ...this.rows.slice(0, step + 1).flat())),
    );
    const column = this.lefts[step];
    const width = this.box.clientWidth;
    if (column < this.box.scrollLeft + 40 || column + this.widths[step] > this.box.scrollLeft + width - 40) {
      this.box.scrollLeft = column - width / 2;
    }
    if (this.picked && this.picked[0] > step) this.#pick(null);
    else this.#describe();
  }

  // For each column, the nodes with a descendant that is on the beam or finished at this step.
  #activeNodes(step) {
    const active = this.steps.map(() => new Set());
    for (let t = step; t >= 0; t -= 1) {
      this.steps[t].forEach((node, index) => {
        if (t === step || node.end) active[t].add(index);
        if (active[t].has(index) && t > 0) active[t - 1].add(node.parent);
      });
    }
    return active;
  }

  #build() {
    const measure = document.createElement('canvas').getContext('2d');
    measure.font = `14px ${FONT}`;
    this.plates = this.steps.map((step) =>
      step.map((node) => Math.max(20, measure.measureText(this.#name(node)).width + 12)),
    );
    this.widths = this.plates.map((plates) => Math.max(0, ...plates));
    this.lefts = [];
    this.widths.reduce((left, width, t) => {
      this.lefts[t] = left;
      return left + width + GAP;
    }, PADDING + 22);
    this.width = this.lefts.at(-1) + this.widths.at(-1) + PADDING;
    this.svg.setAttribute('width', this.width);
    this.svg.append(makeSvg('circle', { cx: PADDING + 4, cy: this.#y(0, this.path[0]), r: 4, class: 'root' }));
    this.nodes = this.steps.map((step, t) => step.map((node, index) => this.#node(node, t, index)));
    const groups = this.nodes.flatMap((column, t) =>
      column.map((node, index) => [this.path[t] === index, node.group]),
    );
    groups.sort((a, b) => a[0] - b[0]); // the best path is drawn last, above the others
    this.svg.append(...groups.map(([, group]) => group));
  }

  #name(node) {
    const letters = [...visible(pieceOf(node.text, this.marked))];
    return letters.length > 14 ? `${letters.slice(0, 13).join('')}…` : letters.join('');
  }

  #y(t, index) {
    return PADDING + ROW_HEIGHT * (this.rows[t][index] + 0.5);
  }

  #node(node, t, index) {
    const [x, y, wide] = [this.lefts[t], this.#y(t, index), this.plates[t][index]];
    const from = t === 0 ? PADDING + 8 : this.lefts[t - 1] + this.plates[t - 1][node.parent];
    const y0 = t === 0 ? this.#y(0, this.path[0]) : this.#y(t - 1, node.parent);
    const bend = Math.max(12, (x - from) / 2);
    const edge = makeSvg('path', {
      class: 'edge',
      fill: 'none',
      d: `M ${from} ${y0} C ${from + bend} ${y0}, ${x - bend} ${y}, ${x} ${y}`,
    });
    const plate = makeSvg('rect', { class: 'plate', x, y: y - 11, width: wide, height: 22, rx: 5 });
    const word = makeSvg('text', { x: x + wide / 2, y: y + 5, 'text-anchor': 'middle' }, this.#name(node));
    const group = makeSvg(
      'g',
      { class: 'node', onpointerenter: () => this.#pick([t, index]), onpointerleave: () => this.#pick(null) },
      edge,
      plate,
      word,
    );
    return { group };
  }

  #pick(place) {
    if (place && place[0] > this.step) return;
    if (this.picked) this.nodes[this.picked[0]][this.picked[1]].group.classList.remove('picked');
    this.picked = place;
    if (place) this.nodes[place[0]][place[1]].group.classList.add('picked');
    this.#describe();
  }

  #describe() {
    if (!this.picked) {
      this.status.textContent = localize(TREE_TEXTS, 'hint', this.language);
      return;
    }
    const [t, index] = this.picked;
    const node = this.steps[t][index];
    const texts = [];
    for (let [at, i] = [t, index]; at >= 0; i = this.steps[at][i].parent, at -= 1)
      texts.unshift(this.steps[at][i].text);
    const status =
      this.path[t] === index
        ? 'best'
        : node.end
          ? 'finished'
          : this.extended[t][index] && t < this.step
            ? 'extended'
            : t === this.step
              ? 'onBeam'
              : 'pruned';
    const text = this.marked ? texts.join('').replaceAll('▁', ' ').trim() : texts.join('');
    this.status.textContent = localize(TREE_TEXTS, 'node', this.language, {
      text: isolated(text),
      p: formatWeight(node.p),
      score: node.score.toFixed(2).replace('-', '−'),
      status: localize(TREE_TEXTS, status, this.language),
    });
  }

  #key(event) {
    const [t, index] = this.picked || [this.step, this.path[this.step] ?? 0];
    const row = (at) => this.steps[at].map((_, i) => i).sort((a, b) => this.rows[at][a] - this.rows[at][b]);
    const neighbor = (by) => row(t)[row(t).indexOf(index) + by];
    const child = t < this.step ? row(t + 1).find((i) => this.steps[t + 1][i].parent === index) : undefined;
    const to = {
      ArrowUp: [t, neighbor(-1)],
      ArrowDown: [t, neighbor(1)],
      ArrowLeft: [t - 1, t > 0 ? this.steps[t][index].parent : undefined],
      ArrowRight: [t + 1, child],
    }[event.key];
    if (event.key === 'Escape') this.#pick(null);
    else if (!to) return;
    else if (!this.picked) this.#pick([t, index]);
    else if (to[1] !== undefined) this.#pick(to);
    event.preventDefault();
    event.stopPropagation();
  }
}

// The row of every node: the best path has the first row; the others follow in the order of their parents' rows.
function arrangeRows(steps, path) {
  const rows = [];
  steps.forEach((step, t) => {
    const order = step
      .map((_, index) => index)
      .sort((a, b) => {
        if ((a === path[t]) !== (b === path[t])) return a === path[t] ? -1 : 1;
        const above = t > 0 ? rows[t - 1][step[a].parent] - rows[t - 1][step[b].parent] : 0;
        return above || step[b].score - step[a].score;
      });
    rows[t] = [];
    order.forEach((index, row) => {
      rows[t][index] = row;
    });
  });
  return rows;
}
