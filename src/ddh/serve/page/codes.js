// Codes as people see them: bits in a small grid, and which of them differ.

import { s } from "./dom.js";

const CELL = 10; // of the drawing's own units; the style sheet decides the size on the screen

/** Bits of a code in hex; bit j is 0x80 >> (j % 8) of byte j / 8, as the index packs them. */
export function bitsOf(hex, bits) {
  const unpacked = new Uint8Array(bits);
  for (let j = 0; j < bits; j += 1) {
    const byte = parseInt(hex.slice((j >> 3) * 2, (j >> 3) * 2 + 2), 16);
    unpacked[j] = (byte >> (7 - (j & 7))) & 1;
  }
  return unpacked;
}

/** "same code", "1 bit differs", "7 bits differ". */
export function distanceText(distance) {
  if (distance === 0) return "same code";
  return distance === 1 ? "1 bit differs" : `${distance} bits differ`;
}

/** Whether a text is the hex form of a code of this index. */
export const isCode = (text, bits) => text.length === Math.ceil(bits / 8) * 2 && /^[0-9a-f]+$/i.test(text);

/** Columns of a grid that is wide and low. */
const wideColumns = (bits) => (bits <= 16 ? bits : bits <= 128 ? 16 : bits <= 512 ? 32 : 64);

/** Columns of a grid that is nearly square, in steps of four. */
const squareColumns = (bits) => Math.min(bits, 4 * Math.ceil(Math.sqrt(bits) / 4));

/** A code drawn as a grid of bits: filled is 1, pale is 0, ringed differs from the compared code. */
export class BitGrid {
  constructor(name, { square = false } = {}) {
    this.name = name;
    this.columns = square ? squareColumns : wideColumns;
    this.element = s("svg", { class: "bits", role: "img", "aria-label": name });
    this.cells = [];
    this.values = new Uint8Array(0);
  }

  /** Draw a code. */
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
    this.describe(0, false);
    return this;
  }

  /** Mark the bits in which another code differs; null takes the marks away. */
  compare(hex) {
    const other = hex ? bitsOf(hex, this.values.length) : this.values;
    let differing = 0;
    this.cells.forEach((cell, j) => {
      const differs = other[j] !== this.values[j];
      differing += differs;
      cell.classList.toggle("differs", differs);
    });
    this.describe(differing, Boolean(hex));
    return this;
  }

  describe(differing, compared) {
    const ones = this.values.reduce((sum, bit) => sum + bit, 0);
    const also = compared ? `, ${distanceText(differing)}` : "";
    this.element.setAttribute("aria-label", `${this.name}: ${this.values.length} bits, ${ones} of them 1${also}`);
  }
}
