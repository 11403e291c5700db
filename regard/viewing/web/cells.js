// Moving from cell to cell with the arrow keys, wherever there are rows and columns.

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// The cell that an arrow key leads to, at the edge the same; null for another key. Without a cell, it is the first.
export function cellAfter(key, cell, rows, columns) {
  if (!(key in MOVES)) return null;
  if (!cell) return { row: 0, column: 0 };
  const [down, right] = MOVES[key];
  const within = (place, count) => Math.max(0, Math.min(count - 1, place));
  return { row: within((cell.row ?? 0) + down, rows), column: within((cell.column ?? 0) + right, columns) };
}

export function sameCell(one, other) {
  if (!one || !other) return one === other;
  return one.row === other.row && one.column === other.column;
}
