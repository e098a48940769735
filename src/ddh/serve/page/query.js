// The panel of the query: the search field, where a picture comes in, and what is being searched for.

import { BitGrid, distanceText } from "./codes.js";
import { commands, h, icon, iconButton } from "./dom.js";
import { pickButton } from "./upload.js";

const PAUSE = 90; // ms that typing must rest
const hovers = matchMedia("(hover: hover)");

export class QueryPanel {
  /** onType is given the text as one types, onText when Enter is pressed. @param {{onFile: (file: File) => void, onType: (text: string) => void, onText: (text: string) => void, onClear: () => void}} callbacks */
  constructor({ onFile, onType, onText, onClear }) {
    this.onFile = onFile;
    this.onClear = onClear;
    this.input = h("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false", maxlength: "500", enterkeyhint: "search" });
    const form = h("form", { class: "find", role: "search" }, icon("search"), this.input, h("kbd", { "aria-hidden": "true" }, "/"));
    let timer = 0;
    this.input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => onType(this.input.value.trim()), PAUSE);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      if (this.input.value.trim()) onText(this.input.value.trim());
    });
    this.grid = new BitGrid("The query's code");
    this.hint = h("p", { class: "hint" });
    this.room = h("div", { class: "query-room" });
    this.element = h("div", { class: "query" }, form, this.room);
    this.code = /** @type {string | null} */ (null);
  }

  /** What the field takes. @param {boolean} words whether the service searches by what a text means, too */
  describe(words) {
    this.input.placeholder = words ? "Name, date, or what is seen" : "Name, folder, date, #tag";
    this.input.setAttribute("aria-label", words ? "Search by name, folder, date or tag, or, with Enter, by what is seen" : "Search by name, folder, date or tag");
  }

  /** Show the text of the address, unless somebody is typing. @param {string} text */
  setText(text) {
    if (document.activeElement !== this.input || !text) this.input.value = text;
  }

  /** No query yet: the place to drop a picture, or why there is none. @param {boolean} takesPictures */
  idle(takesPictures) {
    this.code = null;
    this.room.replaceChildren(takesPictures
      ? h("div", { class: "drop" }, icon("picture"),
        h("p", {}, h("strong", {}, "Drop or paste a picture"), " anywhere to find what looks like it."),
        pickButton("Pick a picture", this.onFile, null))
      : h("div", { class: "drop closed" },
        h("p", {}, h("strong", {}, "No model at hand,"), " so only pictures of the collection can be searched with. To search with others, name the model:"),
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
        h("p", { class: name.includes("/") ? "query-name tail" : "query-name", title: name }, h("bdi", {}, name)),
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
