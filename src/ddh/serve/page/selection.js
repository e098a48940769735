// The bar of the selected pictures, and what can be done with them: copy paths, export, tag.

import { fetchJson, isReported } from "./api.js";
import { button, copied, count, h, icon, toast } from "./dom.js";
import { csv, save } from "./files.js";
import { tagPictures } from "./tags.js";

const MANY = 5000; // pictures of a request
const COLUMNS = ["key", "path", "folder", "distance", "taken", "camera", "metadata"];

/** @param {Item} item */
function exported({ key, path, folder, distance, metadata = {} }) {
  const { taken, camera } = /** @type {Record<string, unknown>} */ (metadata);
  return { key, path, folder, distance, taken, camera, metadata };
}

export class SelectionBar {
  /** countable() is how many pictures "all" are. @param {App} app @param {() => Map<string, Item>} selected @param {{all: (progress: (fetched: number) => void) => Promise<void>, none: () => void, countable: () => number}} callbacks */
  constructor(app, selected, { all, none, countable }) {
    this.app = app;
    this.selected = selected;
    this.selectAll = all;
    this.countable = countable;
    this.all = button([], () => this.chooseAll(), { class: "quiet" });
    this.count = h("strong", { role: "status" });
    this.tag = button([icon("tag"), h("span", {}, "Tag")], () => this.tagAll());
    this.element = h("div", { class: "selection-bar", role: "region", "aria-label": "The selected pictures", hidden: true }, this.count,
      button([icon("copy"), h("span", {}, "Copy paths")], () => this.copyPaths(), { class: "primary" }), this.tag,
      button([icon("download"), "CSV"], () => this.save("csv")),
      button([icon("download"), "JSON"], () => this.save("json")),
      this.all,
      button(["Clear"], none, { class: "quiet" }));
  }

  show() {
    const { size } = this.selected();
    this.element.hidden = size === 0;
    this.tag.hidden = !this.app.health.writable;
    this.count.textContent = `${size.toLocaleString()} selected`;
    const all = this.countable();
    this.all.hidden = size >= all;
    this.all.textContent = `All ${all.toLocaleString()}`;
    this.all.setAttribute("aria-label", `Select all ${count(all, "picture")}`);
  }

  async chooseAll() {
    const all = this.countable().toLocaleString();
    try {
      await this.selectAll((fetched) => { this.count.textContent = `Selecting ${fetched.toLocaleString()} of ${all}…`; });
    } catch (error) {
      this.show();
      if (!isReported(error)) toast(error.message);
    }
  }

  /** The selected keys, in parts of a request. */
  parts() {
    const keys = [...this.selected().keys()];
    return Array.from({ length: Math.ceil(keys.length / MANY) }, (_, i) => keys.slice(i * MANY, (i + 1) * MANY));
  }

  async copyPaths() {
    try {
      const paths = /** @type {string[]} */ ([]);
      for (const keys of this.parts()) paths.push(...(await fetchJson("paths", { json: { keys } })).paths);
      toast((await copied(paths.join("\n"))) ? `${count(paths.length, "path")} copied.` : "The browser did not allow to copy.");
    } catch (error) {
      if (!isReported(error)) toast(error.message);
    }
  }

  async tagAll() {
    try {
      if (await tagPictures(this.parts())) this.app.notesChanged();
    } catch (error) {
      if (!isReported(error)) toast(error.message);
    }
  }

  /** @param {"csv" | "json"} kind */
  save(kind) {
    const rows = [...this.selected().values()].map(exported);
    if (kind === "json") save("pictures.json", "application/json", `${JSON.stringify(rows, null, 2)}\n`);
    else save("pictures.csv", "text/csv", csv(COLUMNS, rows.map((row) => ({ ...row, metadata: JSON.stringify(row.metadata) }))));
  }
}
