// The panel of the query: where a picture comes in, and what is being searched for.

import { BitGrid, distanceText } from "./codes.js";
import { commands, h, icon, iconButton } from "./dom.js";
import { pickButton } from "./upload.js";

const hovers = matchMedia("(hover: hover)");

export class QueryPanel {
  /** picked(file), typed(text), cleared(). */
  constructor({ picked, typed, cleared }) {
    this.input = h("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false",
      placeholder: "A key or a code in hex", "aria-label": "Search by key or by code", enterkeyhint: "search" });
    this.form = h("form", { class: "find", role: "search" }, icon("search"), this.input, h("kbd", { "aria-hidden": "true" }, "/"));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.input.value.trim()) typed(this.input.value.trim());
    });
    this.picked = picked;
    this.cleared = cleared;
    this.grid = new BitGrid("The query's code");
    this.hint = h("p", { class: "hint" });
    this.room = h("div", { class: "query-room" });
    this.element = h("div", { class: "query" }, this.form, this.room);
  }

  /** No query yet: the place to drop a picture, or why there is none. */
  idle(takesPictures) {
    this.code = null;
    this.room.replaceChildren(takesPictures
      ? h("div", { class: "drop" }, icon("picture"),
        h("p", {}, h("strong", {}, "Drop or paste a picture"), " anywhere to find what looks like it."),
        pickButton("Pick a picture", this.picked))
      : h("div", { class: "drop closed" },
        h("p", {}, h("strong", {}, "No model at hand,"), " so only keys and codes can be searched for. To search with pictures, name the model:"),
        commands("ddh serve INDEX --model MODEL")));
  }

  /** A query: its name, an image or none, and its code where it is known yet. */
  show({ name, image, code, bits, takesPictures }) {
    this.code = code;
    if (code) this.grid.show(code, bits);
    this.room.replaceChildren(h("div", { class: "asked" },
      image ? h("div", { class: "asked-picture" }, image) : "",
      h("div", { class: "asked-words" },
        h("p", { class: "asked-name", title: name }, name),
        iconButton("close", "Leave this query", this.cleared)),
      code ? h("figure", { class: "asked-code" }, this.grid.element, this.hint) : ""),
    takesPictures ? h("div", { class: "again" }, pickButton("Another picture", this.picked)) : "");
    this.mark(null);
  }

  /** Mark the bits in which a result differs. */
  mark(item) {
    if (!this.code) return;
    this.grid.compare(item?.code ?? null);
    this.hint.replaceChildren(item && Number.isInteger(item.distance)
      ? h("strong", {}, distanceText(item.distance))
      : `Code of ${this.grid.values.length} bits.${hovers.matches ? " Point at a result to see which differ." : ""}`);
  }
}
