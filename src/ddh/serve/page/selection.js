// The bar of the selected pictures, and what can be done with them: copy paths, export, tag.

import { fetchJson, isReported } from "./api.js";
import { button, copied, count, h, icon, toast } from "./dom.js";
import { csv, save } from "./files.js";
import { tagPictures } from "./tags.js";

const COLUMNS = ["key", "path", "folder", "distance", "taken", "camera", "metadata"];

/** @param {Item} item */
function exported({ key, path, folder, distance, metadata = {} }) {
  const { taken, camera } = /** @type {Record<string, unknown>} */ (metadata);
  return { key, path, folder, distance, taken, camera, metadata };
}

export class SelectionBar {
  /** @param {App} app @param {() => Map<string, Item>} selected @param {{all: () => void, none: () => void}} callbacks */
  constructor(app, selected, { all, none }) {
    this.app = app;
    this.selected = selected;
    this.count = h("strong", { role: "status" });
    this.tag = button([icon("tag"), h("span", {}, "Tag")], () => this.tagAll());
    this.element = h("div", { class: "selection-bar", role: "region", "aria-label": "The selected pictures", hidden: true }, this.count,
      button([icon("copy"), h("span", {}, "Copy paths")], () => this.copyPaths(), { class: "primary" }), this.tag,
      button([icon("download"), "CSV"], () => this.save("csv")),
      button([icon("download"), "JSON"], () => this.save("json")),
      button(["All shown"], all, { class: "quiet wide" }),
      button(["Clear"], none, { class: "quiet" }));
  }

  show() {
    const { size } = this.selected();
    this.element.hidden = size === 0;
    this.tag.hidden = !this.app.health.writable;
    this.count.textContent = `${size.toLocaleString()} selected`;
  }

  async copyPaths() {
    try {
      const { paths } = await fetchJson("paths", { json: { keys: [...this.selected().keys()] } });
      toast((await copied(paths.join("\n"))) ? `${count(paths.length, "path")} copied.` : "The browser did not allow to copy.");
    } catch (error) {
      if (!isReported(error)) toast(error.message);
    }
  }

  async tagAll() {
    try {
      if (await tagPictures([...this.selected().keys()])) this.app.notesChanged();
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
