// The translation page: a translation step by step, with weights, next token probabilities, alignment and beam.

import { averageOf, dataOf, weightsOf } from './blocks.js';
import { make, pieceOf, visible, wordOf } from './dom.js';
import { Heat } from './heat.js';
import { groupOf, mergeMatrix, mergeRow, sideOf } from './word-weights.js';
import { setLanguage, languageButton, detectLanguage, localize, formatWeight } from './language.js';
import { Stage } from './stage.js';
import { hashNumber, readHash, Transport, writeHash } from './transport.js';
import { Tree } from './tree.js';
import { TRANSLATION_TEXTS } from './translation-texts.js';

class TranslationView {
  constructor(data, main) {
    this.data = data;
    this.language = detectLanguage(data.language);
    this.layer = hashNumber('layer', data.layers, data.layer);
    this.head = hashNumber('head', data.heads, data.head);
    this.mergeable =
      data.source.length !== data.sourceWords.length + data.sourceEnd ||
      data.target.length !== data.targetWords.length + data.targetEnd;
    this.marked = data.target.some((token) => token.startsWith('▁'));
    this.merged = this.mergeable && (readHash().view ?? (data.mergeTokens ? 'words' : 'tokens')) === 'words';
    this.#build(main);
    setLanguage(this.language);
    this.#setLanguage(this.language);
    this.#loadWeights();
  }

  localize(key, values) {
    return localize(TRANSLATION_TEXTS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.named = []; // elements whose text depends on the language: [element, key]
    const titled = (key, tag = 'h2') => {
      const element = make(tag);
      this.named.push([element, key]);
      return element;
    };
    const sheet = (key, look, ...children) =>
      make('section', { class: `sheet ${look}` }, titled(key), ...children);
    this.corner = make('span');
    const head = make(
      'header',
      { class: 'head' },
      make('h1', {}, wordOf(data.text[0]), make('span', { class: 'arrow' }, ' → '), wordOf(data.text[1])),
      this.corner,
    );
    this.bar = make('div', { class: 'sheet bar-top' });
    const stage = make('div');
    this.note = make('p', { class: 'note' });
    this.candidates = make('ol', { class: 'candidates' });
    this.map = make('div');
    const tree = make('div');
    this.treeSheet = data.tree.length ? sheet('tree', 'area-tree', tree) : null;
    this.faithfulness = make('p', { class: 'faithfulness' });
    this.mapSheet = data.layers ? sheet('map', 'area-map', this.map) : null;
    const trust = data.faithfulness ? sheet('faithfulness', '', this.faithfulness) : null;
    this.grid = make(
      'div',
      { class: data.layers ? 'player' : 'player blind' },
      sheet(data.layers ? 'stage' : 'plain', 'area-stage', stage, this.note),
      make('div', { class: 'area-next' }, sheet('next', '', this.candidates), trust),
      this.mapSheet,
      this.treeSheet,
    );
    main.append(head, this.bar, this.grid, this.#foot());
    this.transport = new Transport(this.bar, {
      count: data.target.length,
      language: this.language,
      onStep: () => this.#show(),
      keys: {
        t: () => this.#toggleTree(),
        w: () => this.#merge(),
        l: () => this.#cycle('layer', 'layers'),
        h: () => this.#cycle('head', 'heads'),
      },
    });
    this.bar.append(this.#choices());
    this.stage = new Stage(stage, { onPin: (place) => this.transport.go(this.to.groups[place].at(-1) ?? 0) });
    if (this.treeSheet)
      this.tree = new Tree(tree, { steps: data.tree, path: data.bestPath, language: this.language });
    this.grid.classList.toggle('two-columns', !this.tree || this.tree.width < this.grid.clientWidth / 2 - 60);
    if (readHash().tree === '0') this.#toggleTree();
    this.#words();
  }

  #choices() {
    const { data } = this;
    const choice = (name, count) => {
      if (count < 2) return null;
      const options = [
        make('option', { value: '' }),
        ...Array.from({ length: count }, (_, n) => make('option', { value: n }, String(n))),
      ];
      this.named.push([options[0], 'mean']);
      const label = make('span');
      this.named.push([label, name]);
      const select = make(
        'select',
        { onchange: () => this.#choose(name, select.value === '' ? null : Number(select.value)) },
        ...options,
      );
      select.value = this[name] ?? '';
      this[`${name}Select`] = select;
      return make('label', { class: 'choice' }, label, select);
    };
    this.mergeButton = this.mergeable
      ? make('button', { type: 'button', onclick: () => this.#merge() })
      : null;
    return make(
      'div',
      { class: 'choices' },
      choice('layer', data.layers),
      choice('head', data.heads),
      this.mergeButton,
    );
  }

  #foot() {
    const keys = make('p', { class: 'note keys' });
    this.named.push([keys, 'keys']);
    return make('footer', { class: 'foot' }, keys);
  }

  #setLanguage(language) {
    this.language = language;
    for (const [element, key] of this.named) element.textContent = this.localize(key);
    this.corner.replaceChildren(languageButton(language, (other) => this.#setLanguage(other)));
    if (this.data.faithfulness) this.faithfulness.textContent = this.data.faithfulness[language] ?? this.data.faithfulness.en;
    this.transport.setLanguage(language);
    if (this.tree) this.tree.setLanguage(language);
    if (this.heat) this.heat.setLanguage(language);
    this.#show();
  }

  // The words or tokens of both sides.
  #words() {
    const { data, merged } = this;
    const display = (tokens) => {
      const marked = tokens.some((token) => token.startsWith('▁'));
      return tokens.map((token) => pieceOf(token, marked));
    };
    this.from = sideOf(display(data.source), data.sourceGroups, data.sourceWords, data.sourceEnd, merged);
    this.to = sideOf(display(data.target), data.targetGroups, data.targetWords, data.targetEnd, merged);
    this.stage.words(this.from.words, this.to.words, data.layers > 0);
    if (data.layers) {
      this.heat = new Heat(this.map, {
        rows: this.to.words,
        columns: this.from.words,
        label: this.localize('map'),
        language: this.language,
        height: 460,
        maxCell: 44,
        full: 0.5,
      });
      this.heat.onPin = (cell) => cell && this.transport.go(this.to.groups[cell.row].at(-1) ?? 0);
    }
  }

  // Load the weights of the selected layer and head, or their mean.
  async #loadWeights() {
    const { data } = this;
    if (!data.layers) return;
    const indices = (index, count) => (index === null ? Array.from({ length: count }, (_, n) => n) : [index]);
    const matrices = indices(this.layer, data.layers).flatMap((layer) =>
      indices(this.head, data.heads).map((head) => weightsOf(layer, head)),
    );
    this.block = averageOf(await Promise.all(matrices));
    this.heat.show(mergeMatrix(this.block, data.source.length, this.to.groups, this.from.groups));
    this.#show();
  }

  #show() {
    const { data, transport } = this;
    const step = transport.step;
    const at = groupOf(this.to.groups, step);
    const row = (t) => this.block.subarray(t * data.source.length, (t + 1) * data.source.length);
    let [weights, coverage] = [null, null];
    if (this.block) {
      const rows = Array.from({ length: step + 1 }, (_, t) =>
        mergeRow(row(t), this.from.groups).map((value) => value / 65535),
      );
      weights = rows[step];
      coverage = weights.map((_, place) => rows.reduce((sum, row) => sum + row[place], 0));
      this.heat.reveal(at + 1);
      this.heat.mark(at, null);
    }
    this.stage.show(at, weights, coverage);
    this.#listCandidates(step);
    if (this.tree) this.tree.show(step);
    if (this.mergeButton) this.mergeButton.textContent = this.localize(this.merged ? 'tokens' : 'words');
    this.note.textContent = this.localize(data.layers ? (data.forced ? 'forced' : 'searched') : 'blind', {
      score: data.score.toFixed(2).replace('-', '−'),
      beam: data.beamSize,
    });
  }

  // The most probable next tokens at this step.
  #listCandidates(step) {
    this.candidates.replaceChildren(
      ...this.data.nextTokens[step].map(({ text, p, chosen }) => {
        const bar = make('span', { class: 'bar' });
        bar.style.width = `${100 * p}%`;
        const word = make(
          'span',
          { class: 'candidate-word', dir: 'auto' },
          visible(pieceOf(text, this.marked)),
        );
        const label = chosen ? make('span', { class: 'aloud' }, this.localize('chosen')) : null;
        return make(
          'li',
          { class: chosen ? 'chosen' : '' },
          word,
          make('span', { class: 'candidate-bar' }, bar),
          make('span', { class: 'number' }, formatWeight(p)),
          label,
        );
      }),
    );
  }

  #choose(name, value) {
    this[name] = value;
    this[`${name}Select`].value = value ?? '';
    writeHash({ [name]: value });
    this.#loadWeights();
  }

  #cycle(name, count) {
    if (this.data[count] < 2) return;
    const next = this[name] === null ? 0 : this[name] + 1;
    this.#choose(name, next === this.data[count] ? null : next);
  }

  #merge() {
    if (!this.mergeable) return;
    this.merged = !this.merged;
    writeHash({ view: this.merged ? 'words' : 'tokens' });
    this.#words();
    this.#loadWeights();
    this.#show();
  }

  #toggleTree() {
    if (!this.treeSheet) return;
    writeHash({ tree: this.treeSheet.classList.toggle('hidden') ? 0 : null });
    if (this.transport) this.tree.show(this.transport.step);
  }
}

new TranslationView(dataOf(), document.getElementById('main'));
