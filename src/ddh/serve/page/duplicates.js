// Near-duplicates side by side, with a list of the ticked to export. Nothing is ever deleted here.

import { fetchJson, isReported, queryString } from "./api.js";
import { distanceText } from "./codes.js";
import { openDetail } from "./detail.js";
import { button, count, failure, h, icon, notice, Slider, statusLine, viewHead } from "./dom.js";
import { Pager } from "./pager.js";
import { go } from "./router.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";

const PAGE = 20;
const DEFAULT_RADIUS = 2;
const PAUSE = 200; // ms that the slider must rest
const UNITS = ["B", "kB", "MB", "GB"];
const COLUMNS = ["key", "path", "keep", "distance", "width", "height", "bytes"];

/** "812 kB". @param {number} bytes */
function bytesText(bytes) {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 && power ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

/** A cell of a CSV file; a text that a spreadsheet would run as a formula gets an apostrophe. @param {unknown} value */
function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {Record<string, unknown>[]} rows */
const csv = (rows) =>
  [COLUMNS, ...rows.map((row) => COLUMNS.map((column) => cell(row[column])))].map((line) => `${line.join(",")}\r\n`).join("");

/** Offer a file for download. @param {string} name @param {string} type @param {string} text */
function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export class DuplicatesView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.ticked = /** @type {Map<string, Record<string, unknown>>} */ (new Map()); // key -> row of the export; kept while the page is open
    this.shown = /** @type {DuplicateGroup[]} */ ([]);
    this.radius = new Slider({ id: "duplicates-radius", label: "Together when at most", pause: PAUSE,
      max: Math.max(1, Math.floor(app.health.bits / 4)), text: (radius) => (radius === 0 ? "no bit differs" : distanceText(radius)),
      changed: () => go("duplicates", { radius: this.radius.value }, { replace: true }) });
    this.status = statusLine();
    this.groups = h("div", { class: "groups" });
    this.moreButton = button(["More groups"], () => this.pager.more(), { hidden: true });
    /** @type {Pager<GroupPage>} */
    this.pager = new Pager(this.moreButton, "600px", (page) => this.arrived(page), (error) => this.failed(error));
    this.count = h("strong", { role: "status" });
    this.bar = h("div", { class: "tick-bar", role: "region", "aria-label": "The ticked pictures", hidden: true }, this.count,
      button([icon("download"), "CSV"], () => save("duplicates.csv", "text/csv", csv(this.rows())), { class: "primary" }),
      button([icon("download"), "JSON"], () => save("duplicates.json", "application/json", `${JSON.stringify(this.rows(), null, 2)}\n`)),
      button(["Clear"], () => { this.ticked.clear(); this.showTicks(); }, { class: "quiet" }));
    this.all = h("a", { class: "button", download: "" }, icon("download"), "Every group as CSV");
    this.element = h("div", { class: "view duplicates" }, viewHead("Near-duplicates", this.status),
      h("div", { class: "tools" }, this.radius.element, button([icon("check"), "Tick all but the suggested"], () => this.tickAll()), this.all),
      this.groups, h("p", { class: "more" }, this.moreButton), this.bar);
  }

  rows() {
    return [...this.ticked.values()];
  }

  /** @param {ViewParameters} parameters */
  show(parameters) {
    this.app.setTitle("Near-duplicates");
    const given = Number.parseInt(parameters.radius ?? "", 10);
    this.radius.value = given >= 0 ? given : DEFAULT_RADIUS;
    const radius = this.radius.value; // within the slider's range
    this.all.href = `duplicates.csv${queryString({ radius })}`;
    this.shown = [];
    this.groups.classList.add("waiting");
    this.status.textContent = "Looking for groups…";
    this.pager.start(async (offset, signal) => {
      const { groups, total, more } = await fetchJson(`duplicates${queryString({ radius, offset, limit: PAGE })}`, { signal });
      return { items: groups, total, next: more ? offset + groups.length : null };
    });
    this.pager.more();
  }

  hide() {
    this.pager.stop();
  }

  /** @param {GroupPage} page */
  arrived({ items, total, next }) {
    if (!this.shown.length) this.groups.replaceChildren();
    this.groups.classList.remove("waiting");
    this.groups.append(...items.map((group, i) => this.group(group, this.shown.length + i + 1)));
    this.shown.push(...items);
    this.status.textContent = count(total, "group");
    this.moreButton.hidden = next === null;
    if (!this.shown.length) {
      this.groups.append(notice("No near-duplicates", h("p", {}, this.app.health.rows === 0
        ? "This index is empty." : "No two pictures are this close. Allow more bits to differ to look further.")));
    }
  }

  failed(error) {
    if (isReported(error)) return;
    this.groups.classList.remove("waiting");
    this.status.textContent = "";
    this.moreButton.hidden = true;
    this.groups.replaceChildren(failure(error.message));
  }

  /** @param {DuplicateGroup} group @param {number} number */
  group(group, number) {
    const { length } = group.items;
    return h("section", { class: `group of-${length <= 3 ? length : "many"}`, "aria-label": `Group ${number}, ${length} pictures` },
      h("ul", { role: "list" }, group.items.map((_, index) => this.member(group, index))));
  }

  /** @param {DuplicateGroup} group @param {number} index */
  member(group, index) {
    const item = group.items[index];
    const { bits } = this.app.health;
    const kept = item.key === group.keep;
    const box = h("input", { type: "checkbox", "data-key": item.key, "aria-label": `Tick ${item.key}`, checked: this.ticked.has(item.key),
      onchange: () => { this.tick(group, item, box.checked); this.showTicks(); } });
    const size = [item.width && `${item.width} × ${item.height}`, typeof item.bytes === "number" && bytesText(item.bytes)].filter(Boolean);
    const suggested = group.items.find(({ key }) => key === group.keep) ?? item;
    const open = () => openDetail({ items: group.items, index, bits, reference: { code: suggested.code ?? "", name: "The suggested one's code" } });
    return h("li", { class: kept ? "member kept" : "member" },
      button([thumbnail(item, bits)], open, { class: "frame", "aria-label": `Details of ${altText(item)}` }),
      h("label", { class: "member-words" }, box, h("span", { class: "name", title: item.key }, shortName(item.key))),
      h("p", { class: "muted small-text" }, item.folder ? h("span", { class: "name" }, item.folder) : null,
        size.length ? h("span", {}, size.join(" · ")) : null, kept ? null : h("span", {}, distanceText(item.distance ?? 0))),
      kept ? h("span", { class: "badge" }, "keep") : null);
  }

  /** @param {DuplicateGroup} group @param {Item} item @param {boolean} on */
  tick(group, item, on) {
    const { key, path, distance, width, height, bytes } = item;
    if (on) this.ticked.set(key, { key, path, keep: group.keep, distance, width, height, bytes });
    else this.ticked.delete(key);
  }

  tickAll() {
    for (const group of this.shown) {
      for (const item of group.items) if (item.key !== group.keep) this.tick(group, item, true);
    }
    this.showTicks();
  }

  showTicks() {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (this.groups.querySelectorAll("input[type=checkbox]"));
    for (const box of boxes) box.checked = this.ticked.has(box.dataset.key ?? "");
    this.bar.hidden = this.ticked.size === 0;
    this.count.textContent = `${this.ticked.size.toLocaleString()} ticked`;
  }
}
