// Keyboard navigation between the cells of a matrix.

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// The cell that an arrow key moves to, clamped at the edges; the first cell if none is selected; null for other keys.
export function cellAfter(key, cell, rows, columns) {
  if (!(key in MOVES)) return null;
  if (!cell) return { row: 0, column: 0 };
  const [down, right] = MOVES[key];
  const clamp = (index, count) => Math.max(0, Math.min(count - 1, index));
  return { row: clamp((cell.row ?? 0) + down, rows), column: clamp((cell.column ?? 0) + right, columns) };
}

export function sameCell(a, b) {
  if (!a || !b) return a === b;
  return a.row === b.row && a.column === b.column;
}
