// Work in the background: a list of it, and one run with its agents and calls.

import { ApiError, json } from "./api.js";
import { button, copier, fill, h, link, problem, View } from "./dom.js";
import { openQuestions, questionCard } from "./questions.js";
import { duration, number, oneLine, when } from "./text.js";

/** @typedef {import("./api.js").Json} Json */

const STATES = ["", "queued", "in_progress", "completed", "failed", "incomplete", "cancelled"];
const ACTIVE = new Set(["queued", "in_progress"]);
const KINDS = /** @type {Record<string, string>} */ ({
  completed: "ok", success: "ok", ended: "ok", failed: "failed", error: "failed", timeout: "failed", incomplete: "failed", interrupted: "failed", in_progress: "waiting", queued: "waiting", waiting: "waiting", begun: "waiting",
});
const PAGE = 50;
/** As many runs are looked at again and again. */
const LIVE = 300;

/** @param {string} name */
function state(name) {
  return h("span", { class: `state ${KINDS[name] ?? ""}` }, oneLine(name).replaceAll("_", " "));
}

/** How long a run has taken, or takes already. @param {Json} run */
function taken(run) {
  const seconds = Math.max(0, (run.completed_at ?? Date.now() / 1000) - run.created_at);
  return seconds < 1 ? "< 1 s" : duration(seconds);
}

class RunsView extends View {
  show() {
    /** What is shown. @type {string} */
    this.told = "";
    const [id] = this.path;
    if (id) void this.repeat(2, () => this.one(id));
    else this.list();
  }

  // --- all of them ---------------------------------------------------------------------------------------------------

  list() {
    this.status = "";
    /** How many are shown. @type {number} */
    this.most = PAGE;
    const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Status" }, STATES.map((status) => button(status.replaceAll("_", " ") || "all", () => {
      this.status = status;
      this.most = PAGE;
      mark();
      void this.look();
    })));
    const mark = () => [...tabs.children].forEach((tab, index) => tab.setAttribute("aria-pressed", String(STATES[index] === this.status)));
    mark();
    this.rows = h("div");
    fill(this, h("div", { class: "head" }, h("h1", {}, "Runs"), tabs), h("section", {}, this.rows));
    // Who reads far back is not disturbed by what changes meanwhile, and it would be much to ask again.
    void this.repeat(3, async () => {
      if ((this.most ?? 0) <= LIVE) await this.look();
    });
  }

  async look() {
    const { signal, rows, status, most = PAGE } = this;
    if (!rows) return;
    try {
      /** @type {Json[]} */
      const runs = [];
      let more = true;
      while (more && runs.length < most) {
        const after = runs.length > 0 ? `&after=${encodeURIComponent(runs.at(-1)?.id)}` : "";
        const page = await json(`/v1/runs?limit=${Math.min(100, most - runs.length)}${status ? `&status=${status}` : ""}${after}`, { signal });
        runs.push(...page.data);
        more = page.has_more;
      }
      if (this.status !== status) return;
      if (runs.length === 0) fill(rows, h("p", { class: "empty" }, status ? `No run is ${status.replaceAll("_", " ")}.` : "Nothing has been done in the background yet. A response with “background” is a run."));
      else fill(rows, table(runs), more && button("Show more", () => ((this.most = most + 4 * PAGE), this.look())));
    } catch (error) {
      if (!signal.aborted) fill(rows, problem(error));
    }
  }

  // --- one of them ---------------------------------------------------------------------------------------------------

  /** @param {string} id */
  async one(id) {
    const { signal } = this;
    try {
      const run = await json(`/v1/runs/${encodeURIComponent(id)}`, { signal });
      const told = JSON.stringify(run);
      if (told === this.told && !ACTIVE.has(run.status)) return;
      const questions = run.waiting ? await openQuestions(signal, run.id).catch(() => []) : [];
      if (told === this.told && questions.length > 0) return; // somebody may be writing an answer
      this.told = told;
      this.details(run, questions);
    } catch (error) {
      if (signal.aborted) return;
      const missing = error instanceof ApiError && error.status === 404;
      fill(this, h("h1", {}, "Run"), missing ? h("p", { class: "empty" }, "There is no such run, or it is not yours.") : problem(error));
    }
  }

  /** @param {Json} run @param {Json[]} questions */
  details(run, questions) {
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
    fill(this,
      h("div", { class: "head" },
        h("h1", {}, oneLine(run.agent ?? "Run")), state(run.waiting ? "waiting" : run.status),
        isActive && button("Cancel", () => act(`/v1/responses/${id}/cancel`)),
        (run.status === "failed" || run.status === "cancelled") && button("Try again", () => act(`/v1/runs/${id}/retry`))),
      h("p", { class: "facts muted" }, facts(run).join(" · ")),
      h("p", { class: "actions" }, link(`#/chat/${id}`, "What was said"), copier("Copy link", () => location.href), h("code", { class: "muted" }, run.id), run.retry_of && link(`#/runs/${encodeURIComponent(run.retry_of)}`, "The try before")),
      told,
      run.error && problem(run.error.message ?? "It has failed."),
      run.incomplete_details && h("p", { class: "problem" }, `It ended early: ${String(run.incomplete_details.reason).replaceAll("_", " ")}.`),
      questions.length > 0 && h("section", { class: "cards" }, questions.map((question) => questionCard(question, again))),
      h("section", { "aria-label": "Agents" }, h("h2", {}, run.agents.length === 1 ? "Calls" : `${number(run.agents.length)} agents`), tree(run)));
  }
}

/** @param {Json} run */
function facts(run) {
  return [when(run.created_at), taken(run), run.model, run.usage && `${number(run.usage.total_tokens)} tokens`, `${number(run.calls.length)} calls`].filter(Boolean).map(String);
}

/** @param {Json[]} runs */
function table(runs) {
  const head = ["Begun", "Status", "Agent", "Model", "Tokens", "Time"];
  return h("div", { class: "scrolls" }, h("table", { class: "runs" },
    h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: index > 3 ? "number" : null }, name)))),
    h("tbody", {}, runs.map((run) => h("tr", {},
      h("td", {}, link(`#/runs/${encodeURIComponent(run.id)}`, when(run.created_at))),
      h("td", {}, state(run.waiting ? "waiting" : run.status)),
      h("td", {}, oneLine(run.agent ?? "–", 40)),
      h("td", {}, oneLine(String(run.model), 40)),
      h("td", { class: "number" }, run.usage ? number(run.usage.total_tokens) : "–"),
      h("td", { class: "number" }, taken(run)))))));
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
  return h("li", { class: call.parent ? "nested" : "" }, h("code", {}, oneLine(call.name, 60)), state(call.status ?? call.state), h("span", { class: "muted" }, `turn ${call.turn}`));
}

customElements.define("runs-view", RunsView);
