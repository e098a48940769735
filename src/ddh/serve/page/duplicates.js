// Verified duplicates: find them, compare them, choose what to keep, move the others away, undo.

import { fetchJson, isReported, queryString } from "./api.js";
import { openCompare } from "./compare.js";
import { button, count, failure, h, icon, notice, statusLine, viewHead } from "./dom.js";
import { csv, save } from "./files.js";
import { kindText, sizeText } from "./kinds.js";
import { Pager } from "./pager.js";
import { go } from "./router.js";
import { altText, shortName, thumbnail } from "./thumbnail.js";
import { bytesText } from "./words.js";

const PAGE = 20;
const MOST = 200; // groups of a request that draws none
const POLL = 1000; // ms between looks at a search that is running
const BATCH = 50; // pictures of one request
const WIDEST = 4; // pictures in the row of a group
const COLUMNS = ["group", "path", "kind", "score", "width", "height", "bytes", "digest"];

export class DuplicatesView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.parameters = /** @type {ViewParameters} */ ({});
    this.state = /** @type {DuplicatesState | null} */ (null);
    this.shown = /** @type {DuplicateGroup[]} */ ([]);
    this.ticked = /** @type {Map<string, DuplicateGroup>} */ (new Map()); // key -> its group; kept while the page is open
    this.items = /** @type {Map<string, DuplicateItem>} */ (new Map()); // by key
    this.kept = /** @type {Map<string, string>} */ (new Map()); // the suggested key of a group -> the chosen one
    this.timer = 0;
    this.dismissed = false; // whether the news are about a picture that is no duplicate
    this.status = statusLine();
    this.kind = h("select", { id: "duplicates-kind", onchange: () => this.filter({ kind: this.kind.value }) });
    this.lists = h("div", { class: "modes", role: "group", "aria-label": "What is listed" });
    this.again = button(["Look again"], () => this.search());
    this.all = h("a", { class: "button", download: "", href: "duplicates.csv" }, icon("download"), "All as CSV");
    this.tickButton = button([icon("check"), "Tick all but the kept"], () => this.tickAll());
    this.tools = h("div", { class: "tools", hidden: true }, this.lists,
      h("div", { class: "field kind-field" }, h("label", { for: "duplicates-kind" }, "Kind"), this.kind), this.tickButton, this.again, this.all);
    this.news = h("div", { class: "news", role: "status" });
    this.notices = h("div", {});
    this.groups = h("div", { class: "groups" });
    this.moreButton = button(["More groups"], () => this.pager.more(), { hidden: true });
    /** @type {Pager<GroupPage>} */
    this.pager = new Pager(this.moreButton, "600px", (page) => this.arrived(page), (error) => this.failed(error));
    this.count = h("strong", { role: "status" });
    const wide = (text) => h("span", { class: "wide" }, text);
    this.trashButton = button([h("span", {}, wide("Move to the "), "Trash")], () => this.act({ action: "trash" }), { class: "primary", "aria-label": "Move to the trash" });
    this.moveButton = button([h("span", {}, wide("Move to a "), "Folder…")], () => this.moveToFolder(), { "aria-label": "Move to a folder" });
    this.bar = h("div", { class: "tick-bar", role: "region", "aria-label": "The ticked pictures", hidden: true }, this.count,
      this.trashButton, this.moveButton,
      button([icon("download"), "CSV"], () => save("duplicates.csv", "text/csv", csv(COLUMNS, this.rows())), { "aria-label": "Export the ticked as CSV" }),
      button([icon("download"), "JSON"], () => save("duplicates.json", "application/json", `${JSON.stringify(this.list(), null, 2)}\n`),
        { "aria-label": "Export the ticked as JSON" }),
      button(["Clear"], () => { this.ticked.clear(); this.showTicks(); }, { class: "quiet" }));
    this.element = h("div", { class: "view duplicates" }, viewHead("Duplicates", this.status), this.tools, this.news, this.notices,
      this.groups, h("p", { class: "more" }, this.moreButton), this.bar);
  }

  /** @param {ViewParameters} parameters @param {number} first groups of the first request */
  show(parameters, first = PAGE) {
    this.app.setTitle("Duplicates");
    this.parameters = parameters;
    this.shown = [];
    this.groups.classList.add("waiting");
    const { kind } = parameters;
    const show = parameters.show === "similar" ? "similar" : null;
    this.pager.start(async (offset, signal) => {
      const limit = offset ? PAGE : first;
      const { groups, more, ...state } = await fetchJson(`duplicates${queryString({ show, kind, offset, limit })}`, { signal });
      return { items: groups, state, next: more ? offset + groups.length : null };
    });
    this.pager.more();
  }

  hide() {
    this.dismissed = false;
    this.news.classList.remove("fresh");
    this.groups.classList.remove("waiting"); // nobody waits for them any more
    this.pager.stop();
    clearTimeout(this.timer);
  }

  /** @param {Record<string, unknown>} parameters */
  filter(parameters) {
    go("duplicates", { ...this.parameters, ...parameters }, { replace: true });
  }

  /** @param {GroupPage} page */
  arrived({ items, state, next }) {
    if (!this.shown.length) this.groups.replaceChildren();
    this.groups.classList.remove("waiting");
    for (const group of items) this.know(group);
    this.groups.append(...items.map((group, i) => this.group(group, this.shown.length + i + 1)));
    this.shown.push(...items);
    this.moreButton.hidden = next === null;
    this.showState(state);
    this.showTicks();
  }

  /** @param {DuplicatesState} state */
  showState(state) {
    this.state = state;
    const similar = this.parameters.show === "similar";
    const found = Object.values(state.kinds).reduce((sum, n) => sum + n, 0);
    this.status.textContent = state.finished === null || !state.total ? "" : similar ? count(state.total, "pair")
      : this.parameters.kind ? count(state.total, "group")
      : `${count(state.total, "group")} · ${count(found, "picture")} could go (${bytesText(state.bytes)})${state.skipped ? ` · ${state.skipped.toLocaleString()} could not be read` : ""}`;
    this.tools.hidden = state.finished === null;
    this.tickButton.hidden = similar || !this.shown.length;
    this.showLists(state, similar);
    this.showKinds(state.kinds);
    this.showUndo(state);
    this.showNotices(state, similar, found);
    clearTimeout(this.timer);
    if (state.state === "running") this.timer = setTimeout(() => this.poll(), POLL);
  }

  /** @param {DuplicatesState} state @param {boolean} similar */
  showLists({ similar: pairs }, similar) {
    this.lists.hidden = pairs === 0 && !similar;
    const choices = [["Duplicates", null], [`Only alike (${pairs.toLocaleString()})`, "similar"]];
    this.lists.replaceChildren(...choices.map(([text, show]) => button([text], () => this.filter({ show, kind: null }),
      { class: "small", "aria-pressed": String((show === "similar") === similar) })));
  }

  /** @param {Record<string, number>} kinds */
  showKinds(kinds) {
    const { kind: chosen, show } = this.parameters;
    if (chosen) kinds = { ...kinds, [chosen]: kinds[chosen] ?? 0 }; // also where none are left
    const options = Object.entries(kinds).map(([kind, n]) => h("option", { value: kind }, `${kindText(kind)} (${n.toLocaleString()})`));
    this.kind.replaceChildren(h("option", { value: "" }, "any"), ...options);
    this.kind.value = chosen ?? "";
    /** @type {HTMLElement} */ (this.kind.parentElement).hidden = options.length < 2 || show === "similar";
  }

  /** @param {DuplicatesState} state @param {boolean} similar @param {number} found pictures of any kind */
  showNotices(state, similar, found) {
    const { rows, pictures } = this.app.health;
    this.again.hidden = state.state === "running";
    if (state.state === "running") this.showProgress(state);
    else if (state.state === "failed") this.notices.replaceChildren(failure("The search for duplicates ended early; the log of the service says why.", this.startButton("Try again")));
    else if (state.finished === null && (rows === 0 || !pictures)) {
      this.notices.replaceChildren(notice("No duplicates yet", h("p", {}, rows === 0 ? "The collection is empty." : "The pictures themselves are not at hand.")));
    } else if (state.finished === null) {
      this.notices.replaceChildren(notice("Find pictures that are the same",
        h("p", {}, `All ${count(rows, "picture")} are read once and compared: copies, and versions that were resized, recompressed, turned, cropped or marked. Each pair is proved on its pixels.`),
        h("p", { class: "muted" }, "Nothing is changed. The result is remembered."), this.startButton("Find duplicates")));
    } else if (!this.shown.length) {
      this.notices.replaceChildren(notice(similar ? "Nothing that is only alike" : found ? "None of this kind" : "No duplicates",
        h("p", {}, `${count(state.compared, "picture")} were compared.${state.skipped ? ` ${count(state.skipped, "picture")} could not be read.` : ""}`)));
    } else if (state.outdated) {
      this.notices.replaceChildren(h("div", { class: "note" }, h("p", {}, "The collection has changed since these were found.")));
    } else this.notices.replaceChildren();
  }

  startButton(text) {
    return h("p", {}, button([icon("duplicates"), text], () => this.search(), { class: "primary" }));
  }

  /** @param {DuplicatesState} state */
  showProgress({ message, done }) {
    const text = `${message}${done === null ? "" : ` ${Math.round(done * 100)} %`}`;
    const old = this.notices.querySelector("progress");
    if (!old) {
      this.notices.replaceChildren(notice("Looking for duplicates", h("p", { class: "muted" }),
        h("progress", { max: 1, "aria-label": "Progress of the search" }), h("p", {}, button(["Stop"], () => this.stop()))));
    }
    /** @type {HTMLElement} */ (this.notices.querySelector("p")).textContent = text;
    const bar = /** @type {HTMLProgressElement} */ (this.notices.querySelector("progress"));
    if (done === null) bar.removeAttribute("value");
    else bar.value = done;
  }

  async poll() {
    try {
      const state = await fetchJson(`duplicates${queryString({ limit: 1 })}`);
      if (state.state === "running") this.showState({ ...state, total: this.state?.total ?? 0 });
      else await this.ended();
    } catch (error) {
      this.failed(error);
    }
  }

  async search() {
    await this.tell("duplicates/search", {});
    await this.reload();
    this.notices.querySelector("button")?.focus({ preventScroll: true }); // it stops the search
  }

  async stop() {
    await this.tell("duplicates/stop", {});
    await this.ended();
  }

  /** Show what a search has found, with the focus on the next one if it was on its own button. */
  async ended() {
    const focused = this.notices.contains(document.activeElement);
    await this.reload();
    if (focused) /** @type {HTMLElement} */ (this.notices.querySelector("button") ?? this.again).focus({ preventScroll: true });
  }

  /** A request whose failure is shown; null where it has failed. @param {string} path @param {object} json @returns {Promise<any>} */
  async tell(path, json) {
    try {
      return (await fetchJson(path, { json })) ?? {};
    } catch (error) {
      if (!isReported(error)) this.say([error.message]);
      return null;
    }
  }

  /** @param {Child[]} content */
  say(content) {
    this.news.replaceChildren(h("p", {}, content));
  }

  failed(error) {
    this.pager.stop();
    if (isReported(error)) return;
    this.groups.classList.remove("waiting");
    this.status.textContent = "";
    this.moreButton.hidden = true;
    this.notices.replaceChildren(failure(error.message));
  }

  // -- groups --------------------------------------------------------------------------------

  /** @param {DuplicateGroup} group @param {number} number */
  group(group, number) {
    const { length } = group.items;
    const redraw = () => { // with another one to keep
      const drawn = this.group(group, number);
      element.replaceWith(drawn);
      this.showTicks();
      /** @type {HTMLElement | null} */ (drawn.querySelector(".kept .frame"))?.focus({ preventScroll: true });
    };
    const element = h("section", { class: "group", "aria-label": `Group ${number}, ${length} pictures` },
      h("ul", { role: "list" }, group.items.map((_, index) => this.member(group, index, redraw))));
    element.style.setProperty("--wide", String(Math.min(length, WIDEST)));
    return element;
  }

  /** @param {DuplicateGroup} group @param {number} index @param {() => void} redraw */
  member(group, index, redraw) {
    const item = group.items[index];
    const { bits } = this.app.health;
    const isKept = item.key === group.keep;
    const similar = item.kind === "similar";
    const suggested = group.items.find(({ kind }) => kind === "keep");
    const kind = isKept && !similar ? "keep" : item.kind === "keep" ? "duplicate" : item.kind; // of another that is kept now
    const box = h("input", { type: "checkbox", "data-key": item.key, onchange: () => { this.tick(group, item, box.checked); this.showTicks(); } });
    const other = isKept ? group.items.findIndex(({ key }) => key !== group.keep) : index;
    const open = () => openCompare({ group, index: other, bits, writable: Boolean(this.state?.writable),
      ticked: ({ key }) => this.ticked.has(key), changed: (what, which) => this.changed(what, group, which, redraw) });
    return h("li", { class: isKept && !similar ? "member kept" : "member", "data-key": item.key },
      button([thumbnail(item, bits)], open, { class: "frame", "aria-label": `Compare ${altText(item)}` }),
      h("span", { class: "badge" }, kindText(kind)),
      similar || isKept ? h("p", { class: "name own", title: item.key }, shortName(item.key))
        : h("label", { class: "member-words" }, box, h("span", { class: "name", title: item.key }, shortName(item.key))),
      h("p", { class: "muted small-text" }, item.folder ? h("span", { class: "name tail" }, h("bdi", {}, item.folder)) : null, h("span", {}, sizeText(item))),
      similar || isKept ? null : h("div", { class: "choices" },
        button(["Keep"], () => this.changed("keep", group, item, redraw), { class: "small quiet", "aria-label": `Keep ${shortName(item.key)} instead` }),
        this.state?.writable !== false && suggested ? button(["Not a duplicate"], () => this.changed("dismiss", group, item, redraw),
          { class: "small quiet", "aria-label": `${shortName(item.key)} is not a duplicate` }) : null));
  }

  /** @param {"tick" | "keep" | "dismiss"} what @param {DuplicateGroup} group @param {DuplicateItem} item @param {() => void} redraw */
  changed(what, group, item, redraw) {
    if (what === "tick") {
      this.tick(group, item, !this.ticked.has(item.key));
      this.showTicks();
    } else if (what === "keep") {
      const suggested = group.items.find(({ kind }) => kind === "keep")?.key ?? group.keep;
      this.kept.set(suggested, item.key);
      group.keep = item.key;
      this.ticked.delete(item.key);
      redraw();
    } else this.dismiss(group, item);
  }

  /** @param {DuplicateGroup} group @param {DuplicateItem} item @param {boolean} on */
  tick(group, item, on) {
    if (on && item.key !== group.keep) this.ticked.set(item.key, group);
    else this.ticked.delete(item.key);
  }

  /** @param {DuplicateGroup} group */
  know(group) {
    const chosen = this.kept.get(group.keep);
    if (chosen && group.items.some(({ key }) => key === chosen)) group.keep = chosen;
    for (const item of group.items) {
      this.items.set(item.key, item);
      if (this.ticked.has(item.key)) this.tick(group, item, true); // the group of another request is gone
    }
  }

  /** Tick the pictures of all groups of the list, also of those that are not shown yet. */
  async tickAll() {
    const { kind } = this.parameters;
    const groups = [...this.shown];
    const total = this.state?.total ?? 0;
    this.tickButton.disabled = true;
    try {
      while (groups.length < total) {
        const { groups: found } = await fetchJson(`duplicates${queryString({ kind, offset: groups.length, limit: MOST })}`);
        if (!found.length) break;
        for (const group of found) this.know(group);
        groups.push(...found);
      }
      for (const group of groups) for (const item of group.items) this.tick(group, item, true);
    } catch (error) {
      if (!isReported(error)) this.say([error.message]);
    }
    this.tickButton.disabled = false;
    this.showTicks();
  }

  showTicks() {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (this.groups.querySelectorAll("input[type=checkbox]"));
    for (const box of boxes) {
      box.checked = this.ticked.has(box.dataset.key ?? "");
      box.closest(".member")?.classList.toggle("ticked", box.checked);
    }
    const bytes = [...this.ticked.keys()].reduce((sum, key) => sum + (this.items.get(key)?.bytes ?? 0), 0);
    this.bar.hidden = this.ticked.size === 0;
    this.count.textContent = `${this.ticked.size.toLocaleString()} ticked · ${bytesText(bytes)}`;
    this.trashButton.hidden = !this.state?.writable;
    this.moveButton.hidden = !(this.state?.writable && this.state.target);
  }

  // -- the ticked, as lists ------------------------------------------------------------------

  /** The groups of the ticked pictures, each with its ticked ones. */
  chosen() {
    const groups = /** @type {Map<DuplicateGroup, DuplicateItem[]>} */ (new Map());
    for (const [key, group] of this.ticked) {
      const item = group.items.find((each) => each.key === key);
      if (item) groups.set(group, [...(groups.get(group) ?? []), item]);
    }
    return [...groups].map(([group, members]) => ({ kept: group.items.find(({ key }) => key === group.keep) ?? group.items[0], members }));
  }

  /** As `ddh dedup --apply` takes it. */
  list() {
    return { groups: this.chosen().map(({ kept, members }) => ({ keep: kept.file, digest: kept.digest,
      members: members.map(({ file, kind, score, digest }) => ({ path: file, kind, score, digest })) })) };
  }

  rows() {
    return this.chosen().flatMap(({ kept, members }, number) => [kept, ...members].map((item) =>
      ({ ...item, group: number + 1, path: item.file, kind: item === kept ? "keep" : item.kind === "keep" ? "duplicate" : item.kind })));
  }

  // -- actions -------------------------------------------------------------------------------

  /** @param {{action: string, folder?: string}} what */
  async act(what) {
    this.dismissed = false;
    const wanted = this.chosen().map(({ kept, members }) => ({ keep: kept.key, members: members.map(({ key }) => key) }));
    const total = this.ticked.size;
    const outcome = /** @type {ActionOutcome} */ ({ journal: null, done: [], refused: [] });
    this.setBusy(true);
    for (const groups of batches(wanted)) {
      this.say([`Moving ${outcome.done.length.toLocaleString()} of ${total.toLocaleString()}…`]);
      const answer = /** @type {ActionOutcome | null} */ (await this.tell("duplicates/act", { ...what, groups, after: outcome.journal }));
      if (answer === null) {
        this.setBusy(false);
        return;
      }
      outcome.journal ??= answer.journal; // one undo for all parts
      outcome.done.push(...answer.done);
      outcome.refused.push(...answer.refused);
    }
    this.setBusy(false);
    this.app.filesChanged();
    this.ticked.clear();
    this.lastRefused = outcome.refused;
    await this.reload();
    this.offerUndo();
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    for (const each of this.bar.querySelectorAll("button")) each.disabled = busy;
  }

  /** The last action, with a way back. @param {DuplicatesState} state */
  showUndo({ undo, writable }) {
    const refused = this.lastRefused ?? [];
    this.lastRefused = undefined;
    if (this.dismissed && !refused.length) return; // its own way back stays
    if (!refused.length && (!undo || !writable)) {
      this.news.replaceChildren();
      return;
    }
    const text = undo && `${count(undo.files, "picture")} moved to ${undo.action === "trash" ? "the trash" : "a folder"}`;
    this.news.replaceChildren(
      undo ? h("p", {}, `${text}, ${new Date(undo.time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}. `,
        button(["Undo"], () => this.undo(undo.journal), { class: "small" })) : h("p", {}, "Nothing was moved."),
      ...(refused.length ? [h("details", { open: true }, h("summary", {}, `${count(refused.length, "picture")} left alone`),
        h("ul", {}, refused.map(({ name, reason }) => h("li", {}, h("strong", {}, name), ` ${reason}`))))] : []));
  }

  /** @param {string} journal */
  async undo(journal) {
    this.say(["Restoring…"]);
    const answer = /** @type {ActionOutcome | null} */ (await this.tell("duplicates/undo", { journal }));
    if (answer === null) return;
    this.app.filesChanged();
    this.lastRefused = answer.refused;
    await this.reload();
    this.again.focus({ preventScroll: true });
  }

  /** @param {DuplicateGroup} group @param {DuplicateItem} item */
  async dismiss(group, item) {
    const suggested = group.items.find(({ kind }) => kind === "keep") ?? group.items[0];
    const groups = [{ keep: suggested.key, members: [item.key] }];
    if ((await this.tell("duplicates/dismiss", { groups })) === null) return;
    this.dismissed = true;
    this.ticked.delete(item.key);
    await this.reload();
    this.say([`${shortName(item.key)} will not be shown as a duplicate again. `,
      button(["Undo"], async () => {
        this.dismissed = false;
        await this.tell("duplicates/dismiss", { groups, undo: true });
        await this.reload();
        this.again.focus({ preventScroll: true });
      }, { class: "small" })]);
    this.offerUndo();
  }

  /** What was just done stays in sight, and the focus goes to its way back. */
  offerUndo() {
    this.news.classList.add("fresh");
    this.news.querySelector("button")?.focus({ preventScroll: true });
  }

  /** Show what there is now, as many groups as before, and wait for it. */
  async reload() {
    this.show(this.parameters, Math.min(Math.max(this.shown.length, PAGE), MOST));
    while (this.groups.classList.contains("waiting")) await new Promise((resolve) => { setTimeout(resolve, 30); });
  }

  moveToFolder() {
    const input = h("input", { type: "text", id: "move-folder", value: this.state?.target ?? "", required: true, autocomplete: "off", spellcheck: "false" });
    const form = h("form", { method: "dialog" }, h("h2", { id: "move-title" }, "Move the ticked pictures to a folder"),
      h("div", { class: "field" }, h("label", { for: "move-folder" }, "Full path, outside of the collection"), input),
      h("div", { class: "actions" }, h("button", { class: "primary" }, "Move"), button(["Cancel"], () => dialog.close())));
    const dialog = h("dialog", { class: "move-dialog", "aria-labelledby": "move-title" }, form);
    form.addEventListener("submit", () => this.act({ action: "move", folder: input.value.trim() }));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    input.select();
  }
}

/** Groups in parts of at most BATCH pictures. @param {{keep: string, members: string[]}[]} groups */
function* batches(groups) {
  let batch = /** @type {{keep: string, members: string[]}[]} */ ([]);
  let size = 0;
  for (const { keep, members } of groups) {
    for (let start = 0; start < members.length; start += BATCH) {
      const part = members.slice(start, start + BATCH);
      if (size && size + part.length > BATCH) {
        yield batch;
        batch = [];
        size = 0;
      }
      batch.push({ keep, members: part });
      size += part.length;
    }
  }
  if (batch.length) yield batch;
}
