// The public API of the server, which is all that the page knows. The key stays in this tab.

import { pause } from "./dom.js";
import { Store } from "./store.js";

const KEPT = "antwort.key";

/** @typedef {{method?: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal, raw?: BodyInit}} Options */

/** Who is calling: the key, and why another one is wanted, if so. */
export const login = new Store({ key: sessionStorage.getItem(KEPT) ?? "", wanted: "" });

/** An answer that is an error. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {string} [code]
   */
  constructor(message, status, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Nobody has answered: the server is away, or the network. */
export class GoneError extends Error {}

/** Take a key, and go on with what has waited for one. @param {string} key */
export function useKey(key) {
  if (key) sessionStorage.setItem(KEPT, key);
  else sessionStorage.removeItem(KEPT);
  login.set({ key, wanted: "" });
}

/** Wait until there is another key. @param {string} tried @param {string} why @param {AbortSignal} [signal] */
function anotherKey(tried, why, signal) {
  if (login.value.key === tried) login.set({ wanted: why });
  return new Promise((resolve) => {
    const seen = new AbortController();
    signal?.addEventListener("abort", () => (seen.abort(), resolve(null)), { once: true });
    login.watch(seen.signal, ({ wanted }) => {
      if (!wanted) {
        seen.abort();
        resolve(null);
      }
    });
  });
}

/** @param {Options} options */
function sent(options) {
  /** @type {Record<string, string>} */
  const headers = { ...options.headers };
  if (login.value.key) headers.authorization = `Bearer ${login.value.key}`;
  /** @type {BodyInit | undefined} */
  let body = options.raw;
  if (options.body !== undefined) body = JSON.stringify(options.body);
  // Also without a body: the server takes no POST that any page could send.
  if (options.raw === undefined) headers["content-type"] = "application/json";
  return { method: options.method ?? (body === undefined ? "GET" : "POST"), headers, body };
}

/**
 * Ask, and return the answer; ApiError for one that is an error. Without a key that does, ask the user for one first.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  for (;;) {
    const { key } = login.value;
    let answer;
    try {
      answer = await fetch(path, {
        ...sent(options),
        signal: options.signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new GoneError("The server does not answer.");
    }
    if (answer.ok) return answer;
    const error = await errorOf(answer);
    if (answer.status !== 401) throw error;
    await anotherKey(key, key ? error.message : "This server wants to know who is asking.", options.signal);
    options.signal?.throwIfAborted();
  }
}

/** @param {Response} answer */
async function errorOf(answer) {
  const text = await answer.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    return new ApiError(String(error.message), answer.status, String(error.code ?? ""));
  } catch {
    return new ApiError(`The server has answered with ${answer.status}.`, answer.status);
  }
}

/**
 * Ask for JSON.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<Json>}
 */
export async function json(path, options) {
  const answer = await request(path, options);
  return answer.status === 204 ? {} : answer.json();
}

/**
 * Ask for all pages of a list.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {number} [most]
 * @returns {Promise<Json[]>}
 */
export async function everything(path, signal, most = 1000) {
  /** @type {Json[]} */
  const found = [];
  const more = path.includes("?") ? "&" : "?";
  for (let after = ""; ; ) {
    const page = await json(`${path}${more}limit=100${after}`, { signal });
    found.push(...page.data);
    if (!page.has_more || found.length >= most) return found;
    after = `&after=${encodeURIComponent(page.last_id ?? found.at(-1)?.id)}`;
  }
}

/**
 * Ask for server-sent events and give their data, until the stream ends; GoneError if it breaks off.
 * @param {string} path
 * @param {Options} options
 * @returns {AsyncGenerator<Json>}
 */
export async function* events(path, options) {
  const answer = await request(path, options);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        if (options.signal?.aborted) throw error;
        throw new GoneError("The stream has broken off.");
      });
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const data = frame.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        if (data === "[DONE]") return;
        if (data) yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Upload a file, and tell how far it is.
 * @param {File} file
 * @param {string} purpose
 * @param {(share: number) => void} tell
 * @param {AbortSignal} [signal]
 * @returns {Promise<Json>}
 */
export function upload(file, purpose, tell, signal) {
  const form = new FormData();
  form.append("purpose", purpose);
  form.append("file", file, file.name);
  return new Promise((resolve, reject) => {
    const asking = new XMLHttpRequest();
    asking.open("POST", "/v1/files");
    asking.responseType = "json";
    // Also where nobody is asked for one: it tells the server that no page of others sends the form.
    asking.setRequestHeader("authorization", `Bearer ${login.value.key || "none"}`);
    asking.upload.addEventListener("progress", (event) => tell(event.lengthComputable ? event.loaded / event.total : 0));
    asking.addEventListener("load", () => {
      if (asking.status < 300) resolve(asking.response);
      else reject(new ApiError(asking.response?.error?.message ?? `The server has answered with ${asking.status}.`, asking.status));
    });
    asking.addEventListener("error", () => reject(new GoneError("The server does not answer.")));
    asking.addEventListener("abort", () => reject(new GoneError("The upload was given up.")));
    signal?.addEventListener("abort", () => asking.abort(), { once: true });
    asking.send(form);
  });
}

/**
 * Do something until the server is there to do it, with growing pauses.
 * @template T
 * @param {AbortSignal} signal
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function patiently(signal, work) {
  for (let seconds = 0.25; ; seconds = Math.min(2 * seconds, 5)) {
    try {
      return await work();
    } catch (error) {
      const passes = error instanceof GoneError || (error instanceof ApiError && error.status === 503);
      if (!passes || signal.aborted) throw error;
    }
    await pause(seconds, signal);
    signal.throwIfAborted();
  }
}
