// Points on a canvas: one pass into the pixels of an image a frame, with a camera that pans and zooms.

const MARGIN = 12; // pixels round the image, so that a dot at the edge needs no test of its own
const COVER = 0.03; // part of the canvas that the dots cover together, before they are clipped to a size
const SMALLEST = 1.1, LARGEST = 5; // radius of a dot, in CSS pixels
const AIR = 36; // CSS pixels round the points at the first look
const DEEPEST = 400; // times closer than the first look
const GLIDE = 160; // ms of a step by key or button

const stillness = matchMedia("(prefers-reduced-motion: reduce)");

/** A colour as the 32 bits of a pixel, from {r, g, b}. */
export const pixel = ({ r, g, b }) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** A soft disc: offsets of its pixels in the image, and how much of each it covers (of 256). */
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

/** The middle and the size of the box that holds all points. */
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
  /** above(context, toScreen) draws what lies on top of the dots. */
  constructor(canvas, above) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.above = above;
    this.xy = new Float32Array(0);
    this.bounds = { x: 0, y: 0, width: 2, height: 2 };
    this.covered = 0; // CSS pixels on the left that lie under something else
    this.centre = { x: 0, y: 0 };
    this.zoom = 1;
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  setPoints(xy) {
    this.xy = xy;
    this.places = new Int32Array(xy.length / 2);
    this.bounds = boundsOf(xy);
    this.look(...this.home());
  }

  /** colours: a pixel for each point; those equal to faint are drawn below the others. */
  setColours(colours, background, faint = null) {
    Object.assign(this, { colours, background, faint });
    this.ask();
  }

  resize() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.ratio = ratio;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.stride = this.canvas.width + 2 * MARGIN;
    this.image = new ImageData(this.stride, this.canvas.height + 2 * MARGIN);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.dots = new Map();
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

  /** The first look: x, y of the centre and the zoom. */
  home() {
    const { x, y } = this.bounds;
    const aside = this.pixels ? (this.covered * this.ratio) / 2 / (this.scale() / this.zoom) : 0;
    return [x - aside, y, 1];
  }

  radius() {
    const { width, height } = this.canvas;
    const area = (width * height * COVER) / Math.max(1, this.places.length) / this.ratio ** 2;
    return Math.max(SMALLEST, Math.min(LARGEST, Math.max(SMALLEST, Math.sqrt(area / Math.PI)) * Math.sqrt(this.zoom)));
  }

  ask() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  draw() {
    if (!this.pixels || !this.colours) return;
    this.pixels.fill(this.background);
    this.place();
    if (this.faint !== null) this.stamp(true);
    this.stamp(false);
    this.context.putImageData(this.image, -MARGIN, -MARGIN);
    this.above?.(this.context, this.ratio);
  }

  /** Where each point lies in the image; -1 outside of it. */
  place() {
    const { xy, places, stride } = this;
    const scale = this.scale();
    const left = this.canvas.width / 2 - this.centre.x * scale;
    const top = this.canvas.height / 2 - this.centre.y * scale;
    const right = this.canvas.width + MARGIN, bottom = this.canvas.height + MARGIN;
    for (let i = 0; i < places.length; i += 1) {
      const x = Math.round(xy[2 * i] * scale + left), y = Math.round(xy[2 * i + 1] * scale + top);
      const seen = x >= 0 && y >= 0 && x < right - MARGIN && y < bottom - MARGIN;
      places[i] = seen ? (y + MARGIN) * stride + x + MARGIN : -1;
    }
  }

  stamp(faintOnes) {
    const { places, pixels, colours, faint } = this;
    const radius = Math.round(this.radius() * this.ratio * 4) / 4;
    if (!this.dots.has(radius)) this.dots.set(radius, disc(radius, this.stride));
    const { solid, edge, cover } = this.dots.get(radius);
    for (let i = 0; i < places.length; i += 1) {
      const at = places[i];
      if (at < 0) continue;
      const colour = colours[i];
      if ((colour === faint) !== faintOnes) continue;
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

  /** A place of the layout in CSS pixels of the canvas, and back. */
  toScreen(x, y) {
    const scale = this.scale() / this.ratio;
    return [this.canvas.clientWidth / 2 + (x - this.centre.x) * scale, this.canvas.clientHeight / 2 + (y - this.centre.y) * scale];
  }

  toLayout(px, py) {
    const scale = this.scale() / this.ratio;
    return [this.centre.x + (px - this.canvas.clientWidth / 2) / scale, this.centre.y + (py - this.canvas.clientHeight / 2) / scale];
  }

  /** A length in CSS pixels as a length of the layout. */
  length(pixels) {
    return (pixels * this.ratio) / this.scale();
  }

  pan(dx, dy) {
    this.look(this.centre.x - this.length(dx), this.centre.y - this.length(dy), this.zoom);
  }

  /** Zoom by a factor; what lies at (px, py) stays there. */
  zoomAt(px, py, factor) {
    const [x, y] = this.toLayout(px, py);
    const zoom = Math.max(0.5, Math.min(DEEPEST, this.zoom * factor));
    const kept = this.zoom / zoom;
    this.look(x + (this.centre.x - x) * kept, y + (this.centre.y - y) * kept, zoom);
  }

  look(x, y, zoom) {
    const { bounds } = this;
    const near = (value, middle, size) => Math.max(middle - size, Math.min(middle + size, value));
    this.centre = { x: near(x, bounds.x, bounds.width), y: near(y, bounds.y, bounds.height) };
    this.zoom = zoom;
    this.ask();
  }

  reset() {
    this.glide(...this.home());
  }

  /** Go to a look smoothly, or at once for those who want no motion. */
  glide(x, y, zoom) {
    const from = { ...this.centre, zoom: this.zoom };
    const begun = performance.now();
    const step = (now) => {
      const part = stillness.matches ? 1 : Math.min(1, Math.max(0, now - begun) / GLIDE);
      const eased = 1 - (1 - part) ** 3;
      this.look(from.x + (x - from.x) * eased, from.y + (y - from.y) * eased, from.zoom * (zoom / from.zoom) ** eased);
      if (part < 1) requestAnimationFrame(step);
    };
    step(begun);
  }

  glideZoom(factor) {
    this.glide(this.centre.x, this.centre.y, Math.max(0.5, Math.min(DEEPEST, this.zoom * factor)));
  }
}
