// The map of the collection: every picture a dot, pictures with similar codes near each other.

import { fetchBytes, fetchJson, isReported } from "./api.js";
import { labelPositions } from "./clusterLabels.js";
import { bitAt } from "./codes.js";
import { count, failure, h, iconButton, notice, Slider, statusLine, viewHead } from "./dom.js";
import { drawLabels, shortLabels } from "./mapLabels.js";
import { MapThumbnails } from "./mapThumbnails.js";
import { categoryColour, css, sharedColours, themeColour } from "./palette.js";
import { listenForPanZoom } from "./panZoom.js";
import { current, go } from "./router.js";
import { pixel, Scatter } from "./scatter.js";
import { thumbnail } from "./thumbnail.js";

const INTERVAL = 700; // ms between requests while the layout is computed
const NEAR = 14; // CSS pixels from a dot at which the pointer selects it
const SMALLEST_SHARE = 0.006; // of all pictures that a category must have for a label, while all are in view
const NONE = 255; // the category of a point that has none

export class MapView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.open = false;
    this.timer = 0;
    this.parameters = /** @type {ViewParameters} */ ({});
    this.points = 0;
    this.layoutOf = -1; // rows of the collection that is shown
    this.keys = /** @type {Map<number, string>} */ (new Map()); // of the points, as they were requested
    this.colourings = /** @type {Map<string, Colouring>} */ (new Map());
    this.colouring = /** @type {Colouring} */ ({ of: new Uint8Array(0), names: [], colours: [], labels: [], order: [], short: [], counts: [] });
    this.names = /** @type {string[]} */ ([]); // what points can be coloured by
    this.codes = /** @type {Uint8Array | null} */ (null);
    this.highlighted = /** @type {number | null} */ (null); // category
    this.selected = -1; // point
    this.ink = { text: "", halo: "" };

    this.canvas = h("canvas", { class: "map-canvas", tabindex: "0", role: "application",
      "aria-label": "Map of the collection. Arrow keys move, plus and minus zoom, 0 shows all, Enter searches from the picture in the middle.",
      "aria-describedby": "map-said" });
    this.scatter = new Scatter(this.canvas, (context, ratio) => this.drawAbove(context, ratio));
    this.thumbnails = new MapThumbnails(this.scatter, this.keys, () => this.scatter.requestDraw());
    this.choice = h("select", { id: "colour-by", onchange: () =>
      go("map", this.choice.value === "" ? { bit: this.bit.value } : { colour: this.choice.value }, { replace: true }) });
    this.bit = new Slider({ id: "colour-bit", label: "Bit", max: app.health.bits - 1, pause: 0, text: String,
      changed: () => go("map", { bit: this.bit.value }, { replace: true }) });
    this.legend = h("ul", { class: "legend", role: "list", "aria-label": "Colours" });
    this.announced = h("p", { id: "map-said", class: "unseen", role: "status" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.cross = h("div", { class: "cross", hidden: true, "aria-hidden": "true" });
    this.notices = h("div", { class: "map-notices" });
    this.status = statusLine();
    this.tools = h("div", { class: "map-tools", role: "region", "aria-label": "Colours of the map" }, viewHead(h("h2", {}, "Map"), this.status),
      h("div", { class: "field" }, h("label", { for: "colour-by" }, "Colour by"), this.choice), this.bit.element, this.legend);
    const buttons = h("div", { class: "map-buttons" },
      iconButton("plus", "Zoom in", () => this.scatter.glideZoom(1.8)),
      iconButton("minus", "Zoom out", () => this.scatter.glideZoom(1 / 1.8)),
      iconButton("reset", "Show all", () => this.scatter.glide(...this.scatter.home())));
    this.element = h("div", { class: "view map waiting" }, h("h1", { class: "unseen" }, "Map"), this.canvas, this.cross, this.notices, this.tools, buttons, this.tip, this.announced);
    window.addEventListener("themechange", () => { if (this.points) this.paint(); });
    listenForPanZoom(this.canvas, this.scatter, {
      over: (x, y) => this.select(this.pointAt(x, y, NEAR)),
      out: () => this.select(-1),
      press: (x, y, touch) => this.press(x, y, touch),
      middle: () => this.selectMiddle(),
      enter: () => this.search(this.selected),
    });
  }

  /** @param {ViewParameters} parameters */
  async show(parameters) {
    this.app.setTitle("Map");
    this.parameters = parameters;
    this.open = true;
    clearTimeout(this.timer);
    try {
      await this.load();
      if (this.open && this.points) await this.colour();
    } catch (error) {
      this.failed(error);
    }
  }

  hide() {
    this.open = false;
    clearTimeout(this.timer);
    this.select(-1);
  }

  failed(error) {
    if (!isReported(error)) this.notices.replaceChildren(failure(error.message));
  }

  /** The layout, once it is there; until then its progress. */
  async load() {
    if (this.layoutOf === this.app.health.rows) return;
    /** @type {MapState} */
    const { state, points, done, colours } = await fetchJson("map");
    if (state === "empty") {
      this.notices.replaceChildren(notice("Nothing to map yet", h("p", {}, "The map shows as soon as the index holds pictures.")));
      return;
    }
    if (state !== "ready") {
      this.notices.replaceChildren(notice("Drawing the map",
        h("p", {}, `Placing ${points.toLocaleString()} pictures so that like codes lie together.`),
        h("progress", { max: 1, value: done, "aria-label": "Layout" })));
      if (this.open) this.timer = setTimeout(() => this.show(this.parameters), INTERVAL);
      return;
    }
    const xy = new Float32Array(await fetchBytes("map/points"));
    this.points = xy.length / 2;
    this.colourings.clear();
    this.codes = null;
    this.keys.clear();
    this.thumbnails.clear();
    this.layoutOf = this.app.health.rows;
    this.element.classList.remove("waiting");
    this.notices.replaceChildren();
    this.status.textContent = count(this.points, "picture");
    this.names = colours;
    this.choice.replaceChildren(...colours.map((name) => h("option", { value: name }, name)), h("option", { value: "" }, "a bit of the code"));
    this.scatter.covered = this.tools.offsetWidth < this.canvas.clientWidth / 2 ? this.tools.offsetLeft + this.tools.offsetWidth : 0;
    this.scatter.setPoints(xy);
  }

  /** Colour as the address says: by a field of the metadata, or by one bit. */
  async colour() {
    const { colour, bit } = this.parameters;
    const byName = bit === undefined && this.names.length > 0;
    const name = byName ? (this.names.find((each) => each === colour) ?? this.names[0]) : "";
    this.choice.value = name;
    this.bit.element.hidden = byName;
    this.highlighted = null;
    if (byName && !this.colourings.has(name)) this.colourings.set(name, await this.byCategory(name));
    this.colouring = this.colourings.get(name) ?? await this.byBit(Number.parseInt(bit ?? "", 10) || 0);
    this.drawLegend();
    this.paint();
  }

  /** @param {string} name @returns {Promise<Colouring>} */
  async byCategory(name) {
    const { categories, values } = await fetchJson(`map/colours?by=${encodeURIComponent(name)}`);
    return inOrder(categories, Uint8Array.from(atob(values), (character) => character.charCodeAt(0)), this.scatter.xy);
  }

  /** @param {number} bit @returns {Promise<Colouring>} */
  async byBit(bit) {
    const codes = (this.codes ??= new Uint8Array(await fetchBytes("map/codes")));
    const shown = Math.min(bit, this.app.health.bits - 1);
    this.bit.value = shown;
    const of = Uint8Array.from({ length: this.points }, (_, i) => bitAt(codes, shown, (i * codes.length) / this.points));
    return { of, names: [`bit ${shown} is 0`, `bit ${shown} is 1`], colours: [categoryColour(0), categoryColour(1)], labels: [], order: [], short: [], counts: [] };
  }

  drawLegend() {
    const { of, names, short, colours } = this.colouring;
    const counts = new Uint32Array(256);
    for (const value of of) counts[value] += 1;
    const rows = /** @type {[number, string][]} */ ([...names.entries()]);
    if (counts[NONE]) rows.push([NONE, "none"]);
    this.legend.replaceChildren(...rows.map(([value, name]) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = value === NONE ? "var(--muted)" : css(colours[value]);
      return h("li", {}, h("button", { type: "button", class: "quiet", "aria-pressed": "false", "data-value": value, onclick: () => this.highlight(value) },
        swatch, h("span", { class: "legend-name", title: name }, short[value] ?? name), h("span", { class: "muted" }, counts[value].toLocaleString())));
    }));
  }

  /** Bring out one category, or all again. @param {number} value */
  highlight(value) {
    this.highlighted = this.highlighted === value ? null : value;
    for (const button of this.legend.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.value) === this.highlighted));
    }
    this.paint();
  }

  paint() {
    const { of, colours } = this.colouring;
    const table = new Uint32Array(256).fill(pixel(themeColour("--muted")));
    colours.forEach((colour, i) => { table[i] = pixel(colour); });
    const faint = this.highlighted === null ? null : pixel(themeColour("--faint"));
    if (faint !== null) for (let i = 0; i < 256; i += 1) if (i !== this.highlighted) table[i] = faint;
    this.ink = { text: css(themeColour("--ink")), halo: css(themeColour("--paper")) };
    this.scatter.setColours(Uint32Array.from(of, (category) => table[category]), pixel(themeColour("--paper")), faint);
  }

  /** What lies on top of the dots: a label where most pictures of a category lie, a ring round the selected dot. @param {CanvasRenderingContext2D} context @param {number} ratio */
  drawAbove(context, ratio) {
    context.save();
    context.scale(ratio, ratio);
    if (this.app.health.pictures) this.thumbnails.draw(context);
    this.drawLabels(context);
    if (this.selected >= 0) {
      const [x, y] = this.scatter.positionOf(this.selected);
      context.lineWidth = 2.5;
      context.strokeStyle = this.ink.text;
      context.beginPath();
      context.arc(x, y, this.scatter.radius() + 4, 0, 2 * Math.PI);
      context.stroke();
    }
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context */
  drawLabels(context) {
    const { short, labels, colours, order, counts } = this.colouring;
    const least = this.highlighted === null ? (SMALLEST_SHARE * this.points) / this.scatter.zoom ** 2 : 0;
    const { width, height } = this.scatter;
    const shown = /** @type {PlacedLabel[]} */ ([]);
    for (const i of order) {
      const position = labels[i];
      if (!position || counts[i] < least || (this.highlighted !== null && this.highlighted !== i)) continue;
      const [x, y] = this.scatter.toScreen(...position);
      if (x > 0 && y > 0 && x < width && y < height) shown.push({ text: short[i], x, y, colour: css(colours[i]) });
    }
    drawLabels(context, shown, { ...this.ink, width, height });
  }

  /** The point of the picture or dot at a place, or -1. @param {number} x @param {number} y @param {number} within */
  pointAt(x, y, within) {
    const pictured = this.thumbnails.at(x, y);
    return pictured >= 0 ? pictured : this.scatter.nearest(x, y, within);
  }

  /** Select a dot (-1: none): its picture and key show beside it. @param {number} i */
  async select(i) {
    this.cross.hidden = true;
    if (i === this.selected) {
      if (i >= 0 && !this.tip.hidden) this.placeTip(i);
      return;
    }
    this.selected = i;
    this.scatter.requestDraw();
    this.canvas.classList.toggle("pointing", i >= 0);
    this.tip.hidden ||= i < 0;
    if (i < 0) return;
    const key = await this.keyOf(i).catch(() => null);
    if (this.selected !== i || key === null) return;
    const item = { key, code: this.codeOf(i), picture: this.app.health.pictures };
    const value = this.colouring.names[this.colouring.of[i]];
    this.tip.replaceChildren(h("span", { class: "frame" }, thumbnail(item, this.app.health.bits, 160)),
      h("span", { class: "name" }, key), value === undefined ? "" : h("span", { class: "muted small-text" }, value));
    this.announced.textContent = [key, value].filter((text) => text !== undefined).join(", ");
    this.placeTip(i);
  }

  placeTip(i) {
    this.tip.hidden = false;
    const [x, y] = this.scatter.positionOf(i);
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const { clientWidth, clientHeight } = this.canvas;
    const left = x + 16 + width > clientWidth ? x - 16 - width : x + 16;
    this.tip.style.left = `${Math.max(8, left)}px`;
    this.tip.style.top = `${Math.max(8, Math.min(clientHeight - height - 8, y - height / 2))}px`;
  }

  async keyOf(i) {
    const key = this.keys.get(i) ?? /** @type {string} */ ((await fetchJson(`map/keys?at=${i}`)).keys[0]);
    this.keys.set(i, key);
    return key;
  }

  /** The code of a point in hex, if the codes have been fetched. @param {number} i */
  codeOf(i) {
    if (!this.codes) return null;
    const bytes = this.codes.length / this.points;
    return [...this.codes.subarray(i * bytes, (i + 1) * bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** With the keyboard the middle of the map is the pointer. */
  selectMiddle() {
    const { clientWidth, clientHeight } = this.canvas;
    this.select(this.scatter.nearest(clientWidth / 2, clientHeight / 2, Math.min(clientWidth, clientHeight) / 4));
    this.cross.hidden = false;
  }

  /** A press searches; a finger, which cannot hover, first shows the picture. @param {number} x @param {number} y @param {boolean} touch */
  press(x, y, touch) {
    const i = this.pointAt(x, y, touch ? 2 * NEAR : NEAR);
    if (touch && i !== this.selected) this.select(i);
    else this.search(i);
  }

  async search(i) {
    if (i < 0) return;
    try {
      const key = await this.keyOf(i);
      if (current(["search", "map"]).name === "map") go("search", { key });
    } catch (error) {
      this.failed(error);
    }
  }
}

/** Categories by name (2 before 10), each with a colour and a label. @param {string[]} categories @param {Uint8Array} of @param {Float32Array} xy @returns {Colouring} */
function inOrder(categories, of, xy) {
  const byName = categories.map((_, i) => i).sort((a, b) => categories[a].localeCompare(categories[b], undefined, { numeric: true }));
  const rank = new Uint8Array(256).fill(NONE);
  byName.forEach((category, at) => { rank[category] = at; });
  const ranked = of.map((category) => rank[category]);
  const names = byName.map((i) => categories[i]);
  const counts = new Uint32Array(256);
  for (const category of ranked) counts[category] += 1;
  const order = names.map((_, i) => i).sort((a, b) => counts[b] - counts[a]);
  const labels = labelPositions(xy, ranked, names.length);
  return { of: ranked, names, order, counts, labels, short: shortLabels(names), colours: sharedColours(labels, order) };
}
