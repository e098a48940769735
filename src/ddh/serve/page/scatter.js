// Points on a canvas: one pass into the pixels of an image per frame, with a camera that pans and zooms.

const MARGIN = 12; // pixels round the image, so that a dot at the edge needs no clipping
const COVER = 0.03; // fraction of the canvas that the dots cover together, before their size is clipped
const SMALLEST = 1.1, LARGEST = 5; // radius of a dot, in CSS pixels
const AIR = 36; // CSS pixels round the points in the initial view
const MIN_ZOOM = 0.5, MAX_ZOOM = 400; // relative to the initial view
const GLIDE = 160; // ms of an animated step

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** A colour as the 32 bits of a pixel. @param {Rgb} colour */
export const pixel = ({ r, g, b }) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** A soft disc: offsets of its pixels in the image, and how much of each it covers (of 256). @param {number} radius @param {number} stride */
function disc(radius, stride) {
  const reach = Math.min(MARGIN - 1, Math.ceil(radius));
  const solid = [], edge = [], cover = [];
  for (let dy = -reach; dy <= reach; dy += 1) {
    for (let dx = -reach; dx <= reach; dx += 1) {
      const part = Math.round(256 * Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(dx, dy))));
      if (part === 256) solid.push(dy * stride + dx);
      else if (part > 16) { edge.push(dy * stride + dx); cover.push(part); }
    }
  }
  return { solid: Int32Array.from(solid), edge: Int32Array.from(edge), cover: Int32Array.from(cover) };
}

/** The centre and the size of the bounding box. @param {Float32Array} xy */
function boundsOf(xy) {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < xy.length; i += 2) {
    left = Math.min(left, xy[i]);
    right = Math.max(right, xy[i]);
    top = Math.min(top, xy[i + 1]);
    bottom = Math.max(bottom, xy[i + 1]);
  }
  return { x: (left + right) / 2, y: (top + bottom) / 2, width: right - left || 1, height: bottom - top || 1 };
}

export class Scatter {
  /** drawAbove(context, ratio) draws what lies on top of the dots. @param {HTMLCanvasElement} canvas @param {(context: CanvasRenderingContext2D, ratio: number) => void} drawAbove */
  constructor(canvas, drawAbove) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.drawAbove = drawAbove;
    this.xy = /** @type {Float32Array} */ (new Float32Array(0));
    this.offsets = new Int32Array(0); // of each point in the image, -1 outside of it
    this.colours = new Uint32Array(0); // a pixel per point
    this.background = 0;
    this.faint = /** @type {number | null} */ (null); // points of this colour are drawn below the others
    this.stride = 0;
    this.ratio = 1;
    this.dots = new Map(); // radius -> disc
    this.frame = /** @type {number | null} */ (null);
    this.bounds = { x: 0, y: 0, width: 2, height: 2 };
    this.covered = 0; // CSS pixels on the left that lie under something else
    this.centre = { x: 0, y: 0 };
    this.zoom = 1;
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  setPoints(xy) {
    this.xy = xy;
    this.offsets = new Int32Array(xy.length / 2);
    this.bounds = boundsOf(xy);
    this.look(...this.home());
  }

  setColours(colours, background, faint) {
    Object.assign(this, { colours, background, faint });
    this.requestDraw();
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.stride = this.canvas.width + 2 * MARGIN;
    this.image = new ImageData(this.stride, this.canvas.height + 2 * MARGIN);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.dots.clear();
    if (this.zoom === 1) this.look(...this.home());
    this.draw(); // at once: a canvas that was resized is blank
  }

  /** Pixels of the canvas for one unit of the layout; without zoom all points are in view. */
  scale() {
    const { width, height } = this.canvas;
    const air = 2 * AIR * this.ratio;
    const free = width - this.covered * this.ratio;
    return Math.max(1, Math.min((free - air) / this.bounds.width, (height - air) / this.bounds.height)) * this.zoom;
  }

  /** The initial view: x, y of the centre and the zoom. @returns {[number, number, number]} */
  home() {
    const { x, y } = this.bounds;
    const aside = this.pixels ? (this.covered * this.ratio) / 2 / (this.scale() / this.zoom) : 0;
    return [x - aside, y, 1];
  }

  radius() {
    const { width, height } = this.canvas;
    const area = (width * height * COVER) / Math.max(1, this.offsets.length) / this.ratio ** 2;
    return Math.max(SMALLEST, Math.min(LARGEST, Math.max(SMALLEST, Math.sqrt(area / Math.PI)) * Math.sqrt(this.zoom)));
  }

  requestDraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  draw() {
    if (!this.pixels || !this.image || !this.colours.length || this.colours.length !== this.offsets.length) return;
    this.pixels.fill(this.background);
    this.project();
    if (this.faint !== null) this.stamp(true);
    this.stamp(false);
    this.context.putImageData(this.image, -MARGIN, -MARGIN);
    this.drawAbove(this.context, this.ratio);
  }

  /** Compute where each point lies in the image. */
  project() {
    const { xy, offsets, stride, centre, canvas: { width, height } } = this;
    const scale = this.scale();
    const left = width / 2 - centre.x * scale, top = height / 2 - centre.y * scale;
    for (let i = 0; i < offsets.length; i += 1) {
      const x = Math.round(xy[2 * i] * scale + left), y = Math.round(xy[2 * i + 1] * scale + top);
      const visible = x >= 0 && y >= 0 && x < width && y < height;
      offsets[i] = visible ? (y + MARGIN) * stride + x + MARGIN : -1;
    }
  }

  /** Draw the dots of the faint colour, or all others. @param {boolean} faintOnes */
  stamp(faintOnes) {
    const { offsets, colours, faint } = this;
    const pixels = /** @type {Uint32Array} */ (this.pixels);
    const radius = Math.round(this.radius() * this.ratio * 4) / 4;
    if (!this.dots.has(radius)) this.dots.set(radius, disc(radius, this.stride));
    const { solid, edge, cover } = this.dots.get(radius);
    const dense = radius < 2 * this.ratio; // a small dot on one of its own colour would hardly be seen
    for (let i = 0; i < offsets.length; i += 1) {
      const at = offsets[i];
      if (at < 0) continue;
      const colour = colours[i];
      if ((colour === faint) !== faintOnes || (dense && pixels[at] === colour)) continue;
      for (let k = 0; k < solid.length; k += 1) pixels[at + solid[k]] = colour;
      const redBlue = colour & 0xff00ff, green = colour & 0x00ff00;
      for (let k = 0; k < edge.length; k += 1) {
        const below = pixels[at + edge[k]], part = cover[k], rest = 256 - part;
        const mixedRedBlue = (((below & 0xff00ff) * rest + redBlue * part) >>> 8) & 0xff00ff;
        const mixedGreen = (((below & 0x00ff00) * rest + green * part) >>> 8) & 0x00ff00;
        pixels[at + edge[k]] = 0xff000000 | mixedRedBlue | mixedGreen;
      }
    }
  }

  /** A position of the layout in CSS pixels of the canvas. @param {number} x @param {number} y */
  toScreen(x, y) {
    const scale = this.scale() / this.ratio;
    return [this.canvas.clientWidth / 2 + (x - this.centre.x) * scale, this.canvas.clientHeight / 2 + (y - this.centre.y) * scale];
  }

  /** And back. @param {number} px @param {number} py */
  toLayout(px, py) {
    const scale = this.scale() / this.ratio;
    return [this.centre.x + (px - this.canvas.clientWidth / 2) / scale, this.centre.y + (py - this.canvas.clientHeight / 2) / scale];
  }

  /** Where a point lies on the screen, in CSS pixels of the canvas. @param {number} i */
  positionOf(i) {
    return this.toScreen(this.xy[2 * i], this.xy[2 * i + 1]);
  }

  /** The point nearest to a position on the screen within a distance, or -1. @param {number} px @param {number} py @param {number} within */
  nearest(px, py, within) {
    const { xy } = this;
    const [x, y] = this.toLayout(px, py);
    let best = -1;
    let least = this.length(within) ** 2;
    for (let i = 0; i < xy.length; i += 2) {
      const distance = (xy[i] - x) ** 2 + (xy[i + 1] - y) ** 2;
      if (distance <= least) { least = distance; best = i / 2; }
    }
    return best;
  }

  /** A length in CSS pixels as a length of the layout. @param {number} pixels */
  length(pixels) {
    return (pixels * this.ratio) / this.scale();
  }

  pan(dx, dy) {
    this.look(this.centre.x - this.length(dx), this.centre.y - this.length(dy), this.zoom);
  }

  /** Zoom by a factor; what lies at (px, py) stays there. @param {number} px @param {number} py @param {number} factor */
  zoomAt(px, py, factor) {
    const [x, y] = this.toLayout(px, py);
    const zoom = this.zoomedBy(factor);
    const kept = this.zoom / zoom;
    this.look(x + (this.centre.x - x) * kept, y + (this.centre.y - y) * kept, zoom);
  }

  zoomedBy(factor) {
    return Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, this.zoom * factor));
  }

  /** Move the camera. @param {number} x @param {number} y @param {number} zoom */
  look(x, y, zoom) {
    const { bounds } = this;
    /** @type {(value: number, middle: number, size: number) => number} */
    const near = (value, middle, size) => Math.max(middle - size, Math.min(middle + size, value));
    this.centre = { x: near(x, bounds.x, bounds.width), y: near(y, bounds.y, bounds.height) };
    this.zoom = zoom;
    this.requestDraw();
  }

  /** Move the camera smoothly, or at once for those who want no motion. @param {number} x @param {number} y @param {number} zoom */
  glide(x, y, zoom) {
    const from = { ...this.centre, zoom: this.zoom };
    const begun = performance.now();
    const step = (now) => {
      const part = reducedMotion.matches ? 1 : Math.min(1, Math.max(0, now - begun) / GLIDE);
      const eased = 1 - (1 - part) ** 3;
      this.look(from.x + (x - from.x) * eased, from.y + (y - from.y) * eased, from.zoom * (zoom / from.zoom) ** eased);
      if (part < 1) requestAnimationFrame(step);
    };
    step(begun);
  }

  glideZoom(factor) {
    this.glide(this.centre.x, this.centre.y, this.zoomedBy(factor));
  }
}
