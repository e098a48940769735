// The radius and the filters on metadata, as they stand in the address.

import { button, h, Slider } from "./dom.js";

const PAUSE = 120; // ms that the slider must rest

/** The filters of an address, as the service wants them. @param {ViewParameters} parameters */
export function readFilters(parameters) {
  let where = null;
  try {
    where = JSON.parse(parameters.where || "null");
  } catch { /* a mangled link: search without the filter */ }
  const radius = Number.parseInt(parameters.radius ?? "", 10);
  return { radius: radius > 0 ? radius : null, folder: parameters.folder ?? null, where: where && typeof where === "object" ? where : null };
}

export class Filters {
  /** changed is given {radius, where} as parameters of an address. @param {number} bits @param {(values: object) => void} changed */
  constructor(bits, changed) {
    this.changed = changed;
    this.radius = new Slider({ id: "radius", label: "Radius", max: Math.floor(bits / 2), pause: PAUSE, changed: () => this.report(),
      text: (radius) => (radius === 0 ? "off" : `within ${radius} bit${radius === 1 ? "" : "s"}`) });
    this.fields = h("div", { class: "fields" });
    this.reset = button(["Clear the filters"], () => changed({ radius: null, where: null }), { class: "small", hidden: true });
    this.element = h("div", { class: "filters" }, this.radius.element, this.fields, this.reset);
    this.selects = /** @type {ReturnType<typeof select>[]} */ ([]);
  }

  /** Offer the values of the collection. @param {Facets} facets */
  offer({ metadata }) {
    this.selects = Object.entries(metadata).filter(([, values]) => values.length > 1)
      .map(([name, values]) => select(name, values.map((value) => [JSON.stringify(value), String(value)])));
    for (const { input } of this.selects) input.addEventListener("change", () => this.report());
    this.fields.replaceChildren(...this.selects.map(({ element }) => element));
  }

  /** Show the filters of an address; the radius means nothing without a query. @param {ReturnType<typeof readFilters>} filters @param {boolean} hasQuery */
  show({ radius, where }, hasQuery) {
    this.radius.element.hidden = !hasQuery;
    this.radius.value = radius ?? 0;
    for (const { input, name } of this.selects) {
      const value = where?.[name] === undefined ? null : JSON.stringify(where[name]);
      input.value = value ?? "";
      if (value !== null && input.selectedIndex < 0) input.append(new Option(value, value, true, true)); // of the link, not of the list
    }
    this.reset.hidden = !(where || (hasQuery && radius));
  }

  /** Whether there is anything to choose. */
  get any() {
    return this.selects.length > 0 || !this.radius.element.hidden;
  }

  report() {
    const where = /** @type {Record<string, unknown>} */ ({});
    for (const { input, name } of this.selects) if (input.value !== "") where[name] = JSON.parse(input.value);
    this.changed({ radius: this.radius.value || null, where: Object.keys(where).length ? JSON.stringify(where) : null });
  }
}

/** A labelled choice of a value of metadata. @param {string} name @param {string[][]} options */
function select(name, options) {
  const id = `filter-of-${name}`;
  const input = h("select", { id }, h("option", { value: "" }, "any"),
    options.map(([value, text]) => h("option", { value }, text)));
  return { name, input, element: h("div", { class: "field" }, h("label", { for: id }, name), input) };
}
