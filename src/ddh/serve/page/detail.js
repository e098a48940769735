// The dialog of one picture: large, to be zoomed, with what its file, its camera and its code say.

import { fetchJson, isReported, picturePath } from "./api.js";
import { BitGrid, distanceText } from "./codes.js";
import { button, copyButton, h, icon, iconButton, toast } from "./dom.js";
import { route } from "./router.js";
import { changeTags, tagPictures } from "./tags.js";
import { captionOf, pictureOf } from "./thumbnail.js";
import { bytesText, dateText, placeText, sizeText } from "./words.js";
import { Zoomable } from "./zoomable.js";

const TYPING = "input, textarea, select";
const SHOWN_ELSEWHERE = new Set(["taken", "camera", "latitude", "longitude"]);

const dialog = h("dialog", { class: "detail", "aria-labelledby": "detail-title" });
document.body.append(dialog);
let app = /** @type {App | null} */ (null);
let shown = /** @type {Detail | null} */ (null);
const viewer = new Zoomable(); // stays while one goes on to the next picture, so that the full screen does, too
const facts = h("div", { class: "detail-facts" });
dialog.append(viewer.element, facts);

/** What the dialog may offer depends on the service. @param {App} own */
export const useApp = (own) => { app = own; };

dialog.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const leads = target.closest("a")?.getAttribute("href");
  if (target === dialog || leads === location.hash) dialog.close(); // what the link leads to is behind the dialog
});
dialog.addEventListener("close", () => {
  if (document.fullscreenElement) document.exitFullscreen();
  shown?.closed?.(shown.index);
  shown = null;
  viewer.element.replaceChildren();
  facts.replaceChildren();
});
dialog.addEventListener("keydown", (event) => {
  if (/** @type {Element} */ (event.target).matches(TYPING) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowRight") move(1);
  else if (event.key === "ArrowLeft") move(-1);
  else if (viewer.key(event.key)) event.preventDefault();
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

async function move(step) {
  const detail = shown;
  if (!detail) return;
  const next = detail.index + step;
  const item = detail.items[next] ?? await detail.at?.(next);
  if (!item || shown !== detail) return;
  detail.index = next;
  draw(detail);
  /** @type {HTMLElement | null} */ (dialog.querySelector(step > 0 ? ".next" : ".previous"))?.focus();
}

/** @param {Detail} detail */
function draw(detail) {
  const { items, index, bits, reference, address = ({ key }) => route("search", { key }), total = items.length } = detail;
  const item = items[index];
  const { name } = captionOf(item);
  viewer.show(pictureOf(item, bits, { class: "large", src: picturePath(item.key), draggable: "false" }),
    index > 0 ? iconButton("left", "Previous picture", () => move(-1), "previous") : null,
    index + 1 < total ? iconButton("right", "Next picture", () => move(1), "next") : null);
  const list = h("dl", { class: "facts" });
  const tags = h("div", { class: "chips", role: "group", "aria-label": "Tags" });
  fillFacts(list, item, reference, null);
  facts.replaceChildren(
    h("div", { class: "detail-head" }, h("h2", { id: "detail-title" }, name), iconButton("close", "Close", () => dialog.close())),
    list, tags,
    h("div", { class: "actions" },
      h("a", { class: "button primary", href: address(item) }, icon("search"), "Search from here"), fileActions(item)),
    codes(item, bits, reference));
  complete(item, reference, list, tags);
}

/** Add what the file says, which takes a moment. @param {Item} item @param {Reference | null} reference @param {HTMLElement} list @param {HTMLElement} tags */
async function complete(item, reference, list, tags) {
  try {
    const about = /** @type {PictureDetails} */ (await fetchJson(`details/${encodeURIComponent(item.key)}`));
    if (!list.isConnected) return;
    fillFacts(list, item, reference, about);
    drawTags(item, about.tags, tags);
    if (about.file) dialog.querySelector(".file-actions")?.append(copyButton(about.file, "Copy the path"));
  } catch (error) {
    if (!isReported(error) && error.status !== 404) console.error(error); // the picture itself is there
  }
}

/** @param {HTMLElement} list @param {Item} item @param {Reference | null} reference @param {PictureDetails | null} about */
function fillFacts(list, item, reference, about) {
  const { folder } = captionOf(item);
  const { width = item.width, height = item.height, bytes = item.bytes } = about ?? {};
  const rows = /** @type {[string, Child][]} */ ([]);
  const add = (label, value) => { if (value !== null && value !== undefined && value !== "" && value !== false) rows.push([label, value]); };
  if (item.distance !== undefined && reference) add("Distance", distanceText(item.distance));
  add("Taken", about?.taken && dateText(about.taken));
  add("Camera", about?.camera);
  add("Lens", about?.lens);
  add("Exposure", about?.exposure);
  add("Place", about?.place && h("a", { href: `geo:${about.place.join(",")}` }, placeText(about.place)));
  add("Pixels", width && height && sizeText(width, height));
  add("File", bytes && bytesText(bytes));
  add("Changed", about?.modified && !about.taken && dateText(about.modified));
  for (const [name, value] of Object.entries(item.metadata ?? {})) {
    if (!SHOWN_ELSEWHERE.has(name)) add(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  add("Folder", folder && h("a", { href: route("search", { folder }) }, folder));
  if (about?.file) add("Path", h("span", { class: "path" }, about.file));
  else if (item.path && item.path !== item.key) add("Path", item.path);
  add("Key", item.key);
  list.replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** @param {Item} item @param {string[]} names @param {HTMLElement} room */
function drawTags(item, names, room) {
  const writable = app?.health.writable;
  const change = async (act) => {
    try {
      await act();
      const about = await fetchJson(`details/${encodeURIComponent(item.key)}`);
      if (room.isConnected) drawTags(item, about.tags, room);
      app?.notesChanged();
    } catch (error) {
      if (!isReported(error)) toast(error.message);
    }
  };
  room.replaceChildren(...names.map((name) => h("span", { class: "chip" }, h("a", { href: route("search", { q: `#${name}` }) }, `#${name}`),
    writable ? iconButton("close", `Remove the tag ${name}`, () => change(() => changeTags([item.key], [], [name]))) : null)),
  writable ? button([icon("tag"), "Tag"], () => change(() => tagPictures([[item.key]])), { class: "small quiet" }) : "");
}

/** What can be done with the file, where the page and the file are on one machine. @param {Item} item */
function fileActions(item) {
  const room = h("span", { class: "file-actions" });
  if (item.picture && app?.health.writable && app.health.local) {
    const act = (action, said) => async () => {
      try {
        await fetchJson(`files/${action}/${encodeURIComponent(item.key)}`, { method: "POST" });
        toast(said);
      } catch (error) {
        if (!isReported(error)) toast(error.message);
      }
    };
    room.append(button([icon("open"), "Open the original"], act("open", "Opening it in its usual program.")),
      button([icon("folder"), "Show in folder"], act("reveal", "Showing it in the file manager.")));
  }
  room.append(copyButton(item.key, "Copy the key"));
  return room;
}

/** @param {Item} item @param {number} bits @param {Reference | null} reference */
function codes({ code }, bits, reference) {
  const compared = [...(reference && reference.code !== code ? [reference] : []), { code: code ?? "", name: "Its code" }];
  return h("details", { class: "codes", open: Boolean(reference) }, h("summary", {}, compared.length === 2 ? "Codes" : "Code"),
    compared.map(({ code: hex, name }, i) => {
      const grid = new BitGrid(name).show(hex, bits);
      if (compared.length === 2) grid.compare(compared[1 - i].code);
      return h("figure", {}, h("figcaption", {}, name), grid.element, h("code", { class: "hex" }, hex));
    }));
}
