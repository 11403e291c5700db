// An image and its caption, word by word: the image is lit where the word looked.

import { block, dataOf } from './blocks.js';
import { isolated, make, wordOf } from './dom.js';
import { chooseLanguage, languageButton, languageOf, say, share } from './say.js';
import { Transport } from './transport.js';
import { CAPTION_WORDS } from './caption-words.js';

const SIDE = 560; // pixels: the longer side of the image
const SHADE = 0.84; // of its light is taken from what is not looked at
const FULL_WEIGHT = 65535;

class CaptionView {
  constructor(data, pixels, weights, main) {
    Object.assign(this, { data, weights, smooth: true, step: 0, language: languageOf(data.language) });
    this.image = CaptionView.#canvas(data.width, data.height);
    const whole = this.image.getContext('2d').createImageData(data.width, data.height);
    for (let place = 0; place < data.width * data.height; place += 1) {
      whole.data.set(pixels.subarray(3 * place, 3 * place + 3), 4 * place);
      whole.data[4 * place + 3] = 255;
    }
    this.image.getContext('2d').putImageData(whole, 0, 0);
    const scale = SIDE / Math.max(data.width, data.height);
    this.shown = CaptionView.#canvas(Math.round(data.width * scale), Math.round(data.height * scale));
    this.#build(main);
    this.#speak(this.language);
  }

  static #canvas(width, height) {
    return make('canvas', { width, height, class: 'caption-image', role: 'img' });
  }

  say(key, values) {
    return say(CAPTION_WORDS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.caption = make('h2');
    this.looked = make('h2');
    this.says = make('p', { class: 'caption-says', role: 'status' });
    this.keys = make('p', { class: 'note' });
    this.words = data.words.map((word, step) =>
      wordOf(word, { class: 'caption-word', type: 'button', onclick: () => this.transport.go(step) }, 'button'),
    );
    this.modes = [true, false].map((smooth) =>
      make('button', { type: 'button', class: 'quiet', onclick: () => this.#choose(smooth) }),
    );
    const bar = make('div');
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title), this.corner),
      make(
        'section',
        { class: 'sheet' },
        this.caption,
        make('p', { class: 'caption-words', dir: 'auto' }, ...this.words),
        this.says,
        this.looked,
        this.weights ? make('div', { class: 'choices' }, ...this.modes) : null,
        this.shown,
      ),
      make('footer', { class: 'foot' }, bar, this.keys),
    );
    this.transport = new Transport(bar, {
      count: data.words.length,
      language: this.language,
      onStep: (step) => this.#show(step),
    });
  }

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    for (const name of ['caption', 'looked', 'keys']) this[name].textContent = this.say(name);
    this.modes[0].textContent = this.say('smooth');
    this.modes[1].textContent = this.say('cells');
    this.transport.speak(language);
    this.#choose(this.smooth);
  }

  #choose(smooth) {
    this.smooth = smooth;
    this.modes.forEach((button, place) => button.setAttribute('aria-pressed', (place === 0) === smooth));
    this.#show(this.transport.step);
  }

  #show(step) {
    const { down, across, words, probabilities } = this.data;
    const told = { word: isolated(words[step]), share: share(probabilities[step]) };
    this.words.forEach((word, place) => word.setAttribute('aria-current', place === step));
    const paper = this.shown.getContext('2d');
    paper.imageSmoothingEnabled = false;
    paper.drawImage(this.image, 0, 0, this.shown.width, this.shown.height);
    if (!this.weights) {
      this.says.textContent = this.say('blind', told);
      return;
    }
    const grid = this.weights.subarray(step * down * across, (step + 1) * down * across);
    const top = Math.max(...grid, 1);
    const shade = CaptionView.#canvas(across, down);
    const cells = shade.getContext('2d').createImageData(across, down);
    grid.forEach((weight, cell) => {
      cells.data[4 * cell + 3] = Math.round(255 * SHADE * (1 - weight / top));
    });
    shade.getContext('2d').putImageData(cells, 0, 0);
    paper.imageSmoothingEnabled = this.smooth;
    paper.imageSmoothingQuality = 'high';
    paper.drawImage(shade, 0, 0, this.shown.width, this.shown.height);
    this.says.textContent = this.say('sure', { ...told, weight: share(top / FULL_WEIGHT) });
    this.shown.setAttribute('aria-label', this.says.textContent);
  }
}

const captionData = dataOf();
const captionPixels = new Uint8Array(await block('image'));
const captionWeights = captionData.attends ? new Uint16Array(await block('weights')) : null;
new CaptionView(captionData, captionPixels, captionWeights, document.getElementById('main'));
