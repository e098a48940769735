// A grid of pictures that fills itself as one scrolls, with keyboard navigation.

import { distanceText } from "./codes.js";
import { button, h, icon } from "./dom.js";
import { Pager } from "./pager.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";

const AHEAD = "900px"; // fetch the next page this far before it comes into view
const PLACEHOLDERS = 18;

/** One picture: a link that searches from it, its distance, and a button for its details. @type {(item: Item, index: number, bits: number, address: string, open: () => void) => HTMLLIElement} */
function card(item, index, bits, address, open) {
  const distance = item.distance === undefined ? null : distanceText(item.distance);
  const link = h("a", { class: "card-link", href: address, tabindex: "-1", draggable: "false",
    "aria-label": `${altText(item)}${distance ? `, ${distance}` : ""}. Search from here` },
  h("span", { class: "frame" }, thumbnail(item, bits)),
  h("span", { class: "caption" },
    distance ? h("span", { class: "distance" }, distance, bar(item.distance ?? 0, bits)) : null,
    h("span", { class: "name", title: item.key }, shortName(item.key))));
  return h("li", { class: "card", "data-index": index }, link, button([icon("info")], open,
    { class: "about quiet icon-only", tabindex: "-1", title: "Details (Space)", "aria-label": `Details of ${item.key}` }));
}

/** A bar that is full where half of the bits differ, as for random codes. @param {number} distance @param {number} bits */
function bar(distance, bits) {
  const filled = h("span", { class: "bar-fill" });
  filled.style.width = `${Math.min(100, (200 * distance) / bits)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, filled);
}

export class PictureGrid {
  /**
   * Callbacks: address(item) that a click leads to, page(answer, first) after each page, mark(item or null) on
   * hover and focus, open(index) for the details, fail(error). @param {GridCallbacks} callbacks
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.list = h("ul", { class: "grid", role: "list", "aria-label": "Pictures" });
    this.end = h("div", { class: "grid-end" });
    this.element = h("div", { class: "grid-room" }, this.list, this.end);
    this.items = /** @type {Item[]} */ ([]);
    this.bits = 0;
    this.fresh = false; // whether the next pictures replace those that are shown
    this.refocus = false;
    this.current = /** @type {Element | null} */ (null);
    /** @type {Pager<ResultPage>} */
    this.pager = new Pager(this.end, AHEAD, (answer) => {
      const first = this.fresh;
      this.append(answer.items);
      callbacks.page(answer, first);
    }, (error) => this.failed(error));
    this.list.addEventListener("keydown", (event) => this.walk(event));
    for (const type of ["focusin", "pointerover"]) {
      this.list.addEventListener(type, (event) => { if (this.indexOf(event) >= 0) callbacks.mark(this.items[this.indexOf(event)]); });
    }
    for (const type of ["focusout", "pointerleave"]) this.list.addEventListener(type, () => callbacks.mark(null));
  }

  /** Fill from a source, or from the pictures that were shown before. @param {Source<ResultPage>} source @param {number} bits @param {ListPage<Item> | null} kept */
  start(source, bits, kept) {
    this.pager.start(source, kept ? kept.next : 0);
    this.bits = bits;
    this.fresh = true;
    if (kept) {
      this.append(kept.items);
      this.pager.watch();
    } else {
      this.wait();
      this.pager.more();
    }
  }

  /** Without a first page the owner reports why; without a later one what is there stays. @param {Error} error */
  failed(error) {
    if (this.fresh) {
      this.append([]);
      this.callbacks.fail(error);
    } else {
      this.end.textContent = `No more could be shown. ${error.message}`;
    }
  }

  /** Earlier pictures stay, dimmed, until the new ones are there: nothing jumps. */
  wait() {
    this.list.setAttribute("aria-busy", "true");
    if (this.items.length) return;
    this.list.replaceChildren(...Array.from({ length: PLACEHOLDERS }, () =>
      h("li", { class: "card placeholder", "aria-hidden": "true" }, h("span", { class: "frame" }), h("span", { class: "caption" }))));
  }

  clear() {
    const focused = document.activeElement;
    this.refocus = Boolean(focused && this.list.contains(focused) && focused.matches(":focus-visible"));
    this.fresh = false;
    this.end.textContent = "";
    this.items = [];
    this.current = null;
    this.list.replaceChildren();
    this.list.removeAttribute("aria-busy");
  }

  /** @param {Item[]} items */
  append(items) {
    if (this.fresh) this.clear();
    const start = this.items.length;
    this.items.push(...items);
    this.list.append(...items.map((item, i) => card(item, start + i, this.bits, this.callbacks.address(item), () => this.callbacks.open(start + i))));
    if (start > 0 || !items.length) return;
    this.makeCurrent(this.list.children[0]);
    if (this.refocus) this.focus(0); // the keyboard was in the grid before, and stays there
  }

  /** The position of the card under an event, or -1. @param {Event} event */
  indexOf({ target }) {
    const element = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest("[data-index]"));
    return element ? Number(element.dataset.index) : -1;
  }

  /** One card is the stop of the Tab key; the arrows move it. @param {Element} element */
  makeCurrent(element) {
    const stops = (parent) => parent?.querySelectorAll(".card-link, .about") ?? [];
    for (const stop of stops(this.current)) stop.setAttribute("tabindex", "-1");
    for (const stop of stops(element)) stop.setAttribute("tabindex", "0");
    this.current = element;
  }

  focus(index = 0) {
    const element = this.list.children[Math.max(0, Math.min(index, this.list.children.length - 1))];
    if (!element || element.classList.contains("placeholder")) return;
    this.makeCurrent(element);
    /** @type {HTMLElement | null} */ (element.querySelector(".card-link"))?.focus();
  }

  walk(event) {
    const index = this.indexOf(event);
    if (index < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const columns = getComputedStyle(this.list).gridTemplateColumns.split(" ").length;
    const onLink = /** @type {Element} */ (event.target).classList.contains("card-link");
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: index + 1, ArrowLeft: index - 1, ArrowDown: index + columns, ArrowUp: index - columns,
      Home: 0, End: this.items.length - 1 };
    if (event.key in targets) {
      if (targets[event.key] >= 0) this.focus(targets[event.key]);
    } else if (event.key === " " && onLink) this.callbacks.open(index);
    else return;
    event.preventDefault();
  }
}
