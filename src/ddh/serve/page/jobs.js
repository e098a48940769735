// The running and finished jobs: how far they are, when they will be done, and their curves.

import { fetchJson, isReported } from "./api.js";
import { chart } from "./chart.js";
import { commands, failure, h, notice, statusLine, viewHead } from "./dom.js";

const INTERVAL = 2000; // ms between requests while the view is visible

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
    this.element = h("div", { class: "view jobs-view" }, viewHead("Jobs", this.status), this.list);
    this.drawn = "";
    document.addEventListener("visibilitychange", () => { if (this.open && !document.hidden) this.refresh(); });
  }

  show() {
    this.app.setTitle("Jobs");
    this.open = true;
    this.refresh();
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
  draw(jobs) {
    const text = JSON.stringify(jobs);
    if (this.drawn === text) return;
    this.drawn = text;
    const status = jobs.length ? `${jobs.filter(({ state }) => state === "running").length} running` : "";
    if (this.status.textContent !== status) this.status.textContent = status; // else it would be announced again
    this.list.replaceChildren(...jobs.map(card), jobs.length ? "" : notice("No jobs yet",
      h("p", {}, "Learning, encoding and indexing show here while they run, with their progress and curves. For example:"),
      commands("ddh fit photos/ -o photos.ddh")));
  }
}

/** @param {Job} job */
function card(job) {
  return h("article", { class: "job", "data-state": job.state, "aria-label": `${job.kind}: ${job.title}` },
    h("header", {}, h("span", { class: "kind" }, job.kind), h("h2", {}, job.title),
      h("span", { class: `state ${job.state}` }, job.state)),
    progress(job),
    job.message ? h("p", { class: "message" }, job.message) : null,
    h("p", { class: "muted small-text" }, `Started ${timeText(job.started)}`,
      job.state === "running" ? "" : `, last heard of ${timeText(job.updated)}`),
    h("div", { class: "charts" }, job.curves.map(chart)));
}

/** @param {Job} job */
function progress({ state, done, total, unit, seconds_left: secondsLeft }) {
  const left = state === "running" && secondsLeft !== null ? `${durationText(secondsLeft)} left` : "";
  const plural = (total ?? done) !== 1 && unit !== "" && !unit.endsWith("s") ? "s" : "";
  const counted = `${done.toLocaleString()}${total ? ` of ${total.toLocaleString()}` : ""} ${unit}${plural}`;
  const bar = h("progress", { max: total ?? 1, value: total ? done : null, "aria-label": "Progress" });
  return h("div", { class: "job-progress" }, total || state === "running" ? bar : null,
    h("p", {}, h("span", {}, counted), h("span", { class: "muted" }, left)));
}
