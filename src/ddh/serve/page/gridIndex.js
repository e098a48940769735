// Nearest point to a position: points sorted into the cells of a square grid.

const PER_CELL = 2; // points per cell on average

export class GridIndex {
  /** Memory: 4 bytes per point and per cell. @param {Float32Array} xy pairs of coordinates in [-1, 1] */
  constructor(xy) {
    this.xy = xy;
    const n = xy.length / 2;
    this.side = Math.max(1, Math.ceil(Math.sqrt(n / PER_CELL)));
    this.starts = new Uint32Array(this.side * this.side + 1);
    this.order = new Uint32Array(n);
    this.sort(n);
  }

  /** @param {number} value */
  cellAt(value) {
    return Math.max(0, Math.min(this.side - 1, Math.floor(((value + 1) / 2) * this.side)));
  }

  /** A counting sort of the points by cell. @param {number} n */
  sort(n) {
    const { xy, starts, order, side } = this;
    const cells = new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      cells[i] = this.cellAt(xy[2 * i + 1]) * side + this.cellAt(xy[2 * i]);
      starts[cells[i] + 1] += 1;
    }
    for (let cell = 0; cell < side * side; cell += 1) starts[cell + 1] += starts[cell];
    const next = starts.slice();
    for (let i = 0; i < n; i += 1) order[next[cells[i]]++] = i;
  }

  /** The point nearest to (x, y) within a distance, or -1. @param {number} x @param {number} y @param {number} within */
  nearest(x, y, within) {
    const { xy, starts, order, side } = this;
    let best = -1;
    let least = within * within;
    const [left, right] = [this.cellAt(x - within), this.cellAt(x + within)];
    for (let row = this.cellAt(y - within); row <= this.cellAt(y + within); row += 1) {
      for (let at = starts[row * side + left]; at < starts[row * side + right + 1]; at += 1) {
        const i = order[at];
        const distance = (xy[2 * i] - x) ** 2 + (xy[2 * i + 1] - y) ** 2;
        if (distance <= least) { least = distance; best = i; }
      }
    }
    return best;
  }
}
