// Points on a canvas, with a camera that pans and zooms. Dots are drawn into a picture a little larger than the canvas; a
// frame shows it, moved and scaled, while the next picture is drawn in parts of a few milliseconds per frame.

const BORDER = 192; // CSS pixels of the picture on each side of the canvas, to pan into
const FAR = 32; // CSS pixels of a pan after which the next picture is drawn
const BUDGET = 4; // ms per frame for the next picture
const PART = 2048; // points between two looks at the clock
const MARGIN = 12; // pixels round the picture, so that a dot at its edge needs no clipping
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
    this.colours = new Uint32Array(0); // a pixel per point
    this.order = new Uint32Array(0); // of the points, those below others first
    this.background = 0;
    this.picture = document.createElement("canvas");
    this.ink = /** @type {CanvasRenderingContext2D} */ (this.picture.getContext("2d", { alpha: false }));
    this.border = 0; // pixels of the picture on each side of the canvas
    this.shown = /** @type {Camera | null} */ (null); // of the picture
    this.next = /** @type {NextPicture | null} */ (null)
    this.ratio = 1;
    this.width = 0; // CSS pixels of the canvas: to ask it makes a layout
    this.height = 0;
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
    this.bounds = boundsOf(xy);
    this.look(...this.home());
  }

  /** Colours of the points and of what lies behind them; points of the faint one are drawn below the others. @param {Uint32Array} colours @param {number} background @param {number | null} faint */
  setColours(colours, background, faint) {
    const points = Array.from(colours, (_, i) => i);
    const order = faint === null ? points : [...points.filter((i) => colours[i] === faint), ...points.filter((i) => colours[i] !== faint)];
    Object.assign(this, { colours, background, order: Uint32Array.from(order), shown: null, next: null });
    this.requestDraw();
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.border = Math.round(BORDER * this.ratio) + MARGIN;
    this.picture.width = this.canvas.width + 2 * this.border;
    this.picture.height = this.canvas.height + 2 * this.border;
    this.image = new ImageData(this.picture.width, this.picture.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.shown = this.next = null;
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
    const area = (width * height * COVER) / Math.max(1, this.xy.length / 2) / this.ratio ** 2;
    return Math.max(SMALLEST, Math.min(LARGEST, Math.max(SMALLEST, Math.sqrt(area / Math.PI)) * Math.sqrt(this.zoom)));
  }

  requestDraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  /** What the canvas shows: pixels from the origin of the layout to its corner, and pixels of a unit. @returns {Camera} */
  camera() {
    const { centre, canvas: { width, height } } = this;
    const scale = this.scale();
    return { left: Math.round(centre.x * scale - width / 2), top: Math.round(centre.y * scale - height / 2), scale };
  }

  draw() {
    if (!this.pixels || !this.colours.length || this.colours.length !== this.xy.length / 2) return;
    const camera = this.camera();
    const far = ({ left, top, scale }) => scale !== camera.scale || Math.max(Math.abs(left - camera.left), Math.abs(top - camera.top)) > FAR * this.ratio;
    if (!this.next && (!this.shown || far(this.shown))) this.begin(camera);
    if (this.next) this.drawPart(this.next, this.shown ? performance.now() + BUDGET : Infinity);
    this.show(camera, /** @type {Camera} */ (this.shown));
    this.drawAbove(this.context, this.ratio);
    if (this.next || far(/** @type {Camera} */ (this.shown))) this.requestDraw();
  }

  /** Begin the picture of a camera. @param {Camera} camera */
  begin(camera) {
    /** @type {Uint32Array} */ (this.pixels).fill(this.background);
    this.next = { ...camera, radius: Math.round(this.radius() * this.ratio * 4) / 4, done: 0 };
  }

  /** Put the picture where the camera sees it. @param {Camera} camera @param {Camera} shown */
  show(camera, shown) {
    const { context, picture, border, canvas: { width, height } } = this;
    const factor = camera.scale / shown.scale;
    const x = (shown.left - border) * factor - camera.left, y = (shown.top - border) * factor - camera.top;
    if (x > 0 || y > 0 || x + picture.width * factor < width || y + picture.height * factor < height) {
      context.fillStyle = `#${[0, 8, 16].map((shift) => ((this.background >>> shift) & 255).toString(16).padStart(2, "0")).join("")}`;
      context.fillRect(0, 0, width, height);
    }
    context.imageSmoothingEnabled = false; // a scaled picture lasts for some frames only
    context.drawImage(picture, x, y, picture.width * factor, picture.height * factor);
  }

  /** Go on with the next picture until a time; once all points are drawn it is the one that is shown. @param {NextPicture} next @param {number} until */
  drawPart(next, until) {
    const { order } = this;
    do {
      this.stamp(next, next.done, Math.min(order.length, next.done + PART));
      next.done += PART;
    } while (next.done < order.length && performance.now() < until);
    if (next.done < order.length) return;
    this.ink.putImageData(/** @type {ImageData} */ (this.image), 0, 0);
    this.shown = next;
    this.next = null;
  }

  /** Draw some dots, from first to before last in their order. @param {NextPicture} next @param {number} first @param {number} last */
  stamp({ left: cornerX, top: cornerY, scale, radius }, first, last) {
    const { xy, order, colours, border, picture: { width: stride, height } } = this;
    const pixels = /** @type {Uint32Array} */ (this.pixels);
    const left = border - cornerX, top = border - cornerY;
    const right = stride - MARGIN, bottom = height - MARGIN;
    if (!this.dots.has(radius)) this.dots.set(radius, disc(radius, stride));
    const { solid, edge, cover } = this.dots.get(radius);
    const dense = radius < 2 * this.ratio; // a small dot on one of its own colour would hardly be seen
    for (let n = first; n < last; n += 1) {
      const i = order[n];
      const x = Math.round(xy[2 * i] * scale) + left, y = Math.round(xy[2 * i + 1] * scale) + top;
      if (x < MARGIN || y < MARGIN || x >= right || y >= bottom) continue;
      const at = y * stride + x, colour = colours[i];
      if (dense && pixels[at] === colour) continue;
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
    return [this.width / 2 + (x - this.centre.x) * scale, this.height / 2 + (y - this.centre.y) * scale];
  }

  /** And back. @param {number} px @param {number} py */
  toLayout(px, py) {
    const scale = this.scale() / this.ratio;
    return [this.centre.x + (px - this.width / 2) / scale, this.centre.y + (py - this.height / 2) / scale];
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
