// Colours of categories: a dozen chosen to be told apart on light and dark, then evenly spread hues.

const CHOSEN = ["#4a74d8", "#e8833a", "#3f9e6b", "#d1495b", "#8a63cc", "#1fa3b5", "#b8962a", "#d873b1", "#7d9f35", "#9a6a50", "#5b8fc7", "#a8487f"];
const GOLDEN_ANGLE = 137.508;

export function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return { r: value >> 16, g: (value >> 8) & 255, b: value & 255 };
}

/** The colour of the i-th category as {r, g, b}. */
export function categoryColour(i) {
  if (i < CHOSEN.length) return rgb(CHOSEN[i]);
  return fromHue((i * GOLDEN_ANGLE) % 360, 0.5, i % 2 ? 0.48 : 0.6);
}

function fromHue(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return { r: channel(0), g: channel(8), b: channel(4) };
}

/** A colour of the style sheet, as the open theme has it: "--paper" -> {r, g, b}. */
export function themeColour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return { r, g, b };
}

export const css = ({ r, g, b }) => `rgb(${r} ${g} ${b})`;
