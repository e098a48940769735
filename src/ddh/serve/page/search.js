// The search: a query and its nearest pictures, or the collection where there is no query.

import { fetchJson, isReported, queryString } from "./api.js";
import { isCode } from "./codes.js";
import { openDetail } from "./detail.js";
import { commands, count, failure, h, notice, statusLine, viewHead } from "./dom.js";
import { Filters, readFilters } from "./filters.js";
import { PictureGrid } from "./grid.js";
import { QueryPanel } from "./query.js";
import { go, route } from "./router.js";
import { shortName, thumbnail } from "./thumbnail.js";
import { isPicture } from "./upload.js";

const PAGE = 48;
const CACHED = 20; // result lists kept for Back, and uploaded pictures kept for their codes
const FRESH = 120_000; // ms for which a kept list counts as the state of the collection
const EMPTY_INTERVAL = 3000; // ms between looks at an index that is still empty

/** Add to a cache of the newest entries. @template T @param {Map<string, T>} cache @param {string} key @param {T} value */
function keep(cache, key, value) {
  cache.delete(key);
  cache.set(key, value);
  if (cache.size > CACHED) cache.delete(cache.keys().next().value ?? "");
}

export class SearchView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.lists = /** @type {Map<string, KeptList>} */ (new Map()); // address -> what Back shows at once
    this.uploads = /** @type {Map<string, Upload>} */ (new Map()); // code -> the picture it was computed from
    this.parameters = /** @type {ViewParameters} */ ({});
    this.address = "";
    this.answer = /** @type {ResultPage | null} */ (null); // the first page of what is shown
    this.shownQuery = "";
    this.uploading = /** @type {AbortController | null} */ (null);
    this.facetsOf = -1;
    this.emptyTimer = 0;
    this.query = new QueryPanel({
      onFile: (file) => this.searchPicture(file),
      onText: (text) => this.find(text),
      onClear: () => go("search", this.filterParameters()),
    });
    this.filters = new Filters(app.health.bits, (values) => {
      const { key, code } = this.parameters;
      go("search", { key, code, ...values }, { replace: true });
    });
    this.grid = new PictureGrid({
      address: (item) => this.addressOf(item),
      page: (answer, first) => this.arrived(answer, first),
      mark: (item) => this.query.mark(item),
      open: (index) => this.openDetail(index),
      fail: (error) => this.failed(error),
    });
    this.title = h("h1", {}, "Search");
    this.status = statusLine();
    this.notices = h("div", {});
    const wide = matchMedia("(min-width: 900px)");
    const refine = h("details", { class: "refine" }, h("summary", {}, "Radius and filters"), this.filters.element);
    const fit = () => { refine.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    this.element = h("div", { class: "view search" },
      h("aside", { class: "panel", "aria-label": "Query and filters" }, this.query.element, refine),
      h("section", { class: "results", "aria-label": "Results" }, viewHead(this.title, this.status), this.notices, this.grid.element,
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

  hasQuery() {
    return this.parameters.key !== undefined || this.parameters.code !== undefined;
  }

  filterParameters() {
    const { radius, folder, where } = this.parameters;
    return { radius, folder, where };
  }

  /** A search from a picture; the filters stay as they are. @param {Item} item */
  addressOf({ key }) {
    return route("search", { key, ...this.filterParameters() });
  }

  /** @param {ViewParameters} parameters */
  show(parameters) {
    this.leave();
    const changedQuery = this.parameters.key !== parameters.key || this.parameters.code !== parameters.code;
    this.parameters = parameters;
    this.address = route("search", parameters);
    const { rows, bits } = this.app.health;
    this.notices.replaceChildren();
    this.element.classList.toggle("empty", rows === 0);
    if (rows === 0) {
      this.showEmpty();
      return;
    }
    if (changedQuery) window.scrollTo(0, 0);
    this.showFilters();
    this.setTitle(this.titleText());
    if (!this.hasQuery()) this.showIdle();
    const kept = this.lists.get(this.address);
    const list = kept && Date.now() - kept.at < FRESH ? kept.list : null;
    this.grid.start(this.source(), bits, list);
    if (kept && list) {
      this.arrived(kept.answer, true);
      requestAnimationFrame(() => window.scrollTo(0, kept.scroll));
    }
  }

  hide() {
    this.leave();
    clearTimeout(this.emptyTimer);
  }

  /** Keep what is on the screen for Back, and stop fetching more of it. */
  leave() {
    this.grid.pager.stop();
    this.uploading?.abort();
    const { answer, grid } = this;
    if (answer) keep(this.lists, this.address, { list: { items: grid.items, next: grid.pager.next }, answer, scroll: window.scrollY, at: Date.now() });
    this.answer = null;
  }

  /** Where the pictures come from: a search, or the collection in the order written. @returns {Source<ResultPage>} */
  source() {
    const { key, code } = this.parameters;
    const { radius, folder, where } = readFilters(this.parameters);
    const { values, features } = this.uploads.get(code ?? "") ?? {}; // they order the further pages as they did the first
    if (!this.hasQuery()) {
      const filters = { folder, where: this.parameters.where, limit: PAGE };
      return (after, signal) => fetchJson(`items${queryString({ ...filters, after: after || null })}`, { signal });
    }
    return async (offset, signal) =>
      resultPage(await fetchJson("search", { json: { key, code, values, features, k: PAGE, offset, radius, folder, where }, signal }), offset);
  }

  /** @param {ResultPage} answer @param {boolean} first */
  arrived(answer, first) {
    if (first) {
      this.answer = answer;
      if (answer.query) this.showQuery(answer.query, answer.items);
      const advice = readFilters(this.parameters).radius ? "Widen the radius, or take a filter away." : "No picture fits these filters.";
      if (answer.items.length === 0) this.notices.replaceChildren(notice("Nothing found", h("p", {}, advice)));
      else if (!answer.items.some((item) => item.picture)) this.notices.replaceChildren(withoutPictures());
    }
    const { query, rows, seconds } = /** @type {ResultPage} */ (this.answer);
    const { folder, where } = readFilters(this.parameters);
    const all = !query && !folder && !where; // otherwise only what is shown has been counted
    const pictures = all ? (rows ?? 0) : this.grid.items.length;
    const more = !all && this.grid.pager.next !== null ? "+" : "";
    const time = query ? `, nearest first · ${((seconds ?? 0) * 1000).toFixed(1)} ms` : "";
    this.status.textContent = `${count(pictures, "picture", more)}${time}`;
  }

  /** The panel of the query, once its answer is there; a change of radius leaves it as it is. @param {QueryOfAnswer} query @param {Item[]} items */
  showQuery(query, items) {
    const { key, code } = this.parameters;
    const { health } = this.app;
    const identity = `${key} ${code}`;
    if (this.shownQuery === identity) return;
    this.shownQuery = identity;
    const upload = this.uploads.get(code ?? "");
    let image = upload ? preview(upload) : null;
    if (key !== undefined) {
      image = thumbnail(items.find((item) => item.key === key) ?? { key, code: query.code, picture: health.pictures }, health.bits);
    }
    this.query.show({ name: key ?? upload?.name ?? "A code", image, code: query.code, bits: health.bits, takesPictures: health.images });
  }

  showIdle() {
    this.shownQuery = "";
    this.query.idle(this.app.health.images);
  }

  titleText() {
    const { key, code } = this.parameters;
    if (key !== undefined) return `Like ${shortName(key)}`;
    if (code === undefined) return "The collection";
    return this.uploads.has(code) ? "Like your picture" : "Near a code";
  }

  setTitle(text) {
    this.title.textContent = text;
    this.app.setTitle(text);
  }

  async showFilters() {
    this.filters.show(readFilters(this.parameters), this.hasQuery());
    if (this.facetsOf === this.app.health.rows) return;
    this.facetsOf = this.app.health.rows;
    try {
      this.filters.offer(await fetchJson("facets"));
      this.filters.show(readFilters(this.parameters), this.hasQuery());
    } catch (error) {
      this.facetsOf = -1;
      if (!isReported(error)) console.error(error); // the search itself goes on without filters
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

  /** Search with an uploaded picture: the service encodes it once; from then on its code and outputs are the query. @param {File} file */
  async searchPicture(file) {
    if (!isPicture(file)) {
      this.showFailure(`${file.name} is not a picture.`);
      return;
    }
    this.leave();
    const { signal } = (this.uploading = new AbortController());
    const name = file.name || "Pasted picture";
    const upload = { url: URL.createObjectURL(file), name };
    this.shownQuery = "";
    this.query.show({ name, image: preview(upload), code: null, bits: this.app.health.bits, takesPictures: false });
    this.notices.replaceChildren();
    this.status.textContent = "Reading the picture…";
    this.grid.wait();
    const form = new FormData();
    form.append("image", file, name);
    const filters = this.filterParameters();
    for (const [field, value] of Object.entries({ k: PAGE, ...filters })) if (value) form.append(field, String(value));
    try {
      const answer = resultPage(await fetchJson("search", { form, signal }), 0);
      const { code, values, features } = /** @type {QueryOfAnswer} */ (answer.query);
      keep(this.uploads, code, { ...upload, values, features });
      keep(this.lists, route("search", { code, ...filters }), { list: answer, answer, scroll: 0, at: Date.now() });
      go("search", { code, ...filters });
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
  }

  /** Search for typed text: a code where it can be one, a key otherwise ("key:" before it forces a key). @param {string} text */
  find(text) {
    if (text.startsWith("key:")) go("search", { key: text.slice(4).trim() });
    else if (isCode(text, this.app.health.bits)) go("search", { code: text.toLowerCase() });
    else go("search", { key: text });
    this.query.input.blur();
  }

  failed(error) {
    this.status.textContent = "";
    if (!isReported(error)) this.showFailure(error.message);
  }

  showFailure(text) {
    this.grid.pager.stop();
    this.grid.clear();
    this.showIdle();
    this.status.textContent = "";
    this.notices.replaceChildren(failure(text, h("p", {}, h("a", { href: "#/search" }, "Back to the collection"))));
  }

  showEmpty() {
    this.setTitle("Nothing here yet");
    this.showIdle();
    this.status.textContent = "";
    this.grid.clear();
    this.notices.replaceChildren(notice("This index is empty",
      h("p", {}, "Learn codes for a folder of pictures (skip this where you have a model), then add the pictures:"),
      commands("ddh fit photos/ -o photos.ddh", `ddh index add photos/ --index ${this.app.health.name} --model photos.ddh`),
      h("p", { class: "muted" }, "This page fills itself as soon as the first pictures are in.")));
    clearTimeout(this.emptyTimer);
    this.emptyTimer = setTimeout(() => this.app.refresh(), EMPTY_INTERVAL);
  }
}

/** @type {(upload: Upload) => HTMLElement} */
const preview = ({ url, name }) => h("img", { src: url, alt: `Your picture ${name}`, class: "loaded" });

/** Without the folder of the pictures, codes stand in for them: explain how to bring them back. */
const withoutPictures = () => h("div", { class: "note" },
  h("p", {}, "The pictures themselves are not at hand, so their codes are drawn in their place. Name the folder they lie in:"),
  commands("ddh serve INDEX --root FOLDER"));

/** A page of search results as a page of the grid. @param {SearchAnswer} answer @param {number} offset @returns {ResultPage} */
function resultPage({ query, results, more, seconds }, offset) {
  return { query, seconds, items: results, next: more ? offset + results.length : null };
}
