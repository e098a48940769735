// Views as hash routes (#/search?key=...), so that Back works and a link can be shared.

/** The view and its parameters in the address bar; an unknown view is the search. */
export function current(names) {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = names.includes(path) ? path : names[0];
  return { name, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; parameters without a value are left out. */
export function route(name, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${name}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Go to a view. With replace the address changes without a new step for Back. */
export function go(name, parameters, { replace = false } = {}) {
  const address = route(name, parameters);
  if (!replace) {
    if (address === location.hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
