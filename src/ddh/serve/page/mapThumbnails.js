// Thumbnails on the map, once there is room for them: one picture per cell of a grid that belongs to the
// layout, so that the same pictures stay while the map is moved.

import { fetchJson, thumbnailPath } from "./api.js";

/** @import { Scatter } from "./scatter.js" */

const CELL = 92, SIDE = 78; // CSS pixels of a cell and of the picture in it
const FROM_ZOOM = 2.4; // from where on pictures are shown, if there is no room for all of them before
const KEPT = 500; // pictures in memory
const AT_ONCE = 6; // requests
const ROUND = 9;

/** A square cut from the middle of an image, with round corners. @param {HTMLImageElement} image @param {number} ratio */
function cut(image, ratio) {
  const size = Math.round(SIDE * ratio);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.beginPath();
  context.roundRect(0, 0, size, size, ROUND * ratio);
  context.clip();
  const side = Math.min(image.naturalWidth, image.naturalHeight);
  context.drawImage(image, (image.naturalWidth - side) / 2, (image.naturalHeight - side) / 2, side, side, 0, 0, size, size);
  return canvas;
}

export class MapThumbnails {
  /** arrived() is called when more can be drawn. @param {Scatter} scatter @param {Map<number, string>} keys of points, as far as they are known @param {() => void} arrived */
  constructor(scatter, keys, arrived) {
    this.scatter = scatter;
    this.keys = keys;
    this.arrived = arrived;
    this.levels = /** @type {Map<number, Map<number, number>>} */ (new Map()); // level -> cell -> point
    this.pictures = /** @type {Map<number, HTMLCanvasElement | null>} */ (new Map()); // null while it is fetched, or where there is none
    this.drawn = /** @type {{x: number, y: number, point: number}[]} */ ([]);
    this.waiting = /** @type {number[]} */ ([]);
    this.loading = 0;
    this.asking = false;
  }

  /** Another layout. */
  clear() {
    this.levels.clear();
    this.pictures.clear();
    this.waiting = [];
    this.drawn = [];
  }

  /** The first point of each cell at a level of zoom. @param {number} level @param {number} size of a cell in the layout */
  cells(level, size) {
    let found = this.levels.get(level);
    if (!found) {
      found = new Map();
      const { xy } = this.scatter;
      for (let i = 0; i < xy.length / 2; i += 1) {
        const cell = cellNumber(Math.floor(xy[2 * i] / size), Math.floor(xy[2 * i + 1] / size));
        if (!found.has(cell)) found.set(cell, i);
      }
      if (this.levels.size > 6) this.levels.clear();
      this.levels.set(level, found);
    }
    return found;
  }

  /** The zoom from where on pictures are shown: that at which a small collection fills the view with one per cell. */
  fromZoom() {
    const { xy, width, height } = this.scatter;
    return Math.min(FROM_ZOOM, CELL * Math.sqrt(xy.length / 2 / (width * height)));
  }

  /** Draw what is there, and fetch what is missing. @param {CanvasRenderingContext2D} context scaled to CSS pixels */
  draw(context) {
    const { scatter } = this;
    this.drawn = [];
    this.waiting = [];
    if (scatter.zoom < this.fromZoom() || !scatter.xy.length) return;
    const scale = scatter.scale() / scatter.ratio; // CSS pixels of one unit
    const level = Math.round(2 * Math.log2(scale));
    const size = CELL / 2 ** (level / 2);
    const cells = this.cells(level, size);
    const [left, top] = scatter.toLayout(0, 0), [right, bottom] = scatter.toLayout(scatter.width, scatter.height);
    const room = (size * scale - SIDE) / 2; // by which a picture may leave the middle of its cell
    for (let row = Math.floor(top / size); row <= Math.floor(bottom / size); row += 1) {
      for (let column = Math.floor(left / size); column <= Math.floor(right / size); column += 1) {
        const point = cells.get(cellNumber(column, row));
        if (point === undefined) continue;
        const [middleX, middleY] = scatter.toScreen((column + 0.5) * size, (row + 0.5) * size);
        const [pointX, pointY] = scatter.positionOf(point);
        const near = (value, middle) => Math.max(middle - Math.max(0, room), Math.min(middle + Math.max(0, room), value));
        this.place(context, point, near(pointX, middleX), near(pointY, middleY));
      }
    }
    this.load();
  }

  /** @param {CanvasRenderingContext2D} context @param {number} point @param {number} x @param {number} y */
  place(context, point, x, y) {
    const picture = this.pictures.get(point);
    if (picture === undefined) this.waiting.push(point);
    if (!picture) return;
    this.drawn.push({ x, y, point });
    context.drawImage(picture, Math.round(x - SIDE / 2), Math.round(y - SIDE / 2), SIDE, SIDE);
  }

  /** The point whose picture lies at a place, or -1. @param {number} x @param {number} y */
  at(x, y) {
    const found = this.drawn.find((each) => Math.abs(each.x - x) <= SIDE / 2 && Math.abs(each.y - y) <= SIDE / 2);
    return found ? found.point : -1;
  }

  async load() {
    const unknown = this.waiting.filter((point) => !this.keys.has(point)).slice(0, 200);
    if (unknown.length) {
      if (this.asking) return;
      this.asking = true;
      try {
        const { keys } = await fetchJson(`map/keys?${unknown.map((point) => `at=${point}`).join("&")}`);
        unknown.forEach((point, i) => this.keys.set(point, keys[i]));
      } catch {
        return; // the next movement tries again
      } finally {
        this.asking = false;
      }
    }
    while (this.loading < AT_ONCE && this.waiting.length) {
      const point = /** @type {number} */ (this.waiting.shift());
      const key = this.keys.get(point);
      if (key !== undefined && !this.pictures.has(point)) this.fetch(point, key);
    }
  }

  /** @param {number} point @param {string} key */
  async fetch(point, key) {
    this.pictures.set(point, null);
    this.loading += 1;
    const image = new Image();
    image.src = thumbnailPath(key, 160);
    try {
      await image.decode();
      this.pictures.set(point, cut(image, this.scatter.ratio));
      if (this.pictures.size > KEPT) this.pictures.delete(this.pictures.keys().next().value ?? -1);
    } catch { /* its dot stays */ }
    this.loading -= 1;
    if (this.waiting.length) this.load();
    this.arrived();
  }
}

/** One number for a cell, a small integer; the layout has no more than these. @param {number} column @param {number} row */
const cellNumber = (column, row) => ((column + 16384) << 15) + row + 16384;
