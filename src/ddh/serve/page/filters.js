// The radius and the filters on folder and metadata, as they stand in the address.

import { h } from "./dom.js";

const PAUSE = 120; // ms: a slider that moves asks once it rests

/** The filters of an address, as the service wants them. */
export function readFilters(parameters) {
  let where = null;
  try {
    where = parameters.where ? JSON.parse(parameters.where) : null;
  } catch {
    where = null; // a mangled link: search without the filter
  }
  const radius = Number.parseInt(parameters.radius, 10);
  return { radius: radius > 0 ? radius : null, folder: parameters.folder ?? null, where };
}

export class Filters {
  /** changed(values): {radius, folder, where} as parameters of an address. */
  constructor(bits, changed) {
    this.changed = changed;
    this.slider = h("input", { type: "range", id: "radius", min: "0", max: Math.floor(bits / 2), value: "0", step: "1" });
    this.said = h("output", { for: "radius" });
    this.radius = h("div", { class: "field radius" },
      h("div", { class: "field-head" }, h("label", { for: "radius" }, "Radius"), this.said), this.slider);
    this.fields = h("div", { class: "fields" });
    this.reset = h("button", { type: "button", class: "small", hidden: true, onclick: () => this.clear() }, "Clear the filters");
    this.element = h("div", { class: "filters" }, this.radius, this.fields, this.reset);
    this.selects = [];
    this.slider.addEventListener("input", () => {
      this.say();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.tell(), PAUSE);
    });
  }

  /** Offer what the collection has. */
  offer(facets) {
    const folders = facets.folders.filter((folder) => folder.name !== "");
    const choices = Object.entries(facets.metadata).filter(([, values]) => values.length > 1);
    this.selects = [
      ...(folders.length > 0 ? [select("Folder", null, folders.map(({ name, rows }) =>
        [name, `${name} (${rows.toLocaleString()})`]))] : []),
      ...choices.map(([name, values]) => select(name, name, values.map((value) => [JSON.stringify(value), String(value)]))),
    ];
    for (const { input } of this.selects) input.addEventListener("change", () => this.tell());
    this.fields.replaceChildren(...this.selects.map(({ element }) => element));
  }

  /** Show the filters of an address; the radius means nothing without a query. */
  show({ radius, folder, where }, hasQuery) {
    this.radius.hidden = !hasQuery;
    this.slider.value = String(radius ?? 0);
    this.say();
    for (const { input, name } of this.selects) {
      const value = name === null ? folder : where?.[name] === undefined ? null : JSON.stringify(where[name]);
      input.value = value ?? "";
      if (input.selectedIndex < 0) input.append(new Option(value, value, true, true)); // of the link, not of the list
    }
    this.reset.hidden = !(folder || where || (hasQuery && radius));
  }

  say() {
    const radius = Number(this.slider.value);
    const text = radius === 0 ? "off" : radius === 1 ? "within 1 bit" : `within ${radius} bits`;
    this.said.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }

  tell() {
    const where = {};
    let folder = null;
    for (const { input, name } of this.selects) {
      if (input.value === "") continue;
      if (name === null) folder = input.value;
      else where[name] = JSON.parse(input.value);
    }
    const radius = Number(this.slider.value) || null;
    this.changed({ radius, folder, where: Object.keys(where).length ? JSON.stringify(where) : null });
  }

  clear() {
    this.changed({ radius: null, folder: null, where: null });
  }
}

/** A labelled choice; name is the metadata's, or null for the folder. */
function select(label, name, options) {
  const id = `filter-${name === null ? "folder" : `of-${name}`}`;
  const input = h("select", { id }, h("option", { value: "" }, "any"),
    options.map(([value, text]) => h("option", { value }, text)));
  return { name, input, element: h("div", { class: "field" }, h("label", { for: id }, label), input) };
}
