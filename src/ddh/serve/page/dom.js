// Elements built from data. Nothing here parses text as HTML, so no key or path can become markup.

/** @template {Element} E @param {E} element @param {Attributes} attributes @param {Child[]} children */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (Array.isArray(child)) fill(element, {}, child);
    else if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

/**
 * An HTML element: h("p", {class: "muted", onclick: f}, "text", child).
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {Attributes} attributes @param {Child[]} children
 */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/**
 * An SVG element, in the same way.
 * @template {keyof SVGElementTagNameMap} K @param {K} tag @param {Attributes} attributes @param {Child[]} children
 */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const ICONS = {
  search: "M10.5 4a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13M15.5 15.5L21 21",
  duplicates: "M8 8h12v12H8zM16 8V4H4v12h4",
  map: "M5 7h.01M9 17h.01M13 9h.01M18 6h.01M16 14h.01M6 12h.01M20 18h.01M12 19h.01M10 5h.01M12 13h.01",
  jobs: "M3 20h18M4 16l5-6l4 3l7-9",
  picture: "M4 5h16v14H4zM4 16l5-5l4 4l3-3l4 4M15.5 9h.01",
  close: "M6 6l12 12M18 6L6 18",
  info: "M12 3a9 9 0 1 1 0 18a9 9 0 0 1 0-18M12 11v6M12 7.5v.01",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  check: "M5 12.5l4.5 4.5L19 7.5",
  left: "M14.5 5L8 12l6.5 7",
  right: "M9.5 5L16 12l-6.5 7",
  up: "M5 14.5L12 8l7 6.5",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  reset: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  theme: "M12 3a9 9 0 1 1 0 18zM12 3a9 9 0 0 0 0 18",
  fit: "M9 4v5H4M20 9h-5V4M15 20v-5h5M4 15h5v5",
  full: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  open: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  folder: "M3 6h6l2 3h10v10H3z",
  tag: "M4 4h8l8 8l-8 8l-8-8zM8.5 8.5h.01",
  star: "M12 4l2.5 5.2l5.5.7l-4 3.9l1 5.6l-5-2.8l-5 2.8l1-5.6l-4-3.9l5.5-.7z",
  stop: "M7 7h10v10H7z",
  timeline: "M4 20V12M8 20V7M12 20v-5M16 20V4M20 20v-9",
  download: "M12 4v11M7.5 11L12 15.5L16.5 11M5 20h14",
};

/** A small line drawing; the label of its element carries the meaning. @param {keyof typeof ICONS} name */
export const icon = (name) =>
  s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, s("path", { d: ICONS[name] }));

/** @type {(label: Child[], onclick: () => void, attributes?: Attributes) => HTMLButtonElement} */
export const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);

/** A button that is only an icon. @type {(name: keyof typeof ICONS, label: string, onclick: () => void, extra?: string) => HTMLButtonElement} */
export const iconButton = (name, label, onclick, extra = "") =>
  button([icon(name)], onclick, { class: `quiet icon-only ${extra}`, "aria-label": label, title: label });

/** A button that copies a text, and confirms it. @param {string} text @param {string} label */
export function copyButton(text, label) {
  const caption = h("span", {}, label);
  return button([icon("copy"), caption], async () => {
    caption.textContent = (await copied(text)) ? "Copied" : "Copy it by hand";
    setTimeout(() => { caption.textContent = label; }, 1500);
  }, { class: "small" });
}

/** Copy a text; whether that was possible. @param {string} text */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // on https and on this machine only
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" }, text);
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

const toasts = h("div", { class: "toasts", role: "status" });

/** A short message that goes by itself. @param {string} text */
export function toast(text) {
  (document.querySelector("dialog[open]") ?? document.body).append(toasts);
  const message = h("p", {}, text);
  toasts.replaceChildren(message);
  setTimeout(() => message.remove(), 3500);
}

/**
 * Ask for a line of text in a dialog; null where it was cancelled.
 * @param {{title: string, label: string, action: string, value?: string, options?: string[]}} question @returns {Promise<string | null>}
 */
export function askText({ title, label, action, value = "", options = [] }) {
  return new Promise((resolve) => {
    const input = h("input", { type: "text", id: "asked", value, required: true, maxlength: "60", autocomplete: "off", list: options.length ? "asked-options" : null });
    const form = h("form", { method: "dialog" }, h("h2", { id: "asked-title" }, title),
      h("div", { class: "field" }, h("label", { for: "asked" }, label), input),
      options.length ? h("datalist", { id: "asked-options" }, options.map((option) => h("option", { value: option }))) : null,
      h("div", { class: "actions end" }, button(["Cancel"], () => dialog.close()), h("button", { class: "primary" }, action)));
    const dialog = h("dialog", { class: "asking", "aria-labelledby": "asked-title" }, form);
    let answer = /** @type {string | null} */ (null);
    form.addEventListener("submit", () => { answer = input.value.trim() || null; });
    dialog.addEventListener("close", () => { dialog.remove(); resolve(answer); });
    document.body.append(dialog);
    dialog.showModal();
    input.select();
  });
}

/** Shell commands, each with a button that copies it. @param {string[]} lines */
export const commands = (...lines) =>
  h("ul", { class: "commands" }, lines.map((line) => h("li", {}, h("code", {}, line), copyButton(line, "Copy"))));

/** A block in the middle of a view: what is the matter, and what to do. @param {string} title @param {Child[]} content */
export const notice = (title, ...content) => h("section", { class: "notice" }, h("h2", {}, title), ...content);

/** The notice of something that failed. @param {string} text @param {Child[]} content */
export const failure = (text, ...content) => notice("That did not work", h("p", {}, text), ...content);

/** The head of a view. @param {Child} title @param {Child} status */
export const viewHead = (title, status) =>
  h("header", { class: "view-head" }, typeof title === "string" ? h("h1", {}, title) : title, status);

/** A line of text that screen readers announce when it changes. */
export const statusLine = () => h("p", { class: "status", role: "status" });

/** A number and its noun: "1 picture", "2,000 pictures". @param {number} n @param {string} noun */
export const count = (n, noun, more = "") => `${n.toLocaleString()}${more} ${noun}${n === 1 ? "" : "s"}`;

/** A labelled slider that reports its value once it rests. */
export class Slider {
  /** @param {{id: string, label: string, max: number, pause: number, text: (value: number) => string, changed: () => void}} options */
  constructor({ id, label, max, pause, text, changed }) {
    this.text = text;
    this.input = h("input", { type: "range", id, min: 0, max, step: 1, value: 0 });
    this.output = h("output", { for: id });
    this.element = h("div", { class: "field radius" },
      h("div", { class: "field-head" }, h("label", { for: id }, label), this.output), this.input);
    let timer = 0;
    this.input.addEventListener("input", () => {
      this.describe();
      clearTimeout(timer);
      timer = setTimeout(changed, pause);
    });
  }

  get value() {
    return Number(this.input.value);
  }

  set value(value) {
    this.input.value = String(value);
    this.describe();
  }

  describe() {
    this.output.textContent = this.text(this.value);
    this.input.setAttribute("aria-valuetext", this.output.textContent);
  }
}
