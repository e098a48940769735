// Elements built from data. Nothing here parses text as HTML, so no key or path can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element: h("p", {class: "muted", onclick: f}, "text", child). */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element, in the same way. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

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
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  reset: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  theme: "M12 3a9 9 0 1 1 0 18zM12 3a9 9 0 0 0 0 18",
  download: "M12 4v11M7.5 11L12 15.5L16.5 11M5 20h14",
};

/** A small line drawing; the words beside it (or the button's label) carry the meaning. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    s("path", { d: ICONS[name] }));
}

/** A button that is only an icon, with its words for those who hear the page or hover. */
export const iconButton = (name, label, onclick, extra = "") =>
  h("button", { type: "button", class: `quiet icon-only ${extra}`, "aria-label": label, title: label, onclick },
    icon(name));

/** A button that copies a text, and says that it did. */
export function copyButton(text, label) {
  const words = h("span", {}, label);
  const button = h("button", { type: "button", class: "small" }, icon("copy"), words);
  button.addEventListener("click", async () => {
    words.textContent = (await copied(text)) ? "Copied" : "Copy it by hand";
    setTimeout(() => { words.textContent = label; }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // only on https and on this machine
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

/** Commands of the shell, each with a button that copies it. */
export const commands = (...lines) =>
  h("ul", { class: "commands" }, lines.map((line) => h("li", {}, h("code", {}, line), copyButton(line, "Copy"))));

/** A quiet block in the middle of a view: what is the matter, and what to do. */
export const notice = (title, ...content) =>
  h("section", { class: "notice" }, h("h2", {}, title), ...content);
