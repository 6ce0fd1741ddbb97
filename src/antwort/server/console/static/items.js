// Items of a response, as people read them.

import { button, fill, h, link } from "./dom.js";
import { showMarkdown } from "./markdown.js";
import { passageAddress } from "./passages.js";
import { block, oneLine, pretty } from "./text.js";

/**
 * What an item has around it; `found` is what searches have found for the answer that it is of.
 * @typedef {{progress?: string, respond?: (items: Json[]) => void, isOver: boolean, found?: Json[]}} Around
 */

const DONE = new Set(["completed", "success"]);

/** What calls are called, by the type of their item. */
const NAMES = /** @type {Record<string, string>} */ ({
  web_search_call: "Web search",
  file_search_call: "File search",
  code_interpreter_call: "Code",
  image_generation_call: "Picture",
  shell_call: "Shell",
  mcp_list_tools: "Tools of an MCP server",
  mcp_approval_request: "A call to approve",
  compaction: "What came before, shorter",
  tool_search_call: "Search for functions",
});

/**
 * Show an item; in the place of what was shown of it before, which keeps what its reader has opened.
 * @param {Json} item
 * @param {Around} around
 * @param {HTMLElement} [before]
 * @returns {HTMLElement}
 */
export function itemView(item, around, before) {
  if (item.type === "message") return message(item, around, before);
  if (item.type === "reasoning") return reasoning(item, around, before);
  return call(item, around, before);
}

/** @param {Json} item @param {Around} around @param {HTMLElement} [before] */
function message(item, around, before) {
  const element = before ?? h("div", { class: "message" });
  const parts = /** @type {Json[]} */ (item.content ?? []);
  while (element.children.length < parts.length) element.append(h("div"));
  parts.forEach((part, index) => {
    const place = /** @type {Element} */ (element.children[index]);
    if (part.type === "refusal") fill(place, h("p", { class: "refusal" }, part.refusal ?? ""));
    else showPart(place, part, around.found ?? []);
  });
  return element;
}

/** @param {Element} place @param {Json} part @param {Json[]} found */
function showPart(place, part, found) {
  const text = String(part.text ?? "");
  const cited = /** @type {Json[]} */ (part.annotations ?? []);
  /** @type {Map<string, string>} */
  const marks = new Map();
  for (const one of cited) {
    const mark = text.slice(one.start_index ?? 0, one.end_index ?? 0);
    const address = addressOf(one, found);
    if (/^[[【].+[\]】]$/.test(mark) && address) marks.set(mark, address);
  }
  if (place.children.length === 0) place.append(h("div", { class: "prose" }), h("ul", { class: "sources", "aria-label": "Sources" }));
  const [body, sources] = /** @type {[Element, HTMLElement]} */ ([...place.children]);
  showMarkdown(body, text, marks);
  const seen = new Map(cited.map((one) => [addressOf(one, found) + (one.filename ?? one.title ?? ""), one]));
  sources.hidden = seen.size === 0;
  fill(sources, [...seen.values()].map((one) => h("li", {}, link(addressOf(one, found), oneLine(String(one.title ?? one.filename ?? one.url ?? one.file_id ?? "Source"), 80)))));
}

/** Where a source is read: of a file that was found in a vector store, at the passage. @param {Json} annotation @param {Json[]} found */
function addressOf(annotation, found) {
  if (annotation.type === "url_citation") return /^https?:/i.test(annotation.url ?? "") ? String(annotation.url) : "";
  const passage = found.find((one) => one?.file_id === annotation.file_id);
  if (passage?.vector_store_id) return passageAddress(passage.vector_store_id, passage.file_id, String(passage.text));
  return annotation.file_id ? `#/files/file/${encodeURIComponent(annotation.file_id)}` : "";
}

/**
 * Make or go on with something that unfolds.
 * @param {string} name
 * @param {HTMLElement} [before]
 * @returns {[HTMLDetailsElement, HTMLElement, HTMLElement]} it, its line, and what is in it
 */
function unfolding(name, before) {
  if (before) return /** @type {any} */ ([before, before.children[0], before.children[1]]);
  const line = h("summary");
  const body = h("div", { class: "inside" });
  return [h("details", { class: name }, line, body), line, body];
}

/** @param {Json} item @param {Around} around @param {HTMLElement} [before] */
function reasoning(item, around, before) {
  const [element, line, body] = unfolding("thoughts", before);
  const text = [...(item.summary ?? []), ...(item.content ?? [])].map((part) => part.text ?? "").join("\n\n");
  const going = !around.isOver && item.status !== "completed" && item.status !== "incomplete";
  fill(line, h("span", { class: going ? "working" : "" }, going ? "Thinking" : "Thoughts"));
  if (text) showMarkdown(body, text);
  else fill(body, h("p", { class: "muted" }, "They are not shown."));
  return element;
}

/** @param {Json} item @param {Around} around @param {HTMLElement} [before] */
function call(item, around, before) {
  const [element, line, body] = unfolding("call", before);
  const [state, told] = stateOf(item, around);
  const name = String(item.name ?? NAMES[item.type] ?? item.type.replaceAll("_", " ").replace("antwort:", ""));
  fill(line,
    h("span", { class: `dot ${state}` }),
    h("code", { class: "name" }, oneLine(item.server_label && item.type !== "mcp_approval_request" ? `${item.server_label}.${name}` : name, 80)),
    h("span", { class: "brief" }, brief(item)),
    h("span", { class: state === "waiting" ? "working muted" : "muted" }, told));
  const form = around.respond && around.isOver ? answerForm(item, around.respond) : null;
  // What a reader has opened stays open, and is only made while it is: a result may be large.
  const show = () => element.open && fill(body, contents(item), form);
  element.ontoggle = show;
  if (form) element.open = true;
  show();
  return element;
}

/** @param {Json} item @param {Around} around @returns {[string, string]} */
function stateOf(item, around) {
  const status = String(item.status ?? "");
  if (item.error || status === "failed") return ["failed", "failed"];
  if (item.type === "mcp_approval_request") return ["waiting", ""];
  if (DONE.has(status) || !status) return ["ok", ""];
  if (around.isOver) return ["", status === "in_progress" ? "not ended" : status];
  return ["waiting", around.progress || String(item.phase ?? "").replaceAll("_", " ")];
}

/** Say in a few words what a call is about. @param {Json} item */
function brief(item) {
  const action = item.action ?? {};
  const queries = item.queries ?? action.queries ?? [action.query ?? action.url ?? ""];
  const said = item.arguments || item.input || item.code || (action.commands ?? []).join("; ") || queries.filter(Boolean).join("; ");
  return oneLine(typeof said === "string" ? said.replace(/^\{\s*"[^"]*":\s*(.*)\}$/s, "$1") : JSON.stringify(said), 100);
}

const SHOWN = new Set(["id", "type", "status", "name", "arguments", "output", "input", "code", "error", "result", "partial", "phase", "agent", "call_id", "content", "results", "outputs", "server_label"]);

/** @param {Json} item @returns {HTMLElement[]} */
function contents(item) {
  const others = Object.entries(item).filter(([key, value]) => !SHOWN.has(key) && value !== null);
  /** @type {[string, unknown][]} */
  const texts = [
    [item.code ? "Program" : "Arguments", item.arguments ?? item.input ?? item.code],
    ["Asked for", others.length > 0 && Object.fromEntries(others)],
    ["Error", item.error?.message ?? item.error],
    ...[item.output, item.outputs, item.results].map((value) => /** @type {[string, unknown]} */ (["Result", value])),
  ];
  const parts = texts
    .filter(([, value]) => value && /** @type {any} */ (value).length !== 0)
    .flatMap(([title, value]) => [h("h4", {}, title), block(pretty(value), title)]);
  return parts.length + pictures(item).length > 0 ? [...parts, ...pictures(item)] : [h("p", { class: "muted" }, "Nothing more is known of it.")];
}

/** @param {Json} item @returns {HTMLElement[]} */
function pictures(item) {
  const drawn = item.result ?? item.partial;
  const shown = (item.content ?? []).filter((/** @type {Json} */ part) => typeof part.image_url === "string");
  return [
    ...(typeof drawn === "string" && drawn ? [image(`data:image/png;base64,${drawn}`, "What was drawn")] : []),
    ...shown.map((/** @type {Json} */ part) => image(part.image_url, "A picture of the result")),
  ];
}

/** Show a picture that came with its bytes; others stay where they are. @param {string} address @param {string} label */
function image(address, label) {
  if (!/^data:image\/(?:png|jpeg|webp|gif);base64,/i.test(address)) return h("p", {}, link(address, oneLine(address)));
  return h("img", { class: "picture", src: address, alt: label });
}

/**
 * Make a form for a call that waits for whoever reads this, if it is one.
 * @param {Json} item
 * @param {(items: Json[]) => void} respond
 */
function answerForm(item, respond) {
  if (item.type === "mcp_approval_request") {
    return h("div", { class: "answer-form" },
      button("Allow", () => respond([{ type: "mcp_approval_response", approval_request_id: item.id, approve: true }]), { class: "main" }),
      button("Refuse", () => respond([{ type: "mcp_approval_response", approval_request_id: item.id, approve: false }])));
  }
  if (item.type !== "function_call") return null;
  const field = h("textarea", { rows: 2, "aria-label": `Result of ${oneLine(String(item.name))}` });
  const send = (/** @type {string} */ output) => respond([{ type: "function_call_output", call_id: item.call_id, output }]);
  const choices = choicesOf(item);
  if (choices.length > 0) return h("div", { class: "answer-form" }, choices.map((choice) => button(oneLine(choice, 60), () => send(choice))));
  return h("form", { class: "answer-form", submit: (/** @type {Event} */ event) => (event.preventDefault(), send(field.value)) }, field, h("button", { type: "submit", class: "main" }, "Answer"));
}

/** @param {Json} item @returns {string[]} */
function choicesOf(item) {
  try {
    const { choices } = JSON.parse(item.arguments);
    return Array.isArray(choices) ? choices.map(String) : [];
  } catch {
    return [];
  }
}
