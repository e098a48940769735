// The map of the collection: every picture a dot, pictures with like codes near each other.

import { ask, askBytes, isTold } from "./api.js";
import { h, iconButton, notice } from "./dom.js";
import { listenToHands } from "./panZoom.js";
import { densestPlaces } from "./clusterLabels.js";
import { categoryColour, css, themeColour } from "./palette.js";
import { Places } from "./gridIndex.js";
import { current, go } from "./router.js";
import { pixel, Scatter } from "./scatter.js";
import { thumbnail } from "./thumbnail.js";

const AGAIN = 700; // ms between looks at a layout that is being computed
const NEAR = 14; // CSS pixels within which the pointer means a dot
const NONE = 255; // the category of a point that has none
const NAMED = 24; // categories at most that get their name drawn on the map

export class MapView {
  constructor(app) {
    this.app = app;
    this.keys = new Map(); // point -> key, as asked for
    this.canvas = h("canvas", { class: "map-canvas", tabindex: "0", role: "application",
      "aria-label": "Map of the collection. Arrow keys move, plus and minus zoom, 0 shows all, Enter searches from the picture in the middle.",
      "aria-describedby": "map-said" });
    this.scatter = new Scatter(this.canvas, (context, ratio) => this.drawAbove(context, ratio));
    this.build();
    listenToHands(this.canvas, this.scatter, {
      over: (x, y) => this.point(this.at(x, y, NEAR)),
      out: () => this.point(-1),
      press: (x, y, touch) => this.press(x, y, touch),
      middle: () => this.pointMiddle(),
      enter: () => this.search(this.pointed),
    });
    window.addEventListener("themechange", () => this.xy && this.paint());
  }

  build() {
    this.choice = h("select", { id: "colour-by" });
    this.bit = h("input", { type: "range", id: "colour-bit", min: "0", value: "0", step: "1", "aria-label": "Which bit" });
    this.bitSaid = h("output", { for: "colour-bit" });
    this.bitRoom = h("div", { class: "field", hidden: true }, h("div", { class: "field-head" }, h("span", {}, "Bit"), this.bitSaid), this.bit);
    this.legend = h("ul", { class: "legend", role: "list", "aria-label": "Colours" });
    this.said = h("p", { id: "map-said", class: "unseen", role: "status" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.cross = h("div", { class: "cross", hidden: true, "aria-hidden": "true" });
    this.words = h("div", { class: "map-words" });
    this.status = h("p", { class: "status", role: "status" });
    this.tools = h("div", { class: "map-tools", role: "region", "aria-label": "Colours of the map" },
      h("header", { class: "view-head" }, h("h1", {}, "Map"), this.status),
      h("div", { class: "field" }, h("label", { for: "colour-by" }, "Colour by"), this.choice), this.bitRoom, this.legend);
    const buttons = h("div", { class: "map-buttons" },
      iconButton("plus", "Zoom in", () => this.scatter.glideZoom(1.8)),
      iconButton("minus", "Zoom out", () => this.scatter.glideZoom(1 / 1.8)),
      iconButton("reset", "Show all", () => this.scatter.reset()));
    this.element = h("div", { class: "view map waiting" }, this.canvas, this.cross, this.words, this.tools, buttons, this.tip, this.said);
    this.choice.addEventListener("change", () =>
      go("map", this.choice.value === "" ? { bit: this.bit.value } : { colour: this.choice.value }, { replace: true }));
    this.bit.addEventListener("input", () => go("map", { bit: this.bit.value }, { replace: true }));
  }

  async show(parameters) {
    this.app.setTitle("Map");
    this.parameters = parameters;
    this.open = true;
    clearTimeout(this.timer);
    try {
      await this.load();
      if (this.open && this.xy) await this.colour();
    } catch (error) {
      if (!isTold(error)) this.say("That did not work", h("p", {}, error.message));
    }
  }

  hide() {
    this.open = false;
    clearTimeout(this.timer);
    this.point(-1);
  }

  /** The layout, once it is there; until then its progress. */
  async load() {
    if (this.layoutOf === this.app.health.rows) return;
    const state = await ask("map");
    if (state.state === "empty") {
      this.say("Nothing to map yet", h("p", {}, "The map shows as soon as the index holds pictures."));
      return;
    }
    if (state.state !== "ready") {
      this.showProgress(state);
      if (this.open) this.timer = setTimeout(() => this.show(this.parameters), AGAIN);
      return;
    }
    this.xy = new Float32Array(await askBytes("map/points"));
    this.index = new Places(this.xy);
    this.categories = new Map();
    this.codes = null;
    this.keys.clear();
    this.layoutOf = this.app.health.rows;
    this.element.classList.remove("waiting");
    this.words.replaceChildren();
    this.status.textContent = `${(this.xy.length / 2).toLocaleString()} pictures`;
    this.offer(state.colours);
    this.scatter.covered = this.tools.offsetWidth < this.canvas.clientWidth / 2 ? this.tools.offsetLeft + this.tools.offsetWidth : 0;
    this.scatter.setPoints(this.xy);
  }

  showProgress({ done, points }) {
    const bar = h("progress", { max: "1", "aria-label": "Layout" });
    bar.value = done;
    this.say("Drawing the map", h("p", {}, `Placing ${points.toLocaleString()} pictures so that like codes lie together.`), bar);
  }

  say(title, ...content) {
    this.words.replaceChildren(notice(title, ...content));
  }

  offer(names) {
    this.names = names;
    this.choice.replaceChildren(...names.map((name) => h("option", { value: name }, name)), h("option", { value: "" }, "a bit of the code"));
    this.bit.max = String(this.app.health.bits - 1);
  }

  /** Colour as the address says: by a field of the metadata, or by one bit. */
  async colour() {
    const { colour, bit } = this.parameters;
    const byName = bit === undefined && (this.names.includes(colour) || this.names.length > 0);
    const name = byName ? (this.names.includes(colour) ? colour : this.names[0]) : null;
    this.choice.value = name ?? "";
    this.bitRoom.hidden = byName;
    this.lit = null;
    if (byName) this.shades = await this.categoriesOf(name);
    else this.shades = await this.bitShades(Number.parseInt(bit, 10) || 0);
    this.drawLegend();
    this.paint();
  }

  async categoriesOf(name) {
    if (!this.categories.has(name)) {
      const { categories, values } = await ask(`map/colours?by=${encodeURIComponent(name)}`);
      const of = Uint8Array.from(atob(values), (character) => character.charCodeAt(0));
      this.categories.set(name, inOrder(categories, of, this.xy));
    }
    return this.categories.get(name);
  }

  async bitShades(bit) {
    this.codes ??= new Uint8Array(await askBytes("map/codes"));
    const n = this.xy.length / 2;
    const bytes = this.codes.length / n;
    const shown = Math.min(bit, this.app.health.bits - 1);
    this.bit.value = String(shown);
    this.bitSaid.textContent = String(shown);
    const of = new Uint8Array(n);
    for (let i = 0; i < n; i += 1) of[i] = (this.codes[i * bytes + (shown >> 3)] >> (7 - (shown & 7))) & 1;
    return { of, names: [`bit ${shown} is 0`, `bit ${shown} is 1`], colours: [categoryColour(0), categoryColour(1)], places: [] };
  }

  drawLegend() {
    const { of, names, colours } = this.shades;
    const counts = new Uint32Array(256);
    for (const value of of) counts[value] += 1;
    const rows = [...names.entries(), ...(counts[NONE] ? [[NONE, "none"]] : [])];
    this.legend.replaceChildren(...rows.map(([value, name]) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = value === NONE ? "var(--muted)" : css(colours[value]);
      const button = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.light(value) },
        swatch, h("span", { class: "legend-name" }, name), h("span", { class: "muted" }, counts[value].toLocaleString()));
      return h("li", { "data-value": value }, button);
    }));
  }

  /** Bring one category out, or all again. */
  light(value) {
    this.lit = this.lit === value ? null : value;
    for (const row of this.legend.children) {
      row.firstChild.setAttribute("aria-pressed", String(Number(row.dataset.value) === this.lit));
    }
    this.paint();
  }

  paint() {
    const { of, colours } = this.shades;
    const table = new Uint32Array(256).fill(pixel(themeColour("--muted")));
    colours.forEach((colour, i) => { table[i] = pixel(colour); });
    const faint = pixel(themeColour("--faint"));
    if (this.lit !== null) for (let i = 0; i < 256; i += 1) if (i !== this.lit) table[i] = faint;
    const pixels = new Uint32Array(this.xy.length / 2);
    for (let i = 0; i < pixels.length; i += 1) pixels[i] = table[of[i]];
    this.ink = { text: css(themeColour("--ink")), halo: css(themeColour("--paper")) };
    this.scatter.setColours(pixels, pixel(themeColour("--paper")), this.lit === null ? null : faint);
  }

  /** What lies on top of the dots: names where most pictures of a category lie, a ring where one points. */
  drawAbove(context, ratio) {
    const { names, places } = this.shades;
    context.save();
    context.scale(ratio, ratio);
    if (names.length <= NAMED) this.drawNames(context, names, places);
    if (this.pointed >= 0) this.drawRing(context, ...this.scatter.toScreen(this.xy[2 * this.pointed], this.xy[2 * this.pointed + 1]));
    context.restore();
  }

  drawRing(context, x, y) {
    context.lineWidth = 2.5;
    context.strokeStyle = this.ink.text;
    context.beginPath();
    context.arc(x, y, this.scatter.radius() + 4, 0, 2 * Math.PI);
    context.stroke();
  }

  /** A name that would lie on another one is left out; closer by there is room for it. */
  drawNames(context, names, places) {
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = this.ink.halo;
    context.fillStyle = this.ink.text;
    const drawn = [];
    names.forEach((name, i) => {
      if (!places[i] || (this.lit !== null && this.lit !== i)) return;
      const [x, y] = this.scatter.toScreen(...places[i]);
      const half = context.measureText(name).width / 2 + 4;
      if (drawn.some((other) => Math.abs(other.y - y) < 18 && Math.abs(other.x - x) < other.half + half)) return;
      drawn.push({ x, y, half });
      context.strokeText(name, x, y);
      context.fillText(name, x, y);
    });
  }

  at(x, y, within) {
    if (!this.index) return -1;
    return this.index.nearest(...this.scatter.toLayout(x, y), this.scatter.length(within));
  }

  /** Point at a dot: its picture and key beside it. */
  async point(i) {
    this.cross.hidden = true;
    if (i === this.pointed) {
      if (i >= 0 && !this.tip.hidden) this.placeTip(i);
      return;
    }
    this.pointed = i;
    this.scatter.ask();
    this.canvas.classList.toggle("pointing", i >= 0);
    if (i < 0) {
      this.tip.hidden = true;
      return;
    }
    const key = await this.keyOf(i).catch(() => null);
    if (this.pointed !== i || key === null) return;
    const item = { key, code: this.codeOf(i), picture: this.app.health.pictures };
    const value = this.shades?.names[this.shades.of[i]];
    this.tip.replaceChildren(h("span", { class: "frame" }, thumbnail(item, this.app.health.bits, 160)),
      h("span", { class: "name" }, key), value === undefined ? "" : h("span", { class: "muted small-text" }, value));
    this.said.textContent = `${key}${value === undefined ? "" : `, ${value}`}`;
    this.placeTip(i);
  }

  placeTip(i) {
    this.tip.hidden = false;
    const [x, y] = this.scatter.toScreen(this.xy[2 * i], this.xy[2 * i + 1]);
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const { clientWidth, clientHeight } = this.canvas;
    const left = x + 16 + width > clientWidth ? x - 16 - width : x + 16;
    this.tip.style.left = `${Math.max(8, left)}px`;
    this.tip.style.top = `${Math.max(8, Math.min(clientHeight - height - 8, y - height / 2))}px`;
  }

  async keyOf(i) {
    if (!this.keys.has(i)) this.keys.set(i, (await ask(`map/keys?at=${i}`)).key);
    return this.keys.get(i);
  }

  codeOf(i) {
    if (!this.codes) return null;
    const bytes = this.codes.length / (this.xy.length / 2);
    return [...this.codes.subarray(i * bytes, (i + 1) * bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** With the keyboard the middle of the map is the pointer. */
  pointMiddle() {
    const { clientWidth, clientHeight } = this.canvas;
    this.point(this.at(clientWidth / 2, clientHeight / 2, Math.min(clientWidth, clientHeight) / 4));
    this.cross.hidden = false;
  }

  /** A press searches; a finger, which cannot hover, first shows the picture. */
  press(x, y, touch) {
    const i = this.at(x, y, touch ? 2 * NEAR : NEAR);
    if (touch && i !== this.pointed) this.point(i);
    else this.search(i);
  }

  async search(i) {
    if (i === undefined || i < 0) return;
    try {
      const key = await this.keyOf(i);
      if (current(["search", "map"]).name === "map") go("search", { key });
    } catch (error) {
      if (!isTold(error)) this.say("That did not work", h("p", {}, error.message));
    }
  }
}

/** Categories by name (2 before 10), each with a colour and its place on the map. */
function inOrder(categories, of, xy) {
  const order = categories.map((_, i) => i).sort((a, b) => categories[a].localeCompare(categories[b], undefined, { numeric: true }));
  const rank = new Uint8Array(256).fill(NONE);
  order.forEach((category, at) => { rank[category] = at; });
  const ranked = of.map((category) => rank[category]);
  return { of: ranked, names: order.map((i) => categories[i]), colours: order.map((_, at) => categoryColour(at)), places: densestPlaces(xy, ranked, order.length) };
}
