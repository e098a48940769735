// The running and finished jobs: how far they are, when they will be done, and their curves.

import { addFolder } from "./addFolder.js";
import { fetchJson, isReported } from "./api.js";
import { button, commands, failure, h, icon, iconButton, notice, s, statusLine, toast, viewHead } from "./dom.js";

const INTERVAL = 2000; // ms between requests while the view is visible
const WIDTH = 360, HEIGHT = 170; // of a chart
const LEFT = 46, RIGHT = 12, TOP = 12, BOTTOM = 26;

/** "2 h 5 min", "40 s". @param {number} seconds */
function durationText(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

function timeText(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? "" : time.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export class JobsView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.open = false;
    this.timer = 0;
    this.status = statusLine();
    this.list = h("div", { class: "jobs" });
    this.dismissAll = button(["Dismiss the finished"], () => this.dismiss(this.ended), { class: "small", hidden: true });
    this.add = button([icon("plus"), "Add a folder"], () => addFolder(() => this.started()), { class: "small primary", hidden: true });
    const head = viewHead("Jobs", this.status);
    head.append(h("div", { class: "head-tools" }, this.dismissAll, this.add));
    this.element = h("div", { class: "view jobs-view" }, head, this.list);
    this.drawn = "";
    this.cards = /** @type {Map<string, HTMLElement>} */ (new Map()); // by the id of their jobs
    this.ended = /** @type {Job[]} */ ([]);
    this.ran = -1; // jobs that were running when they were last asked for
    document.addEventListener("visibilitychange", () => { if (this.open && !document.hidden) this.refresh(); });
  }

  show() {
    this.app.setTitle("Jobs");
    this.open = true;
    this.add.hidden = !this.controls();
    this.refresh();
  }

  /** Whether jobs can be started and stopped here. */
  controls() {
    const { writable, local } = this.app.health;
    return writable && local;
  }

  started() {
    toast("The folder is being added.");
    this.refresh();
  }

  /** @param {string} path @param {"POST" | "DELETE"} method */
  async act(path, method) {
    try {
      await fetchJson(path, { method });
    } catch (error) {
      if (!isReported(error) && error.status !== 404) toast(error.message); // 404: it has ended by itself
    }
    this.refresh();
  }

  /** @param {Job[]} jobs */
  async dismiss(jobs) {
    for (const { id } of jobs) await this.act(`jobs/${encodeURIComponent(id)}`, "DELETE");
  }

  hide() {
    this.open = false;
    clearTimeout(this.timer);
  }

  async refresh() {
    clearTimeout(this.timer);
    try {
      const { jobs } = await fetchJson("jobs");
      if (this.open) this.draw(jobs);
    } catch (error) {
      this.drawn = "";
      if (!isReported(error)) this.list.replaceChildren(failure(error.message));
    }
    if (this.open && !document.hidden) this.timer = setTimeout(() => this.refresh(), INTERVAL);
  }

  /** @param {Job[]} jobs */
  running(jobs) {
    return jobs.filter(({ state }) => state === "running").length;
  }

  /** @param {Job[]} jobs */
  draw(jobs) {
    const text = JSON.stringify(jobs);
    if (this.drawn === text) return;
    this.drawn = text;
    const status = jobs.length ? `${this.running(jobs)} running` : "";
    if (this.status.textContent !== status) this.status.textContent = status; // else it would be announced again
    this.ended = jobs.filter(({ state }) => state !== "running");
    const focused = document.activeElement;
    this.dismissAll.hidden = !this.controls() || !this.ended.length;
    this.drawCards(jobs);
    if (focused instanceof HTMLElement && (focused !== document.activeElement || !focused.checkVisibility())) this.refocus(focused);
    if (this.running(jobs) !== this.ran) this.app.reload();
    this.ran = this.running(jobs);
  }

  /** A card stays while its job is in the same state: a button that moves with every step cannot be used. @param {Job[]} jobs */
  drawCards(jobs) {
    const owner = this.controls() ? this : null;
    const old = this.cards;
    this.cards = new Map(jobs.map((job) => {
      const known = old.get(job.id);
      if (known?.dataset.state !== job.state) return [job.id, card(job, owner)];
      known.lastElementChild?.replaceWith(course(job));
      return [job.id, known];
    }));
    const shown = [...this.list.children];
    const wanted = this.cards.size ? [...this.cards.values()] : [notice("No jobs yet",
      h("p", {}, "Learning, encoding and indexing show here while they run, with their progress and curves. For example:"),
      commands("ddh fit photos/ -o photos.ddh"))];
    if (wanted.length !== shown.length || wanted.some((each, i) => each !== shown[i])) this.list.replaceChildren(...wanted);
  }

  /** The focus again where it was, else on what the same card offers now. @param {HTMLElement} focused */
  refocus(focused) {
    const id = /** @type {HTMLElement | null} */ (focused.closest(".job"))?.dataset.id ?? "";
    const target = focused.checkVisibility() ? focused : this.cards.get(id)?.querySelector("button") ?? this.add;
    target.focus({ preventScroll: true });
  }
}

/** @param {Job} job @param {JobsView | null} owner whoever can stop and dismiss it */
function card(job, owner) {
  const id = encodeURIComponent(job.id);
  const control = job.state === "running"
    ? button([icon("stop"), "Stop"], () => owner?.act(`jobs/${id}/stop`, "POST"), { class: "small", "aria-label": `Stop ${job.title}` })
    : iconButton("close", `Dismiss ${job.title}`, () => owner?.dismiss([job]));
  return h("article", { class: "job", "data-id": job.id, "data-state": job.state, "aria-label": `${job.kind}: ${job.title}` },
    h("header", {}, h("span", { class: "kind" }, job.kind), h("h2", {}, job.title),
      h("span", { class: `state ${job.state}` }, job.state), owner ? control : null),
    course(job));
}

/** How far a job is, and its curves. @param {Job} job */
const course = (job) =>
  h("div", { class: "course" },
    job.state === "done" ? null : progress(job),
    job.message && job.state !== "done" ? h("p", { class: "message" }, job.message) : null,
    h("p", { class: "muted small-text" }, `Started ${timeText(job.started)}`,
      job.state === "running" ? "" : `, ${job.state === "done" ? "done" : "last heard of"} ${timeText(job.updated)}`),
    h("div", { class: "charts" }, job.curves.map(chart)));

/** @param {Job} job */
function progress({ state, done, total, unit, seconds_left: secondsLeft }) {
  const left = state === "running" && secondsLeft !== null ? `${durationText(secondsLeft)} left` : "";
  const plural = (total ?? done) !== 1 && unit !== "" && !unit.endsWith("s") ? "s" : "";
  const counted = `${done.toLocaleString()}${total ? ` of ${total.toLocaleString()}` : ""} ${unit}${plural}`;
  const bar = h("progress", { max: total ?? 1, value: total ? done : null, "aria-label": "Progress" });
  return h("div", { class: "job-progress" }, total || state === "running" ? bar : null,
    h("p", {}, h("span", {}, counted), h("span", { class: "muted" }, left)));
}

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
function chart({ name, x, y }) {
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
