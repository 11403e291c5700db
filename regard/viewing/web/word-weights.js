// Weights of words from weights of tokens: the sum over the tokens of a source word, the mean over those of a target word.

// { words, groups } of a sentence by tokens or, if `merged`, by words; the end-of-sentence token stays by itself.
export function sideOf(tokens, groups, words, end, merged) {
  if (!merged) return { words: tokens, groups: tokens.map((_, place) => [place]) };
  const last = end ? [[tokens.length - 1]] : [];
  return { words: [...words, ...tokens.slice(tokens.length - last.length)], groups: [...groups, ...last] };
}

// A row of weights over words.
export function mergeRow(row, groups) {
  return groups.map((group) => group.reduce((sum, place) => sum + row[place], 0));
}

// A matrix of weights between words, as 16-bit numbers.
export function mergeMatrix(block, columns, from, to) {
  const merged = from.flatMap((group) => {
    const rows = group.map((row) => mergeRow(block.subarray(row * columns, (row + 1) * columns), to));
    return to.map((_, column) =>
      Math.min(65535, Math.round(rows.reduce((sum, row) => sum + row[column], 0) / Math.max(1, rows.length))),
    );
  });
  return Uint16Array.from(merged);
}

// The group that a token belongs to, or the group before it.
export function groupOf(groups, token) {
  const index = groups.findIndex((group) => group.includes(token));
  if (index >= 0) return index;
  return Math.max(
    0,
    groups.findLastIndex((group) => group[0] < token),
  );
}
