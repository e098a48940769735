// The picture of an item; where there is none, its code is drawn instead.

import { thumbnailPath } from "./api.js";
import { BitGrid } from "./codes.js";
import { h } from "./dom.js";

/** The last part of a key, which for files is their name. @param {string} key */
export const shortName = (key) => key.split("/").pop() || key;

/** The folder of a key. @param {string} key */
export const folderOf = (key) => key.split("/").slice(0, -1).join("/");

/** What stands below a picture: its name, and the folder it lies in. @param {Item} item */
export const captionOf = ({ key, folder }) => ({ name: shortName(key), folder: folder ?? folderOf(key) });

const MISSING = { gone: "file is gone", offline: "folder is not there" };

/** Why the file of an item is not there, in words; "" where it is. @param {Item} item */
export const missingText = ({ missing }) => (missing ? MISSING[missing] : "");

/** Words for those who do not see the picture. @param {Item} item */
export const altText = (item) => {
  const facts = Object.entries(item.metadata ?? {}).slice(0, 3).map(([name, value]) => `${name} ${value}`);
  return [`Picture ${item.key}`, missingText(item), ...facts].filter(Boolean).join(", ");
};

/** A thumbnail, in one of the sizes of the service: 160, 320 and 640 pixels. @param {Item} item @param {number} bits */
export const thumbnail = (item, bits, size = 320) => pictureOf(item, bits, {
  loading: "lazy", decoding: "async", draggable: "false", src: thumbnailPath(item.key, size), width: size, height: size,
  onload: ({ target }) => target.classList.add("loaded"),
});

/** An image of the item, or its code where there is none. @type {(item: Item, bits: number, attributes: Attributes) => HTMLElement} */
export function pictureOf(item, bits, attributes) {
  const code = () => h("span", { class: "stand-in" },
    item.code ? new BitGrid(`No picture of ${item.key}. Its code`, { square: true }).show(item.code, bits).element : null);
  if (!item.picture) return code();
  const image = h("img", { alt: altText(item), ...attributes, onerror: () => image.replaceWith(code()) });
  return image;
}
