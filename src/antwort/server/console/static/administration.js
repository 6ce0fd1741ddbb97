// For those who look after the server: its configuration, and the API keys of the tenant.

import { ApiError, json } from "./api.js";
import { button, copier, fill, h, problem, table } from "./dom.js";
import { duration, number, oneLine, when } from "./text.js";

const DAY = 86_400;
const LASTING = /** @type {[string, number][]} */ ([["It does not end", 0], ["A day", DAY], ["30 days", 30 * DAY], ["A year", 365 * DAY]]);

/**
 * Show a part of the page to those who may see it; to others, that they may not.
 * @param {HTMLElement} place
 * @param {string} title
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} work
 */
async function forAdmins(place, title, signal, work) {
  try {
    await work();
  } catch (error) {
    if (signal.aborted) return;
    const isClosed = error instanceof ApiError && error.status === 403;
    fill(place, h("h2", {}, title), isClosed ? h("p", { class: "hint" }, "They are shown to keys with the scope ", h("code", {}, "admin"), ".") : problem(error));
  }
}

/** Show the configuration that is in force. @param {HTMLElement} place @param {AbortSignal} signal */
export function showSettings(place, signal) {
  return forAdmins(place, "Settings", signal, async () => {
    const { data } = await json("/v1/config", { signal });
    const rows = h("tbody");
    const search = h("input", { type: "search", "aria-label": "Find a setting", placeholder: "Find a setting", input: () => show() });
    const all = h("input", { type: "checkbox", change: () => show() });
    const told = h("p", { class: "hint", role: "status" });
    const show = () => {
      const wanted = search.value.trim().toLowerCase();
      const found = data.filter((/** @type {Json} */ one) => (all.checked || one.origin !== "default") && `${one.key} ${one.origin}`.toLowerCase().includes(wanted));
      fill(told, `${number(found.length)} of ${number(data.length)}`);
      fill(rows, found.map((/** @type {Json} */ one) => h("tr", {},
        h("td", {}, h("code", {}, oneLine(one.key, 120))),
        h("td", {}, h("code", {}, oneLine(typeof one.value === "string" ? one.value : JSON.stringify(one.value), 200))),
        h("td", { class: "muted" }, oneLine(one.origin, 120)))));
    };
    show();
    fill(place, h("h2", {}, "Settings"),
      h("div", { class: "filters" }, h("div", { class: "search" }, search), h("label", { class: "choice" }, all, "Defaults, too"), told),
      table(["Setting", "Value", "Given at"], rows, "settings"));
  });
}

/** Show the API keys, with what makes one. @param {HTMLElement} place @param {AbortSignal} signal */
export async function showKeys(place, signal) {
  const list = h("div");
  const made = h("div", { "aria-live": "polite" });
  const look = () => forAdmins(place, "API keys", signal, async () => {
    const { data } = await json("/v1/keys", { signal });
    fill(list, data.length === 0 ? h("p", { class: "hint" }, "There are none.") : keyTable(data, revoke));
    if (!list.isConnected) fill(place, h("h2", {}, "API keys"), list, made, keyForm(make));
  });
  const say = (/** @type {unknown} */ error) => signal.aborted || fill(made, problem(error));
  const make = async (/** @type {Json} */ body) => {
    try {
      const one = await json("/v1/keys", { body, signal });
      fill(made, h("div", { class: "card cards new-key" },
        h("p", {}, "This is the key ", h("code", {}, oneLine(one.id)), ". Keep it: it is not shown again."),
        h("pre", { class: "code", tabindex: 0, "aria-label": "The new key" }, one.key),
        h("div", { class: "line" }, copier("Copy", () => one.key), button("I have it", () => fill(made), { class: "quiet" }))));
      await look();
    } catch (error) {
      say(error);
    }
  };
  const revoke = async (/** @type {string} */ id) => {
    try {
      await json(`/v1/keys/${encodeURIComponent(id)}`, { method: "DELETE", signal });
      await look();
    } catch (error) {
      say(error);
    }
  };
  await look();
}

/** @param {Json[]} keys @param {(id: string) => Promise<void>} revoke */
function keyTable(keys, revoke) {
  return table(["Key", "Used by", "May", "Made", "Ends", ""], keys.map((one) => h("tr", {},
    h("td", {}, h("code", {}, oneLine(one.id, 60)), one.label && h("div", { class: "hint" }, oneLine(one.label, 120))),
    h("td", {}, oneLine(one.subject, 60)),
    h("td", {}, oneLine(one.scopes.join(", "), 200)),
    h("td", { class: "muted" }, one.created_at ? when(one.created_at) : "in the configuration"),
    h("td", { class: "muted" }, ending(one.expires_at)),
    h("td", { class: "number" }, one.source === "file" && revoker(one.id, revoke)))), "keys");
}

/** @param {number | null} at */
function ending(at) {
  if (!at) return "–";
  const left = at - Date.now() / 1000;
  return left <= 0 ? "over" : left > DAY ? `in ${number(Math.round(left / DAY))} days` : `in ${duration(left)}`;
}

/** A button that asks once more, since nobody gets the key back. @param {string} id @param {(id: string) => Promise<void>} revoke */
function revoker(id, revoke) {
  const place = h("span");
  const offer = () => fill(place, button("Revoke", () => {
    const sure = button("Revoke it for good", () => void revoke(id));
    fill(place, sure, " ", button("Keep", offer, { class: "quiet" }));
    sure.focus();
  }, { class: "quiet", title: `Revoke ${oneLine(id, 60)}` }));
  offer();
  return place;
}

/** @param {(body: Json) => Promise<void>} make */
function keyForm(make) {
  const field = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string} */ hint) => {
    const input = h("input", { id: `key-${id}`, maxlength: 200, autocomplete: "off", placeholder: hint });
    return { input, element: h("div", { class: "field" }, h("label", { for: `key-${id}` }, label), input) };
  };
  const subject = field("subject", "Who uses it", "its id");
  const scopes = field("scopes", "What it may do", "all that you may");
  const label = field("label", "A note", "");
  const lasting = h("select", { id: "key-ends" }, LASTING.map(([name, seconds]) => h("option", { value: seconds }, name)));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const wanted = scopes.input.value.split(/[\s,]+/).filter(Boolean);
    const seconds = Number(lasting.value);
    await make({
      ...(subject.input.value.trim() && { subject: subject.input.value.trim() }),
      ...(wanted.length > 0 && { scopes: wanted }),
      ...(label.input.value.trim() && { label: label.input.value.trim() }),
      ...(seconds > 0 && { expires_at: Math.floor(Date.now() / 1000) + seconds }),
    });
  };
  return h("details", { class: "more" }, h("summary", {}, "Make a key"), h("form", { class: "card cards", submit },
    h("div", { class: "columns" }, subject.element, scopes.element, label.element, h("div", { class: "field" }, h("label", { for: "key-ends" }, "How long it lasts"), lasting)),
    h("div", {}, h("button", { type: "submit", class: "main" }, "Make the key"))));
}
