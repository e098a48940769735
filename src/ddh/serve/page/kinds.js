// How duplicates differ, in words.

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
const UNITS = ["B", "kB", "MB", "GB"];

/** @param {string} kind */
export const kindText = (kind) => KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind;

/** "812 kB". @param {number} bytes */
export function bytesText(bytes) {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 && power ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

/** "1,600 × 1,200 · 812 kB", as far as it is known. @param {Item} item */
export const sizeText = ({ width, height, bytes }) => [
  width && height ? `${width.toLocaleString()} × ${height.toLocaleString()}` : null,
  typeof bytes === "number" ? bytesText(bytes) : null,
].filter(Boolean).join(" · ");
