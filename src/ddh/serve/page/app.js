// The page's shell: which view is open, the state of the service, the token and the theme.

import { ask, isTold, openSession, service } from "./api.js";
import { DuplicatesView } from "./duplicates.js";
import { h, icon } from "./dom.js";
import { isCode } from "./codes.js";
import { listenForPictures } from "./upload.js";
import { JobsView } from "./jobs.js";
import { MapView } from "./map.js";
import { current } from "./router.js";
import { SearchView } from "./search.js";

const VIEWS = [["search", "Search", SearchView], ["duplicates", "Duplicates", DuplicatesView],
  ["map", "Map", MapView], ["jobs", "Jobs", JobsView]];
const NAMES = VIEWS.map(([name]) => name);
const RETRY = 2000; // ms between knocks at a service that is gone
const PATIENCE = 250; // ms before the line of work shows, so that fast answers do not flicker

const place = Object.fromEntries(["main", "tabs", "collection", "theme", "working", "banner"].map((id) => [id, document.getElementById(id)]));

const app = {
  health: null,
  views: {},
  open: null,

  /** Ask for the state of the service, then show the open view anew. */
  async refresh() {
    try {
      app.health = await ask("health");
    } catch (error) {
      if (!isTold(error)) say(error.message);
      return;
    }
    const { name, rows, bits } = app.health;
    place.collection.replaceChildren(h("strong", {}, name), ` ${rows.toLocaleString()} pictures`,
      h("span", { class: "wide" }, ` · codes of ${bits} bits`));
    show();
  },

  setTitle(text) {
    document.title = `${text} · ddh`;
  },
};

/** Show the view of the address. */
function show() {
  if (!app.health || !/^#\/|^$/.test(location.hash)) return;
  const { name, parameters } = current(NAMES);
  const [, , View] = VIEWS.find(([each]) => each === name);
  const view = (app.views[name] ??= new View(app));
  if (app.open !== view) {
    app.open?.hide();
    app.open = view;
    place.main.replaceChildren(view.element);
    document.body.dataset.view = name;
    window.scrollTo(0, 0);
    for (const tab of place.tabs.children) {
      if (tab.dataset.view === name) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }
  view.show(parameters);
}

function searchView() {
  return (app.views.search ??= new SearchView(app));
}

/** Do something in the search, which is opened first where another view is open. */
function inSearch(act) {
  const view = searchView();
  if (app.open === view) {
    act(view);
    return;
  }
  window.addEventListener("hashchange", () => act(view), { once: true }); // after show(), which listens longer
  location.hash = "#/search";
}

function takePicture(file) {
  if (!app.health || !file) return;
  if (app.health.images) inSearch((view) => view.searchPicture(file));
  else say("No model at hand: this service searches by key or code only.");
}

function takeText(text) {
  if (app.health && isCode(text, app.health.bits)) inSearch((view) => view.find(text));
}

/** Words at the top of the page; an empty text takes them away. */
function say(text) {
  place.banner.textContent = text;
  place.banner.hidden = !text;
}

let knocking = false;
/** The service does not answer: say so, and knock until it does. */
async function waitForService() {
  if (knocking) return;
  knocking = true;
  say("The service does not answer. Trying again…");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, RETRY));
    try {
      if ((await fetch("health")).ok) break;
    } catch {
      // still gone
    }
  }
  knocking = false;
  say("");
  app.refresh();
}

let asking = false;
/** Ask for the token in a dialog, until the service takes it. */
function askForToken() {
  if (asking) return;
  asking = true;
  const input = h("input", { type: "password", id: "token", required: true, autocomplete: "current-password" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const form = h("form", {}, h("h2", { id: "token-title" }, "This collection needs a token"),
    h("p", { class: "muted" }, "The one the service was started with: ", h("code", {}, "--token"), " or ", h("code", {}, "DDH_TOKEN"), "."),
    h("label", { for: "token" }, "Token"), input, wrong, h("button", { class: "primary" }, "Open"));
  const dialog = h("dialog", { class: "token", "aria-labelledby": "token-title" }, form);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await openSession(input.value);
    } catch (error) {
      wrong.textContent = error.status === 401 ? "That is not the token." : error.message;
      input.select();
      return;
    }
    asking = false;
    dialog.remove();
    app.refresh();
  });
  document.body.append(dialog);
  dialog.showModal();
}

function listen() {
  window.addEventListener("hashchange", show);
  service.addEventListener("gone", waitForService);
  service.addEventListener("locked", askForToken);
  let timer = null;
  service.addEventListener("busy", ({ detail }) => {
    clearTimeout(timer);
    if (detail) timer = setTimeout(() => { place.working.hidden = false; }, PATIENCE);
    else place.working.hidden = true;
  });
  window.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input:not([type=range], [type=checkbox]), textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (app.health) inSearch((view) => view.focusField());
  });
  listenForPictures(takePicture, takeText);
}

function buildTheme() {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => {
    const text = dark() ? "Switch to light" : "Switch to dark";
    place.theme.setAttribute("aria-label", text);
    place.theme.title = text;
  };
  place.theme.append(icon("theme"));
  place.theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("ddh-theme", root.dataset.theme);
    label();
    window.dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    label();
    window.dispatchEvent(new Event("themechange"));
  });
  label();
}

function start() {
  history.scrollRestoration = "manual";
  place.tabs.append(...VIEWS.map(([name, title]) =>
    h("a", { href: `#/${name}`, "data-view": name }, icon(name), h("span", {}, title))));
  buildTheme();
  listen();
  app.refresh();
}

start();
