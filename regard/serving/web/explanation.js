// A stored explanation: its maps, and their weights, requested a head at a time and cached.

import { mergeMatrix } from '../web/word-weights.js';
import { request, requestWeights } from './api.js';

export class Explanation {
  constructor(data) {
    this.data = data;
    this.cache = new Map();
    this.sequences = data.sequences.map(({ tokens, words }) => {
      const pairs = words.length ? words : tokens.map((token, index) => [token, [index]]);
      return { tokens, words: pairs.map(([word]) => word), groups: pairs.map(([, positions]) => positions) };
    });
  }

  get groups() {
    return [...new Set(this.data.maps.map((map) => map.group))];
  }

  hasGroup(group) {
    return this.groups.includes(group);
  }

  // The maps of a group, each with its index among all maps.
  layers(group) {
    return this.data.maps.map((map, index) => ({ ...map, index })).filter((map) => map.group === group);
  }

  // Whether there are words of several tokens.
  get hasTokens() {
    return this.sequences.some((sequence) => sequence.groups.some((positions) => positions.length > 1));
  }

  sides(group) {
    const [map] = this.layers(group);
    return { rows: this.sequences[map.queries], columns: this.sequences[map.keys], isSelf: map.is_self };
  }

  labels(group, unit) {
    const { rows, columns } = this.sides(group);
    return unit === 'words' ? [rows.words, columns.words] : [rows.tokens, columns.tokens];
  }

  async #once(path, load) {
    if (!this.cache.has(path)) this.cache.set(path, load(`v1/explanations/${this.data.id}/${path}`));
    try {
      return await this.cache.get(path);
    } catch (error) {
      this.cache.delete(path); // so that a retry requests it again
      throw error;
    }
  }

  #path(group, layer, head) {
    const map = layer === null ? encodeURIComponent(group) : this.layers(group)[layer].index;
    return `maps/${map}/heads/${head === null ? 'mean' : head}`;
  }

  measures(group, layer, head) {
    return this.#once(`${this.#path(group, layer, head)}/measures`, request);
  }

  // `layer` counts among the layers of its group; null for either is the mean.
  async weights(group, layer, head, unit) {
    const { weights } = await this.#once(this.#path(group, layer, head), requestWeights);
    const { rows, columns } = this.sides(group);
    return unit === 'words' ? mergeMatrix(weights, columns.tokens.length, rows.groups, columns.groups) : weights;
  }

  thumbnails(index) {
    return this.#once(`maps/${index}`, requestWeights);
  }

  faithfulness() {
    return this.#once('faithfulness', request);
  }
}
