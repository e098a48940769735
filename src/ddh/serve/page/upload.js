// Pictures from outside the page: dropped anywhere, pasted anywhere, or picked.

import { button, h, icon } from "./dom.js";

const dropHint = h("div", { class: "veil", hidden: true, "aria-hidden": "true" },
  h("div", {}, icon("picture"), h("p", {}, "Drop the picture to search with it")));

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
/** Whether a file may be a picture; browsers know no type of some formats (IMG_1.HEIC), which the service judges. @param {File} file */
export const isPicture = (file) => file.type.startsWith("image/") || (!file.type && /\.\w+$/.test(file.name));

/**
 * Listen on the whole page: onFile is given the first picture, onText pasted text.
 * @param {(file: File) => void} onFile @param {(text: string) => void} onText
 */
export function listenForUploads(onFile, onText) {
  document.body.append(dropHint);
  window.addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    dropHint.hidden = false;
  });
  window.addEventListener("dragleave", (event) => { if (!event.relatedTarget) dropHint.hidden = true; });
  window.addEventListener("drop", (event) => {
    dropHint.hidden = true;
    if (!carriesFiles(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    onFile(files.find(isPicture) ?? files[0]);
  });
  window.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find(isPicture);
    if (file) {
      event.preventDefault();
      onFile(file);
    } else if (!(/** @type {Element} */ (event.target)).closest?.("input, textarea")) {
      onText(event.clipboardData?.getData("text/plain").trim() ?? "");
    }
  });
}

/** A button that opens the file picker. @param {string} label @param {(file: File) => void} onFile @param {string | null} style */
export function pickButton(label, onFile, style = "primary") {
  const input = h("input", { type: "file", accept: "image/*", class: "unseen", tabindex: "-1", "aria-label": label });
  input.addEventListener("change", () => {
    if (input.files?.length) onFile(input.files[0]);
    input.value = "";
  });
  return h("span", { class: "pick" }, input, button([icon("picture"), label], () => input.click(), { class: style }));
}
