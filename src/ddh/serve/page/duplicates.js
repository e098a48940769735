// Near-duplicates side by side, with a list of the ticked to export. Nothing is ever deleted here.

import { ask, isTold, queryString } from "./api.js";
import { distanceText } from "./codes.js";
import { openDetail } from "./detail.js";
import { h, icon, notice } from "./dom.js";
import { go } from "./router.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";

const PAGE = 20;
const DEFAULT_RADIUS = 2;
const PAUSE = 200; // ms: the slider asks once it rests
const UNITS = ["B", "kB", "MB", "GB"];

/** "812 kB". */
function bytesText(bytes) {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 && power ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

const cell = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** Rows as CSV; a text that a spreadsheet would run as a formula gets an apostrophe. */
export function csv(rows, columns) {
  const safe = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? ""));
  return [columns, ...rows.map((row) => columns.map((column) => cell(safe(row[column]))))]
    .map((line) => line.join(",")).join("\r\n").concat("\r\n");
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export class DuplicatesView {
  constructor(app) {
    this.app = app;
    this.ticked = new Map(); // key -> row of the export; kept while the page is open
    this.slider = h("input", { type: "range", id: "duplicates-radius", min: "0", step: "1", max: String(Math.max(1, Math.floor(app.health.bits / 4))) });
    this.said = h("output", { for: "duplicates-radius" });
    this.status = h("p", { class: "status", role: "status" });
    this.groups = h("div", { class: "groups" });
    this.moreButton = h("button", { type: "button", hidden: true, onclick: () => this.more() }, "More groups");
    this.buildBar();
    this.element = h("div", { class: "view duplicates" },
      h("header", { class: "view-head" }, h("h1", {}, "Near-duplicates"), this.status),
      h("div", { class: "tools" },
        h("div", { class: "field radius" },
          h("div", { class: "field-head" }, h("label", { for: "duplicates-radius" }, "Together when at most"), this.said), this.slider),
        h("button", { type: "button", onclick: () => this.tickAll() }, icon("check"), "Tick all but the suggested"),
        this.all = h("a", { class: "button", download: "" }, icon("download"), "Every group as CSV")),
      this.groups, h("p", { class: "more" }, this.moreButton), this.bar);
    this.slider.addEventListener("input", () => {
      this.say();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => go("duplicates", { radius: this.slider.value }, { replace: true }), PAUSE);
    });
    this.watcher = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this.more(), { rootMargin: "600px" });
  }

  buildBar() {
    this.count = h("strong", { role: "status" });
    this.bar = h("div", { class: "tick-bar", role: "region", "aria-label": "The ticked pictures", hidden: true }, this.count,
      h("button", { type: "button", class: "primary", onclick: () => this.export("csv") }, icon("download"), "CSV"),
      h("button", { type: "button", onclick: () => this.export("json") }, icon("download"), "JSON"),
      h("button", { type: "button", class: "quiet", onclick: () => this.clear() }, "Clear"));
  }

  say() {
    const radius = Number(this.slider.value);
    this.said.textContent = radius === 0 ? "no bit differs" : distanceText(radius);
    this.slider.setAttribute("aria-valuetext", this.said.textContent);
  }

  show(parameters) {
    this.app.setTitle("Near-duplicates");
    const radius = Number.parseInt(parameters.radius, 10);
    this.slider.value = String(radius >= 0 ? radius : DEFAULT_RADIUS);
    this.radius = Number(this.slider.value);
    this.say();
    this.all.href = `duplicates.csv${queryString({ radius: this.radius })}`;
    this.shown = [];
    this.offset = 0;
    this.asking?.abort();
    this.asking = null;
    this.groups.classList.add("waiting");
    this.status.textContent = "Looking for groups…";
    this.watcher.disconnect();
    this.more();
  }

  hide() {
    this.asking?.abort();
    this.watcher.disconnect();
  }

  async more() {
    if (this.asking || this.offset === null) return;
    const asking = (this.asking = new AbortController());
    try {
      const answer = await ask(`duplicates${queryString({ radius: this.radius, offset: this.offset, limit: PAGE })}`, { signal: asking.signal });
      this.arrived(answer);
    } catch (error) {
      if (!isTold(error)) this.fail(error);
    } finally {
      if (this.asking === asking) this.asking = null;
    }
  }

  arrived({ groups, total, more }) {
    if (this.offset === 0) this.groups.replaceChildren();
    this.groups.classList.remove("waiting");
    this.offset = more ? this.offset + groups.length : null;
    this.shown.push(...groups);
    this.groups.append(...groups.map((group) => this.group(group)));
    this.status.textContent = `${total.toLocaleString()} group${total === 1 ? "" : "s"}`;
    this.moreButton.hidden = !more;
    this.watcher.disconnect();
    if (more) this.watcher.observe(this.moreButton);
    if (this.shown.length === 0) {
      this.groups.append(notice("No near-duplicates", h("p", {}, this.app.health.rows === 0
        ? "This index is empty." : "No two pictures are this close. Allow more bits to differ to look further.")));
    }
  }

  fail(error) {
    this.offset = null;
    this.groups.classList.remove("waiting");
    this.status.textContent = "";
    this.moreButton.hidden = true;
    this.groups.replaceChildren(notice("That did not work", h("p", {}, error.message)));
  }

  group(group) {
    const number = this.shown.indexOf(group) + 1;
    return h("section", { class: `group of-${group.items.length <= 3 ? group.items.length : "many"}`, "aria-label": `Group ${number}, ${group.items.length} pictures` },
      h("ul", { role: "list" }, group.items.map((item, index) => this.member(group, item, index))));
  }

  member(group, item, index) {
    const kept = item.key === group.keep;
    const box = h("input", { type: "checkbox", "data-key": item.key, "aria-label": `Tick ${item.key}` });
    box.checked = this.ticked.has(item.key);
    box.addEventListener("change", () => this.tick(group, item, box.checked));
    const size = [item.width && `${item.width} × ${item.height}`, item.bytes !== null && item.bytes !== undefined && bytesText(item.bytes)].filter(Boolean);
    const open = () => openDetail({ items: group.items, index, bits: this.app.health.bits,
      reference: { code: group.items.find(({ key }) => key === group.keep)?.code ?? item.code, name: "The suggested one's code" } });
    return h("li", { class: kept ? "member kept" : "member" },
      h("button", { type: "button", class: "frame", "aria-label": `Details of ${altText(item)}`, onclick: open }, thumbnail(item, this.app.health.bits)),
      h("label", { class: "member-words" }, box, h("span", { class: "name", title: item.key }, shortName(item.key))),
      h("p", { class: "muted small-text" }, item.folder ? h("span", { class: "name" }, item.folder) : null,
        size.length ? h("span", {}, size.join(" · ")) : null, kept ? null : h("span", {}, distanceText(item.distance))),
      kept ? h("span", { class: "badge" }, "keep") : null);
  }

  tick(group, item, on) {
    if (on) {
      this.ticked.set(item.key, { key: item.key, path: item.path, keep: group.keep, distance: item.distance,
        width: item.width, height: item.height, bytes: item.bytes });
    } else {
      this.ticked.delete(item.key);
    }
    this.showBar();
  }

  tickAll() {
    for (const group of this.shown) {
      for (const item of group.items) if (item.key !== group.keep) this.tick(group, item, true);
    }
    this.showTicks();
  }

  clear() {
    this.ticked.clear();
    this.showTicks();
    this.showBar();
  }

  showTicks() {
    for (const box of this.groups.querySelectorAll("input[type=checkbox]")) box.checked = this.ticked.has(box.dataset.key);
  }

  showBar() {
    this.bar.hidden = this.ticked.size === 0;
    this.count.textContent = `${this.ticked.size.toLocaleString()} ticked`;
  }

  export(form) {
    const rows = [...this.ticked.values()];
    if (form === "json") save("duplicates.json", "application/json", `${JSON.stringify(rows, null, 2)}\n`);
    else save("duplicates.csv", "text/csv", csv(rows, ["key", "path", "keep", "distance", "width", "height", "bytes"]));
  }
}
