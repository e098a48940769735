// A grid of pictures of any length: only the rows near the viewport are in the document, and their
// pages are fetched as they come into view. With keyboard navigation and multiple selection.

import { distanceText } from "./codes.js";
import { h, icon } from "./dom.js";
import { altText, captionOf, missingText, shortName, thumbnail } from "./thumbnail.js";

const PAGE = 48;
const MANY = 1000; // pictures of a request that selects all
const GAP = 14, CAPTION = 50; // CSS pixels between cards, and of the words below a picture
const AHEAD = 450; // CSS pixels above and below the viewport that are drawn
const LEAST = 2; // rows that are drawn, however far away
const REST = 70; // ms that a scroll must rest before pages are fetched while others are under way
const STILL = 160; // ms after which a fast scroll is over
const FAST = 2; // windows per second: while one scrolls faster, cards are empty
const TALLEST = 16_000_000; // CSS pixels: what browsers can lay out
const HEADER = 60;

const MISSING = { gone: "File is gone", offline: "Folder is not there" };

/** One picture: a link that searches from it, its words, a tick, and a button for its details. @type {(item: Item, index: number, options: CardOptions) => HTMLLIElement} */
function card(item, index, { bits, address, total, selected }) {
  const distance = item.distance === undefined ? null : distanceText(item.distance);
  const { name, folder } = captionOf(item), missing = missingText(item);
  const link = h("a", { class: "card-link", href: address, tabindex: "-1", draggable: "false",
    "aria-label": `${altText(item)}${distance ? `, ${distance}` : ""}. Search from here` },
  h("span", { class: "frame" }, thumbnail(item, bits), item.missing ? h("span", { class: "missing" }, MISSING[item.missing]) : null),
  h("span", { class: "caption" },
    distance
      ? h("span", { class: "distance" }, distance, bar(item.distance ?? 0, bits))
      : null,
    h("span", { class: "name", title: item.key }, name, missing ? h("span", { class: "in-folder" }, ` · ${missing}`) : distance && folder ? h("span", { class: "in-folder" }, ` · ${shortName(folder)}`) : null),
    distance ? null : h("span", { class: "name in-folder tail" }, h("bdi", {}, folder))));
  return h("li", { class: ["card", selected && "selected", missing && "missing"].filter(Boolean).join(" "), "data-index": index, "aria-setsize": total, "aria-posinset": index + 1 }, link,
    h("button", { type: "button", class: "about quiet icon-only", tabindex: "-1", title: "Details (Space)", "aria-label": `Details of ${item.key}` }, icon("info")),
    h("button", { type: "button", role: "checkbox", class: "select-box", tabindex: "-1", "aria-checked": String(selected), title: "Select (x)", "aria-label": `Select ${item.key}` }, icon("check")));
}

/** @type {(index: number) => HTMLLIElement} */
const placeholder = (index) =>
  h("li", { class: "card placeholder", "aria-hidden": "true", "data-index": index }, h("span", { class: "frame" }), h("span", { class: "caption" }));

/** A bar that is full where half of the bits differ, as for random codes. @param {number} distance @param {number} bits */
function bar(distance, bits) {
  const filled = h("span", { class: "bar-fill" });
  filled.style.width = `${Math.min(100, (200 * distance) / bits)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, filled);
}

export class PictureGrid {
  /**
   * Callbacks: address(item) that a click leads to, page(answer, first) after each page, mark(item or null) on
   * hover and focus, open(index) for the details, selection() when it has changed, fail(error). @param {GridCallbacks} callbacks
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.list = h("ul", { class: "grid", role: "list", "aria-label": "Pictures" });
    this.end = h("div", { class: "grid-end" });
    this.element = h("div", { class: "grid-room" }, this.list, this.end);
    this.items = /** @type {Item[]} */ ([]); // with holes where nothing has been fetched
    this.total = 0;
    this.bits = 0;
    this.selected = /** @type {Map<string, Item>} */ (new Map());
    this.anchor = -1; // where a range of selected pictures begins
    this.source = /** @type {Source | null} */ (null);
    this.requests = /** @type {Map<number, {abort: AbortController, done: Promise<void>}>} */ (new Map()); // by page
    this.fresh = false; // whether the next pictures replace those that are shown
    this.refocus = false;
    this.stop = 0; // the card that the Tab key reaches
    this.columns = 1;
    this.row = 0; // CSS pixels of a row with its gap
    this.drawn = { first: 0, last: 0 };
    this.frame = 0;
    this.timer = 0;
    this.last = { top: 0, time: 0, far: false }; // of the last draw while scrolling
    this.fast = false;
    this.counting = false; // whether the total is known
    this.selecting = /** @type {AbortController | null} */ (null);
    this.counted = 0; // pictures that the cards know of
    new ResizeObserver(() => this.measure()).observe(this.element);
    window.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.listen();
  }

  listen() {
    const { callbacks, list } = this;
    list.addEventListener("keydown", (event) => this.walk(event));
    list.addEventListener("click", (event) => this.click(event));
    for (const type of ["focusin", "pointerover"]) {
      list.addEventListener(type, (event) => { if (this.indexOf(event) >= 0) callbacks.mark(this.items[this.indexOf(event)] ?? null); });
    }
    for (const type of ["focusout", "pointerleave"]) list.addEventListener(type, () => callbacks.mark(null));
  }

  /** Fill from a source, or from the pictures that were shown before. @param {Source} source @param {number} bits @param {KeptGrid | null} kept @returns {Promise<void>} once there are pictures, or a failure */
  start(source, bits, kept) {
    this.cancel();
    this.source = source;
    this.bits = bits;
    this.fresh = true;
    if (kept) {
      this.clear();
      this.items = kept.items;
      this.total = kept.total;
      this.counting = Boolean(kept.counting);
      this.redraw();
      return Promise.resolve();
    }
    this.wait();
    return this.fetch(0);
  }

  /** What `start` can begin with later. @returns {KeptGrid} */
  kept() {
    return { items: this.items, total: this.total, counting: this.counting };
  }

  cancel() {
    for (const { abort } of this.requests.values()) abort.abort();
    this.requests.clear();
    clearTimeout(this.timer);
  }

  /** Fetch a page, unless that is under way. @param {number} page @returns {Promise<void>} */
  fetch(page) {
    const running = this.requests.get(page);
    if (running || !this.source) return running?.done ?? Promise.resolve();
    const abort = new AbortController();
    const done = this.load(page, this.source, abort.signal).finally(() => {
      if (this.requests.get(page)?.abort === abort) this.requests.delete(page);
    });
    this.requests.set(page, { abort, done });
    return done;
  }

  /** @param {number} page @param {Source} source @param {AbortSignal} signal */
  async load(page, source, signal) {
    try {
      const answer = await source(page * PAGE, PAGE, signal);
      if (signal.aborted) return;
      const first = this.fresh;
      if (first) this.clear();
      const before = this.total;
      answer.items.forEach((item, i) => { this.items[page * PAGE + i] = item; });
      const known = page * PAGE + answer.items.length;
      this.counting = answer.total !== undefined || !answer.more;
      this.total = answer.total ?? Math.max(this.total, answer.more ? known + 1 : known);
      if (!answer.more && answer.items.length < PAGE) this.total = Math.min(this.total, known); // rows have gone meanwhile
      if (first || this.total < before) this.redraw();
      else this.fill();
      this.callbacks.page(answer, first);
      if (first && this.refocus) this.focus(0); // the keyboard was in the grid before, and stays there
    } catch (error) {
      if (signal.aborted) return;
      if (this.fresh) {
        this.clear();
        this.redraw();
        this.callbacks.fail(error);
      } else this.end.textContent = `No more could be shown. ${error.message}`;
    }
  }

  /** Earlier pictures stay, dimmed, until the new ones are there: nothing jumps. */
  wait() {
    this.list.setAttribute("aria-busy", "true");
    if (this.total) return;
    this.measure();
    this.list.replaceChildren(...Array.from({ length: 3 * this.columns }, (_, i) => placeholder(i)));
  }

  clear() {
    const focused = document.activeElement;
    this.refocus = Boolean(focused && this.list.contains(focused) && focused.matches(":focus-visible"));
    this.fresh = false;
    this.end.textContent = "";
    this.items = [];
    this.total = 0;
    this.stop = 0;
    this.drawn = { first: 0, last: 0 };
    this.list.replaceChildren();
    this.list.removeAttribute("aria-busy");
  }

  /** Columns and rows of the room there is. */
  measure() {
    const width = this.element.clientWidth;
    if (!width) return;
    const least = Math.max(128, Math.min(190, 0.1 * window.innerWidth));
    const columns = Math.max(2, Math.floor((width + GAP) / (least + GAP)));
    const row = (width - (columns - 1) * GAP) / columns + CAPTION + GAP;
    if (columns === this.columns && Math.abs(row - this.row) < 0.01) return;
    this.columns = columns;
    this.row = row;
    this.list.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.list.style.gridAutoRows = `${row - GAP}px`;
    this.redraw();
  }

  /** Draw everything anew. */
  redraw() {
    if (this.fresh) return; // the former pictures stay until new ones are there
    this.list.replaceChildren();
    this.drawn = { first: 0, last: 0 };
    this.draw();
  }

  schedule() {
    if (!this.total || this.frame || !this.element.isConnected) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(true); });
  }

  /** The rows that all pictures take, of which a browser can show so many. */
  rows() {
    return Math.min(Math.ceil(this.total / this.columns), Math.floor(TALLEST / Math.max(1, this.row)));
  }

  /** Bring the cards of the rows near the viewport into the document, and take the others out. */
  draw(scrolling = false) {
    if (!this.row) this.measure();
    if (!this.row || this.fresh) return;
    const rows = this.rows();
    const top = this.list.getBoundingClientRect().top;
    this.fast = scrolling && this.isFast(top);
    const from = Math.max(0, Math.min(rows - 1, Math.floor((-top - AHEAD) / this.row)));
    const to = Math.min(rows, Math.max(from + LEAST, Math.ceil((window.innerHeight - top + AHEAD) / this.row)));
    const first = Math.max(0, from * this.columns), last = Math.min(this.total, to * this.columns);
    this.list.style.paddingTop = `${from * this.row}px`;
    this.list.style.paddingBottom = `${Math.max(0, rows - to) * this.row}px`;
    if (first !== this.drawn.first || last !== this.drawn.last) this.exchange(first, last);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.rest(), this.fast ? STILL : this.requests.size ? REST : 0);
  }

  /** Whether one scrolls too fast to see pictures; a single jump is not that. @param {number} top of the list */
  isFast(top) {
    const { last } = this, time = performance.now();
    const far = time - last.time < STILL && Math.abs(top - last.top) > (FAST * window.innerHeight * (time - last.time)) / 1000;
    this.last = { top, time, far };
    return far && last.far;
  }

  /** The scroll rests, or is slow enough to see pictures. */
  rest() {
    this.fast = false;
    this.fill();
    this.fetchDrawn();
  }

  /** Cards for the empty ones whose pictures are known by now; all know how many there are. */
  fill() {
    if (this.fresh) return;
    if (this.counted !== this.total) {
      this.counted = this.total;
      for (const element of this.list.querySelectorAll("[aria-setsize]")) element.setAttribute("aria-setsize", String(this.total));
      this.draw();
    }
    if (this.fast) return;
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (this.list.querySelectorAll(".placeholder"))) {
      const index = Number(element.dataset.index);
      if (this.items[index]) element.replaceWith(this.card(index));
    }
  }

  /** Draw the cards from first to before last; those that are there already stay. @param {number} first @param {number} last */
  exchange(first, last) {
    const { list, drawn } = this;
    const overlap = first < drawn.last && last > drawn.first;
    if (!overlap) list.replaceChildren(...this.cards(first, last));
    else {
      for (let i = drawn.first; i < first; i += 1) list.firstElementChild?.remove();
      for (let i = drawn.last; i > last; i -= 1) list.lastElementChild?.remove();
      if (first < drawn.first) list.prepend(...this.cards(first, drawn.first));
      if (last > drawn.last) list.append(...this.cards(drawn.last, last));
    }
    this.drawn = { first, last };
    if (this.stop < first || this.stop >= last) this.makeStop(first); // the Tab key always finds a card
  }

  /** @param {number} first @param {number} last */
  cards(first, last) {
    return Array.from({ length: Math.max(0, last - first) }, (_, i) => this.card(first + i));
  }

  /** @param {number} index */
  card(index) {
    const item = this.items[index];
    if (!item || this.fast) return placeholder(index);
    const element = card(item, index, { bits: this.bits, address: this.callbacks.address(item), total: this.total, selected: this.selected.has(item.key) });
    if (index === this.stop) for (const each of element.querySelectorAll(".card-link, .select-box, .about")) each.setAttribute("tabindex", "0");
    return element;
  }

  fetchDrawn() {
    const { first, last } = this.drawn;
    const wanted = new Set();
    for (let i = first; i < last; i += 1) if (!this.items[i]) wanted.add(Math.floor(i / PAGE));
    if (this.total && last >= this.total && !this.items[this.total - 1]) wanted.add(Math.floor((this.total - 1) / PAGE));
    for (const [page, { abort }] of this.requests) {
      if (page * PAGE > last + PAGE || (page + 1) * PAGE < first - PAGE) { abort.abort(); this.requests.delete(page); } // scrolled past
    }
    for (const page of wanted) this.fetch(page);
  }

  /** The picture at a position, fetched where it has not been; null behind the last. @param {number} index @returns {Promise<Item | null>} */
  async at(index) {
    if (index < 0 || index >= this.total) return null;
    if (!this.items[index]) await this.fetch(Math.floor(index / PAGE));
    return this.items[index] ?? null;
  }

  /** The position of the card under an event, or -1. @param {Event} event */
  indexOf({ target }) {
    const element = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest("[data-index]"));
    return element ? Number(element.dataset.index) : -1;
  }

  /** @param {number} index */
  elementOf(index) {
    return index < this.drawn.first || index >= this.drawn.last ? null : this.list.children[index - this.drawn.first];
  }

  /** One card is the stop of the Tab key; the arrows move it. @param {number} index */
  makeStop(index) {
    const stops = (at) => this.elementOf(at)?.querySelectorAll(".card-link, .select-box, .about") ?? [];
    for (const stop of stops(this.stop)) stop.setAttribute("tabindex", "-1");
    for (const stop of stops(index)) stop.setAttribute("tabindex", "0");
    this.stop = index;
  }

  /** Move the keyboard to a card, and the page to where it is seen. @param {number} index */
  async focus(index = 0) {
    const at = Math.max(0, Math.min(index, this.total - 1));
    if (!(await this.at(at))) return;
    const top = this.list.getBoundingClientRect().top + Math.floor(at / this.columns) * this.row;
    const below = top + this.row - window.innerHeight;
    if (top < HEADER + GAP) window.scrollBy(0, top - HEADER - GAP);
    else if (below > 0) window.scrollBy(0, below);
    this.draw();
    this.makeStop(at);
    /** @type {HTMLElement | null} */ (this.elementOf(at)?.querySelector(".card-link") ?? null)?.focus({ preventScroll: true });
  }

  walk(event) {
    const index = this.indexOf(event);
    if (index < 0 || event.altKey || ((event.ctrlKey || event.metaKey) && event.key !== "a")) return;
    const onLink = /** @type {Element} */ (event.target).classList.contains("card-link");
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: index + 1, ArrowLeft: index - 1, ArrowDown: index + this.columns, ArrowUp: index - this.columns,
      Home: 0, End: this.total - 1 };
    if (event.key in targets) {
      const target = Math.min(targets[event.key], this.total - 1);
      if (target >= 0) {
        if (event.shiftKey) this.selectTo(index, target);
        this.focus(target);
      }
    } else if (event.key === " " && onLink) this.callbacks.open(index);
    else if (event.key === "x") this.toggle(index);
    else if (event.key === "Escape" && this.selected.size) this.selectNone();
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.callbacks.selectAll();
    else return;
    event.preventDefault();
  }

  click(event) {
    const index = this.indexOf(event);
    const target = /** @type {Element} */ (event.target);
    if (index < 0 || !this.items[index]) return;
    const onTick = target.closest(".select-box");
    if (target.closest(".about")) this.callbacks.open(index);
    else if (event.shiftKey) this.selectTo(this.anchor < 0 ? index : this.anchor, index);
    else if (onTick || event.ctrlKey || event.metaKey) this.toggle(index);
    else return;
    event.preventDefault();
  }

  /** @param {number} index */
  toggle(index) {
    const item = this.items[index];
    if (!item) return;
    if (!this.selected.delete(item.key)) this.selected.set(item.key, item);
    this.anchor = index;
    this.showSelection();
  }

  /** Select a range, as far as it has been fetched. @param {number} from @param {number} to */
  selectTo(from, to) {
    if (this.anchor < 0) this.anchor = from;
    for (let i = Math.min(from, to); i <= Math.max(from, to); i += 1) {
      const item = this.items[i];
      if (item) this.selected.set(item.key, item);
    }
    this.showSelection();
  }

  /** How many pictures "all" are: those of the list, or those that were fetched of a list without a known end. */
  get countable() {
    return this.counting ? this.total : this.items.filter(Boolean).length;
  }

  /** Select all pictures of the list; those that have not been fetched are, and progress() is told. @param {(fetched: number) => void} progress */
  async selectAll(progress = () => {}) {
    const { source, items } = this;
    this.selecting?.abort();
    const { signal } = (this.selecting = new AbortController());
    if (this.counting && source) {
      for (let start = 0; start < this.total && items === this.items; start += MANY) {
        const known = items.slice(start, start + MANY).filter(Boolean).length;
        if (known >= Math.min(MANY, this.total - start)) continue;
        progress(start);
        const answer = await source(start, MANY, signal);
        answer.items.forEach((item, i) => { items[start + i] ??= item; });
      }
    }
    if (signal.aborted || items !== this.items) return;
    for (const item of items) if (item) this.selected.set(item.key, item);
    this.showSelection();
  }

  selectNone() {
    this.selecting?.abort();
    this.selected.clear();
    this.anchor = -1;
    this.showSelection();
  }

  showSelection() {
    for (const element of this.list.children) {
      const item = this.items[Number(/** @type {HTMLElement} */ (element).dataset.index)];
      const on = Boolean(item && this.selected.has(item.key));
      element.classList.toggle("selected", on);
      element.querySelector(".select-box")?.setAttribute("aria-checked", String(on));
    }
    this.list.classList.toggle("selecting", this.selected.size > 0);
    this.callbacks.selection();
  }
}
