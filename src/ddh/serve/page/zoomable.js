// A picture that can be zoomed and dragged: wheel, pinch, double click, keys, and full screen.

import { h, iconButton } from "./dom.js";

const MOST = 12; // times the size at which it fits
const STEP = 1.6;

export class Zoomable {
  constructor() {
    this.picture = /** @type {HTMLElement} */ (h("span", {}));
    this.zoom = 1;
    this.at = { x: 0, y: 0 };
    this.pointers = /** @type {Map<number, Point>} */ (new Map());
    this.reset = iconButton("fit", "Fit the picture (0)", () => this.look(1, 0, 0));
    this.tools = h("div", { class: "zoom-tools" },
      iconButton("minus", "Zoom out (-)", () => this.zoomAt(1 / STEP)),
      iconButton("plus", "Zoom in (+)", () => this.zoomAt(STEP)),
      this.reset,
      document.fullscreenEnabled ? iconButton("full", "Full screen (f)", () => this.toggleFullScreen()) : null);
    this.element = h("div", { class: "detail-picture" });
    this.listen();
  }

  /** Show a picture, with other things on top of it. @param {HTMLElement} picture @param {(Node | null)[]} above */
  show(picture, ...above) {
    this.picture = picture;
    this.element.replaceChildren(picture, ...above.filter((each) => each !== null), this.tools);
    this.look(1, 0, 0);
  }

  listen() {
    const { element, pointers } = this;
    const position = (event) => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left - box.width / 2, y: event.clientY - box.top - box.height / 2 };
    };
    const onButton = (event) => Boolean(/** @type {Element} */ (event.target).closest("button"));
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = position(event);
      this.zoomAt(Math.exp((-event.deltaY * (event.deltaMode ? 16 : 1) * (event.ctrlKey ? 4 : 1)) / 400), x, y);
    }, { passive: false });
    element.addEventListener("dblclick", (event) => {
      if (onButton(event)) return;
      const { x, y } = position(event);
      if (this.zoom > 1) this.look(1, 0, 0);
      else this.zoomAt(3, x, y);
    });
    element.addEventListener("pointerdown", (event) => {
      if (onButton(event)) return;
      pointers.set(event.pointerId, position(event));
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = position(event);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const length = (from) => Math.max(1, Math.hypot(from.x - other.x, from.y - other.y));
        this.zoomAt(length(now) / length(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      } else if (this.zoom > 1) this.look(this.zoom, this.at.x + now.x - before.x, this.at.y + now.y - before.y);
      pointers.set(event.pointerId, now);
    });
    for (const type of ["pointerup", "pointercancel"]) {
      element.addEventListener(type, (event) => pointers.delete(/** @type {PointerEvent} */ (event).pointerId));
    }
  }

  /** A key of the dialog; whether it meant something here. @param {string} key */
  key(key) {
    /** @type {Record<string, () => void>} */
    const actions = { "+": () => this.zoomAt(STEP), "=": () => this.zoomAt(STEP), "-": () => this.zoomAt(1 / STEP), 0: () => this.look(1, 0, 0), f: () => this.toggleFullScreen() };
    actions[key]?.();
    return key in actions;
  }

  /** Zoom by a factor; what lies at (x, y) from the middle stays there. @param {number} factor */
  zoomAt(factor, x = 0, y = 0) {
    const zoom = Math.max(1, Math.min(MOST, this.zoom * factor));
    const kept = zoom / this.zoom;
    this.look(zoom, x - (x - this.at.x) * kept, y - (y - this.at.y) * kept);
  }

  /** @param {number} zoom @param {number} x @param {number} y */
  look(zoom, x, y) {
    const { clientWidth: width, clientHeight: height } = this.element;
    const near = (value, size) => Math.max((-(zoom - 1) * size) / 2, Math.min(((zoom - 1) * size) / 2, value));
    this.zoom = zoom;
    this.at = { x: near(x, width), y: near(y, height) };
    this.picture.style.transform = zoom === 1 ? "" : `translate(${this.at.x}px, ${this.at.y}px) scale(${zoom})`;
    this.element.classList.toggle("zoomed", zoom > 1);
    this.reset.disabled = zoom === 1;
  }

  async toggleFullScreen() {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await this.element.requestFullscreen();
  }
}
