// The search: a query and its nearest pictures, or the collection by name, folder, date and tag.

import { fetchJson, isReported, queryString } from "./api.js";
import { isCode } from "./codes.js";
import { openDetail } from "./detail.js";
import { askText, button, commands, count, failure, h, icon, notice, statusLine, toast, viewHead } from "./dom.js";
import { Filters, readFilters } from "./filters.js";
import { PictureGrid } from "./grid.js";
import { QueryPanel } from "./query.js";
import { go, route } from "./router.js";
import { SelectionBar } from "./selection.js";
import { shortName, thumbnail } from "./thumbnail.js";
import { Timeline } from "./timeline.js";
import { isPicture } from "./upload.js";
import { Ways } from "./ways.js";
import { monthText } from "./words.js";

const PAGE = 48;
const CACHED = 20; // result lists kept for Back, and uploaded pictures kept for their codes
const FRESH = 120_000; // ms for which a kept list counts as the state of the collection
const EMPTY_INTERVAL = 3000; // ms between looks at an index that is still empty
const ORDERS = { added: "as added", newest: "newest first", oldest: "oldest first", name: "by name" };

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
    this.outdated = false; // whether what is shown must not be kept for Back
    this.shownQuery = "";
    this.uploading = /** @type {AbortController | null} */ (null);
    this.rows = -1; // of the collection whose lists are kept
    this.facetsOf = -1;
    this.emptyTimer = 0;
    this.timelineOf = "";
    this.query = new QueryPanel({
      onFile: (file) => this.searchPicture(file),
      onType: (text) => this.type(text),
      onText: (text) => this.find(text),
      onClear: () => go("search", this.filterParameters()),
    });
    this.query.describe(Boolean(app.health.words));
    this.filters = new Filters(app.health.bits, (values) => go("search", { ...this.parameters, ...values }, { replace: true }));
    this.ways = new Ways({
      keep: () => (this.hasQuery() ? this.parameters : { order: this.parameters.order }),
      forget: (name) => this.saveSearch(name, ""),
    });
    this.timeline = new Timeline((range) => go("search", { ...this.parameters, ...range }));
    this.grid = new PictureGrid({
      address: (item) => this.addressOf(item),
      page: (answer, first) => this.arrived(answer, first),
      mark: (item) => this.query.mark(item),
      open: (index) => this.openDetail(index),
      selection: () => this.selection.show(),
      selectAll: () => this.selection.chooseAll(),
      fail: (error) => this.failed(error),
    });
    this.selection = new SelectionBar(app, () => this.grid.selected, { all: (progress) => this.grid.selectAll(progress), none: () => this.grid.selectNone(), countable: () => this.grid.countable });
    this.title = h("h1", {}, "Search");
    this.status = statusLine();
    this.notices = h("div", {});
    this.months = /** @type {MonthCount[]} */ ([]);
    this.order = h("select", { id: "order", "aria-label": "Order", onchange: () => go("search", { ...this.parameters, order: this.order.value === "added" ? null : this.order.value }, { replace: true }) },
      Object.entries(ORDERS).map(([value, text]) => h("option", { value }, text)));
    this.saveButton = button([icon("star"), "Save"], () => this.askToSave(), { class: "small", title: "Save this search" });
    this.element = this.build();
  }

  build() {
    const wide = matchMedia("(min-width: 900px)");
    const refine = h("details", { class: "refine" }, h("summary", {}, "Folders and filters"), h("div", { class: "refine-room" }, this.filters.element, this.ways.element));
    const fit = () => { refine.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    const head = viewHead(this.title, this.status);
    head.append(h("div", { class: "head-tools" }, this.order, this.saveButton));
    this.query.input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { event.preventDefault(); this.grid.focus(); }
    });
    return h("div", { class: "view search" },
      h("aside", { class: "panel", "aria-label": "Query and filters" }, this.query.element, refine),
      h("section", { class: "results", "aria-label": "Results" }, head, this.timeline.element, this.notices, this.grid.element,
        h("p", { class: "keys muted", "aria-hidden": "true" }, h("kbd", {}, "/"), " search ", h("kbd", {}, "← ↑ → ↓"), " move ",
          h("kbd", {}, "Enter"), " search from here ", h("kbd", {}, "Space"), " details ", h("kbd", {}, "x"), " select ", h("kbd", {}, "Esc"), " close")),
      this.selection.element);
  }

  focusField() {
    this.query.input.focus();
    this.query.input.select();
  }

  /** Whether pictures are ordered by how near they are to something. */
  hasQuery() {
    const { key, code, text } = this.parameters;
    return key !== undefined || code !== undefined || text !== undefined;
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
    const { rows, bits, writable } = this.app.health;
    if (this.rows !== rows) this.forget();
    this.rows = rows;
    this.leave();
    const moved = JSON.stringify({ ...this.parameters, radius: "" }) !== JSON.stringify({ ...parameters, radius: "" });
    this.parameters = parameters;
    this.address = route("search", parameters);
    this.notices.replaceChildren();
    this.element.classList.toggle("empty", rows === 0);
    if (rows === 0) {
      this.showEmpty();
      return;
    }
    this.element.classList.toggle("has-query", this.hasQuery());
    if (moved) window.scrollTo(0, 0);
    this.query.setText(parameters.q ?? parameters.text ?? "");
    this.filters.show(readFilters(parameters), this.hasQuery());
    this.ways.show(parameters);
    this.setTitle(this.titleText());
    this.order.hidden = this.hasQuery();
    this.order.value = parameters.order ?? "added";
    this.saveButton.hidden = !writable || !Object.keys(parameters).length;
    if (!this.hasQuery()) this.showIdle();
    if (this.hasQuery()) this.timeline.element.hidden = true;
    const kept = this.lists.get(this.address);
    const list = kept && Date.now() - kept.at < FRESH ? kept.list : null;
    const shown = this.grid.start(this.source(), bits, list);
    shown.then(() => { if (this.parameters === parameters) this.showAround(); });
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
    this.grid.cancel();
    this.uploading?.abort();
    const { answer, grid } = this;
    if (answer && !this.outdated) keep(this.lists, this.address, { list: grid.kept(), answer, scroll: window.scrollY, at: Date.now() });
    this.answer = null;
    this.outdated = false;
  }

  /** The filters of the address, as `/find` and `/timeline` want them. */
  browsing() {
    const { q, folder, where, since, until, order } = this.parameters;
    return { text: q, folder, where, since, until, order };
  }

  /** Where the pictures come from: a search, or what names, folders and dates select. @returns {Source} */
  source() {
    const { key, code, text, model } = this.parameters;
    const { radius, folder, where } = readFilters(this.parameters);
    const { values, features } = this.uploads.get(code ?? "") ?? {}; // they order the further pages as they did the first
    if (this.hasQuery()) {
      return async (offset, k, signal) =>
        resultPage(await fetchJson("search", { json: { key, code, model_id: model, text, values, features, k, offset, radius, folder, where }, signal }));
    }
    const filters = this.browsing();
    const all = Object.values(filters).every((value) => value === undefined);
    return async (offset, limit, signal) => {
      if (all && offset === 0) { // at once, while the service still reads what names and dates need
        const { items, next, rows } = await fetchJson(`items${queryString({ limit })}`, { signal });
        if (rows !== this.app.health.rows) await this.app.reload(); // somebody else has changed the collection
        return { items, total: rows, more: next !== null };
      }
      const { items, next, total, seconds } = await fetchJson(`find${queryString({ ...filters, offset, limit })}`, { signal });
      return { items, total, more: next !== null, seconds: all ? undefined : seconds };
    };
  }

  /** @param {ResultPage} answer @param {boolean} first */
  arrived(answer, first) {
    if (first) {
      this.answer = answer;
      if (answer.query) this.showQuery(answer.query, answer.items);
      if (answer.items.length === 0) this.notices.replaceChildren(notice("Nothing found", h("p", {}, this.advice())));
      else if (!answer.items.some((item) => item.picture)) this.notices.replaceChildren(withoutPictures());
    }
    const { query, total, seconds } = /** @type {ResultPage} */ (this.answer);
    const covered = query?.text && (query.covered ?? 0) < this.app.health.rows ? `, of ${(query.covered ?? 0).toLocaleString()} read so far` : "";
    const more = total === undefined && this.grid.items.length < this.grid.total ? "+" : "";
    const pictures = count(total ?? this.grid.items.length, "picture", more);
    const time = seconds === undefined ? "" : ` · ${(seconds * 1000).toFixed(1)} ms`;
    // scores are finer than the distances of the codes, which then do not rise steadily
    const order = query?.text ? "best" : (this.answer?.items[0]?.score ?? null) === null ? "nearest" : "most alike";
    this.status.textContent = `${pictures}${query ? `, ${order} first` : ""}${covered}${time}`;
    this.selection.show(); // it says how many all are
  }

  advice() {
    if (readFilters(this.parameters).radius) return "Widen the radius, or take a filter away.";
    return this.parameters.q ? "No name, folder, date or tag holds all of these words." : "No picture fits these filters.";
  }

  /** The panel of the query, once its answer is there; a change of radius leaves it as it is. @param {QueryOfAnswer} query @param {Item[]} items */
  showQuery(query, items) {
    const { key, code, text } = this.parameters;
    const { health } = this.app;
    const identity = `${key} ${code} ${text} ${query.code}`; // a key has another code once codes were made anew
    if (this.shownQuery === identity) return;
    this.shownQuery = identity;
    const upload = this.uploads.get(code ?? "");
    let image = upload ? preview(upload) : null;
    if (key !== undefined) {
      image = thumbnail(items.find((item) => item.key === key) ?? { key, code: query.code, picture: health.pictures }, health.bits);
    }
    this.query.show({ name: key ?? text ?? upload?.name ?? "A code", image, code: query.code, bits: health.bits, takesPictures: health.images });
  }

  showIdle() {
    this.shownQuery = "";
    this.query.idle(this.app.health.images);
  }

  titleText() {
    const { key, code, text, q, folder, since, until } = this.parameters;
    if (key !== undefined) return `Like ${shortName(key)}`;
    if (text !== undefined) return `“${text}”`;
    if (code !== undefined) return this.uploads.has(code) ? "Like your picture" : "Near a code";
    const dates = since && until && since !== until ? `${monthText(since)} to ${monthText(until)}` : since ? monthText(since) : "";
    return [q && `“${q}”`, folder && shortName(folder), dates].filter(Boolean).join(", ") || "The collection";
  }

  setTitle(text) {
    this.title.textContent = text;
    this.app.setTitle(text);
  }

  /** What stands around the pictures, which came first. */
  showAround() {
    this.showTimeline();
    this.showFilters();
  }

  async showFilters() {
    if (this.facetsOf === this.app.health.rows) return;
    this.facetsOf = this.app.health.rows;
    this.showNotes();
    try {
      const facets = await fetchJson("facets");
      this.filters.offer(facets);
      this.ways.offerFolders(facets, this.app.health.rows);
      this.filters.show(readFilters(this.parameters), this.hasQuery());
    } catch (error) {
      this.facetsOf = -1;
      if (!isReported(error)) console.error(error); // the search itself goes on without filters
    }
  }

  /** No list is what it was, the one that is shown neither. */
  forget() {
    this.lists.clear();
    this.outdated = true;
  }

  /** Tags have changed. */
  notesChanged() {
    this.forget();
    this.showNotes();
  }

  /** The tags and saved searches, as they are now. */
  async showNotes() {
    try {
      const [{ tags }, { searches }] = await Promise.all([fetchJson("tags"), fetchJson("searches")]);
      this.ways.offerNotes(tags, searches, Boolean(this.app.health.writable));
    } catch (error) {
      if (!isReported(error)) console.error(error);
    }
  }

  /** The months of what is selected; a chosen month leaves the others in view. */
  async showTimeline() {
    const { since = "", until = "" } = this.parameters;
    const { text, folder, where } = this.browsing();
    const about = JSON.stringify([text, folder, where, this.app.health.rows]);
    if (this.hasQuery()) {
      this.timeline.element.hidden = true;
      this.timelineOf = "";
      return;
    }
    if (this.timelineOf === about) {
      this.timeline.show(this.months, since, until);
      return;
    }
    this.timelineOf = about;
    try {
      const { months } = await fetchJson(`timeline${queryString({ text, folder, where })}`);
      if (this.timelineOf !== about) return;
      this.months = months;
      this.timeline.show(months, this.parameters.since ?? "", this.parameters.until ?? "");
    } catch (error) {
      this.timelineOf = "";
      if (!isReported(error)) console.error(error);
    }
  }

  openDetail(index) {
    const code = this.answer?.query?.code;
    openDetail({
      items: this.grid.items, index, bits: this.app.health.bits, total: this.grid.total,
      reference: code ? { code, name: "The query's code" } : null,
      address: (item) => this.addressOf(item),
      at: (position) => this.grid.at(position),
      closed: (last) => this.grid.focus(last),
    });
  }

  async askToSave() {
    const name = await askText({ title: "Save this search", label: "Name", action: "Save", value: this.titleText().replaceAll(/[“”]/g, "") });
    if (name) await this.saveSearch(name, this.address);
  }

  /** Save an address under a name; an empty one deletes it. @param {string} name @param {string} address */
  async saveSearch(name, address) {
    try {
      await fetchJson("searches", { json: { name, address } });
      toast(address ? `Saved as ${name}.` : `${name} is deleted.`);
      await this.showNotes();
    } catch (error) {
      if (!isReported(error)) toast(error.message);
    }
  }

  /** Search by name while one types. @param {string} text */
  type(text) {
    const { folder, where, since, until, order, q } = this.parameters;
    go("search", { q: text || null, folder, where, since, until, order }, { replace: q !== undefined || !text });
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
    const upload = { url: URL.createObjectURL(file), name, file };
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
      const answer = resultPage(await fetchJson("search", { form, signal }));
      const { code, values, features, model_id: model } = /** @type {QueryOfAnswer} */ (answer.query);
      if (code) keep(this.uploads, code, { ...upload, values, features });
      keep(this.lists, route("search", { code, model, ...filters }), { list: { items: answer.items, total: answer.items.length + (answer.more ? 1 : 0) }, answer, scroll: 0, at: Date.now() });
      go("search", { code, model, ...filters });
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
  }

  /** Enter: a key after "key:", a code where it can be one, a description where the service reads it, else names. @param {string} text */
  find(text) {
    this.query.input.blur();
    if (text.startsWith("key:")) go("search", { key: text.slice(4).trim() });
    else if (isCode(text, this.app.health.bits)) go("search", { code: text.toLowerCase() });
    else if (this.app.health.words && !text.startsWith("#")) go("search", { text, ...this.filterParameters() });
    else this.type(text);
  }

  failed(error) {
    this.status.textContent = "";
    const { code = "" } = this.parameters;
    const upload = this.uploads.get(code);
    if (error.status === 409 && upload) { // the index has codes of another model since: it reads the picture anew
      this.uploads.delete(code);
      this.searchPicture(upload.file);
      return;
    }
    if (!isReported(error)) this.showFailure(error.message);
  }

  showFailure(text) {
    this.grid.cancel();
    this.grid.clear();
    this.grid.redraw();
    this.showIdle();
    this.status.textContent = "";
    this.notices.replaceChildren(failure(text, h("p", {}, h("a", { href: "#/search" }, "Back to the collection"))));
  }

  showEmpty() {
    this.setTitle("Nothing here yet");
    this.showIdle();
    this.status.textContent = "";
    this.grid.clear();
    this.grid.redraw();
    this.notices.replaceChildren(notice("This index is empty",
      h("p", {}, "Add a folder of pictures:"),
      commands(`ddh add photos/ --index ${this.app.health.name}`),
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

/** A page of search results as a page of the grid. @param {SearchAnswer} answer @returns {ResultPage} */
const resultPage = ({ query, results, more, seconds }) => ({ query, seconds, items: results, more });
