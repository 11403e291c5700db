// An image and its caption: for the selected word the image is brightened by the attention weights of the word.

import { block, dataOf } from './blocks.js';
import { isolated, make, wordOf } from './dom.js';
import { setLanguage, languageButton, detectLanguage, localize, formatWeight } from './language.js';
import { Transport } from './transport.js';
import { CAPTION_TEXTS } from './caption-texts.js';

const SIDE = 560; // pixels: the longer side of the image
const SHADE = 0.84; // the opacity of the shade over a cell of weight 0
const FULL_WEIGHT = 65535;

class CaptionView {
  constructor(data, pixels, weights, main) {
    Object.assign(this, { data, weights, smooth: true, step: 0, language: detectLanguage(data.language) });
    this.image = CaptionView.#canvas(data.width, data.height);
    const pixelData = this.image.getContext('2d').createImageData(data.width, data.height);
    for (let place = 0; place < data.width * data.height; place += 1) {
      pixelData.data.set(pixels.subarray(3 * place, 3 * place + 3), 4 * place);
      pixelData.data[4 * place + 3] = 255;
    }
    this.image.getContext('2d').putImageData(pixelData, 0, 0);
    const scale = SIDE / Math.max(data.width, data.height);
    this.canvas = CaptionView.#canvas(Math.round(data.width * scale), Math.round(data.height * scale));
    this.#build(main);
    this.#setLanguage(this.language);
  }

  static #canvas(width, height) {
    return make('canvas', { width, height, class: 'caption-image', role: 'img' });
  }

  localize(key, values) {
    return localize(CAPTION_TEXTS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.caption = make('h2');
    this.attention = make('h2');
    this.status = make('p', { class: 'caption-status', role: 'status' });
    this.keys = make('p', { class: 'note' });
    this.words = data.tokens.map((word, step) =>
      wordOf(word, { class: 'caption-word', type: 'button', onclick: () => this.transport.go(step) }, 'button'),
    );
    this.modes = [true, false].map((smooth) =>
      make('button', { type: 'button', class: 'quiet', onclick: () => this.#choose(smooth) }),
    );
    const bar = make('div', { class: 'sheet bar-top' });
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      bar,
      make(
        'section',
        { class: 'sheet' },
        this.caption,
        make('p', { class: 'caption-words', dir: 'auto' }, ...this.words),
        this.status,
        this.attention,
        this.weights ? make('div', { class: 'choices' }, ...this.modes) : null,
        this.canvas,
      ),
      make('footer', { class: 'foot' }, this.keys),
    );
    this.transport = new Transport(bar, {
      count: data.tokens.length,
      language: this.language,
      onStep: (step) => this.#show(step),
    });
  }

  #setLanguage(language) {
    this.language = language;
    setLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    for (const name of ['caption', 'attention', 'keys']) this[name].textContent = this.localize(name);
    this.modes[0].textContent = this.localize('smooth');
    this.modes[1].textContent = this.localize('cells');
    this.transport.setLanguage(language);
    this.#choose(this.smooth);
  }

  #choose(smooth) {
    this.smooth = smooth;
    this.modes.forEach((button, place) => button.setAttribute('aria-pressed', (place === 0) === smooth));
    this.#show(this.transport.step);
  }

  #show(step) {
    const { gridRows, gridColumns, tokens, probabilities } = this.data;
    const values = { word: isolated(tokens[step]), share: formatWeight(probabilities[step]) };
    this.words.forEach((word, place) => word.setAttribute('aria-current', place === step));
    const context = this.canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, 0, this.canvas.width, this.canvas.height);
    if (!this.weights) {
      this.status.textContent = this.localize('blind', values);
      return;
    }
    const grid = this.weights.subarray(step * gridRows * gridColumns, (step + 1) * gridRows * gridColumns);
    const max = Math.max(...grid, 1);
    const shade = CaptionView.#canvas(gridColumns, gridRows);
    const cells = shade.getContext('2d').createImageData(gridColumns, gridRows);
    grid.forEach((weight, cell) => {
      cells.data[4 * cell + 3] = Math.round(255 * SHADE * (1 - weight / max));
    });
    shade.getContext('2d').putImageData(cells, 0, 0);
    context.imageSmoothingEnabled = this.smooth;
    context.imageSmoothingQuality = 'high';
    context.drawImage(shade, 0, 0, this.canvas.width, this.canvas.height);
    this.status.textContent = this.localize('word', { ...values, weight: formatWeight(max / FULL_WEIGHT) });
    this.canvas.setAttribute('aria-label', this.status.textContent);
  }
}

const captionData = dataOf();
const captionPixels = new Uint8Array(await block('image'));
const captionWeights = captionData.hasAttention ? new Uint16Array(await block('weights')) : null;
new CaptionView(captionData, captionPixels, captionWeights, document.getElementById('main'));
