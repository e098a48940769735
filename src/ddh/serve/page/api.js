// Requests to the service. Paths are relative, so that the page works behind a prefix too.

/** The service answered with an error; its message is the service's own text. */
export class ServiceError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The service did not answer at all. */
export class ServiceGone extends Error {}

/** Tells the shell of the page: "gone" (no answer at all), "locked" (a token is needed), "busy". */
export const service = new EventTarget();

let open = 0;
function busy(change) {
  open += change;
  service.dispatchEvent(new CustomEvent("busy", { detail: open > 0 }));
}

/** Whether the shell has already told the person about this error. */
export const isTold = (error) =>
  error.name === "AbortError" || error instanceof ServiceGone || error.status === 401;

async function send(path, { json, form, method, headers = {}, signal } = {}) {
  const options = { method: method ?? (json || form ? "POST" : "GET"), headers: { ...headers }, signal };
  if (json) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(json);
  } else if (form) {
    options.body = form;
  }
  busy(1);
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    service.dispatchEvent(new Event("gone"));
    throw new ServiceGone("The service does not answer.");
  } finally {
    busy(-1);
  }
}

async function checked(path, options) {
  const answer = await send(path, options);
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "session") service.dispatchEvent(new Event("locked"));
  throw new ServiceError(answer.status, await detail(answer));
}

async function detail(answer) {
  const fallback = `The service answered ${answer.status} ${answer.statusText}.`;
  try {
    const said = (await answer.json()).detail;
    return typeof said === "string" ? said : fallback;
  } catch {
    return fallback;
  }
}

/** JSON of one request. Options: json or form (then POST), method, headers, signal. */
export const ask = async (path, options) => (await checked(path, options)).json();

/** Raw bytes of one request. */
export const askBytes = async (path, options) => (await checked(path, options)).arrayBuffer();

/** Exchange the token for a cookie, so that pictures load too. */
export const openSession = (token) =>
  checked("session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });

// A key may hold slashes, dots and anything else: escaped whole, so that "..", "?" and "#" stay text.
export const itemPath = (key) => `items/${encodeURIComponent(key)}`;
export const thumbnailPath = (key, size) => `thumbnails/${encodeURIComponent(key)}?size=${size}`;
export const picturePath = (key) => `pictures/${encodeURIComponent(key)}`;

/** A query string of the parameters that have a value. */
export function queryString(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
