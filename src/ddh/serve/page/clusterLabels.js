// Where the label of each category belongs on the map: the middle of its densest region.

const CELLS = 24; // per side of the grid in which points are counted

const cellOf = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor(((value + 1) / 2) * CELLS)));

/**
 * The position of each of n labels, or null where a category has no points. of: the category of each point.
 * @param {Float32Array} xy @param {Uint8Array} of @param {number} n @returns {([number, number] | null)[]}
 */
export function labelPositions(xy, of, n) {
  const size = CELLS * CELLS;
  const counts = new Uint32Array(n * size);
  of.forEach((category, i) => {
    if (category < n) counts[category * size + cellOf(xy[2 * i + 1]) * CELLS + cellOf(xy[2 * i])] += 1;
  });
  const densest = Array.from({ length: n }, (_, category) => densestCell(counts.subarray(category * size, (category + 1) * size)));
  const sums = densest.map(() => ({ x: 0, y: 0, points: 0 }));
  of.forEach((category, i) => {
    if (category >= n) return;
    const [x, y] = [xy[2 * i], xy[2 * i + 1]];
    const { row, column } = densest[category];
    if (Math.abs(cellOf(y) - row) > 1 || Math.abs(cellOf(x) - column) > 1) return;
    const sum = sums[category];
    sum.x += x;
    sum.y += y;
    sum.points += 1;
  });
  return sums.map(({ x, y, points }) => (points ? [x / points, y / points] : null));
}

/** The cell that has the most points together with its neighbours. @param {Uint32Array} counts */
function densestCell(counts) {
  let best = { row: 0, column: 0, points: -1 };
  for (let row = 0; row < CELLS; row += 1) {
    for (let column = 0; column < CELLS; column += 1) {
      let points = 0;
      for (let y = Math.max(0, row - 1); y <= Math.min(CELLS - 1, row + 1); y += 1) {
        for (let x = Math.max(0, column - 1); x <= Math.min(CELLS - 1, column + 1); x += 1) points += counts[y * CELLS + x];
      }
      if (points > best.points) best = { row, column, points };
    }
  }
  return best;
}
