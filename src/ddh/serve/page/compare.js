// The dialog that compares a picture with the one that is kept: side by side, or one over the other.

import { picturePath } from "./api.js";
import { button, h, iconButton } from "./dom.js";
import { kindText, sizeText } from "./kinds.js";
import { pictureOf, shortName } from "./thumbnail.js";

const TURNING = ["turned", "mirrored"];
const SAMPLE = 32; // pixels a side, to find out how a picture was turned
const LONGEST = 1600; // pixels of a drawn side
const START = 50; // percent of the overlay

// The eight turns and mirrorings of the unit square, as matrices of a canvas.
const TURNS = [
  [1, 0, 0, 1, 0, 0], [-1, 0, 0, 1, 1, 0], [-1, 0, 0, -1, 1, 1], [1, 0, 0, -1, 0, 1],
  [0, 1, -1, 0, 1, 0], [0, -1, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0], [0, -1, -1, 0, 1, 1],
];

const dialog = h("dialog", { class: "compare", "aria-labelledby": "compare-title" });
document.body.append(dialog);
let shown = /** @type {Comparison | null} */ (null);
let overlay = false; // stays as the reader has chosen it

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => { shown = null; dialog.replaceChildren(); });
window.addEventListener("hashchange", () => dialog.close());

/** Compare group.items[index] with the kept picture. @param {Comparison} comparison */
export function openCompare(comparison) {
  shown = comparison;
  draw(comparison);
  if (!dialog.open) dialog.showModal();
}

/** @param {number} step @param {string} selector of the button that gets the focus */
function move(step, selector) {
  if (!shown) return;
  const { group } = shown;
  const others = group.items.map((_, i) => i).filter((i) => group.items[i].key !== group.keep);
  const next = others[others.indexOf(shown.index) + step];
  if (next === undefined) return;
  shown.index = next;
  draw(shown);
  /** @type {HTMLElement | null} */ (dialog.querySelector(selector) ?? dialog.querySelector("button"))?.focus();
}

/** @param {Comparison} comparison */
function draw(comparison) {
  const { group, index, bits, writable, ticked, changed } = comparison;
  const item = group.items[index];
  const kept = group.items.find(({ key }) => key === group.keep) ?? group.items[0];
  const similar = item.kind === "similar";
  const others = group.items.filter(({ key }) => key !== kept.key);
  const place = others.indexOf(item);
  const room = h("div", { class: "compare-room", tabindex: 0, role: "group", "aria-label": "The two pictures" }); // it scrolls on phones
  const modes = [false, true].map((over) => button([over ? "Overlay" : "Side by side"], () => {
    overlay = over;
    showMode();
  }, { class: "small" }));
  function showMode() {
    modes.forEach((mode, i) => mode.setAttribute("aria-pressed", String(Boolean(i) === overlay)));
    room.replaceChildren(overlay ? overlaid(kept, item) : sideBySide(kept, item, bits));
  }
  showMode();
  const box = h("input", { type: "checkbox", checked: ticked(item), onchange: () => changed("tick", item) });
  const act = (what) => () => { dialog.close(); changed(what, item); }; // what changes has the focus then
  dialog.replaceChildren(
    h("header", {},
      h("h2", { id: "compare-title" }, similar ? "Alike, but not the same" : kindText(item.kind === "keep" ? "duplicate" : item.kind)),
      others.length > 1 ? h("span", { class: "muted wide" }, `${place + 1} of ${others.length}`) : null,
      h("div", { class: "modes", role: "group", "aria-label": "How they are shown" }, modes),
      others.length > 1 ? h("div", { class: "steps" },
        iconButton("left", "Previous picture", () => move(-1, ".to-previous"), "to-previous"),
        iconButton("right", "Next picture", () => move(1, ".to-next"), "to-next")) : null,
      iconButton("close", "Close", () => dialog.close())),
    room,
    h("footer", {}, similar ? h("p", { class: "muted" }, "Pictures that are only alike are never proposed for removal.") : [
      h("label", { class: "ticking" }, box, h("span", {}, "The second may go")),
      button(["Keep the second"], act("keep")),
      writable ? button(["Not duplicates"], act("dismiss")) : null]));
}

/** @param {DuplicateItem} kept @param {DuplicateItem} item @param {number} bits */
const sideBySide = (kept, item, bits) => h("div", { class: "side-by-side" }, [kept, item].map((each, i) =>
  h("figure", {}, pictureOf(each, bits, { src: picturePath(each.key), class: "large" }), caption(each, i === 0 && item.kind !== "similar"))));

/** @param {DuplicateItem} item @param {boolean} kept */
const caption = (item, kept) => h("figcaption", {},
  h("strong", {}, `${kept ? "Kept: " : ""}${shortName(item.key)}`), h("span", {}, [item.folder, sizeText(item)].filter(Boolean).join(" · ")));

/** Both pictures at the same place; a slider says how much of each is seen. @param {DuplicateItem} kept @param {DuplicateItem} item */
function overlaid(kept, item) {
  const [below, above] = [h("canvas", { role: "img", "aria-label": `Kept: ${kept.key}` }), h("canvas", { role: "img", "aria-label": item.key })];
  const slider = h("input", { type: "range", min: 0, max: 100, value: START, id: "compare-slider" });
  const stack = h("div", { class: "stack" }, below, above, h("span", { class: "seam", "aria-hidden": "true" }));
  const show = () => {
    stack.style.setProperty("--at", `${slider.value}%`);
    slider.setAttribute("aria-valuetext", `${slider.value} percent of the kept picture`);
  };
  slider.addEventListener("input", show);
  show();
  const trouble = h("p", { class: "muted", role: "status" });
  Promise.all([kept, item].map(({ key }) => loaded(picturePath(key)))).then(([first, second]) => {
    stack.style.aspectRatio = `${first.naturalWidth} / ${first.naturalHeight}`;
    paint(below, above, first, second, [kept, item].some(({ kind }) => TURNING.includes(kind)));
  }).catch(() => { trouble.textContent = "One of the pictures cannot be shown."; });
  return h("div", { class: "overlay" }, stack, trouble,
    h("label", { for: "compare-slider" }, h("span", {}, `Kept: ${shortName(kept.key)}`), h("span", {}, shortName(item.key))), slider);
}

/** @param {string} src @returns {Promise<HTMLImageElement>} */
async function loaded(src) {
  const image = new Image();
  image.src = src;
  await image.decode();
  return image;
}

/**
 * Draw both pictures as large as the first one; the second as it was before it was turned.
 * @param {HTMLCanvasElement} below @param {HTMLCanvasElement} above
 * @param {HTMLImageElement} first @param {HTMLImageElement} second @param {boolean} turned
 */
function paint(below, above, first, second, turned) {
  const scale = Math.min(1, LONGEST / Math.max(first.naturalWidth, first.naturalHeight));
  const turn = turned ? findTurn(first, second) : TURNS[0];
  for (const [canvas, image, matrix] of /** @type {[HTMLCanvasElement, HTMLImageElement, number[]][]} */ ([[below, first, TURNS[0]], [above, second, turn]])) {
    canvas.width = Math.round(first.naturalWidth * scale);
    canvas.height = Math.round(first.naturalHeight * scale);
    drawTurned(canvas, image, matrix);
  }
}

/** @param {HTMLCanvasElement} canvas @param {HTMLImageElement} image @param {number[]} matrix */
function drawTurned(canvas, image, [a, b, c, d, e, f]) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: canvas.width === SAMPLE }));
  const { width, height } = canvas;
  context.setTransform(a * width, b * height, c * width, d * height, e * width, f * height);
  context.drawImage(image, 0, 0, 1, 1);
  return context;
}

/** The turn that makes the second picture most like the first. @param {HTMLImageElement} first @param {HTMLImageElement} second */
function findTurn(first, second) {
  const canvas = h("canvas", { width: SAMPLE, height: SAMPLE });
  const pixels = (image, matrix) => drawTurned(canvas, image, matrix).getImageData(0, 0, SAMPLE, SAMPLE).data;
  const target = pixels(first, TURNS[0]);
  const errors = TURNS.map((turn) => pixels(second, turn).reduce((sum, value, i) => sum + (value - target[i]) ** 2, 0));
  return TURNS[errors.indexOf(Math.min(...errors))];
}
