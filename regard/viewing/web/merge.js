// From tokens to words: a source word has the sum of its tokens' weights, a target word the mean of its tokens'.

// A sentence as the player shows it: { words, groups }, by tokens or by words; the end of the sentence stays.
export function sideOf(tokens, groups, words, end, merged) {
  if (!merged) return { words: tokens, groups: tokens.map((_, place) => [place]) };
  const last = end ? [[tokens.length - 1]] : [];
  return { words: [...words, ...tokens.slice(tokens.length - last.length)], groups: [...groups, ...last] };
}

// One row of weights between the groups' words.
export function mergedRow(row, groups) {
  return groups.map((group) => group.reduce((sum, place) => sum + row[place], 0));
}

// A whole matrix, as 16-bit numbers again.
export function mergedBlock(block, columns, from, to) {
  const merged = from.flatMap((group) => {
    const rows = group.map((row) => mergedRow(block.subarray(row * columns, (row + 1) * columns), to));
    return to.map((_, column) =>
      Math.min(65535, Math.round(rows.reduce((sum, row) => sum + row[column], 0) / Math.max(1, rows.length))),
    );
  });
  return Uint16Array.from(merged);
}

// Which group a token belongs to; the one before it where it belongs to none.
export function groupOf(groups, token) {
  const found = groups.findIndex((group) => group.includes(token));
  if (found >= 0) return found;
  return Math.max(
    0,
    groups.findLastIndex((group) => group[0] < token),
  );
}
