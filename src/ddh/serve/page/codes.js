// Codes as people see them: bits in a small grid, and which of them differ.

import { s } from "./dom.js";

const CELL = 10; // in units of the drawing; the style sheet decides the size on the screen

/** Bit j of packed codes: 0x80 >> (j % 8) of byte j / 8, as the index packs them. @param {Uint8Array} bytes @param {number} j */
export const bitAt = (bytes, j, start = 0) => (bytes[start + (j >> 3)] >> (7 - (j & 7))) & 1;

/** The bits of a code in hex. @param {string} hex @param {number} bits */
export function bitsOf(hex, bits) {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  return Uint8Array.from({ length: bits }, (_, j) => bitAt(bytes, j));
}

/** "same code", "1 bit differs", "7 bits differ". @param {number} distance */
export function distanceText(distance) {
  if (distance === 0) return "same code";
  return distance === 1 ? "1 bit differs" : `${distance} bits differ`;
}

/** Whether a text is a code of this index in hex. @param {string} text @param {number} bits */
export const isCode = (text, bits) => text.length === Math.ceil(bits / 8) * 2 && /^[0-9a-f]+$/i.test(text);

/** Columns of a grid that is wide and low. @param {number} bits */
const wideColumns = (bits) => (bits <= 16 ? bits : bits <= 128 ? 16 : bits <= 512 ? 32 : 64);

/** Columns of a grid that is nearly square, in steps of four. @param {number} bits */
const squareColumns = (bits) => Math.min(bits, 4 * Math.ceil(Math.sqrt(bits) / 4));

/** A code drawn as a grid of bits: filled is 1, pale is 0, ringed differs from the compared code. */
export class BitGrid {
  constructor(name, { square = false } = {}) {
    this.name = name;
    this.columns = square ? squareColumns : wideColumns;
    this.element = s("svg", { class: "bits", role: "img", "aria-label": name });
    this.cells = /** @type {SVGRectElement[]} */ ([]);
    this.values = new Uint8Array(0);
    this.hex = "";
  }

  /** Draw a code. @param {string} hex @param {number} bits */
  show(hex, bits) {
    if (this.hex === hex) return this;
    this.hex = hex;
    this.values = bitsOf(hex, bits);
    const columns = this.columns(bits);
    const rows = Math.ceil(bits / columns);
    this.element.setAttribute("viewBox", `0 0 ${columns * CELL} ${rows * CELL}`);
    this.cells = [...this.values].map((bit, j) =>
      s("rect", {
        x: (j % columns) * CELL + 1, y: Math.floor(j / columns) * CELL + 1,
        width: CELL - 2, height: CELL - 2, rx: 2, class: bit ? "on" : "off",
      }));
    this.element.replaceChildren(...this.cells);
    this.describe("");
    return this;
  }

  /** Mark the bits in which another code differs; null removes the marks. @param {string | null} hex */
  compare(hex) {
    const other = hex ? bitsOf(hex, this.values.length) : this.values;
    const differs = this.cells.map((cell, j) => cell.classList.toggle("differs", other[j] !== this.values[j]));
    this.describe(hex ? `, ${distanceText(differs.filter(Boolean).length)}` : "");
    return this;
  }

  describe(comparison) {
    const ones = this.values.reduce((sum, bit) => sum + bit, 0);
    this.element.setAttribute("aria-label", `${this.name}: ${this.values.length} bits, ${ones} of them 1${comparison}`);
  }
}
