// The dialog of one picture: large, with its key, metadata and code, and the way to its neighbours.

import { picturePath } from "./api.js";
import { BitGrid, distanceText } from "./codes.js";
import { copyButton, h, icon, iconButton } from "./dom.js";
import { route } from "./router.js";
import { pictureOf, shortName } from "./thumbnail.js";

const dialog = h("dialog", { class: "detail", "aria-labelledby": "detail-title" });
document.body.append(dialog);
let shown = /** @type {Detail | null} */ (null);

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => { shown?.closed?.(shown.index); shown = null; dialog.replaceChildren(); });
dialog.addEventListener("keydown", ({ key }) => {
  if (key === "ArrowRight") move(1);
  else if (key === "ArrowLeft") move(-1);
});
window.addEventListener("hashchange", () => {
  if (!shown) return;
  shown.closed = null; // another view is open: the focus stays with it
  dialog.close();
});

/** Open the dialog on items[index]. @param {Detail} detail */
export function openDetail(detail) {
  shown = detail;
  draw(detail);
  if (!dialog.open) dialog.showModal();
}

function move(step) {
  if (!shown?.items[shown.index + step]) return;
  shown.index += step;
  draw(shown);
  /** @type {HTMLElement | null} */ (dialog.querySelector(step > 0 ? ".next" : ".previous"))?.focus();
}

/** @param {Detail} detail */
function draw({ items, index, bits, reference, address = ({ key }) => route("search", { key }) }) {
  const item = items[index];
  dialog.replaceChildren(
    h("div", { class: "detail-picture" }, pictureOf(item, bits, { class: "large", src: picturePath(item.key) }),
      items[index - 1] ? iconButton("left", "Previous picture", () => move(-1), "previous") : null,
      items[index + 1] ? iconButton("right", "Next picture", () => move(1), "next") : null),
    h("div", { class: "detail-facts" },
      h("header", {},
        h("h2", { id: "detail-title" }, shortName(item.key)),
        iconButton("close", "Close", () => dialog.close())),
      facts(item, reference),
      codes(item, bits, reference),
      h("div", { class: "actions" },
        h("a", { class: "button primary", href: address(item) }, icon("search"), "Search from here"),
        copyButton(item.key, "Copy the key"))));
}

/** @param {Item} item @param {Reference | null} reference */
function facts(item, reference) {
  const rows = [["Key", item.key]];
  if (item.path && item.path !== item.key) rows.push(["Path", item.path]);
  if (item.distance !== undefined && reference) rows.push(["Distance", distanceText(item.distance)]);
  if (item.width) rows.push(["Size", `${item.width} × ${item.height} pixels`]);
  for (const [name, value] of Object.entries(item.metadata ?? {})) {
    rows.push([name, typeof value === "object" ? JSON.stringify(value) : String(value)]);
  }
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** @param {Item} item @param {number} bits @param {Reference | null} reference */
function codes({ code }, bits, reference) {
  const compared = [...(reference && reference.code !== code ? [reference] : []), { code: code ?? "", name: "Its code" }];
  return h("div", { class: "codes" }, compared.map(({ code: hex, name }, i) => {
    const grid = new BitGrid(name).show(hex, bits);
    if (compared.length === 2) grid.compare(compared[1 - i].code);
    return h("figure", {}, h("figcaption", {}, name), grid.element, h("code", { class: "hex" }, hex));
  }));
}
