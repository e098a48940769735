// Hands on the map: drag and pinch, wheel and keys, turned into looks of the camera.

const CLICK = 5; // CSS pixels a press may wander and still be a click
const STEP = 80; // CSS pixels that an arrow key moves
const CLOSER = 1.5; // times that a key zooms

/**
 * Told: over(x, y) and out() as the pointer moves, press(x, y, touch) for a click, middle() after a
 * move by key, enter() for the Enter key.
 */
export function listenToHands(canvas, scatter, told) {
  const down = new Map(); // pointer -> where it is
  let wandered = 0;
  let pinched = false;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    if (down.size === 1) { wandered = 0; pinched = false; }
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = down.get(event.pointerId);
    if (!before) {
      told.over(now.x, now.y);
      return;
    }
    if (down.size === 2) {
      const other = [...down].find(([id]) => id !== event.pointerId)[1];
      pinched = true;
      pinch(scatter, before, now, other);
    } else {
      wandered += Math.hypot(now.x - before.x, now.y - before.y);
      if (wandered > CLICK) { told.out(); scatter.pan(now.x - before.x, now.y - before.y); }
    }
    down.set(event.pointerId, now);
  });

  const up = (event) => {
    if (!down.delete(event.pointerId) || event.type === "pointercancel") return;
    const { x, y } = place(event);
    if (wandered <= CLICK && !pinched) told.press(x, y, event.pointerType === "touch");
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") told.out(); });

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = place(event);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    scatter.zoomAt(x, y, Math.exp((-event.deltaY * lines * (event.ctrlKey ? 4 : 1)) / 400)); // ctrl: a pinch on a trackpad
    told.out();
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const { clientWidth, clientHeight } = canvas;
    const zoom = (factor) => scatter.zoomAt(clientWidth / 2, clientHeight / 2, factor);
    if (event.key in moves) scatter.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(CLOSER);
    else if (event.key === "-" || event.key === "_") zoom(1 / CLOSER);
    else if (event.key === "0") scatter.look(...scatter.home());
    else if (event.key === "Enter") { told.enter(); return; }
    else if (event.key === "Escape") { told.out(); return; }
    else return;
    event.preventDefault();
    told.middle();
  });
  canvas.addEventListener("blur", () => told.out());
}

/** Two fingers: what lay between them stays between them. */
function pinch(scatter, before, now, other) {
  const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
  const length = (a, b) => Math.max(1, Math.hypot(a.x - b.x, a.y - b.y));
  scatter.zoomAt(middle.x, middle.y, length(now, other) / length(before, other));
  scatter.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
}
