// The panel of one picture: large, with its key, metadata and code, and the way to its neighbours.

import { picturePath } from "./api.js";
import { BitGrid, distanceText } from "./codes.js";
import { copyButton, h, icon, iconButton } from "./dom.js";
import { route } from "./router.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";

const dialog = h("dialog", { class: "detail", "aria-labelledby": "detail-title" });
document.body.append(dialog);
let shown = null;

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => { shown?.closed?.(shown.index); shown = null; dialog.replaceChildren(); });
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) move(step);
});
window.addEventListener("hashchange", () => {
  if (!dialog.open) return;
  shown.closed = null; // another view is open: the focus stays with it
  dialog.close();
});

const searchFrom = (item) => route("search", { key: item.key });

/**
 * Open the panel on items[index]. reference: {code, name} that codes are compared with, or null;
 * address(item) is where "search from here" leads; closed(index) is told what was shown last.
 */
export function openDetail({ items, index, bits, reference = null, address = searchFrom, closed = null }) {
  shown = { items, index, bits, reference, address, closed };
  draw();
  if (!dialog.open) dialog.showModal();
}

function move(step) {
  const index = shown.index + step;
  if (!shown.items[index]) return;
  shown.index = index;
  draw();
  dialog.querySelector(step > 0 ? ".next" : ".previous")?.focus();
}

function draw() {
  const { items, index, bits, reference, address } = shown;
  const item = items[index];
  dialog.replaceChildren(
    h("div", { class: "detail-picture" }, large(item, bits),
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

function large(item, bits) {
  if (!item.picture) return thumbnail(item, bits);
  const image = h("img", { class: "large", src: picturePath(item.key), alt: altText(item) });
  image.addEventListener("error", () => image.replaceWith(thumbnail({ ...item, picture: false }, bits)), { once: true });
  return image;
}

function facts(item, reference) {
  const rows = [["Key", item.key]];
  if (item.path && item.path !== item.key) rows.push(["Path", item.path]);
  if (Number.isInteger(item.distance) && reference) rows.push(["Distance", distanceText(item.distance)]);
  if (item.width) rows.push(["Size", `${item.width} × ${item.height} pixels`]);
  for (const [name, value] of Object.entries(item.metadata ?? {})) {
    rows.push([name, typeof value === "object" ? JSON.stringify(value) : String(value)]);
  }
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function codes(item, bits, reference) {
  const own = new BitGrid("Its code").show(item.code, bits);
  const figures = [figure("Its code", own, item.code)];
  if (reference && reference.code !== item.code) {
    const other = new BitGrid(reference.name).show(reference.code, bits).compare(item.code);
    own.compare(reference.code);
    figures.unshift(figure(reference.name, other, reference.code));
  }
  return h("div", { class: "codes" }, figures);
}

const figure = (name, grid, hex) =>
  h("figure", {}, h("figcaption", {}, name), grid.element, h("code", { class: "hex" }, hex));
