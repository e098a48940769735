// Numbers, dates and places as people write them.

const UNITS = ["B", "kB", "MB", "GB"];

/** "812 kB". @param {number} bytes */
export function bytesText(bytes) {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 && power ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

/** "3,024 × 4,032 · 12.2 megapixels". @param {number} width @param {number} height */
export function sizeText(width, height) {
  const mega = (width * height) / 1e6;
  return `${width.toLocaleString()} × ${height.toLocaleString()}${mega >= 0.95 ? ` · ${mega.toFixed(mega < 10 ? 1 : 0)} megapixels` : " pixels"}`;
}

/** "Friday, 3 May 2024 at 10:22" of a date without a time zone. @param {string} iso */
export function dateText(iso) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : date.toLocaleString([], { dateStyle: "full", timeStyle: "short" });
}

/** "May 2024" of "2024-05"; "2024" of "2024". @param {string} month */
export function monthText(month) {
  const [year, number] = month.split("-").map(Number);
  return number ? new Date(year, number - 1, 1).toLocaleDateString([], { month: "long", year: "numeric" }) : String(year);
}

/** "48.8584° N, 2.2945° E". @param {[number, number]} place */
export function placeText([latitude, longitude]) {
  const angle = (value, positive, negative) => `${Math.abs(value).toFixed(4)}° ${value < 0 ? negative : positive}`;
  return `${angle(latitude, "N", "S")}, ${angle(longitude, "E", "W")}`;
}
