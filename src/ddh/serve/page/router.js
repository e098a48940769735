// Views as hash routes (#/search?key=...), so that Back works and a link can be shared.

import { queryString } from "./api.js";

/** The view and its parameters in the address bar; an unknown view is the first. @param {string[]} names */
export function current(names) {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = names.includes(path) ? path : names[0];
  return { name, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; parameters without a value are left out. @param {string} name @param {Record<string, any>} parameters */
export const route = (name, parameters) => `#/${name}${queryString(parameters)}`;

/** Go to a view; with replace, without a new entry in the history. @param {string} name @param {Record<string, any>} parameters */
export function go(name, parameters, { replace = false } = {}) {
  const address = route(name, parameters);
  if (replace) history.replaceState(null, "", address);
  else if (address !== location.hash) {
    location.hash = address;
    return;
  }
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
