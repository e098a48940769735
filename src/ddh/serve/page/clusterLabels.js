// Where the label of each category belongs on the map: the middle of its densest region.

const CELLS = 24; // per side of the grid in which points are counted
const STRIDE = CELLS + 2; // a margin, so that every cell has eight neighbours
const AROUND = [-1, 0, 1].flatMap((row) => [-1, 0, 1].map((column) => row * STRIDE + column));

const cellOf = (value) => 1 + Math.max(0, Math.min(CELLS - 1, Math.floor(((value + 1) / 2) * CELLS)));

const GATHERED = 0.2; // least share of its pictures that a label's region must hold, else it would mislead

/**
 * The position of each of n labels, or null where a category is scattered. of: the category of each point.
 * @param {Float32Array} xy @param {Uint8Array} of @param {number} n @returns {([number, number] | null)[]}
 */
export function labelPositions(xy, of, n) {
  const counts = Array.from({ length: n }, () => new Uint32Array(STRIDE * STRIDE)); // in a cell and its neighbours
  const cells = Uint16Array.from(of, (_, i) => cellOf(xy[2 * i + 1]) * STRIDE + cellOf(xy[2 * i]));
  of.forEach((category, i) => { if (category < n) for (const step of AROUND) counts[category][cells[i] + step] += 1; });
  const densest = counts.map((each) => each.indexOf(Math.max(...each)));
  const sums = densest.map(() => ({ x: 0, y: 0, points: 0 }));
  of.forEach((category, i) => {
    if (category >= n || !AROUND.includes(cells[i] - densest[category])) return;
    const sum = sums[category];
    sum.x += xy[2 * i];
    sum.y += xy[2 * i + 1];
    sum.points += 1;
  });
  const sizes = new Uint32Array(256);
  for (const category of of) sizes[category] += 1;
  return sums.map(({ x, y, points }, i) => (points && points >= GATHERED * sizes[i] ? [x / points, y / points] : null));
}
