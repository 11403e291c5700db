// Every head of every layer as a thumbnail, and one of them large.

import { block, dataOf, weightsOf } from './blocks.js';
import { cellAfter } from './cells.js';
import { onScheme, palette } from './color.js';
import { isolated, make, visible } from './dom.js';
import { Heat } from './heat.js';
import { chooseLanguage, languageButton, languageOf, say, share } from './say.js';
import { hashNumber, writeHash } from './transport.js';
import { HEADS_WORDS } from './heads-words.js';

const BEST = 8; // keys in the list of a row

class HeadsView {
  constructor(data, thumbs, main) {
    this.data = data;
    this.thumbs = thumbs;
    this.language = languageOf(data.language);
    this.layer = hashNumber('layer', data.layers, 0);
    this.head = hashNumber('head', data.heads, 0);
    this.#build(main);
    this.#speak(this.language);
    this.#choose(this.layer, this.head);
    onScheme(() => this.#paintAll());
  }

  say(key, values) {
    return say(HEADS_WORDS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.over = make('h2');
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
        make('section', { class: 'sheet heads-over' }, this.over, this.#overview()),
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
    this.heat.onHover = (cell) => this.#best(cell ? cell.row : this.pinned);
    this.heat.onPin = (cell) => {
      this.pinned = cell ? cell.row : null;
      writeHash({ row: cell && cell.row, column: cell && cell.column });
      this.#best(this.pinned);
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
    this.#paintAll();
    return make('div', { class: 'wide' }, table);
  }

  #paintAll() {
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

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    this.over.textContent = this.say('over');
    this.keys.textContent = this.say('keys');
    this.buttons.forEach((row, layer) =>
      row.forEach((button, head) => button.setAttribute('aria-label', this.say('one', { layer, head }))),
    );
    this.name.textContent = this.say('one', this);
    this.heat.speak(language);
    this.#best(this.pinned);
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
    this.name.textContent = this.say('one', { layer, head });
    const weights = await weightsOf(layer, head);
    if (layer !== this.layer || head !== this.head) return; // another was chosen meanwhile
    this.heat.show(weights);
    this.#best(this.pinned);
    document.documentElement.dataset.shown = `${layer} ${head}`; // for who waits for it
    performance.mark('regard-shown');
  }

  // Where a row looks most.
  #best(row) {
    const { keys, queries } = this.data;
    if (row === null || row === undefined || !this.heat.weights) {
      this.most.textContent = this.say('hint');
      this.list.replaceChildren();
      return;
    }
    const weights = this.heat.weights.subarray(row * keys.length, (row + 1) * keys.length);
    const order = Array.from(weights.keys())
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, BEST);
    this.most.textContent = this.say('most', { word: isolated(queries[row]) });
    this.list.replaceChildren(
      ...order.map((key) => {
        const bar = make('span', { class: 'bar' });
        bar.style.width = `${weights[key] / 655.35}%`;
        return make(
          'li',
          {},
          make('span', { class: 'candidate-word', dir: 'auto' }, visible(keys[key])),
          make('span', { class: 'candidate-bar' }, bar),
          make('span', { class: 'number' }, share(weights[key] / 65535)),
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
