// The names of categories on the map: as many as there is room for, the largest first.

const FONT = "600 12.5px system-ui, sans-serif";
const HEIGHT = 20;
const ROOM = 28_000; // CSS pixels of the map for each label: more would hide the dots
const NUDGES = [0, -HEIGHT, HEIGHT, -2 * HEIGHT, 2 * HEIGHT]; // tried in turn, in CSS pixels

/** Short names of categories: folders by as many of their last parts as tell them apart. @param {string[]} names */
export function shortLabels(names) {
  const parts = names.map((name) => name.split("/"));
  const last = (i, n) => parts[i].slice(-n).join("/");
  const counts = /** @type {Map<string, number>} */ (new Map());
  names.forEach((_, i) => counts.set(last(i, 1), (counts.get(last(i, 1)) ?? 0) + 1));
  return names.map((name, i) => ((counts.get(last(i, 1)) ?? 0) < 2 ? last(i, 1) : last(i, 2)) || name || "top folder");
}

/**
 * Draw labels at the middles of their categories; one that finds no room is left out, at a higher zoom there is.
 * @param {CanvasRenderingContext2D} context scaled to CSS pixels @param {PlacedLabel[]} labels the most important first
 * @param {{text: string, halo: string, width: number, height: number}} map its colours and its size
 */
export function drawLabels(context, labels, { text: ink, halo, width, height }) {
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const drawn = /** @type {{x: number, y: number, half: number}[]} */ ([]);
  for (const { text, x: middle, y, colour } of labels) {
    if (drawn.length * ROOM > width * height) break;
    const half = context.measureText(text).width / 2 + 14;
    const x = Math.max(half, Math.min(width - half, middle));
    const free = NUDGES.map((nudge) => y + nudge).find((at) =>
      !drawn.some((other) => Math.abs(other.y - at) < HEIGHT + 2 && Math.abs(other.x - x) < other.half + half));
    if (free === undefined) continue;
    drawn.push({ x, y: free, half });
    context.globalAlpha = 0.8;
    context.fillStyle = halo;
    context.beginPath();
    context.roundRect(x - half, free - HEIGHT / 2, 2 * half, HEIGHT, HEIGHT / 2);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x - half + 10, free, 4, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = ink;
    context.fillText(text, x + 6, free + 0.5);
  }
}
