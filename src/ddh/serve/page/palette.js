// Colours of categories: a dozen that are distinct on light and dark, then evenly spread hues.

const DISTINCT = ["#4a74d8", "#e8833a", "#3f9e6b", "#d1495b", "#8a63cc", "#1fa3b5", "#b8962a", "#d873b1", "#7d9f35", "#9a6a50", "#5b8fc7", "#a8487f"];
const GOLDEN_ANGLE = 137.508;

/** A colour as the browser computes it. @param {string} text @returns {Rgb} */
function computed(text) {
  const probe = document.createElement("span");
  probe.style.color = text;
  document.body.append(probe);
  const [r, g, b] = (getComputedStyle(probe).color.match(/[\d.]+/g) ?? []).map(Number);
  probe.remove();
  return { r, g, b };
}

/** The colour of the i-th category. @param {number} i */
export const categoryColour = (i) =>
  computed(DISTINCT[i] ?? `hsl(${(i * GOLDEN_ANGLE) % 360} 50% ${i % 2 ? 48 : 60}%)`);

/** A colour of the style sheet in the current theme: "--paper" -> {r, g, b}. @param {string} name */
export const themeColour = (name) => computed(`var(${name})`);

export const css = ({ r, g, b }) => `rgb(${r} ${g} ${b})`;
