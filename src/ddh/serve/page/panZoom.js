// Pan and zoom of the map by mouse, touch, wheel and keyboard.

/** @import { Scatter } from "./scatter.js" */

const CLICK = 5; // CSS pixels a press may move and still be a click
const STEP = 80; // CSS pixels per arrow key
const ZOOM = 1.5; // factor per key

/**
 * Callbacks: over(x, y) and out() as the pointer moves, press(x, y, touch) for a click, middle() after a move
 * by key, enter() for the Enter key.
 * @param {HTMLCanvasElement} canvas @param {Scatter} scatter @param {PanZoomCallbacks} callbacks
 */
export function listenForPanZoom(canvas, scatter, callbacks) {
  const pointers = /** @type {Map<number, Point>} */ (new Map()); // those that are down
  let moved = 0;
  let pinched = false;
  const position = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, position(event));
    if (pointers.size === 1) { moved = 0; pinched = false; }
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = position(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      callbacks.over(now.x, now.y);
      return;
    }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) { // two fingers: what lay between them stays between them
      pinched = true;
      const distance = (from) => Math.max(1, Math.hypot(from.x - other.x, from.y - other.y));
      scatter.zoomAt((now.x + other.x) / 2, (now.y + other.y) / 2, distance(now) / distance(before));
      scatter.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
    } else {
      moved += Math.hypot(now.x - before.x, now.y - before.y);
      if (moved > CLICK) { callbacks.out(); scatter.pan(now.x - before.x, now.y - before.y); }
    }
    pointers.set(event.pointerId, now);
  });

  const up = (event) => {
    if (!pointers.delete(event.pointerId) || event.type === "pointercancel") return;
    const { x, y } = position(event);
    if (moved <= CLICK && !pinched) callbacks.press(x, y, event.pointerType === "touch");
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") callbacks.out(); });

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = position(event);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    scatter.zoomAt(x, y, Math.exp((-event.deltaY * lines * (event.ctrlKey ? 4 : 1)) / 400)); // ctrl: a pinch on a trackpad
    callbacks.out();
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { clientWidth, clientHeight } = canvas;
    const zoom = (factor) => scatter.zoomAt(clientWidth / 2, clientHeight / 2, factor);
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => scatter.pan(STEP, 0), ArrowRight: () => scatter.pan(-STEP, 0),
      ArrowUp: () => scatter.pan(0, STEP), ArrowDown: () => scatter.pan(0, -STEP),
      "+": () => zoom(ZOOM), "=": () => zoom(ZOOM), "-": () => zoom(1 / ZOOM), _: () => zoom(1 / ZOOM),
      0: () => scatter.look(...scatter.home()),
    };
    if (event.key === "Enter") callbacks.enter();
    else if (event.key === "Escape") callbacks.out();
    else if (event.key in actions) {
      actions[event.key]();
      event.preventDefault();
      callbacks.middle();
    }
  });
  canvas.addEventListener("blur", () => callbacks.out());
}
