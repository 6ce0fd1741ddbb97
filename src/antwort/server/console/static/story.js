// The story of a run: what did not work, and a tree of its agents, their turns and calls, each with its place in time.

import { fill, h, link, svg } from "./dom.js";
import { itemView } from "./items.js";
import { block, duration, number, oneLine, pretty, when } from "./text.js";

/** @typedef {{element: HTMLElement, open: () => void}} Place where something of a run is told */

const SVG = { width: 100, height: 8 };
/** As many failures are listed; the others are in the tree. */
const FAILURES = 50;
/** Why a response has no whole answer, where the word alone says too little. @type {Record<string, string>} */
const REASONS = {
  budget: "the tokens, the cost or the time of the run are spent (engine.run)",
  deadline: "its time was over before it had answered (engine.deadline, or the timeout of a sub-agent)",
  max_turns: "it had no turn left (engine.max_turns, or the agent's)",
  max_output_tokens: "its answer has reached the most tokens that it may have",
  repeated_calls: "it has made the same call over and over",
  unfinished: "the stream of the model server broke off",
};
const OVER = { isOver: true };

/** The story of a run, as elements. */
export class Story {
  /**
   * @param {string} run
   * @param {Json} trace
   * @param {Set<string>} opened what its reader has opened, which stays open when it is told again
   */
  constructor(run, trace, opened) {
    this.run = run;
    this.trace = trace;
    this.opened = opened;
    /** @type {Map<string, Place>} */
    this.places = new Map();
    const moments = spans(trace.responses);
    this.begin = Math.min(...moments.map(([begin]) => begin));
    this.length = Math.max(...moments.map(([, end]) => end), this.begin) - this.begin || 1;
  }

  /** What did not work, each with a link to where it is told. */
  failures() {
    const failures = distinct(this.trace);
    if (failures.length === 0) return null;
    return h("section", { class: "failures", "aria-label": "What did not work" },
      h("h2", {}, "What did not work"),
      h("ul", { class: "plain" }, failures.slice(0, FAILURES).map((/** @type {Json} */ failure) => h("li", {},
        link(`#/runs/${encodeURIComponent(this.run)}/${encodeURIComponent(placeOf(failure))}`, whereOf(failure)),
        h("span", { class: "why" }, oneLine(failure.kind === "response" && Object.hasOwn(REASONS, failure.message) ? explained(failure.message) : failure.message || failure.status, 400))))),
      failures.length > FAILURES && h("p", { class: "hint" }, `And ${number(failures.length - FAILURES)} more, below.`));
  }

  tree() {
    return h("ul", { class: "tree top" }, this.trace.responses.map((/** @type {Json} */ response) => this.response(response)));
  }

  /** Go to where something is told. @param {string} name */
  reveal(name) {
    const place = this.places.get(name);
    if (!place) return;
    place.open();
    place.element.scrollIntoView({ block: "center" });
    place.element.focus({ preventScroll: true });
  }

  // --- agents, turns, calls ------------------------------------------------------------------------------------------

  /** @param {Json} response @returns {HTMLElement} */
  response(response) {
    const state = response.waiting ? "waiting" : String(response.status);
    const why = response.error?.message ?? (response.incomplete_details && explained(response.incomplete_details.reason));
    const given = [
      response.instructions && titled("Instructions", response.instructions),
      response.input.length > 0 && [h("h4", {}, "What it was given"), response.input.map(shownInput)],
      h("p", { class: "hint" }, h("code", {}, oneLine(response.id))),
    ];
    const line = this.step(placeOf({ response_id: response.id }), "of-agent", given, [
      h("span", { class: `dot ${DOTS[state] ?? "failed"}`, title: state }),
      h("strong", { class: "name" }, oneLine(response.agent, 60)),
      h("span", { class: "brief" }, [state.replaceAll("_", " "), response.model, response.usage && `${number(response.usage.total_tokens)} tokens`].filter(Boolean).map((one) => oneLine(String(one), 60)).join(" · ")),
    ], response.created_at, endOf(response) - response.created_at, DOTS[state] ?? "failed", "s");
    return h("li", {}, line,
      why && h("p", { class: "why bad" }, oneLine(String(why), 400)),
      response.turns === null && h("p", { class: "hint" }, "There are too many agents to tell what each has done."),
      list((response.turns ?? []).map((/** @type {Json} */ turn) => this.turn(response, turn))),
      list(response.agents.map((/** @type {Json} */ agent) => this.response(agent))));
  }

  /** @param {Json} response @param {Json} turn */
  turn(response, turn) {
    const tokens = turn.input_tokens || turn.output_tokens
      ? `${number(turn.input_tokens)} tokens in${turn.cached_tokens ? ` (${number(turn.cached_tokens)} cached)` : ""}, ${number(turn.output_tokens)} out`
      : "";
    const facts = [turn.finish_reason && `It ended with “${turn.finish_reason}”.`, turn.first_token_seconds !== null && `The first token came after ${duration(turn.first_token_seconds)}.`, turn.backends.length && `Asked: ${turn.backends.join(", then ")}.`].filter(Boolean);
    const inside = [
      turn.error && titled("Why there is no answer", turn.error),
      turn.items.map((/** @type {Json} */ item) => itemView(item, OVER)),
      facts.length > 0 && h("p", { class: "hint" }, facts.join(" ")),
    ];
    const line = this.step(placeOf({ response_id: response.id, turn: turn.number }), "of-turn", inside, [
      h("span", { class: "name" }, turn.number ? `turn ${turn.number}` : "before the first turn"),
      h("span", { class: "brief" }, [saidIn(turn), tokens].filter(Boolean).join(" · ")),
    ], turn.began_at, turn.seconds, turn.error ? "failed" : "thinks");
    return h("li", {}, line,
      turn.error && h("p", { class: "why bad" }, oneLine(turn.error, 400)),
      list(turn.calls.map((/** @type {Json} */ call) => this.call(response, call))));
  }

  /** @param {Json} response @param {Json} call @returns {HTMLElement} */
  call(response, call) {
    const state = callState(call);
    const outcome = String(call.state === "ended" ? call.status : call.state);
    const inside = [
      titled("Arguments", pretty(call.arguments)),
      call.output !== null && titled(state === "failed" ? "Why it failed" : "Result", pretty(call.output)),
      call.item && titled("Its item", pretty(call.item)),
      call.sources && titled("Sources", pretty(call.sources)),
      call.waited_seconds > 0 && h("p", { class: "hint" }, `It has waited ${duration(call.waited_seconds)} for somebody.`),
    ];
    const line = this.step(placeOf({ response_id: response.id, call_id: call.call_id }), "of-call", inside, [
      h("span", { class: `dot ${state}`, title: outcome }),
      h("code", { class: "name" }, oneLine(call.name, 60)),
      h("span", { class: "brief" }, oneLine(call.arguments, 120)),
      state !== "ok" && h("span", { class: `state ${state}` }, oneLine(outcome, 40).replaceAll("_", " ")),
    ], call.began_at, call.seconds, state);
    return h("li", {}, line,
      call.question && asked(call.question),
      list([...call.calls.map((/** @type {Json} */ made) => this.call(response, made)), ...call.agents.map((/** @type {Json} */ agent) => this.response(agent))]));
  }

  /**
   * A line that unfolds, with how long it took and a bar of when.
   * @param {string} name
   * @param {string} kind
   * @param {import("./dom.js").Child[]} inside
   * @param {import("./dom.js").Child[]} told
   * @param {number | null} began
   * @param {number | null} seconds
   * @param {string} look
   * @param {string} [unit] of what is only known in whole seconds
   */
  step(name, kind, inside, told, began, seconds, look, unit = "") {
    const time = seconds === null ? "" : unit && seconds < 1 ? "< 1 s" : duration(seconds);
    const line = h("summary", {}, told, h("span", { class: "took" }, time), this.bar(began, seconds, look));
    const body = h("div", { class: "inside" });
    const element = h("details", { class: `step ${kind}` }, line, body);
    // What is inside is made when it is opened: a run may have thousands of calls.
    const show = () => body.childElementCount === 0 && fill(body, ...inside);
    element.ontoggle = () => {
      if (element.open) this.opened.add(name);
      else this.opened.delete(name);
      if (element.open) show();
    };
    const open = () => {
      show();
      element.open = true;
    };
    if (this.opened.has(name)) open();
    this.places.set(name, { element: line, open });
    return element;
  }

  /** @param {number | null} began @param {number | null} seconds @param {string} look */
  bar(began, seconds, look) {
    const picture = svg("svg", { viewBox: `0 0 ${SVG.width} ${SVG.height}`, class: "bar", preserveAspectRatio: "none", "aria-hidden": "true" });
    if (began === null) return picture;
    const share = (/** @type {number} */ length) => Math.min(Math.max(length / this.length, 0), 1) * SVG.width;
    const width = Math.max(share(seconds ?? now() - began), 1);
    picture.append(svg("rect", { class: look, x: Math.min(share(began - this.begin), SVG.width - width).toFixed(2), y: 0, width: width.toFixed(2), height: SVG.height, rx: 1 }));
    return picture;
  }
}

const DOTS = /** @type {Record<string, string>} */ ({ completed: "ok", queued: "waiting", in_progress: "waiting", waiting: "waiting" });

/** Say in words why a response has ended early. @param {unknown} reason */
export function explained(reason) {
  const word = String(reason);
  return Object.hasOwn(REASONS, word) ? `${word.replaceAll("_", " ")}: ${REASONS[word]}` : word.replaceAll("_", " ");
}

/** Tell how a call has ended, or that it has not. @param {Json} call */
export function callState(call) {
  if (call.state === "ended") return call.status === "success" ? "ok" : "failed";
  return call.state === "interrupted" ? "failed" : "waiting";
}

/** The name of a place in a run; of a failure as of what has failed. @param {Json} of */
export function placeOf({ response_id: response, call_id: call, turn }) {
  return [response, ...(call ? ["call", call] : turn !== null && turn !== undefined ? ["turn", turn] : [])].join(" ");
}

/** What did not work, but for how responses ended of what is listed already, and how the run did. @param {Json} trace */
function distinct({ failures, responses }) {
  const roots = new Set(responses.map((/** @type {Json} */ response) => response.id));
  const told = new Set(failures.filter((/** @type {Json} */ one) => one.kind !== "response").map((/** @type {Json} */ one) => one.response_id + one.message));
  return failures.filter((/** @type {Json} */ one) => one.kind !== "response" || !(roots.has(one.response_id) || told.has(one.response_id + one.message)));
}

/** @param {Json} failure */
function whereOf(failure) {
  const parts = [failure.agent, failure.turn ? `turn ${failure.turn}` : "", failure.name ?? ""];
  return oneLine(parts.filter(Boolean).join(", "), 120);
}

/** @param {HTMLElement[]} lines */
function list(lines) {
  return lines.length > 0 && h("ul", { class: "tree" }, lines);
}

/** @param {string} title @param {string} text */
function titled(title, text) {
  return [h("h4", {}, title), block(text, title)];
}

/** @param {Json} item */
function shownInput(item) {
  const content = item.content ?? item.output;
  const texts = Array.isArray(content) ? content.map((part) => part?.text ?? "").filter(Boolean).join("\n") : content;
  return block(typeof texts === "string" && texts ? texts : pretty(item), oneLine(String(item.role ?? item.type ?? "input")));
}

/** What a model has said in a turn, in a few words. @param {Json} turn */
function saidIn(turn) {
  const texts = turn.items.flatMap((/** @type {Json} */ item) => (Array.isArray(item.content) ? item.content.map((part) => part?.text ?? part?.refusal ?? "") : []));
  const said = texts.filter(Boolean).join(" ");
  return said && `“${oneLine(said, 100)}”`;
}

/** @param {Json} question */
function asked(question) {
  const about = question.asked ?? {};
  const answer = question.answer ?? {};
  const wanted = question.kind === "approval" ? `May ${about.name} be called?` : String(about.question ?? "A question");
  const said = "approve" in answer ? [answer.approve ? "allowed" : "refused", answer.reason].filter(Boolean).join(": ") : answer.text;
  const at = question.answered_at ? ` · ${when(question.answered_at)}` : "";
  return h("p", { class: "why" }, oneLine(wanted, 300), " ", h("strong", {}, oneLine(String(said ?? question.status), 300)), h("span", { class: "muted" }, at));
}

/** When what is told began and ended. @param {Json[]} responses @returns {[number, number][]} */
function spans(responses) {
  return responses.flatMap((response) => {
    const turns = /** @type {Json[]} */ (response.turns ?? []);
    const made = turns.flatMap((turn) => turn.calls).flatMap(function all(/** @type {Json} */ call) {
      return [call, ...call.calls.flatMap(all)];
    });
    const steps = [...turns, ...made].filter((step) => step.began_at !== null);
    const begins = steps.length > 0 ? Math.min(...steps.map((step) => step.began_at)) : response.created_at;
    const below = [...response.agents, ...made.flatMap((/** @type {Json} */ call) => call.agents)];
    return [
      // What is known in whole seconds begins no earlier than what is known better.
      /** @type {[number, number]} */ ([begins, endOf(response)]),
      ...steps.map((step) => /** @type {[number, number]} */ ([step.began_at, step.began_at + (step.seconds ?? 0)])),
      ...spans(below),
    ];
  });
}

/** When a response ended: of one without a whole answer, its last turn or call. @param {Json} response @returns {number} */
function endOf(response) {
  if (response.completed_at !== null) return response.completed_at;
  if (response.status === "queued" || response.status === "in_progress") return now();
  const steps = (response.turns ?? []).flatMap((/** @type {Json} */ turn) => [turn, ...turn.calls]);
  return Math.max(response.created_at, ...steps.map((/** @type {Json} */ step) => (step.began_at ?? 0) + (step.seconds ?? 0)));
}

function now() {
  return Date.now() / 1000;
}
