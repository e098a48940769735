// The picture of an item; where there is none, its code is drawn instead.

import { thumbnailPath } from "./api.js";
import { BitGrid } from "./codes.js";
import { h } from "./dom.js";

/** The last part of a key, which for files is their name. @param {string} key */
export const shortName = (key) => key.split("/").pop() || key;

/** Words for those who do not see the picture. @param {Item} item */
export const altText = (item) => {
  const facts = Object.entries(item.metadata ?? {}).slice(0, 3).map(([name, value]) => `${name} ${value}`);
  return [`Picture ${item.key}`, ...facts].join(", ");
};

/**
 * A lazy thumbnail, in one of the sizes of the service: 160, 320 and 640 pixels.
 * @param {Item} item @param {number} bits
 */
export function thumbnail(item, bits, size = 320) {
  if (!item.picture) return standIn(item, bits);
  const image = h("img", {
    alt: altText(item), loading: "lazy", decoding: "async", draggable: "false",
    src: thumbnailPath(item.key, size), width: size, height: size,
  });
  image.addEventListener("load", () => image.classList.add("loaded"), { once: true });
  image.addEventListener("error", () => image.replaceWith(standIn(item, bits)), { once: true });
  return image;
}

/** @param {Item} item @param {number} bits */
export function standIn(item, bits) {
  const drawing = item.code ? new BitGrid(`No picture of ${item.key}. Its code`, { square: true }).show(item.code, bits).element : null;
  return h("span", { class: "stand-in" }, drawing);
}
