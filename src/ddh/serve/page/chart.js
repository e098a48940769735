// A small line chart with axes, drawn as SVG.

import { h, s } from "./dom.js";

const WIDTH = 360, HEIGHT = 170;
const LEFT = 46, RIGHT = 12, TOP = 12, BOTTOM = 26;

/** About n round values that span [low, high]. @param {number} low @param {number} high @param {number} n */
function ticks(low, high, n) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5].map((factor) => factor * power).find((each) => each >= raw * 0.7) ?? 10 * power;
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) values.push(value);
  return values;
}

function numberText(value) {
  const magnitude = Math.abs(value);
  if (magnitude >= 1e6 || (magnitude > 0 && magnitude < 1e-3)) return value.toExponential(1);
  return value.toLocaleString(undefined, { maximumSignificantDigits: 4 });
}

/** The range of some values with a margin; a flat line lies in the middle. @param {number[]} values @param {number} margin */
function range(values, margin) {
  const low = Math.min(...values), high = Math.max(...values);
  const air = margin && ((high - low) * margin || Math.abs(high) * 0.5 || 1);
  return [low - air, high + air];
}

/** A curve as a figure, or null while it has fewer than two points. @param {Curve} curve */
export function chart({ name, x, y }) {
  const points = x.map((at, i) => [at, y[i] ?? NaN]).filter((point) => point.every(Number.isFinite));
  if (points.length < 2) return null;
  const [left, right] = range(points.map(([at]) => at), 0);
  const [low, high] = range(points.map(([, value]) => value), 0.06);
  const across = (at) => LEFT + ((at - left) / (right - left || 1)) * (WIDTH - LEFT - RIGHT);
  const up = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const line = points.map(([at, value], i) => `${i ? "L" : "M"}${across(at).toFixed(1)} ${up(value).toFixed(1)}`).join("");
  const [lastAt, lastValue] = points[points.length - 1];
  const drawing = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${name}: from ${numberText(points[0][1])} to ${numberText(lastValue)} over ${points.length} points` },
  ticks(low, high, 4).map((value) => s("g", { class: "tick" },
    s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(value), y2: up(value) }),
    s("text", { x: LEFT - 8, y: up(value) + 4, "text-anchor": "end" }, numberText(value)))),
  ticks(left, right, 4).map((at) => s("text", { class: "tick", x: across(at), y: HEIGHT - 8, "text-anchor": "middle" }, numberText(at))),
  s("path", { class: "curve", d: line }),
  s("circle", { class: "last", cx: across(lastAt), cy: up(lastValue), r: 3.5 }));
  return h("figure", { class: "chart-room" },
    h("figcaption", {}, h("span", {}, name), h("strong", {}, numberText(lastValue))), drawing);
}
