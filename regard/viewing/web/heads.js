// A thumbnail of every head of every layer, and a heatmap of the selected head.

import { block, dataOf, weightsOf } from './blocks.js';
import { cellAfter } from './cells.js';
import { onScheme, palette } from './color.js';
import { isolated, make, visible } from './dom.js';
import { Heat } from './heat.js';
import { setLanguage, languageButton, detectLanguage, localize, formatWeight } from './language.js';
import { hashNumber, writeHash } from './transport.js';
import { HEADS_TEXTS } from './heads-texts.js';

const MAX_KEYS = 8; // in the list of a row

class HeadsView {
  constructor(data, thumbs, main) {
    this.data = data;
    this.thumbs = thumbs;
    this.language = detectLanguage(data.language);
    this.layer = hashNumber('layer', data.layers, 0);
    this.head = hashNumber('head', data.heads, 0);
    this.#build(main);
    this.#setLanguage(this.language);
    this.#choose(this.layer, this.head);
    onScheme(() => this.#paintThumbnails());
  }

  localize(key, values) {
    return localize(HEADS_TEXTS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.overview = make('h2');
    this.name = make('h2');
    this.keys = make('p', { class: 'note keys' });
    this.list = make('ol', { class: 'candidates' });
    this.most = make('h2', { class: 'most' });
    const map = make('div');
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      make(
        'div',
        { class: 'heads' },
        make('section', { class: 'sheet heads-over' }, this.overview, this.#overview()),
        make('section', { class: 'sheet heads-map' }, this.name, map),
        make('section', { class: 'sheet heads-most' }, this.most, this.list),
      ),
      make('footer', { class: 'foot' }, this.keys),
    );
    this.heat = new Heat(map, {
      rows: data.queries,
      columns: data.keys,
      label: data.title,
      language: this.language,
      height: 660,
    });
    this.heat.onHover = (cell) => this.#listKeys(cell ? cell.row : this.pinned);
    this.heat.onPin = (cell) => {
      this.pinned = cell ? cell.row : null;
      writeHash({ row: cell && cell.row, column: cell && cell.column });
      this.#listKeys(this.pinned);
    };
    this.pinned = hashNumber('row', data.queries.length, null);
    if (this.pinned !== null) this.heat.mark(this.pinned, hashNumber('column', data.keys.length, null));
  }

  #overview() {
    const { layers, heads } = this.data;
    const table = make('div', { class: 'thumbs', role: 'group', onkeydown: (event) => this.#key(event) });
    table.style.setProperty('--heads', heads);
    table.append(
      make('span'),
      ...Array.from({ length: heads }, (_, head) => make('span', { class: 'thumb-name' }, String(head))),
    );
    this.buttons = Array.from({ length: layers }, (_, layer) => {
      table.append(make('span', { class: 'thumb-name' }, String(layer)));
      return Array.from({ length: heads }, (__, head) => {
        const canvas = make('canvas', { width: this.data.thumb[1], height: this.data.thumb[0] });
        const button = make(
          'button',
          { type: 'button', class: 'thumb', tabindex: -1, onclick: () => this.#choose(layer, head) },
          canvas,
        );
        table.append(button);
        return button;
      });
    });
    this.#paintThumbnails();
    return make('div', { class: 'wide' }, table);
  }

  #paintThumbnails() {
    const colors = palette(0.5);
    const [rows, columns] = this.data.thumb;
    this.buttons.flat().forEach((button, place) => {
      const context = button.firstChild.getContext('2d');
      const image = context.createImageData(columns, rows);
      const pixels = new Uint32Array(image.data.buffer);
      for (let at = 0; at < pixels.length; at += 1)
        pixels[at] = colors[this.thumbs[place * pixels.length + at]];
      context.putImageData(image, 0, 0);
    });
  }

  #setLanguage(language) {
    this.language = language;
    setLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    this.overview.textContent = this.localize('overview');
    this.keys.textContent = this.localize('keys');
    this.buttons.forEach((row, layer) =>
      row.forEach((button, head) => button.setAttribute('aria-label', this.localize('head', { layer, head }))),
    );
    this.name.textContent = this.localize('head', this);
    this.heat.setLanguage(language);
    this.#listKeys(this.pinned);
  }

  async #choose(layer, head) {
    this.layer = layer;
    this.head = head;
    writeHash({ layer, head });
    this.buttons.forEach((row, l) =>
      row.forEach((button, h) => {
        const chosen = l === layer && h === head;
        button.tabIndex = chosen ? 0 : -1;
        button.setAttribute('aria-pressed', chosen);
      }),
    );
    this.name.textContent = this.localize('head', { layer, head });
    const weights = await weightsOf(layer, head);
    if (layer !== this.layer || head !== this.head) return; // another head was selected meanwhile
    this.heat.show(weights);
    this.#listKeys(this.pinned);
    document.documentElement.dataset.shown = `${layer} ${head}`; // read by tests and benchmarks
    performance.mark('regard-shown');
  }

  // The keys with the largest weights of a row.
  #listKeys(row) {
    const { keys, queries } = this.data;
    if (row === null || row === undefined || !this.heat.weights) {
      this.most.textContent = this.localize('hint');
      this.list.replaceChildren();
      return;
    }
    const weights = this.heat.weights.subarray(row * keys.length, (row + 1) * keys.length);
    const order = Array.from(weights.keys())
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, MAX_KEYS);
    this.most.textContent = this.localize('most', { word: isolated(queries[row]) });
    this.list.replaceChildren(
      ...order.map((key) => {
        const bar = make('span', { class: 'bar' });
        bar.style.width = `${weights[key] / 655.35}%`;
        return make(
          'li',
          {},
          make('span', { class: 'candidate-word', dir: 'auto' }, visible(keys[key])),
          make('span', { class: 'candidate-bar' }, bar),
          make('span', { class: 'number' }, formatWeight(weights[key] / 65535)),
        );
      }),
    );
  }

  #key(event) {
    const { layers, heads } = this.data;
    const next = cellAfter(event.key, { row: this.layer, column: this.head }, layers, heads);
    if (!next) return;
    this.#choose(next.row, next.column);
    this.buttons[next.row][next.column].focus();
    event.preventDefault();
  }
}

new HeadsView(dataOf(), new Uint8Array(await block('thumbs')), document.getElementById('main'));
