// The page's shell: which view is open, the state of the service, the token and the theme.

import { fetchJson, isReported, openSession, service } from "./api.js";
import { useApp } from "./detail.js";
import { h, icon, toast } from "./dom.js";
import { isCode } from "./codes.js";
import { current } from "./router.js";
import { SearchView } from "./search.js";
import { listenForUploads } from "./upload.js";

// The search is there at once; the modules of the other views follow when it has shown its pictures.
const VIEWS = {
  search: async () => SearchView,
  duplicates: async () => (await import("./duplicates.js")).DuplicatesView,
  map: async () => (await import("./map.js")).MapView,
  jobs: async () => (await import("./jobs.js")).JobsView,
};
const NAMES = /** @type {ViewName[]} */ (Object.keys(VIEWS));
const RETRY = 2000; // ms between attempts to reach a service that is gone
const LATER = 2000; // ms after which the modules of the other views are fetched
const PATIENCE = 250; // ms before the progress line shows, so that fast answers do not flicker

const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const [main, tabs, collection, themeButton, progressLine, banner] =
  ["main", "tabs", "collection", "theme", "working", "banner"].map(byId);

const views = /** @type {Partial<Record<ViewName, View>>} */ ({});
let openView = /** @type {View | null} */ (null);
let ready = false; // whether the service has answered

/** @type {App} */
const app = {
  health: { name: "", rows: 0, bits: 0, images: false, pictures: false, writable: false, local: false, words: false },

  /** Fetch the state of the service; whether it answered. */
  async reload() {
    try {
      app.health = await fetchJson("health");
    } catch (error) {
      if (!isReported(error)) showBanner(error.message);
      return false;
    }
    ready = true;
    const { name, rows, bits } = app.health;
    collection.replaceChildren(h("strong", {}, name), ` ${rows.toLocaleString()} pictures`,
      h("span", { class: "wide" }, ` · codes of ${bits} bits`));
    return true;
  },

  /** Fetch the state of the service, then show the open view anew. */
  async refresh() {
    if (!(await app.reload())) return;
    show();
    window.asked = undefined; // what was not taken by now would be old when it is
  },

  /** Files have been moved. */
  filesChanged() {
    /** @type {SearchView | undefined} */ (views.search)?.forget();
  },

  /** Tags have changed. */
  notesChanged() {
    /** @type {SearchView | undefined} */ (views.search)?.notesChanged();
  },

  setTitle(text) {
    document.title = `${text} · ddh`;
  },
};

/** The view of a name, made at its first use. @param {ViewName} name @returns {Promise<View>} */
async function viewOf(name) {
  if (!views[name]) {
    const Made = await VIEWS[name]();
    views[name] ??= new Made(app);
  }
  return views[name];
}

/** Show the view of the address. */
async function show() {
  if (!ready || !/^#\/|^$/.test(location.hash)) return;
  const { name, parameters } = current(NAMES);
  const known = views[/** @type {ViewName} */ (name)];
  if (known || name === "search") open(name, known ?? (views.search = new SearchView(app)), parameters);
  else {
    const address = location.hash;
    try {
      const view = await viewOf(/** @type {ViewName} */ (name));
      if (location.hash === address) open(name, view, parameters);
    } catch {
      waitForService();
    }
  }
}

/** @param {string} name @param {View} view @param {ViewParameters} parameters */
function open(name, view, parameters) {
  if (openView !== view) {
    openView?.hide();
    openView = view;
    main.replaceChildren(view.element);
    document.body.dataset.view = name;
    window.scrollTo(0, 0);
    for (const tab of tabs.children) {
      if (tab.getAttribute("data-view") === name) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }
  view.show(parameters);
}

/** Do something in the search, which is opened first where another view is open. @param {(view: SearchView) => void} act */
function inSearch(act) {
  if (!ready) return;
  const view = /** @type {SearchView} */ (views.search ??= new SearchView(app));
  if (openView === view && current(NAMES).name === "search") { // not one that another is about to follow
    act(view);
    return;
  }
  window.addEventListener("hashchange", () => act(view), { once: true }); // after show(), which was added before
  location.hash = "#/search";
}

/** A message at the top of the page; an empty text removes it. @param {string} text */
function showBanner(text) {
  banner.textContent = text;
  banner.hidden = !text;
}

let waiting = false;
/** The service does not answer: show it, and try until it does. */
async function waitForService() {
  if (waiting) return;
  waiting = true;
  showBanner("The service does not answer. Trying again…");
  do {
    await new Promise((resolve) => { setTimeout(resolve, RETRY); });
  } while (!(await fetch("health").catch(() => null))?.ok);
  waiting = false;
  showBanner("");
  app.refresh();
}

let asking = false;
/** Ask for the token in a dialog, until the service accepts it. */
function askForToken() {
  if (asking) return;
  asking = true;
  const input = h("input", { type: "password", id: "token", required: true, autocomplete: "current-password" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const form = h("form", {}, h("h2", { id: "token-title" }, "This collection needs a token"),
    h("p", { class: "muted" }, "The one the service was started with: ", h("code", {}, "--token"), " or ", h("code", {}, "DDH_TOKEN"), "."),
    h("label", { for: "token" }, "Token"), input, wrong, h("button", { class: "primary" }, "Open"));
  const dialog = h("dialog", { class: "token", "aria-labelledby": "token-title" }, form);
  dialog.addEventListener("close", () => dialog.showModal()); // nothing can be seen without it
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
  let timer = 0;
  service.addEventListener("busy", (event) => {
    clearTimeout(timer);
    if (/** @type {CustomEvent} */ (event).detail) timer = setTimeout(() => { progressLine.hidden = false; }, PATIENCE);
    else progressLine.hidden = true;
  });
  window.addEventListener("keydown", (event) => {
    const typing = /** @type {Element} */ (event.target).closest?.("input:not([type=range], [type=checkbox]), textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    inSearch((view) => view.focusField());
  });
  listenForUploads((file) => {
    if (app.health.images) inSearch((view) => view.searchPicture(file));
    else if (ready) toast("No model at hand, so only pictures of the collection can be searched with.");
  }, (text) => { if (isCode(text, app.health.bits)) inSearch((view) => view.find(text)); });
}

function buildTheme() {
  const { dataset } = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const update = () => {
    themeButton.title = isDark() ? "Switch to light" : "Switch to dark";
    themeButton.setAttribute("aria-label", themeButton.title);
    window.dispatchEvent(new Event("themechange"));
  };
  themeButton.append(icon("theme"));
  themeButton.addEventListener("click", () => {
    dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("ddh-theme", dataset.theme);
    update();
  });
  system.addEventListener("change", update);
  update();
}

history.scrollRestoration = "manual";
tabs.append(...NAMES.map((name) =>
  h("a", { href: `#/${name}`, "data-view": name }, icon(name), h("span", {}, name[0].toUpperCase() + name.slice(1)))));
useApp(app);
buildTheme();
listen();
app.refresh();
setTimeout(() => { for (const view of Object.values(VIEWS)) view().catch(() => {}); }, LATER); // a failure shows once the view is wanted
