// Requests to the service. Paths are relative, so that the page also works behind a prefix.

/** An error that the service answered with, in its own words; status 0 when it did not answer at all. */
export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Events for the shell of the page: "gone" (no answer at all), "locked" (a token is needed), "busy". */
export const service = new EventTarget();

/** Whether the shell of the page already shows this error. @param {any} error */
export const isReported = (error) =>
  error.name === "AbortError" || error.status === 0 || error.status === 401;

let pending = 0;
function countPending(change) {
  pending += change;
  service.dispatchEvent(new CustomEvent("busy", { detail: pending > 0 }));
}

/** The answer that first.js has asked for, once. @param {string} path */
function first(path) {
  const answer = window.asked?.get(path);
  window.asked?.delete(path);
  return answer;
}

/** A successful response; with json or form the request is a POST. @param {string} path @param {RequestOptions} [options] */
async function request(path, { json, form, method, headers, signal } = {}) {
  const type = json ? { "Content-Type": "application/json" } : null;
  const body = json ? JSON.stringify(json) : form;
  countPending(1);
  let response;
  try {
    response = await (first(path) ?? fetch(path, { method: method ?? (body ? "POST" : "GET"), headers: { ...type, ...headers }, body, signal }));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    service.dispatchEvent(new Event("gone"));
    throw new ServiceError(0, "The service does not answer.");
  } finally {
    countPending(-1);
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== "session") service.dispatchEvent(new Event("locked"));
  const { detail } = await response.json().catch(() => ({}));
  const fallback = `The service answered ${response.status} ${response.statusText}.`;
  throw new ServiceError(response.status, typeof detail === "string" ? detail : fallback);
}

/** The JSON of a response. @type {(path: string, options?: RequestOptions) => Promise<any>} */
export const fetchJson = async (path, options) => {
  const response = await request(path, options);
  return [202, 204].includes(response.status) ? null : response.json();
};

/** The bytes of a response. @param {string} path */
export const fetchBytes = async (path) => (await request(path)).arrayBuffer();

/** Exchange the token for a cookie, so that pictures load too. @param {string} token */
export const openSession = (token) =>
  request("session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });

// A key may hold any character: escaped as a whole, so that "/", "..", "?" and "#" stay text.
export const thumbnailPath = (key, size) => `thumbnails/${encodeURIComponent(key)}?size=${size}`;
export const picturePath = (key) => `pictures/${encodeURIComponent(key)}`;

/** A query string of the parameters that have a value. @param {Record<string, any>} parameters */
export function queryString(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
