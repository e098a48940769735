// Tables that leave the page: CSV and JSON as files to download.

import { h } from "./dom.js";

/** A cell of a CSV file; a text that a spreadsheet would run as a formula gets an apostrophe. @param {unknown} value */
function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {string[]} columns @param {Record<string, unknown>[]} rows */
export const csv = (columns, rows) =>
  [columns, ...rows.map((row) => columns.map((column) => cell(row[column])))].map((line) => `${line.join(",")}\r\n`).join("");

/** Offer a file for download. @param {string} name @param {string} type @param {string} text */
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
