// Two runs side by side: what is the same in them, what differs, and what only one of them has done.

import { json } from "./api.js";
import { fill, h, link } from "./dom.js";
import { taken } from "./run_list.js";
import { callState, explained, placeOf } from "./story.js";
import { duration, inert, number, oneLine, pretty, when } from "./text.js";

/**
 * Something that was done.
 * @typedef {{like: string, depth: number, name: string, state: string, told: string, place: string, parts: [string, string][]}} Step
 */

/** Characters of each text that is compared. */
const LONGEST = 8_000;
/** As many steps of a run are compared. */
const MOST = 1_000;
const SIDES = ["the first", "the second"];
/** What is another one in each run, whatever was done. */
const NAMES = new Set(["id", "call_id", "status", "response_id", "encrypted_content"]);

/**
 * Read two runs and show them in a place.
 * @param {HTMLElement} place
 * @param {string[]} ids
 * @param {AbortSignal} signal
 */
export async function compareRuns(place, ids, signal) {
  const [first, second] = await Promise.all(ids.map((id) => read(id, signal)));
  if (signal.aborted || !first || !second) return;
  const rows = aligned(first.steps, second.steps);
  const only = h("input", { type: "checkbox", change: () => list.classList.toggle("only-differences", only.checked) });
  const list = h("div", { class: "compared" }, rows.map(rowView));
  fill(place,
    h("p", {}, link("#/runs", "All runs")),
    h("div", { class: "head" }, h("h1", {}, "Two runs")),
    facts(first.run, second.run),
    h("section", { "aria-label": "What was done" },
      h("h2", {}, "What was done"),
      h("div", { class: "filters" }, h("label", { class: "choice" }, only, "Only what differs"), h("span", { class: "muted", role: "status" }, summary(rows))),
      Math.max(first.steps.length, second.steps.length) === MOST && h("p", { class: "hint" }, `The first ${number(MOST)} steps of each are compared.`),
      list));
}

/** @param {string} id @param {AbortSignal} signal */
async function read(id, signal) {
  const one = encodeURIComponent(id);
  const [run, trace] = await Promise.all([
    json(`/v1/runs/${one}`, { signal }),
    json(`/v1/responses/${one}/trace?max_length=${LONGEST}`, { signal }),
  ]);
  /** @type {Step[]} */
  const steps = [];
  for (const response of trace.responses) addResponse(steps, run.id, response, 0);
  return { run, steps: steps.slice(0, MOST) };
}

// --- what was done, in its order -------------------------------------------------------------------------------------

/** @param {Step[]} steps @param {string} run @param {Json} response @param {number} depth */
function addResponse(steps, run, response, depth) {
  steps.push({
    like: `agent ${response.agent}`, depth, name: oneLine(response.agent, 60), state: String(response.status),
    told: response.usage ? `${number(response.usage.total_tokens)} tokens` : "", place: placeIn(run, { response_id: response.id }),
    parts: [["Model", String(response.model)], ["Instructions", response.instructions ?? ""], ["What it was given", response.input.map(textOf).join("\n\n")], ["Why it has no answer", whyNone(response)]],
  });
  for (const turn of response.turns ?? []) addTurn(steps, run, response, turn, depth + 1);
  for (const agent of response.agents) addResponse(steps, run, agent, depth + 1);
}

/** @param {Json} response */
function whyNone({ error, incomplete_details: details }) {
  return String(error?.message ?? (details ? explained(details.reason) : ""));
}

/** @param {Step[]} steps @param {string} run @param {Json} response @param {Json} turn @param {number} depth */
function addTurn(steps, run, response, turn, depth) {
  steps.push({
    like: "turn", depth, name: turn.number ? `turn ${turn.number}` : "before the first turn", state: turn.error ? "failed" : "ok",
    told: [turn.seconds !== null && duration(turn.seconds), turn.output_tokens > 0 && `${number(turn.output_tokens)} tokens out`].filter(Boolean).join(", "),
    place: placeIn(run, { response_id: response.id, turn: turn.number }),
    parts: [["What was said", turn.items.map(textOf).join("\n\n")], ["Why there is no answer", turn.error ?? ""]],
  });
  for (const call of turn.calls) addCall(steps, run, response, call, depth + 1);
}

/** @param {Step[]} steps @param {string} run @param {Json} response @param {Json} call @param {number} depth */
function addCall(steps, run, response, call, depth) {
  const { question } = call;
  steps.push({
    like: `call ${call.name}`, depth, name: oneLine(call.name, 60), state: callState(call), told: call.seconds === null ? "" : duration(call.seconds),
    place: placeIn(run, { response_id: response.id, call_id: call.call_id }),
    parts: [["Arguments", pretty(call.arguments)], ["Answered", question?.answer ? pretty(question.answer) : ""], ["Result", call.output === null ? "" : pretty(call.output)]],
  });
  for (const made of call.calls) addCall(steps, run, response, made, depth + 1);
  for (const agent of call.agents) addResponse(steps, run, agent, depth + 1);
}

/** @param {string} run @param {Json} of */
function placeIn(run, of) {
  return `#/runs/${encodeURIComponent(run)}/${encodeURIComponent(placeOf(of))}`;
}

/** What an item says: its text, or all that it has but its names. @param {Json} item */
function textOf(item) {
  const content = item.content ?? item.summary;
  const texts = Array.isArray(content) ? content.map((part) => part?.text ?? part?.refusal ?? "").filter(Boolean) : [content];
  if (texts.length > 0 && texts.every((text) => typeof text === "string" && text)) return texts.join("\n");
  return JSON.stringify(item, (key, value) => (NAMES.has(key) ? undefined : value), 2);
}

// --- which step of one run is which of the other ---------------------------------------------------------------------

/** @param {Step | undefined} one @param {Step | undefined} other */
function alike(one, other) {
  return one?.like === other?.like && one?.depth === other?.depth;
}

/**
 * Tell how many pairs of steps of the same kind there are at most, from one step of each run on.
 * @param {Step[]} first
 * @param {Step[]} second
 * @returns {(i: number, j: number) => number}
 */
function pairsFrom(first, second) {
  const width = second.length + 1;
  const pairs = new Uint16Array((first.length + 1) * width);
  const most = (/** @type {number} */ i, /** @type {number} */ j) => pairs[i * width + j] ?? 0;
  for (let i = first.length - 1; i >= 0; i -= 1) {
    for (let j = second.length - 1; j >= 0; j -= 1) pairs[i * width + j] = alike(first[i], second[j]) ? most(i + 1, j + 1) + 1 : Math.max(most(i + 1, j), most(i, j + 1));
  }
  return most;
}

/**
 * Pair the steps of two runs: as many as possible that are of the same kind, in their order.
 * @param {Step[]} first
 * @param {Step[]} second
 * @returns {[Step | null, Step | null][]}
 */
function aligned(first, second) {
  const most = pairsFrom(first, second);
  /** @type {[Step | null, Step | null][]} */
  const rows = [];
  let [i, j] = [0, 0];
  for (let [one, other] = [first[0], second[0]]; one && other; [one, other] = [first[i], second[j]]) {
    const isPair = alike(one, other);
    const isOfFirst = !isPair && most(i + 1, j) >= most(i, j + 1);
    rows.push(isPair ? [one, other] : isOfFirst ? [one, null] : [null, other]);
    if (isPair || isOfFirst) i += 1;
    if (!isOfFirst) j += 1;
  }
  for (const step of first.slice(i)) rows.push([step, null]);
  for (const step of second.slice(j)) rows.push([null, step]);
  return rows;
}

/** What differs between two steps, in words. @param {Step} one @param {Step} other */
function differences(one, other) {
  const parts = one.parts.map(([title, text], index) => (text === other.parts[index]?.[1] ? "" : title.toLowerCase()));
  return [one.state === other.state ? "" : "how it ended", ...parts].filter(Boolean);
}

/** @param {[Step | null, Step | null][]} rows */
function summary(rows) {
  const counts = { same: 0, differ: 0, first: 0, second: 0 };
  for (const [one, other] of rows) counts[!other ? "first" : !one ? "second" : differences(one, other).length > 0 ? "differ" : "same"] += 1;
  return `${number(counts.same)} the same, ${number(counts.differ)} differ, ${number(counts.first)} only in the first, ${number(counts.second)} only in the second`;
}

// --- how it is shown -------------------------------------------------------------------------------------------------

/** @param {[Step | null, Step | null]} pair */
function rowView([one, other]) {
  const what = !one || !other ? `only in ${SIDES[one ? 0 : 1]}` : differences(one, other).join(", ");
  const step = /** @type {Step} */ (one ?? other);
  const body = h("div", { class: "sides" });
  const element = h("details", { class: what ? "pair differs" : "pair" },
    h("summary", {},
      h("span", { class: "sides" }, [one, other].map((side) => h("span", { class: `half depth-${Math.min(step.depth, 8)}` }, side ? [
        h("span", { class: `dot ${/^(ok|completed)$/.test(side.state) ? "ok" : /^(queued|in_progress|waiting)$/.test(side.state) ? "waiting" : "failed"}`, title: side.state.replaceAll("_", " ") }),
        h("span", { class: "name" }, side.name), h("span", { class: "took" }, side.told)] : h("span", { class: "muted" }, "–")))),
      h("span", { class: "difference" }, what)),
    body);
  element.ontoggle = () => {
    if (body.childElementCount === 0) fill(body, [one, other].map((side, index) => h("div", { class: "half" }, side && sideView(side, index === 0 ? other : one))));
  };
  return element;
}

/** @param {Step} step @param {Step | null} beside */
function sideView(step, beside) {
  const shown = step.parts.map(([title, text], index) => [title, text, beside?.parts[index]?.[1] ?? ""]).filter(([, text, other]) => text || other);
  return [
    shown.map(([title = "", text = "", other = ""]) => [h("h4", {}, title), h("div", { class: "block" }, h("pre", { tabindex: 0, "aria-label": title }, beside ? marked(text, other) : inert(text)))]),
    h("p", {}, link(step.place, "In its run")),
  ];
}

/** A text, with the lines marked that another one has not. @param {string} text @param {string} other */
function marked(text, other) {
  const known = new Set(other.split("\n"));
  return text.split("\n").map((line, index) => [index > 0 && "\n", known.has(line) ? line : h("mark", {}, line)]);
}

/** @param {Json} first @param {Json} second */
function facts(first, second) {
  /** @type {[string, (run: Json) => string | number | null][]} */
  const told = [
    ["Status", (run) => (run.waiting ? "waiting" : String(run.status).replaceAll("_", " "))],
    ["Agent", (run) => oneLine(run.agent ?? "–", 60)],
    ["Model", (run) => oneLine(String(run.model), 60)],
    ["Tokens", (run) => (run.usage ? number(run.usage.total_tokens) : "–")],
    ["Agents", (run) => number(run.agents.length)],
    ["Calls", (run) => number(run.calls.length)],
    ["Failed calls", (run) => number(run.failed_calls)],
    ["Time", taken],
  ];
  const runs = [first, second];
  return h("div", { class: "scrolls" }, h("table", { class: "facts-table" },
    h("thead", {}, h("tr", {}, h("td"), runs.map((run) => h("th", { scope: "col" }, link(`#/runs/${encodeURIComponent(run.id)}`, when(run.created_at)), " ", h("code", { class: "muted" }, oneLine(run.id.slice(-8))))))),
    h("tbody", {}, told.map(([name, value]) => h("tr", { class: value(first) === value(second) ? "" : "differs" },
      h("th", { scope: "row" }, name), runs.map((run) => h("td", {}, value(run))))))));
}
