// Colours of categories: a dozen that are distinct on light and dark. More categories share them, those that
// lie far apart on the map, where their labels tell them from each other.

const DISTINCT = ["#4a74d8", "#e8833a", "#3f9e6b", "#d1495b", "#8a63cc", "#1fa3b5", "#b8962a", "#d873b1", "#7d9f35", "#9a6a50", "#5b8fc7", "#a8487f"];
/** A colour as the browser computes it. @param {string} text @returns {Rgb} */
function computed(text) {
  const probe = document.createElement("span");
  probe.style.color = text;
  document.body.append(probe);
  const [r, g, b] = (getComputedStyle(probe).color.match(/[\d.]+/g) ?? []).map(Number);
  probe.remove();
  return { r, g, b };
}

/** The colour of the i-th category, of which there are few. @param {number} i */
export const categoryColour = (i) => computed(DISTINCT[i % DISTINCT.length]);

/**
 * A colour for each category by the place of its label: a dozen have their own, more share the colour whose
 * other labels are farthest away. @param {([number, number] | null)[]} places @param {number[]} order the largest first @returns {Rgb[]}
 */
export function sharedColours(places, order) {
  const colours = DISTINCT.map(computed);
  if (places.length <= DISTINCT.length) return places.map((_, i) => colours[i]);
  const used = /** @type {[number, number][][]} */ (DISTINCT.map(() => []));
  const chosen = new Array(places.length).fill(0);
  for (const i of order) {
    const place = places[i];
    if (!place) continue;
    const apart = used.map((others) => Math.min(Infinity, ...others.map(([x, y]) => Math.hypot(x - place[0], y - place[1]))));
    const best = apart.indexOf(Math.max(...apart));
    used[best].push(place);
    chosen[i] = best;
  }
  return chosen.map((best) => colours[best]);
}

/** A colour of the style sheet in the current theme: "--paper" -> {r, g, b}. @param {string} name */
export const themeColour = (name) => computed(`var(${name})`);

export const css = ({ r, g, b }) => `rgb(${r} ${g} ${b})`;
