// Ways into the collection: its folders as a tree, its tags, and the searches that were saved.

import { h, icon, iconButton } from "./dom.js";
import { route } from "./router.js";

/** Folders as a tree; facets name every folder with the pictures below it. @param {Facets["folders"]} folders @returns {FolderNode[]} */
export function treeOf(folders) {
  const roots = /** @type {FolderNode[]} */ ([]);
  const known = /** @type {Map<string, FolderNode>} */ (new Map());
  for (const { name, rows } of folders) {
    if (!name) continue;
    const cut = name.lastIndexOf("/");
    const node = { name, label: name.slice(cut + 1), rows, children: [] };
    known.set(name, node);
    (known.get(name.slice(0, Math.max(0, cut)))?.children ?? roots).push(node);
  }
  return roots;
}

/** Whether a folder is another one or lies in it. @param {string} folder @param {string} other */
const isBelow = (folder, other) => `${folder}/`.startsWith(`${other}/`);

export class Ways {
  /** @param {{keep: () => Record<string, any>, forget: (name: string) => void}} callbacks keep gives the parameters that stay when a folder is chosen */
  constructor({ keep, forget }) {
    this.keep = keep;
    this.forget = forget;
    this.open = /** @type {Set<string>} */ (new Set()); // folders whose children are shown
    this.roots = /** @type {FolderNode[]} */ ([]);
    this.rows = 0;
    this.parameters = /** @type {ViewParameters} */ ({});
    this.tags = /** @type {{name: string, rows: number}[]} */ ([]);
    this.searches = /** @type {{name: string, address: string}[]} */ ([]);
    this.writable = false;
    this.folders = h("nav", { class: "way folders", "aria-label": "Folders" });
    this.tagged = h("nav", { class: "way", "aria-label": "Tags" });
    this.saved = h("nav", { class: "way", "aria-label": "Saved searches" });
    this.element = h("div", { class: "ways" }, this.saved, this.folders, this.tagged);
  }

  /** @param {Facets} facets @param {number} rows */
  offerFolders({ folders }, rows) {
    this.roots = treeOf(folders);
    this.rows = rows;
    this.draw();
  }

  /** @param {Ways["tags"]} tags @param {Ways["searches"]} searches @param {boolean} writable */
  offerNotes(tags, searches, writable) {
    Object.assign(this, { tags, searches, writable });
    this.draw();
  }

  /** @param {ViewParameters} parameters */
  show(parameters) {
    this.parameters = parameters;
    const { folder } = parameters;
    if (folder) for (let at = folder.indexOf("/"); at > 0; at = folder.indexOf("/", at + 1)) this.open.add(folder.slice(0, at));
    this.draw();
  }

  draw() {
    const { folder, q } = this.parameters;
    const head = (text) => h("h2", { class: "way-head" }, text);
    const all = this.link("All pictures", this.rows, { folder: null }, !folder && !q, "picture");
    this.folders.replaceChildren(...(this.roots.length ? [head("Folders"), h("ul", { role: "list" }, h("li", {}, h("div", { class: "way-row" }, all)), this.branch(this.roots))] : []));
    this.tagged.replaceChildren(...(this.tags.length ? [head("Tags"), h("ul", { class: "chips", role: "list" }, this.tags.map(({ name, rows }) =>
      h("li", { class: "chip" }, h("a", { href: route("search", { q: `#${name}` }), "aria-current": q === `#${name}` ? "true" : null },
        `#${name} `, h("span", { class: "muted" }, rows.toLocaleString())))))] : []));
    this.saved.replaceChildren(...(this.searches.length ? [head("Saved searches"), h("ul", { role: "list" }, this.searches.map(({ name, address }) =>
      h("li", {}, h("div", { class: "way-row" },
        h("a", { class: "way-link", href: address, "aria-current": address === location.hash ? "true" : null }, icon("star"), h("span", { class: "way-name" }, name)),
        this.writable ? iconButton("close", `Delete the search ${name}`, () => this.forget(name)) : null))))] : []));
  }

  /** @type {(label: string, rows: number, parameters: object, current: boolean, picture: "folder" | "picture") => HTMLElement} */
  link(label, rows, parameters, current, picture = "folder") {
    return h("a", { class: "way-link", href: route("search", { ...this.keep(), ...parameters }), "aria-current": current ? "true" : null, title: label },
      icon(picture), h("span", { class: "way-name" }, label), h("span", { class: "muted" }, rows.toLocaleString()));
  }

  /** @param {FolderNode[]} nodes @returns {HTMLElement[]} */
  branch(nodes) {
    const { folder = "" } = this.parameters;
    return nodes.map((node) => {
      const expanded = this.open.has(node.name);
      const toggle = () => {
        if (!this.open.delete(node.name)) this.open.add(node.name);
        this.draw();
        /** @type {HTMLElement | null} */ (this.folders.querySelector(`[data-folder="${CSS.escape(node.name)}"]`))?.focus();
      };
      return h("li", {}, h("div", { class: "way-row" },
        node.children.length
          ? h("button", { type: "button", class: "quiet twist", "aria-expanded": String(expanded), "aria-label": `Folders in ${node.name}`, "data-folder": node.name, onclick: toggle }, icon("right"))
          : null,
        this.link(node.label, node.rows, { folder: node.name }, folder === node.name || (!expanded && isBelow(folder, node.name)), "folder")),
      expanded ? h("ul", { role: "list" }, this.branch(node.children)) : null);
    });
  }
}
