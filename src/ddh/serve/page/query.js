// The panel of the query: where a picture comes in, and what is being searched for.

import { BitGrid, distanceText } from "./codes.js";
import { commands, h, icon, iconButton } from "./dom.js";
import { pickButton } from "./upload.js";

const hovers = matchMedia("(hover: hover)");

export class QueryPanel {
  /** @param {{onFile: (file: File) => void, onText: (text: string) => void, onClear: () => void}} callbacks */
  constructor({ onFile, onText, onClear }) {
    this.onFile = onFile;
    this.onClear = onClear;
    this.input = h("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false",
      placeholder: "A key or a code in hex", "aria-label": "Search by key or by code", enterkeyhint: "search" });
    const form = h("form", { class: "find", role: "search" }, icon("search"), this.input, h("kbd", { "aria-hidden": "true" }, "/"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.input.value.trim()) onText(this.input.value.trim());
    });
    this.grid = new BitGrid("The query's code");
    this.hint = h("p", { class: "hint" });
    this.room = h("div", { class: "query-room" });
    this.element = h("div", { class: "query" }, form, this.room);
    this.code = /** @type {string | null} */ (null);
  }

  /** No query yet: the place to drop a picture, or why there is none. @param {boolean} takesPictures */
  idle(takesPictures) {
    this.code = null;
    this.room.replaceChildren(takesPictures
      ? h("div", { class: "drop" }, icon("picture"),
        h("p", {}, h("strong", {}, "Drop or paste a picture"), " anywhere to find what looks like it."),
        pickButton("Pick a picture", this.onFile))
      : h("div", { class: "drop closed" },
        h("p", {}, h("strong", {}, "No model at hand,"), " so only keys and codes can be searched for. To search with pictures, name the model:"),
        commands("ddh serve INDEX --model MODEL")));
  }

  /**
   * Show a query: its name, an image or none, and its code once it is known.
   * @param {{name: string, image: Element | null, code: string | null, bits: number, takesPictures: boolean}} query
   */
  show({ name, image, code, bits, takesPictures }) {
    this.code = code;
    if (code) this.grid.show(code, bits);
    this.room.replaceChildren(h("div", { class: "query-card" },
      image && h("div", { class: "query-picture" }, image),
      h("div", { class: "query-head" },
        h("p", { class: "query-name", title: name }, name),
        iconButton("close", "Leave this query", this.onClear)),
      code ? h("figure", { class: "query-code" }, this.grid.element, this.hint) : null),
    takesPictures ? h("div", { class: "again" }, pickButton("Another picture", this.onFile, null)) : "");
    this.mark(null);
  }

  /** Mark the bits in which a result differs. @param {Item | null} item */
  mark(item) {
    if (!this.code) return;
    this.grid.compare(item?.code ?? null);
    this.hint.replaceChildren(item?.distance !== undefined
      ? h("strong", {}, distanceText(item.distance))
      : `Code of ${this.grid.values.length} bits.${hovers.matches ? " Point at a result to see which differ." : ""}`);
  }
}
