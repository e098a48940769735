// The dialog that adds a folder of this machine to the collection.

import { fetchJson, isReported } from "./api.js";
import { button, h, icon, iconButton } from "./dom.js";

/** Choose a folder and start to add it; started() is called once that runs. @param {() => void} started */
export function addFolder(started) {
  const list = h("ul", { class: "folder-list", role: "list", "aria-label": "Folders" });
  const path = h("input", { type: "text", id: "folder-path", autocomplete: "off", spellcheck: "false", required: true });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const up = iconButton("up", "The folder above", () => { if (parent !== null) show(parent); });
  const form = h("form", {},
    h("div", { class: "detail-head" }, h("h2", { id: "folder-title" }, "Add a folder"), iconButton("close", "Close", () => dialog.close())),
    h("p", { class: "muted" }, "Its pictures and those of the folders in it are encoded and added. Files stay where they are."),
    h("div", { class: "field" }, h("label", { for: "folder-path" }, "Folder on this machine"), h("div", { class: "path-row" }, up, path)),
    list, wrong,
    h("div", { class: "actions end" }, button(["Cancel"], () => dialog.close()), h("button", { class: "primary" }, icon("plus"), "Add this folder")));
  const dialog = h("dialog", { class: "asking add-folder", "aria-labelledby": "folder-title" }, form);
  let parent = /** @type {string | null} */ (null);

  async function show(folder) {
    try {
      const found = await fetchJson(`folders?path=${encodeURIComponent(folder)}`);
      parent = found.parent;
      up.disabled = parent === null;
      path.value = found.path;
      wrong.textContent = "";
      const inside = (name) => `${found.path.replace(/[/\\]$/, "")}/${name}`;
      list.replaceChildren(...found.folders.map((name) => h("li", {}, button([icon("folder"), h("span", { class: "way-name" }, name)], () => show(inside(name)), { class: "quiet" }))));
      if (!found.folders.length) list.append(h("li", { class: "muted" }, "No folders in here."));
      list.scrollTop = 0;
    } catch (error) {
      if (!isReported(error)) wrong.textContent = error.message;
    }
  }

  path.addEventListener("change", () => show(path.value));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await fetchJson("jobs", { json: { folder: path.value } });
      dialog.close();
      started();
    } catch (error) {
      if (!isReported(error)) wrong.textContent = error.message;
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  show("");
}
