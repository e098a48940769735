// The search: a query and its nearest pictures, or the collection where there is no query.

import { ask, isTold, queryString } from "./api.js";
import { isCode } from "./codes.js";
import { openDetail } from "./detail.js";
import { commands, h, notice } from "./dom.js";
import { Filters, readFilters } from "./filters.js";
import { PictureGrid } from "./grid.js";
import { QueryPanel } from "./query.js";
import { go, route } from "./router.js";
import { shortName, thumbnail } from "./thumbnail.js";

const PAGE = 48;
const REMEMBERED = 20; // result lists kept for Back, and uploaded pictures kept for their codes
const FRESH = 120_000; // ms that a kept list counts as the collection's state
const EMPTY_AGAIN = 3000; // ms between looks at an index that is still empty

/** Keep the newest entries of a map only. */
function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > REMEMBERED) map.delete(map.keys().next().value);
}

export class SearchView {
  constructor(app) {
    this.app = app;
    this.lists = new Map(); // address -> what Back shows at once
    this.uploads = new Map(); // code -> {url, name} of the picture it was computed from
    this.query = new QueryPanel({
      picked: (file) => this.searchPicture(file),
      typed: (text) => this.find(text),
      cleared: () => go("search", this.filterParameters()),
    });
    this.filters = new Filters(app.health.bits, (values) => go("search", { ...this.asked(), ...values }, { replace: true }));
    this.grid = new PictureGrid({
      address: (item) => this.addressOf(item),
      page: (answer, first) => this.arrived(answer, first),
      mark: (item) => this.query.mark(item),
      open: (index) => this.openDetail(index),
      fail: (error) => this.failed(error),
    });
    this.build();
  }

  build() {
    this.title = h("h1", {}, "Search");
    this.status = h("p", { class: "status", role: "status" });
    this.words = h("div", { class: "words" });
    const wide = matchMedia("(min-width: 900px)");
    const refine = h("details", { class: "refine" }, h("summary", {}, "Radius and filters"), this.filters.element);
    const fit = () => { refine.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    this.element = h("div", { class: "view search" },
      h("aside", { class: "panel", "aria-label": "Query and filters" }, this.query.element, refine),
      h("section", { class: "results", "aria-label": "Results" },
        h("header", { class: "view-head" }, this.title, this.status), this.words, this.grid.element,
        h("p", { class: "keys muted", "aria-hidden": "true" }, h("kbd", {}, "/"), " search ", h("kbd", {}, "← ↑ → ↓"), " move ",
          h("kbd", {}, "Enter"), " search from here ", h("kbd", {}, "Space"), " details ", h("kbd", {}, "Esc"), " close")));
    this.query.input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { event.preventDefault(); this.grid.focus(); }
    });
  }

  focusField() {
    this.query.input.focus();
    this.query.input.select();
  }

  asked() {
    const { key, code } = this.parameters ?? {};
    return { key, code };
  }

  hasQuery() {
    const { key, code } = this.asked();
    return key !== undefined || code !== undefined;
  }

  filterParameters() {
    const { radius, folder, where } = this.parameters ?? {};
    return { radius, folder, where };
  }

  /** A search from a picture; the filters stay as they are. */
  addressOf(item) {
    return route("search", { key: item.key, ...this.filterParameters() });
  }

  async show(parameters) {
    this.leave();
    const changedQuery = this.parameters?.key !== parameters.key || this.parameters?.code !== parameters.code;
    this.parameters = parameters;
    this.address = route("search", parameters);
    const { health } = this.app;
    this.words.replaceChildren();
    this.element.classList.toggle("empty", health.rows === 0);
    if (health.rows === 0) return this.showEmpty();
    if (changedQuery) window.scrollTo(0, 0);
    this.showFilters();
    this.setTitle(this.titleText());
    if (!this.hasQuery()) this.showIdle();
    const kept = this.kept();
    this.grid.start(this.source(), health.bits, kept?.list ?? null);
    if (kept) {
      this.arrived(kept.answer, true);
      requestAnimationFrame(() => window.scrollTo(0, kept.scroll));
    }
    return undefined;
  }

  hide() {
    this.leave();
    clearTimeout(this.emptyTimer);
  }

  /** Keep what is on the screen for Back, and stop asking for more of it. */
  leave() {
    this.grid.stop();
    this.uploading?.abort();
    if (this.address && this.answer) {
      remember(this.lists, this.address, { list: this.grid.kept(), answer: this.answer, scroll: window.scrollY, at: Date.now() });
    }
    this.answer = null;
  }

  kept() {
    const kept = this.lists.get(this.address);
    return kept && Date.now() - kept.at < FRESH ? kept : null;
  }

  /** Where the pictures come from: a search, or the collection in the order it was written. */
  source() {
    const { key, code } = this.parameters;
    const { radius, folder, where } = readFilters(this.parameters);
    if (!this.hasQuery()) {
      const filters = { folder, where: this.parameters.where, limit: PAGE };
      return (after, signal) => ask(`items${queryString({ ...filters, after: after || null })}`, { signal });
    }
    return async (offset, signal) => {
      const answer = await ask("search", { json: { key, code, k: PAGE, offset, radius, folder, where }, signal });
      return page(answer, offset);
    };
  }

  arrived(answer, first) {
    if (first) {
      this.answer = answer;
      if (answer.query) this.showQuery(answer);
      if (answer.items.length === 0) this.showNothing();
      else if (!answer.items.some((item) => item.picture)) this.showPictureNote();
    }
    this.summarise();
  }

  summarise() {
    const { answer } = this;
    const { folder, where } = readFilters(this.parameters);
    const all = !answer.query && !folder && !where; // otherwise only what is shown has been counted
    const shown = this.grid.items.length;
    const count = all ? answer.rows : shown;
    const more = !all && this.grid.next !== null ? "+" : "";
    const time = answer.query ? `, nearest first · ${(answer.seconds * 1000).toFixed(1)} ms` : "";
    this.status.textContent = `${count.toLocaleString()}${more} picture${count === 1 ? "" : "s"}${time}`;
  }

  /** The panel of the query, once its answer is there; a change of radius leaves it as it is. */
  showQuery({ query, items }) {
    const { key, code } = this.asked();
    const { health } = this.app;
    const asked = `${key} ${code}`;
    if (this.shownQuery === asked) return;
    this.shownQuery = asked;
    const upload = this.uploads.get(code);
    const own = items.find((item) => item.key === key) ?? { key, code: query.code, picture: health.pictures };
    const image = key !== undefined ? thumbnail(own, health.bits) : upload ? preview(upload) : null;
    this.query.show({
      name: key ?? upload?.name ?? "A code", image, code: query.code, bits: health.bits, takesPictures: health.images,
    });
  }

  showIdle() {
    this.shownQuery = null;
    this.query.idle(this.app.health.images);
  }

  titleText() {
    const { key, code } = this.asked();
    if (key !== undefined) return `Like ${shortName(key)}`;
    if (code === undefined) return "The collection";
    return this.uploads.has(code) ? "Like your picture" : "Near a code";
  }

  setTitle(text) {
    this.title.textContent = text;
    this.app.setTitle(text);
  }

  async showFilters() {
    const filters = readFilters(this.parameters);
    this.filters.show(filters, this.hasQuery());
    if (this.facetsOf === this.app.health.rows) return;
    this.facetsOf = this.app.health.rows;
    try {
      this.filters.offer(await ask("facets"));
      this.filters.show(readFilters(this.parameters), this.hasQuery());
    } catch (error) {
      this.facetsOf = null;
      if (!isTold(error)) console.error(error); // the search itself goes on without filters
    }
  }

  openDetail(index) {
    const code = this.answer?.query?.code;
    openDetail({
      items: this.grid.items, index, bits: this.app.health.bits,
      reference: code ? { code, name: "The query's code" } : null,
      address: (item) => this.addressOf(item),
      closed: (last) => this.grid.focus(last),
    });
  }

  /** A picture from outside: encoded once by the service; from then on its code is the query. */
  async searchPicture(file) {
    if (!file.type.startsWith("image/")) {
      return this.complain(`${file.name} is not a picture.`);
    }
    this.leave();
    const uploading = (this.uploading = new AbortController());
    const name = file.name || "Pasted picture";
    const upload = { url: URL.createObjectURL(file), name };
    this.shownQuery = null;
    this.query.show({ name, image: preview(upload), code: null, bits: this.app.health.bits, takesPictures: false });
    this.words.replaceChildren();
    this.status.textContent = "Reading the picture…";
    this.grid.wait();
    const form = new FormData();
    form.append("image", file, name);
    const { radius, folder, where } = this.filterParameters();
    for (const [field, value] of Object.entries({ k: PAGE, radius, folder, where })) if (value) form.append(field, value);
    try {
      const answer = page(await ask("search", { form, signal: uploading.signal }), 0);
      this.keepUpload(answer, upload, { radius, folder, where });
    } catch (error) {
      if (!uploading.signal.aborted) this.failed(error);
    }
    return undefined;
  }

  keepUpload(answer, upload, filters) {
    const { code } = answer.query;
    remember(this.uploads, code, upload);
    const parameters = { code, ...filters };
    remember(this.lists, route("search", parameters),
      { list: { items: answer.items, next: answer.next }, answer, scroll: 0, at: Date.now() });
    go("search", parameters);
  }

  /** Typed words: a code where they can be one, a key otherwise ("key:" says that it is one). */
  find(text) {
    const { bits } = this.app.health;
    if (text.startsWith("key:")) go("search", { key: text.slice(4).trim() });
    else if (isCode(text, bits)) go("search", { code: text.toLowerCase() });
    else go("search", { key: text });
    this.query.input.blur();
  }

  failed(error) {
    this.status.textContent = "";
    if (!isTold(error)) this.complain(error.message);
  }

  complain(text) {
    this.grid.stop();
    this.grid.clear();
    this.showIdle();
    this.status.textContent = "";
    this.words.replaceChildren(notice("That did not work", h("p", {}, text),
      h("p", {}, h("a", { href: "#/search" }, "Back to the collection"))));
  }

  showNothing() {
    const { radius } = readFilters(this.parameters);
    const advice = radius ? "Widen the radius, or take a filter away." : "No picture fits these filters.";
    this.words.replaceChildren(notice("Nothing found", h("p", {}, advice)));
  }

  /** Without the folder of the pictures, codes stand in for them: say how to bring them back. */
  showPictureNote() {
    this.words.replaceChildren(h("div", { class: "note" },
      h("p", {}, "The pictures themselves are not at hand, so their codes are drawn in their place. Name the folder they lie in:"),
      commands("ddh serve INDEX --root FOLDER")));
  }

  showEmpty() {
    this.setTitle("Nothing here yet");
    this.showIdle();
    this.status.textContent = "";
    this.grid.clear();
    this.words.replaceChildren(notice("This index is empty",
      h("p", {}, "Learn codes for a folder of pictures (skip this where you have a model), then add the pictures:"),
      commands("ddh fit photos/ -o photos.ddh", `ddh index add photos/ --index ${this.app.health.name} --model photos.ddh`),
      h("p", { class: "muted" }, "This page fills itself as soon as the first pictures are in.")));
    clearTimeout(this.emptyTimer);
    this.emptyTimer = setTimeout(() => this.app.refresh(), EMPTY_AGAIN);
  }
}

const preview = ({ url, name }) => h("img", { src: url, alt: `Your picture ${name}`, class: "loaded" });

/** A page of search results in the grid's own terms. */
function page(answer, offset) {
  return { ...answer, items: answer.results, next: answer.more ? offset + answer.results.length : null };
}
