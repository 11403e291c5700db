// A classified document: a bar per sentence, a shade per word, and the probabilities of the classes.

import { dataOf } from './blocks.js';
import { css, inkOn, isDark, onScheme } from './color.js';
import { directionOf, isolated, make, visible, wordOf } from './dom.js';
import { setLanguage, languageButton, detectLanguage, localize, formatWeight } from './language.js';
import { DOCUMENT_TEXTS } from './document-texts.js';

const MAX_WORDS = 8; // in the list of the largest weights
const MIN_SHADE = 0.06; // of the largest weight: words below it are not shaded

class DocumentView {
  constructor(data, main) {
    this.data = data;
    this.language = detectLanguage(data.language);
    this.inDocument = true;
    this.flat = data.sentences.flatMap((sentence, row) =>
      sentence.tokens.map((word, column) => ({
        word,
        row,
        column,
        within: sentence.weights[column],
        share: sentence.weights[column] * sentence.weight,
      })),
    );
    this.#build(main);
    this.#setLanguage(this.language);
    onScheme(() => this.#paint());
  }

  localize(key, values) {
    return localize(DOCUMENT_TEXTS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.classes = make('h2');
    this.text = make('h2');
    this.most = make('h2');
    this.list = make('ol', { class: 'candidates' });
    this.scale = make('span', { class: 'document-scale note' });
    this.truncated = make('p', { class: 'note' });
    this.status = make('p', { class: 'document-status', role: 'status' });
    this.keys = make('p', { class: 'note' });
    this.modes = [true, false].map((inDocument) =>
      make('button', { type: 'button', class: 'quiet', onclick: () => this.#choose(inDocument) }),
    );
    const choice = make('div', { class: 'choices' }, ...this.modes, this.scale);
    main.append(
      make('header', { class: 'head' }, make('h1', { dir: 'auto' }, data.title || data.label), this.corner),
      make(
        'div',
        { class: 'document' },
        make(
          'section',
          { class: 'sheet document-text' },
          this.text,
          data.hasAttention ? choice : null,
          this.#sentences(),
          this.status,
          this.truncated,
        ),
        make(
          'div',
          { class: 'document-side' },
          make('section', { class: 'sheet' }, this.classes, this.#probabilities()),
          data.hasAttention ? make('section', { class: 'sheet document-most' }, this.most, this.list) : null,
        ),
      ),
      make('footer', { class: 'foot' }, data.hasAttention ? this.keys : null),
    );
  }

  #probabilities() {
    return make(
      'ol',
      { class: 'candidates' },
      ...this.data.probabilities.map(([label, probability], place) =>
        DocumentView.#bar(label, probability, probability, place === 0),
      ),
    );
  }

  static #bar(word, length, number, chosen) {
    const bar = make('span', { class: 'bar' });
    bar.style.width = `${100 * length}%`;
    return make(
      'li',
      { class: chosen && 'chosen' },
      make('span', { class: 'candidate-word', dir: 'auto' }, visible(word)),
      make('span', { class: 'candidate-bar' }, bar),
      make('span', { class: 'number' }, formatWeight(number)),
    );
  }

  // One row per sentence. One word is reached by Tab, the others by the arrow keys.
  #sentences() {
    const { sentences, hasAttention } = this.data;
    const maxWeight = Math.max(...sentences.map((sentence) => sentence.weight), 1e-9);
    this.rows = [];
    this.spans = sentences.map((sentence) =>
      sentence.tokens.map((word) => wordOf(word, { class: 'document-word', tabindex: hasAttention ? -1 : null })),
    );
    const table = make('div', { class: 'document-sentences', onkeydown: (event) => this.#key(event) });
    sentences.forEach((sentence, row) => {
      const bar = make('span', { class: 'bar' });
      bar.style.width = `${(100 * sentence.weight) / maxWeight}%`;
      const words = make('p', { dir: directionOf(sentence.tokens.join(' ')) });
      this.spans[row].forEach((span, column) => {
        if (column && sentence.spaceBefore[column]) words.append(' ');
        words.append(span);
      });
      const weight = make(
        'div',
        { class: 'document-weight' },
        make('span', { class: 'number' }, formatWeight(sentence.weight)),
        make('span', { class: 'document-bar' }, bar),
      );
      const line = make('div', { class: 'document-sentence' }, hasAttention ? weight : null, words);
      this.rows.push(line);
      table.append(line);
    });
    if (!hasAttention) return table;
    this.flat.forEach((item) => {
      const span = this.spans[item.row][item.column];
      for (const event of ['pointerenter', 'focus']) span.addEventListener(event, () => this.#describe(item));
      for (const event of ['pointerleave', 'blur']) span.addEventListener(event, () => this.#describe(null));
    });
    this.at = this.flat.reduce((best, item) => (item.share > best.share ? item : best));
    this.spans[this.at.row][this.at.column].tabIndex = 0;
    return table;
  }

  #setLanguage(language) {
    this.language = language;
    setLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    for (const name of ['classes', 'text', 'most', 'keys']) this[name].textContent = this.localize(name);
    this.modes[0].textContent = this.localize('document');
    this.modes[1].textContent = this.localize('sentenceOnly');
    this.truncated.textContent = this.#truncation();
    this.rows.forEach((line, row) => {
      const { weight } = this.data.sentences[row];
      const bar = line.querySelector('.document-weight');
      if (bar) bar.title = this.localize('sentence', { number: row + 1, weight: formatWeight(weight) });
    });
    this.#describe(null);
    this.#list();
    this.#choose(this.inDocument);
  }

  #truncation() {
    const { sentences = 0, words = 0 } = this.data.truncation;
    const parts = [
      sentences && this.localize('sentences', { count: sentences }),
      words && this.localize('words', { count: words }),
    ].filter(Boolean);
    if (!parts.length) return '';
    const what = parts.length > 1 ? this.localize('both', { a: parts[0], b: parts[1] }) : parts[0];
    return this.localize('truncated', { what });
  }

  #list() {
    const best = [...this.flat].sort((a, b) => b.share - a.share).slice(0, MAX_WORDS);
    const max = Math.max(best[0].share, 1e-9);
    this.list.replaceChildren(
      ...best.map((item) => DocumentView.#bar(item.word, item.share / max, item.share, false)),
    );
  }

  #choose(inDocument) {
    this.inDocument = inDocument;
    this.modes.forEach((button, place) => button.setAttribute('aria-pressed', (place === 0) === inDocument));
    this.#paint();
  }

  #paint() {
    if (!this.data.hasAttention) return;
    const of = (item) => (this.inDocument ? item.share : item.within);
    const max = Math.max(...this.flat.map(of), 1e-9);
    const dark = isDark();
    this.scale.textContent = this.localize('max', { share: formatWeight(max) });
    this.flat.forEach((item) => {
      const { style } = this.spans[item.row][item.column];
      const shade = of(item) / max;
      style.backgroundColor = shade < MIN_SHADE ? 'transparent' : css(0.9 * shade, dark);
      style.color = shade < MIN_SHADE ? 'inherit' : inkOn(0.9 * shade, dark);
    });
  }

  #describe(item) {
    if (!this.data.hasAttention) {
      this.status.textContent = this.localize('blind');
      return;
    }
    this.status.textContent = item
      ? this.localize('word', {
          word: isolated(item.word),
          within: formatWeight(item.within),
          weight: formatWeight(this.data.sentences[item.row].weight),
          share: formatWeight(item.share),
        })
      : this.localize('hint');
  }

  #key(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || !this.at) return;
    event.preventDefault();
    const { row, column } = this.at;
    const place = this.flat.findIndex((item) => item.row === row && item.column === column);
    let next = this.flat[place + step[1]];
    if (step[0]) {
      const line = this.flat.filter((item) => item.row === row + step[0]);
      next = line[Math.min(column, line.length - 1)];
    }
    if (!next) return;
    this.spans[row][column].tabIndex = -1;
    this.at = next;
    const span = this.spans[next.row][next.column];
    span.tabIndex = 0;
    span.focus();
  }
}

new DocumentView(dataOf(), document.getElementById('main'));
