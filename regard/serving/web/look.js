// One translation and its weights, fetched a head at a time and kept.

import { mergeMatrix } from '../web/word-weights.js';
import { ask, askBlock } from './ask.js';

export class Look {
  constructor(look) {
    this.look = look;
    this.fetched = new Map();
  }

  has(kind) {
    return this.look.layers.some((layer) => layer.kind === kind);
  }

  // The layers of a kind, each with its number in the whole look.
  layers(kind) {
    return this.look.layers.map((layer, number) => ({ ...layer, number })).filter((layer) => layer.kind === kind);
  }

  // Whether words and tokens differ anywhere.
  get hasPieces() {
    return Object.values(this.look.sides).some((side) => side.groups.some((group) => group.length > 1));
  }

  sides(kind) {
    const [{ rows, columns }] = this.layers(kind);
    return { rows: this.look.sides[rows], columns: this.look.sides[columns], names: { rows, columns } };
  }

  labels(kind, unit) {
    const { rows, columns } = this.sides(kind);
    return unit === 'words' ? [rows.words, columns.words] : [rows.tokens, columns.tokens];
  }

  async #once(path, from) {
    if (!this.fetched.has(path)) this.fetched.set(path, from(`v1/look/${this.look.id}/${path}`));
    try {
      return await this.fetched.get(path);
    } catch (error) {
      this.fetched.delete(path); // so that trying again asks again
      throw error;
    }
  }

  #path(kind, layer, head) {
    return `${layer === null ? kind : this.layers(kind)[layer].number}/${head === null ? 'mean' : head}`;
  }

  measures(kind, layer, head) {
    return this.#once(`${this.#path(kind, layer, head)}/measures`, ask);
  }

  // `layer` counts among the layers of its kind; null for either is the mean.
  async block(kind, layer, head, unit) {
    const { block } = await this.#once(this.#path(kind, layer, head), askBlock);
    const { rows, columns } = this.sides(kind);
    return unit === 'words' ? mergeMatrix(block, columns.tokens.length, rows.groups, columns.groups) : block;
  }

  thumbnails(number) {
    return this.#once(String(number), askBlock);
  }

  faithfulness() {
    return this.#once('faithfulness', ask);
  }
}
