// Tags of pictures: words that people give them.

import { fetchJson } from "./api.js";
import { askText, count, toast } from "./dom.js";

/** @param {string[]} keys @param {string[]} add @param {string[]} remove */
export const changeTags = (keys, add, remove = []) => fetchJson("tags", { json: { keys, add, remove } });

/** Ask for tags and give them to pictures; whether any were given. @param {string[][]} parts keys, request by request */
export async function tagPictures(parts) {
  const pictures = count(parts.flat().length, "picture");
  const { tags } = await fetchJson("tags");
  const text = await askText({ title: `Tag ${pictures}`, label: "Tags, with spaces between them", action: "Tag", options: tags.map(({ name }) => name) });
  const names = (text ?? "").split(/[\s,]+/).filter((name) => name.replaceAll("#", ""));
  if (!names.length) return false;
  for (const keys of parts) await changeTags(keys, names);
  toast(`${pictures} tagged ${names.map((name) => `#${name.replace(/^#/, "")}`).join(" ")}.`);
  return true;
}
