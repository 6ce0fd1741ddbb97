// What agents that run in programs of clients have sent of themselves, with the responses of this server in it.

import { everything, json } from "./api.js";
import { fill, h, link, table } from "./dom.js";
import { Story } from "./story.js";
import { duration, number, oneLine, pretty, when } from "./text.js";

const MOST = 200;

/** List them. @param {HTMLElement} place @param {AbortSignal} signal */
export async function listTraces(place, signal) {
  const found = await everything("/v1/traces", signal, MOST);
  fill(place,
    h("p", {}, link("#/runs", "All runs")),
    h("h1", {}, "Traces of clients"),
    found.length === 0 ? h("p", { class: "empty" }, "None has come. The exporters of the Agents SDKs send them to /v1/traces/ingest.")
      : h("section", {}, table(["Begun", "Workflow", "Steps", "Time"], found.map((one) => h("tr", {},
          h("td", {}, link(`#/runs/traces/${encodeURIComponent(one.id)}`, when(one.started_at ?? one.created_at))),
          h("td", {}, oneLine(one.name ?? one.id, 80), one.failed_spans > 0 && h("span", { class: "flaw" }, `${number(one.failed_spans)} failed`)),
          h("td", { class: "number" }, number(one.span_count)),
          h("td", { class: "number" }, one.ended_at && one.started_at ? duration(one.ended_at - one.started_at) : "–"))), "", 2)));
}

/** Show one. @param {HTMLElement} place @param {string} id @param {AbortSignal} signal @param {Set<string>} opened */
export async function showTrace(place, id, signal, opened) {
  const trace = await json(`/v1/traces/${encodeURIComponent(id)}`, { signal });
  if (signal.aborted) return;
  const story = new Story("", { responses: [], failures: [] }, opened);
  const ends = trace.spans.map((/** @type {Json} */ span) => (span.started_at ?? 0) + (span.seconds ?? 0));
  story.begin = trace.started_at ?? trace.created_at;
  story.length = Math.max(trace.ended_at ?? 0, ...ends) - story.begin || 1;
  const failures = trace.failures.map((/** @type {Json} */ one) => h("li", {}, h("strong", {}, oneLine(one.name ?? one.type, 80)), h("span", { class: "why" }, ` ${oneLine(one.message, 400)}`)));
  fill(place,
    h("p", {}, link("#/runs/traces", "All traces of clients")),
    h("h1", {}, oneLine(trace.name ?? trace.id, 120)),
    h("p", { class: "facts muted" }, [when(story.begin), trace.group_id, trace.id].filter(Boolean).map((one) => oneLine(String(one), 80)).join(" · ")),
    failures.length > 0 && h("section", { class: "failures", "aria-label": "What did not work" }, h("h2", {}, "What did not work"), h("ul", { class: "plain" }, failures)),
    h("section", { "aria-label": "Steps" }, h("h2", {}, "What was done"), h("ul", { class: "tree top" }, trace.spans.map((/** @type {Json} */ span) => step(story, span)))));
}

/** @param {Story} story @param {Json} span @returns {HTMLElement} */
function step(story, span) {
  const state = span.error ? "failed" : "ok";
  const inside = [h("h4", {}, "What is told of it"), h("pre", { class: "code", tabindex: 0, "aria-label": "Data" }, pretty(span.data)), span.error && h("pre", { class: "code", tabindex: 0, "aria-label": "Error" }, pretty(span.error))];
  const told = [h("span", { class: `dot ${state}` }), h("span", { class: "name" }, oneLine(span.name ?? span.type, 60)), h("span", { class: "brief" }, oneLine(span.name ? span.type : "", 60))];
  const below = [...(span.response ? [story.response(span.response)] : []), ...span.spans.map((/** @type {Json} */ one) => step(story, one))];
  return h("li", {}, story.step(span.id, span.type === "agent" ? "of-agent" : "of-turn", inside, told, span.started_at, span.seconds, state),
    span.error && h("p", { class: "why bad" }, oneLine(String(span.error.message ?? "It has failed."), 400)),
    below.length > 0 && h("ul", { class: "tree" }, below));
}
