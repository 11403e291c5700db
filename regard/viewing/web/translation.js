// The translation player: one step at a time through a translation as it was searched and written.

import { averageOf, dataOf, weightsOf } from './blocks.js';
import { make, pieceOf, visible, wordOf } from './dom.js';
import { Heat } from './heat.js';
import { groupOf, mergedBlock, mergedRow, sideOf } from './merge.js';
import { chooseLanguage, languageButton, languageOf, say, share } from './say.js';
import { Stage } from './stage.js';
import { hashNumber, readHash, Transport, writeHash } from './transport.js';
import { Tree } from './tree.js';
import { PLAYER_WORDS } from './translation-words.js';

class TranslationPlayer {
  constructor(data, main) {
    this.data = data;
    this.language = languageOf(data.language);
    this.layer = hashNumber('layer', data.layers, data.layer);
    this.head = hashNumber('head', data.heads, data.head);
    this.mergeable =
      data.source.length !== data.sourceWords.length + data.sourceEnd ||
      data.target.length !== data.targetWords.length + data.targetEnd;
    this.marked = data.target.some((token) => token.startsWith('▁'));
    this.merged = this.mergeable && (readHash().view ?? (data.merged ? 'words' : 'tokens')) === 'words';
    this.#build(main);
    chooseLanguage(this.language);
    this.#speak(this.language);
    this.#look();
  }

  say(key, values) {
    return say(PLAYER_WORDS, key, this.language, values);
  }

  #build(main) {
    const { data } = this;
    this.named = []; // elements whose text is a sentence of ours: [element, key]
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
    this.faith = make('p', { class: 'faith' });
    this.mapSheet = data.layers ? sheet('map', 'area-map', this.map) : null;
    const about = data.faith ? sheet('faith', '', this.faith) : null;
    this.grid = make(
      'div',
      { class: data.layers ? 'player' : 'player blind' },
      sheet(data.layers ? 'stage' : 'plain', 'area-stage', stage, this.note),
      make('div', { class: 'area-next' }, sheet('next', '', this.candidates), about),
      this.mapSheet,
      this.treeSheet,
    );
    main.append(head, this.bar, this.grid, this.#foot());
    this.transport = new Transport(this.bar, {
      count: data.target.length,
      language: this.language,
      onStep: () => this.#show(),
      keys: {
        t: () => this.#fold(),
        w: () => this.#merge(),
        l: () => this.#turn('layer', 'layers'),
        h: () => this.#turn('head', 'heads'),
      },
    });
    this.bar.append(this.#choices());
    this.stage = new Stage(stage, { onPin: (place) => this.transport.go(this.to.groups[place].at(-1) ?? 0) });
    if (this.treeSheet)
      this.tree = new Tree(tree, { steps: data.tree, path: data.path, language: this.language });
    this.grid.classList.toggle('beside', !this.tree || this.tree.width < this.grid.clientWidth / 2 - 60);
    if (readHash().tree === '0') this.#fold();
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

  #speak(language) {
    this.language = language;
    for (const [element, key] of this.named) element.textContent = this.say(key);
    this.corner.replaceChildren(languageButton(language, (other) => this.#speak(other)));
    if (this.data.faith) this.faith.textContent = this.data.faith[language] ?? this.data.faith.en;
    this.transport.speak(language);
    if (this.tree) this.tree.speak(language);
    if (this.heat) this.heat.speak(language);
    this.#show();
  }

  // The words of both sides, as tokens or merged.
  #words() {
    const { data, merged } = this;
    const read = (tokens) => {
      const marked = tokens.some((token) => token.startsWith('▁'));
      return tokens.map((token) => pieceOf(token, marked));
    };
    this.from = sideOf(read(data.source), data.sourceGroups, data.sourceWords, data.sourceEnd, merged);
    this.to = sideOf(read(data.target), data.targetGroups, data.targetWords, data.targetEnd, merged);
    this.stage.words(this.from.words, this.to.words, data.layers > 0);
    if (data.layers) {
      this.heat = new Heat(this.map, {
        rows: this.to.words,
        columns: this.from.words,
        label: this.say('map'),
        language: this.language,
        height: 460,
        most: 44,
        full: 0.5,
      });
      this.heat.onPin = (cell) => cell && this.transport.go(this.to.groups[cell.row].at(-1) ?? 0);
    }
  }

  // Fetch the weights of the chosen layer and head; without one, their average.
  async #look() {
    const { data } = this;
    if (!data.layers) return;
    const some = (chosen, count) => (chosen === null ? Array.from({ length: count }, (_, n) => n) : [chosen]);
    const wanted = some(this.layer, data.layers).flatMap((layer) =>
      some(this.head, data.heads).map((head) => weightsOf(layer, head)),
    );
    this.block = averageOf(await Promise.all(wanted));
    this.heat.show(mergedBlock(this.block, data.source.length, this.to.groups, this.from.groups));
    this.#show();
  }

  #show() {
    const { data, transport } = this;
    const step = transport.step;
    const at = groupOf(this.to.groups, step);
    const row = (t) => this.block.subarray(t * data.source.length, (t + 1) * data.source.length);
    let [weights, covered] = [null, null];
    if (this.block) {
      const rows = Array.from({ length: step + 1 }, (_, t) =>
        mergedRow(row(t), this.from.groups).map((value) => value / 65535),
      );
      weights = rows[step];
      covered = weights.map((_, place) => rows.reduce((sum, one) => sum + one[place], 0));
      this.heat.reveal(at + 1);
      this.heat.mark(at, null);
    }
    this.stage.show(at, weights, covered);
    this.#propose(step);
    if (this.tree) this.tree.show(step);
    if (this.mergeButton) this.mergeButton.textContent = this.say(this.merged ? 'tokens' : 'words');
    this.note.textContent = this.say(data.layers ? (data.forced ? 'forced' : 'searched') : 'blind', {
      score: data.score.toFixed(2).replace('-', '−'),
      beam: data.beam,
    });
  }

  // What could have been written at this step, the likeliest first.
  #propose(step) {
    this.candidates.replaceChildren(
      ...this.data.next[step].map(({ text, p, chosen }) => {
        const bar = make('span', { class: 'bar' });
        bar.style.width = `${100 * p}%`;
        const word = make(
          'span',
          { class: 'candidate-word', dir: 'auto' },
          visible(pieceOf(text, this.marked)),
        );
        const about = chosen ? make('span', { class: 'aloud' }, this.say('chosen')) : null;
        return make(
          'li',
          { class: chosen ? 'chosen' : '' },
          word,
          make('span', { class: 'candidate-bar' }, bar),
          make('span', { class: 'number' }, share(p)),
          about,
        );
      }),
    );
  }

  #choose(name, value) {
    this[name] = value;
    this[`${name}Select`].value = value ?? '';
    writeHash({ [name]: value });
    this.#look();
  }

  #turn(name, many) {
    if (this.data[many] < 2) return;
    const now = this[name] === null ? 0 : this[name] + 1;
    this.#choose(name, now === this.data[many] ? null : now);
  }

  #merge() {
    if (!this.mergeable) return;
    this.merged = !this.merged;
    writeHash({ view: this.merged ? 'words' : 'tokens' });
    this.#words();
    this.#look();
    this.#show();
  }

  #fold() {
    if (!this.treeSheet) return;
    writeHash({ tree: this.treeSheet.classList.toggle('hidden') ? 0 : null });
    if (this.transport) this.tree.show(this.transport.step);
  }
}

new TranslationPlayer(dataOf(), document.getElementById('main'));
