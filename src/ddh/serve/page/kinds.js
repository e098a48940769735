// How duplicates differ, in words.

import { bytesText } from "./words.js";

const KINDS = {
  keep: "Keep",
  identical: "Identical",
  "same-pixels": "Same pixels",
  resized: "Resized",
  recompressed: "Recompressed",
  adjusted: "Adjusted colours",
  turned: "Turned",
  mirrored: "Mirrored",
  cropped: "Cropped",
  overlaid: "Overlaid",
  similar: "Alike",
  duplicate: "Duplicate",
};

/** @param {string} kind */
export const kindText = (kind) => KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind;

/** "1,600 × 1,200 · 812 kB", as far as it is known. @param {Item} item */
export const sizeText = ({ width, height, bytes }) => [
  width && height ? `${width.toLocaleString()} × ${height.toLocaleString()}` : null,
  typeof bytes === "number" ? bytesText(bytes) : null,
].filter(Boolean).join(" · ");
