// Pictures that come in from outside: dropped anywhere, pasted anywhere, or picked.

import { h, icon } from "./dom.js";

const veil = h("div", { class: "veil", hidden: true, "aria-hidden": "true" },
  h("div", {}, icon("picture"), h("p", {}, "Drop the picture to search with it")));

const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
const isPicture = (file) => file.type.startsWith("image/");

/** Listen on the whole page. found(file) is given the first picture, other(text) pasted words. */
export function listenForPictures(found, other) {
  document.body.append(veil);
  window.addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  window.addEventListener("dragleave", (event) => { if (!event.relatedTarget) veil.hidden = true; });
  window.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!carriesFiles(event)) return;
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    found(files.find(isPicture) ?? files[0]);
  });
  window.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find(isPicture);
    if (file) {
      event.preventDefault();
      found(file);
    } else if (!event.target.closest?.("input, textarea")) {
      other(event.clipboardData?.getData("text/plain").trim() ?? "");
    }
  });
}

/** A button that opens the picker of the system. */
export function pickButton(label, found) {
  const input = h("input", { type: "file", accept: "image/*", class: "unseen", tabindex: "-1", "aria-label": label });
  input.addEventListener("change", () => {
    if (input.files.length) found(input.files[0]);
    input.value = "";
  });
  return h("span", { class: "pick" }, input,
    h("button", { type: "button", class: "primary", onclick: () => input.click() }, icon("picture"), label));
}
