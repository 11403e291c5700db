// A document that was read: a bar for each sentence, a shade for each word, the classes beside it.

import { dataOf } from './blocks.js';
import { css, inkOn, isDark, onScheme } from './color.js';
import { directionOf, isolated, make, visible, wordOf } from './dom.js';
import { chooseLanguage, languageButton, languageOf, say, share } from './say.js';
import { DOCUMENT_WORDS } from './document-words.js';

const MOST_WORDS = 8; // in the list of those most regarded
const FAINT = 0.06; // of the largest share: below, a word stays on plain paper

class DocumentView {
  constructor(data, main) {
    this.data = data;
    this.language = languageOf(data.language);
    this.whole = true;
    this.flat = data.sentences.flatMap((sentence, row) =>
      sentence.words.map((word, column) => ({
        word,
        row,
        column,
        within: sentence.weights[column],
        share: sentence.weights[column] * sentence.weight,
      })),
    );
    this.#build(main);
    this.#speak(this.language);
    onScheme(() => this.#paint());
  }

  say(key, values) {
    return say(DOCUMENT_WORDS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.corner = make('span');
    this.classes = make('h2');
    this.text = make('h2');
    this.most = make('h2');
    this.list = make('ol', { class: 'candidates' });
    this.scale = make('span', { class: 'document-scale note' });
    this.left = make('p', { class: 'note' });
    this.says = make('p', { class: 'document-says', role: 'status' });
    this.keys = make('p', { class: 'note' });
    this.modes = [true, false].map((whole) =>
      make('button', { type: 'button', class: 'quiet', onclick: () => this.#choose(whole) }),
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
          data.attends ? choice : null,
          this.#sentences(),
          this.says,
          this.left,
        ),
        make(
          'div',
          { class: 'document-side' },
          make('section', { class: 'sheet' }, this.classes, this.#probabilities()),
          data.attends ? make('section', { class: 'sheet document-most' }, this.most, this.list) : null,
        ),
      ),
      make('footer', { class: 'foot' }, data.attends ? this.keys : null),
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
      make('span', { class: 'number' }, share(number)),
    );
  }

  // One row a sentence; the words are reached by arrow keys, one of them by Tab.
  #sentences() {
    const { sentences, attends } = this.data;
    const heaviest = Math.max(...sentences.map((sentence) => sentence.weight), 1e-9);
    this.rows = [];
    this.spans = sentences.map((sentence) =>
      sentence.words.map((word) => wordOf(word, { class: 'document-word', tabindex: attends ? -1 : null })),
    );
    const table = make('div', { class: 'document-sentences', onkeydown: (event) => this.#key(event) });
    sentences.forEach((sentence, row) => {
      const bar = make('span', { class: 'bar' });
      bar.style.width = `${(100 * sentence.weight) / heaviest}%`;
      const words = make('p', { dir: directionOf(sentence.words.join(' ')) });
      this.spans[row].forEach((span, column) => {
        if (column && sentence.gaps[column]) words.append(' ');
        words.append(span);
      });
      const weight = make(
        'div',
        { class: 'document-weight' },
        make('span', { class: 'number' }, share(sentence.weight)),
        make('span', { class: 'document-bar' }, bar),
      );
      const line = make('div', { class: 'document-sentence' }, attends ? weight : null, words);
      this.rows.push(line);
      table.append(line);
    });
    if (!attends) return table;
    this.flat.forEach((item) => {
      const span = this.spans[item.row][item.column];
      for (const event of ['pointerenter', 'focus']) span.addEventListener(event, () => this.#tell(item));
      for (const event of ['pointerleave', 'blur']) span.addEventListener(event, () => this.#tell(null));
    });
    this.at = this.flat.reduce((best, item) => (item.share > best.share ? item : best));
    this.spans[this.at.row][this.at.column].tabIndex = 0;
    return table;
  }

  #speak(language) {
    this.language = language;
    chooseLanguage(language);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    for (const name of ['classes', 'text', 'most', 'keys']) this[name].textContent = this.say(name);
    this.modes[0].textContent = this.say('whole');
    this.modes[1].textContent = this.say('within');
    this.left.textContent = this.#leftOut();
    this.rows.forEach((line, row) => {
      const { weight } = this.data.sentences[row];
      const bar = line.querySelector('.document-weight');
      if (bar) bar.title = this.say('sentence', { number: row + 1, weight: share(weight) });
    });
    this.#tell(null);
    this.#list();
    this.#choose(this.whole);
  }

  #leftOut() {
    const { sentences = 0, words = 0 } = this.data.left;
    const parts = [
      sentences && this.say('sentences', { count: sentences }),
      words && this.say('words', { count: words }),
    ].filter(Boolean);
    if (!parts.length) return '';
    const what = parts.length > 1 ? this.say('both', { a: parts[0], b: parts[1] }) : parts[0];
    return this.say('left', { what });
  }

  #list() {
    const best = [...this.flat].sort((a, b) => b.share - a.share).slice(0, MOST_WORDS);
    const top = Math.max(best[0].share, 1e-9);
    this.list.replaceChildren(
      ...best.map((item) => DocumentView.#bar(item.word, item.share / top, item.share, false)),
    );
  }

  #choose(whole) {
    this.whole = whole;
    this.modes.forEach((button, place) => button.setAttribute('aria-pressed', (place === 0) === whole));
    this.#paint();
  }

  #paint() {
    if (!this.data.attends) return;
    const of = (item) => (this.whole ? item.share : item.within);
    const top = Math.max(...this.flat.map(of), 1e-9);
    const dark = isDark();
    this.scale.textContent = this.say('up', { share: share(top) });
    this.flat.forEach((item) => {
      const { style } = this.spans[item.row][item.column];
      const shown = of(item) / top;
      style.backgroundColor = shown < FAINT ? 'transparent' : css(0.9 * shown, dark);
      style.color = shown < FAINT ? 'inherit' : inkOn(0.9 * shown, dark);
    });
  }

  #tell(item) {
    if (!this.data.attends) {
      this.says.textContent = this.say('blind');
      return;
    }
    this.says.textContent = item
      ? this.say('word', {
          word: isolated(item.word),
          within: share(item.within),
          weight: share(this.data.sentences[item.row].weight),
          share: share(item.share),
        })
      : this.say('hint');
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
