// What was done for requests: one run with its agents, turns and calls.

import { ApiError, json, login } from "./api.js";
import { listTraces, showTrace } from "./client_traces.js";
import { compareRuns } from "./compare.js";
import { button, copier, fill, h, link, problem, View } from "./dom.js";
import { openQuestions, questionCard } from "./questions.js";
import { ACTIVE, RunList, state, taken } from "./run_list.js";
import { callState, explained, Story } from "./story.js";
import { number, oneLine, when } from "./text.js";

const RETRIED = new Set(["failed", "cancelled", "incomplete"]);

/** Characters of each text of a trace. */
const LONGEST = 8_000;

class RunsView extends View {
  constructor() {
    super();
    /** What the list is filtered by, which stays for whoever comes back from a run. @type {{wanted: Record<string, string>}} */
    this.filters = { wanted: {} };
    /** The key with which no traces are seen. @type {string | null} */
    this.blind = null;
  }

  show() {
    /** What is shown. @type {string} */
    this.told = "";
    /** What its reader has opened. @type {Set<string>} */
    this.opened = new Set();
    const [id, place = "", other = ""] = this.path;
    /** What is to be looked at first. @type {string} */
    this.sought = place;
    const { signal, opened } = this;
    if (id === "compare") void this.read("Two runs", () => compareRuns(this, [place, other], signal));
    else if (id === "traces") void this.read("Traces of clients", () => (place ? showTrace(this, place, signal, opened) : listTraces(this, signal)));
    else if (id) void this.repeat(2, () => this.one(id));
    else this.list();
  }

  // --- all of them ---------------------------------------------------------------------------------------------------

  list() {
    const list = new RunList(this.filters, this.signal);
    fill(this, list.element);
    void this.repeat(3, () => list.look());
  }

  /** Show what is read first. @param {string} title @param {() => Promise<void>} work */
  async read(title, work) {
    fill(this, h("h1", {}, title), h("p", { class: "muted working" }, "Reading"));
    try {
      await work();
    } catch (error) {
      if (this.signal.aborted) return;
      const missing = error instanceof ApiError && error.status === 404;
      fill(this, h("h1", {}, title), missing ? h("p", { class: "empty" }, "There is no such run, or it is not yours.") : problem(error));
    }
  }

  // --- one of them ---------------------------------------------------------------------------------------------------

  /** @param {string} id */
  async one(id) {
    const { signal } = this;
    try {
      const run = await json(`/v1/runs/${encodeURIComponent(id)}`, { signal });
      const told = JSON.stringify(run);
      if (told === this.told && !(run.waiting && this.querySelector(".question") === null)) {
        const line = this.querySelector(".facts");
        if (line && ACTIVE.has(run.status)) fill(line, facts(run).join(" · "));
        return;
      }
      const [questions, story] = await Promise.all([run.waiting ? openQuestions(signal, run.id).catch(() => []) : [], this.story(run)]);
      if (signal.aborted) return;
      this.told = told;
      this.details(run, questions, story);
      if (story && this.sought) story.reveal(this.sought);
      this.sought = "";
    } catch (error) {
      if (signal.aborted) return;
      const missing = error instanceof ApiError && error.status === 404;
      fill(this, h("h1", {}, "Run"), missing ? h("p", { class: "empty" }, "There is no such run, or it is not yours.") : problem(error));
    }
  }

  /** Return what was said in a run; null for whoever may not know. @param {Json} run */
  async story(run) {
    const { key } = login.value;
    if (this.blind === key) return null;
    try {
      const trace = await json(`/v1/responses/${encodeURIComponent(run.id)}/trace?max_length=${LONGEST}`, { signal: this.signal });
      return new Story(run.id, trace, this.opened ?? new Set());
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403)) throw error;
      this.blind = key; // it need not be told so again
      return null;
    }
  }

  /** @param {Json} run @param {Json[]} questions @param {Story | null} story */
  details(run, questions, story) {
    const again = () => {
      this.told = "";
      void this.one(run.id);
    };
    const told = h("div");
    const act = async (/** @type {string} */ path) => {
      try {
        const made = await json(path, { method: "POST" });
        if (path.endsWith("/retry")) location.hash = `#/runs/${made.id}`;
        else again();
      } catch (error) {
        fill(told, problem(error));
      }
    };
    const id = encodeURIComponent(run.id);
    const isActive = ACTIVE.has(run.status);
    const isOneAgent = run.agents.length === 1;
    fill(this,
      h("div", { class: "head" },
        h("h1", {}, oneLine(run.agent ?? "Run")), state(run.waiting ? "waiting" : run.status),
        isActive && button("Cancel", () => act(`/v1/responses/${id}/cancel`)),
        run.background && RETRIED.has(run.status) && button("Try again", () => act(`/v1/runs/${id}/retry`))),
      h("p", { class: "facts muted" }, facts(run).join(" · ")),
      h("p", { class: "actions" }, link(`#/chat/${id}`, "What was said"), copier("Copy link", () => location.href), h("code", { class: "muted" }, run.id), run.retry_of && [link(`#/runs/${encodeURIComponent(run.retry_of)}`, "The try before"), link(`#/runs/compare/${encodeURIComponent(run.retry_of)}/${id}`, "Compare with it")]),
      told,
      run.error && problem(run.error.message ?? "It has failed."),
      run.incomplete_details && h("p", { class: "problem" }, `It ended early: ${explained(run.incomplete_details.reason)}.`),
      questions.length > 0 && h("section", { class: "cards" }, questions.map((question) => questionCard(question, again))),
      story?.failures(),
      h("section", { "aria-label": "Agents" },
        h("h2", {}, isOneAgent ? (story ? "What was done" : "Calls") : `${number(run.agents.length)} agents`),
        story ? story.tree() : [h("p", { class: "hint" }, "What was said, asked and returned is shown to keys with the scope traces:read."), tree(run)]));
  }
}

/** @param {Json} run */
function facts(run) {
  return [when(run.created_at), taken(run), run.model, run.usage && `${number(run.usage.total_tokens)} tokens`, `${number(run.calls.length)} calls`].filter(Boolean).map(String);
}

/** The agents as a tree, each with the calls that it has made. @param {Json} run */
function tree(run) {
  /** @type {Map<string | null, Json[]>} */
  const below = new Map();
  const known = new Set(run.agents.map((/** @type {Json} */ agent) => agent.response_id ?? agent.id));
  for (const agent of run.agents) {
    const parent = known.has(agent.parent_id ?? agent.parent) ? (agent.parent_id ?? agent.parent) : null;
    below.set(parent, [...(below.get(parent) ?? []), agent]);
  }
  /** @type {(parent: string | null) => HTMLElement[]} */
  const nodes = (parent) => (below.get(parent) ?? []).map((agent) => {
    const id = agent.response_id ?? agent.id;
    const calls = run.calls.filter((/** @type {Json} */ call) => call.response_id === id);
    const inner = nodes(id);
    return h("li", {},
      h("div", { class: "agent" }, state(agent.status), h("strong", {}, oneLine(agent.name ?? agent.agent ?? "agent", 60)), h("span", { class: "muted" }, [agent.model, agent.usage && `${number(agent.usage.total_tokens)} tokens`].filter(Boolean).join(" · "))),
      calls.length > 0 && h("ul", { class: "calls" }, calls.map(callLine)),
      inner.length > 0 && h("ul", { class: "tree" }, inner));
  });
  return h("ul", { class: "tree top" }, nodes(null));
}

/** @param {Json} call */
function callLine(call) {
  return h("li", { class: call.parent ? "nested" : "" }, h("code", {}, oneLine(call.name, 60)), h("span", { class: `state ${callState(call)}` }, oneLine(call.status ?? call.state).replaceAll("_", " ")), h("span", { class: "muted" }, `turn ${call.turn}`));
}

customElements.define("runs-view", RunsView);
