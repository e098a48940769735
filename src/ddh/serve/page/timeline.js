// When the pictures were taken: a bar per month, of which one or several can be chosen.

import { count, h } from "./dom.js";
import { monthText } from "./words.js";

const MOST_BARS = 180; // more months than these are drawn as years
const LABEL = 40; // CSS pixels of the label of a year

/** The months or years from the first to the last, those without pictures too. @param {MonthCount[]} months @returns {MonthCount[]} */
export function bins(months) {
  if (!months.length) return [];
  const number = (month) => Number(month.slice(0, 4)) * 12 + Number(month.slice(5)) - 1;
  const first = number(months[0].month), last = number(months[months.length - 1].month);
  const counts = /** @type {Map<string, number>} */ (new Map());
  const years = last - first >= MOST_BARS;
  for (const { month, rows } of months) {
    const bin = years ? month.slice(0, 4) : month;
    counts.set(bin, (counts.get(bin) ?? 0) + rows);
  }
  const step = years ? 12 : 1;
  const names = Array.from({ length: Math.floor((last - (years ? first - (first % 12) : first)) / step) + 1 }, (_, i) => {
    const at = (years ? first - (first % 12) : first) + i * step;
    const year = String(Math.floor(at / 12)).padStart(4, "0");
    return years ? year : `${year}-${String((at % 12) + 1).padStart(2, "0")}`;
  });
  return names.map((month) => ({ month, rows: counts.get(month) ?? 0 }));
}

export class Timeline {
  /** changed is given {since, until}, both null for all. @param {(range: {since: string | null, until: string | null}) => void} changed */
  constructor(changed) {
    this.changed = changed;
    this.bars = /** @type {MonthCount[]} */ ([]);
    this.range = { since: "", until: "" };
    this.stop = 0; // the bar that the Tab key reaches
    this.row = h("div", { class: "bars", role: "group", "aria-label": "Months: arrow keys move, Enter chooses, Shift extends" });
    this.years = h("div", { class: "years" });
    this.element = h("div", { class: "timeline", hidden: true }, this.row, this.years);
    new ResizeObserver(() => this.drawYears()).observe(this.row);
    this.row.addEventListener("click", (event) => {
      const at = this.indexOf(event.target);
      if (at >= 0) this.choose(at, event.shiftKey);
    });
    this.row.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -this.bars.length, End: this.bars.length };
      const step = steps[/** @type {keyof typeof steps} */ (event.key)];
      if (!step) return;
      event.preventDefault();
      this.focus(this.filled(this.indexOf(event.target) + step, step));
    });
  }

  /** The nearest bar with pictures, looking onwards from a place. @param {number} at @param {number} step */
  filled(at, step) {
    let place = Math.max(0, Math.min(this.bars.length - 1, at));
    const onwards = Math.abs(step) > 1 ? -Math.sign(step) : step;
    while (this.bars[place] && !this.bars[place].rows) place += onwards;
    return this.bars[place] ? place : this.stop;
  }

  indexOf(target) {
    const bar = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest("[data-at]"));
    return bar ? Number(bar.dataset.at) : -1;
  }

  focus(at) {
    this.row.children[this.stop]?.setAttribute("tabindex", "-1");
    this.stop = at;
    const bar = /** @type {HTMLElement | undefined} */ (this.row.children[at]);
    bar?.setAttribute("tabindex", "0");
    bar?.focus();
  }

  /** @param {number} at @param {boolean} extend */
  choose(at, extend) {
    const { month } = this.bars[at];
    const { since, until } = this.range;
    if (extend && since) this.changed(month < since ? { since: month, until } : { since, until: month });
    else if (since === month && until === month) this.changed({ since: null, until: null });
    else this.changed({ since: month, until: month });
  }

  /** @param {MonthCount[]} months @param {string} since @param {string} until */
  show(months, since, until) {
    this.bars = bins(months);
    this.range = { since, until };
    this.element.hidden = months.length < 2 && !since;
    const most = Math.max(1, ...this.bars.map(({ rows }) => rows));
    const inside = (month) => (!since || month.slice(0, since.length) >= since) && (!until || month.slice(0, until.length) <= until);
    const focused = this.row.contains(document.activeElement);
    this.stop = this.filled(Math.max(0, Math.min(this.stop, this.bars.length - 1)), 1);
    this.row.replaceChildren(...this.bars.map(({ month, rows }, at) => {
      const label = `${monthText(month)}, ${count(rows, "picture")}`;
      const fill = h("span", { class: "bar-of" });
      fill.style.height = rows ? `${Math.max(6, 100 * Math.sqrt(rows / most))}%` : "0";
      return rows
        ? h("button", { type: "button", class: "month", "data-at": at, tabindex: at === this.stop ? "0" : "-1", title: label, "aria-label": label, "aria-pressed": String(Boolean(since || until) && inside(month)) }, fill)
        : h("span", { class: "month" });
    }));
    this.element.classList.toggle("chosen", Boolean(since || until));
    if (focused) this.focus(this.stop);
    this.drawYears();
  }

  /** A label below the first month of each year that has room for one, which chooses the year. */
  drawYears() {
    const { since, until } = this.range;
    const years = /** @type {Map<string, number>} */ (new Map());
    for (const { month } of this.bars) years.set(month.slice(0, 4), (years.get(month.slice(0, 4)) ?? 0) + 1);
    const width = this.row.clientWidth;
    let end = this.bars.length, free = width + LABEL / 2; // before which a label must end, in CSS pixels
    const labelled = new Set([...years].reverse().filter(([, span]) => {
      end -= span;
      const start = (width * end) / this.bars.length;
      const fits = start + LABEL <= free;
      if (fits) free = start;
      return fits;
    }).map(([year]) => year));
    this.years.replaceChildren(...[...years].map(([year, span]) => {
      const chosen = since === year && until === year;
      const label = h("button", { type: "button", class: "year", "aria-pressed": String(chosen), "aria-label": `All of ${year}`,
        onclick: () => this.changed(chosen ? { since: null, until: null } : { since: year, until: year }) }, year);
      const room = h("span", { class: "year-room" }, labelled.has(year) ? label : null);
      room.style.flexGrow = String(span);
      return room;
    }));
  }
}
