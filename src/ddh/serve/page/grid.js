// A grid of pictures that fills itself as one scrolls, and that the arrow keys walk through.

import { distanceText } from "./codes.js";
import { h, icon } from "./dom.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";

const AHEAD = "900px"; // ask for the next page this far before its place comes into view
const PLACEHOLDERS = 18;

/** One picture: a link that searches from it, its distance, and a button for its details. */
function card(item, bits, address, open) {
  const known = Number.isInteger(item.distance);
  const link = h("a", { class: "card-link", href: address, tabindex: "-1", draggable: "false",
    "aria-label": `${altText(item)}${known ? `, ${distanceText(item.distance)}` : ""}. Search from here` },
    h("span", { class: "frame" }, thumbnail(item, bits)),
    h("span", { class: "caption" },
      known ? h("span", { class: "distance" }, distanceText(item.distance), bar(item.distance, bits)) : null,
      h("span", { class: "name", title: item.key }, shortName(item.key))));
  const about = h("button", { type: "button", class: "about quiet icon-only", tabindex: "-1", title: "Details (Space)",
    "aria-label": `Details of ${item.key}`, onclick: open }, icon("info"));
  return h("li", { class: "card" }, link, about);
}

/** A bar that is full where half of the bits differ, which is what chance gives. */
function bar(distance, bits) {
  const filled = h("span", { class: "bar-fill" });
  filled.style.width = `${Math.min(100, (200 * distance) / bits)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, filled);
}

export class PictureGrid {
  /**
   * Callbacks: address(item) that a click leads to, page(answer, first) after each page,
   * mark(item or null) on hover and focus, open(index) for the details, fail(error).
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.list = h("ul", { class: "grid", role: "list", "aria-label": "Pictures" });
    this.end = h("div", { class: "grid-end" });
    this.element = h("div", { class: "grid-room" }, this.list, this.end);
    this.items = [];
    this.places = new WeakMap();
    this.watcher = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this.more(), { rootMargin: AHEAD });
    this.listen();
  }

  listen() {
    this.list.addEventListener("keydown", (event) => this.walk(event));
    this.list.addEventListener("focusin", (event) => this.mark(event.target));
    this.list.addEventListener("focusout", () => this.callbacks.mark(null));
    this.list.addEventListener("pointerover", (event) => this.mark(event.target));
    this.list.addEventListener("pointerleave", () => this.callbacks.mark(null));
  }

  /** Fill from a source: source(next, signal) gives {items, next}, next being null at the end. */
  start(source, bits, kept = null) {
    this.stop();
    this.source = source;
    this.bits = bits;
    this.next = kept ? kept.next : 0;
    this.fresh = true;
    if (kept) {
      this.append(kept.items);
      this.watcher.observe(this.end);
    } else {
      this.wait();
      this.more();
    }
  }

  stop() {
    this.asking?.abort();
    this.asking = null;
    this.watcher.disconnect();
  }

  /** What start() needs to show the same pictures again. */
  kept() {
    return { items: this.items, next: this.next };
  }

  /** Without a first page the owner says why; without a later one what is there stays. */
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

  async more() {
    if (this.asking || this.next === null) return;
    const asking = (this.asking = new AbortController());
    try {
      const answer = await this.source(this.next, asking.signal);
      if (asking.signal.aborted) return;
      const first = this.fresh;
      this.next = answer.next;
      this.append(answer.items);
      this.callbacks.page(answer, first);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.next = null;
      this.failed(error);
    } finally {
      if (this.asking === asking) this.asking = null;
    }
    // The end may still be in view; only a new observation says so again.
    if (!asking.signal.aborted) {
      this.watcher.unobserve(this.end);
      this.watcher.observe(this.end);
    }
  }

  clear() {
    this.refocus = this.list.contains(document.activeElement) && document.activeElement.matches(":focus-visible");
    this.fresh = false;
    this.end.textContent = "";
    this.items = [];
    this.places = new WeakMap();
    this.current = null;
    this.list.replaceChildren();
    this.list.removeAttribute("aria-busy");
  }

  append(items) {
    if (this.fresh) this.clear();
    const start = this.items.length;
    this.items.push(...items);
    const cards = items.map((item, i) => card(item, this.bits, this.callbacks.address(item), () => this.callbacks.open(start + i)));
    cards.forEach((element, i) => this.places.set(element, start + i));
    this.list.append(...cards);
    if (start > 0 || !cards.length) return;
    this.makeCurrent(cards[0]);
    if (this.refocus) this.focus(0); // the keyboard was in the grid before, and stays there
  }

  indexOf(element) {
    return this.places.get(element.closest(".card")) ?? -1;
  }

  mark(element) {
    const index = this.indexOf(element);
    if (index >= 0) this.callbacks.mark(this.items[index]);
  }

  /** One card is the stop of the Tab key; the arrows move it. */
  makeCurrent(element) {
    for (const [target, tabindex] of [[this.current, "-1"], [element, "0"]]) {
      target?.querySelectorAll(".card-link, .about").forEach((stop) => stop.setAttribute("tabindex", tabindex));
    }
    this.current = element;
  }

  focus(index = 0) {
    const element = this.list.children[Math.max(0, Math.min(index, this.list.children.length - 1))];
    if (!element || element.classList.contains("placeholder")) return;
    this.makeCurrent(element);
    element.querySelector(".card-link").focus();
  }

  columns() {
    return getComputedStyle(this.list).gridTemplateColumns.split(" ").length;
  }

  walk(event) {
    const index = this.indexOf(event.target);
    if (index < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const onLink = event.target.classList.contains("card-link");
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns(), ArrowUp: -this.columns() };
    if (event.key in steps) {
      const target = index + steps[event.key];
      if (target >= 0) this.focus(target);
    } else if (event.key === "Home") this.focus(0);
    else if (event.key === "End") this.focus(this.items.length - 1);
    else if (event.key === " " && onLink) this.callbacks.open(index);
    else return;
    event.preventDefault();
  }
}
