// The running and finished jobs: how far they are, when they will be done, and their curves.

import { ask, isTold } from "./api.js";
import { chart } from "./chart.js";
import { commands, h, notice } from "./dom.js";

const EVERY = 2000; // ms between looks while the view is visible
const STATES = { running: "running", done: "done", failed: "failed", stopped: "stopped", lost: "lost" };

/** "2 h 5 min", "40 s". */
export function durationText(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

function whenText(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? "" : time.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export class JobsView {
  constructor(app) {
    this.app = app;
    this.status = h("p", { class: "status", role: "status" });
    this.list = h("div", { class: "jobs" });
    this.element = h("div", { class: "view jobs-view" }, h("header", { class: "view-head" }, h("h1", {}, "Jobs"), this.status), this.list);
    this.drawn = new Map(); // id -> {text, element}: a job that did not change is not drawn again
    document.addEventListener("visibilitychange", () => { if (this.open && !document.hidden) this.look(); });
  }

  show() {
    this.app.setTitle("Jobs");
    this.open = true;
    this.look();
  }

  hide() {
    this.open = false;
    clearTimeout(this.timer);
  }

  async look() {
    clearTimeout(this.timer);
    try {
      const { jobs } = await ask("jobs");
      if (this.open) this.draw(jobs);
    } catch (error) {
      if (!isTold(error)) this.list.replaceChildren(notice("That did not work", h("p", {}, error.message)));
    }
    if (this.open && !document.hidden) this.timer = setTimeout(() => this.look(), EVERY);
  }

  draw(jobs) {
    const running = jobs.filter(({ state }) => state === "running").length;
    this.say(jobs.length === 0 ? "" : running === 1 ? "1 running" : `${running} running`);
    if (jobs.length === 0) {
      this.list.replaceChildren(notice("No jobs yet",
        h("p", {}, "Learning, encoding and indexing show here while they run, with their progress and curves. For example:"),
        commands("ddh fit photos/ -o photos.ddh")));
      return;
    }
    const elements = jobs.map((job) => this.elementOf(job));
    if (elements.some((element, i) => this.list.children[i] !== element) || this.list.children.length !== elements.length) {
      this.list.replaceChildren(...elements);
    }
  }

  say(text) {
    if (this.status.textContent !== text) this.status.textContent = text; // else it would be read out again
  }

  elementOf(job) {
    const text = JSON.stringify(job);
    const drawn = this.drawn.get(job.id);
    if (drawn?.text === text) return drawn.element;
    const element = card(job);
    this.drawn.set(job.id, { text, element });
    return element;
  }
}

function card(job) {
  return h("article", { class: "job", "data-state": job.state, "aria-label": `${job.kind}: ${job.title}` },
    h("header", {}, h("span", { class: "kind" }, job.kind), h("h2", {}, job.title),
      h("span", { class: `state ${job.state}` }, STATES[job.state] ?? job.state)),
    progress(job),
    job.message ? h("p", { class: "message" }, job.message) : null,
    h("p", { class: "muted small-text" }, `Started ${whenText(job.started)}`,
      job.state === "running" ? "" : `, last heard of ${whenText(job.updated)}`),
    h("div", { class: "charts" }, (job.curves ?? []).map(chart)));
}

function progress(job) {
  const left = job.state === "running" && Number.isFinite(job.seconds_left) ? `${durationText(job.seconds_left)} left` : "";
  const many = (job.total ?? job.done) !== 1 && job.unit !== "" && !job.unit.endsWith("s");
  const unit = many ? `${job.unit}s` : job.unit;
  const counted = `${job.done.toLocaleString()}${job.total ? ` of ${job.total.toLocaleString()}` : ""} ${unit}`;
  const bar = h("progress", { max: job.total ?? 1, "aria-label": "Progress" });
  if (job.total) bar.value = job.done;
  return h("div", { class: "job-progress" }, job.total || job.state === "running" ? bar : null, h("p", {}, h("span", {}, counted), h("span", { class: "muted" }, left)));
}
