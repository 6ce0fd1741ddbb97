// The list of runs: filtered, live, and as long as its reader wants it.

import { json } from "./api.js";
import { button, fill, h, link, problem, settle, table } from "./dom.js";
import { duration, number, oneLine, when } from "./text.js";

const STATES = ["", "queued", "in_progress", "completed", "failed", "incomplete", "cancelled"];
export const ACTIVE = new Set(["queued", "in_progress"]);
const KINDS = /** @type {Record<string, string>} */ ({
  completed: "ok", failed: "failed", incomplete: "failed", in_progress: "waiting", queued: "waiting", waiting: "waiting",
});
const PAGE = 50;
/** As many runs are looked at again and again. */
const LIVE = 300;
/** As many runs are asked for at most when more are wanted. */
const LEAP = 1_000;
const COMPARED = 2;
const NOTHING = "Nothing has been done yet. Whatever is answered and stored is a run.";

/** @param {string} name */
export function state(name) {
  return h("span", { class: `state ${KINDS[name] ?? ""}` }, oneLine(name).replaceAll("_", " "));
}

/** How long a run has taken, or takes already. @param {Json} run */
export function taken(run) {
  if (run.ended_at === null && !ACTIVE.has(run.status)) return "–"; // when older ones ended is not kept
  const seconds = Math.max(0, (run.ended_at ?? Date.now() / 1000) - run.created_at);
  return seconds < 1 ? "< 1 s" : duration(seconds);
}

/** The list, as elements. */
export class RunList {
  /**
   * @param {{wanted: Record<string, string>}} filters
   * @param {AbortSignal} signal
   */
  constructor(filters, signal) {
    this.filters = filters;
    this.signal = signal;
    /** How many are to be shown. */
    this.most = PAGE;
    /** Whether there are more of them. */
    this.more = false;
    /** Those that are shown, the newest first. @type {Json[]} */
    this.runs = [];
    /** The row of each, and what it tells. @type {Map<string, {told: string, row: HTMLElement}>} */
    this.known = new Map();
    /** Those that are to be compared. @type {Set<string>} */
    this.picked = new Set();
    this.rows = h("tbody");
    this.table = table(["", "Begun", "Status", "Agent", "Model", "Tokens", "Time"], this.rows, "runs", 5);
    this.table.hidden = true;
    this.below = h("div");
    this.comparing = h("span", { class: "comparing" });
    this.element = h("div", {}, h("div", { class: "head" }, h("h1", {}, "Runs"), this.tabs()), this.fields(), h("section", {}, this.table, this.below));
  }

  tabs() {
    const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Status" }, STATES.map((status) => button(status.replaceAll("_", " ") || "all", () => {
      this.want("status", status);
      mark();
    })));
    const mark = () => [...tabs.children].forEach((tab, index) => tab.setAttribute("aria-pressed", String(STATES[index] === (this.filters.wanted.status ?? ""))));
    mark();
    return tabs;
  }

  fields() {
    const { wanted } = this.filters;
    const named = (/** @type {string} */ name) => h("input", { type: "search", class: "search", "aria-label": `Of ${name}`, placeholder: `Any ${name}`, maxlength: 256, value: wanted[name] ?? "", input: (event) => this.want(name, event.target.value.trim()) });
    const failed = h("input", { type: "checkbox", checked: wanted.failed === "true", change: () => this.want("failed", failed.checked ? "true" : "") });
    return h("div", { class: "filters" }, h("label", { class: "choice" }, failed, "Something did not work"), named("function"), named("agent"), link("#/runs/traces", "Traces of clients"), this.comparing);
  }

  /** @param {string} name @param {string} value */
  want(name, value) {
    this.filters.wanted = { ...this.filters.wanted, [name]: value };
    this.most = PAGE;
    this.runs = [];
    void this.look();
  }

  /** Ask what there is, and show it. */
  async look() {
    const { most, runs, signal } = this;
    const { wanted } = this.filters;
    // Who reads far back is not disturbed by what changes there meanwhile: it would be much to ask for again.
    const isFar = this.more && most > runs.length && runs.length >= LIVE;
    try {
      const [found, more] = isFar ? await asked(wanted, most - runs.length, runs.at(-1)?.id, signal) : await asked(wanted, Math.min(most, LIVE), "", signal);
      if (this.filters.wanted !== wanted || this.most !== most) return;
      const older = isFar ? [] : behind(found, runs);
      this.runs = isFar ? [...runs, ...found] : [...found, ...older];
      if (older.length === 0) this.more = more;
      this.show();
    } catch (error) {
      if (!signal.aborted && this.filters.wanted === wanted) fill(this.below, problem(error));
    }
  }

  /** Show the list: rows of which nothing has changed stay as they are. */
  show() {
    settle(this.rows, this.runs.map((run) => {
      const told = JSON.stringify([run, taken(run), when(run.created_at)]);
      const before = this.known.get(run.id);
      const row = before?.told === told ? before.row : this.row(run);
      this.known.set(run.id, { told, row });
      return row;
    }));
    const { length } = this.runs;
    this.table.hidden = length === 0;
    if (this.more && this.below.querySelector("button")) return;
    const isFiltered = Object.values(this.filters.wanted).some(Boolean);
    fill(this.below, this.more ? button("Show more", () => this.showMore()) : length === 0 && h("p", { class: "empty" }, isFiltered ? "No run is like that." : NOTHING));
  }

  showMore() {
    const { length } = this.runs;
    this.most = length + Math.min(Math.max(4 * PAGE, length), LEAP);
    void this.look();
  }

  /** @param {Json} run */
  row(run) {
    const began = when(run.created_at);
    const pick = h("input", { type: "checkbox", checked: this.picked.has(run.id), "aria-label": `Compare the run of ${began}`, change: () => {
      this.picked[pick.checked ? "add" : "delete"](run.id);
      this.showPicked();
    } });
    return h("tr", {},
      h("td", {}, pick),
      h("td", {}, link(`#/runs/${encodeURIComponent(run.id)}`, began)),
      h("td", {}, state(run.waiting ? "waiting" : run.status), run.failed_calls > 0 && h("span", { class: "flaw" }, run.failed_calls === 1 ? "1 failed call" : `${number(run.failed_calls)} failed calls`)),
      h("td", {}, oneLine(run.agent ?? "–", 40)),
      h("td", {}, oneLine(String(run.model), 40)),
      h("td", { class: "number" }, run.usage ? number(run.usage.total_tokens) : "–"),
      h("td", { class: "number" }, taken(run)));
  }

  /** Offer to compare, once there are two to compare. */
  showPicked() {
    const ids = [...this.picked].map(encodeURIComponent);
    const hint = ids.length < COMPARED ? "Mark another run to compare it with." : "Two runs can be compared.";
    fill(this.comparing, ids.length === COMPARED ? link(`#/runs/compare/${ids.join("/")}`, "Compare the two") : ids.length > 0 && h("span", { class: "hint" }, hint));
  }
}

/** Return the runs that are shown already, and are older than those that were just asked for. @param {Json[]} found @param {Json[]} shown */
function behind(found, shown) {
  if (found.length < LIVE) return [];
  const last = shown.findIndex(({ id }) => id === found.at(-1)?.id);
  return last < 0 ? [] : shown.slice(last + 1);
}

/**
 * Ask for runs, page by page, and tell whether there are more.
 * @param {Record<string, string>} wanted
 * @param {number} most
 * @param {string} after
 * @param {AbortSignal} signal
 * @returns {Promise<[Json[], boolean]>}
 */
async function asked(wanted, most, after, signal) {
  const filters = Object.entries(wanted).filter(([, value]) => value);
  /** @type {Json[]} */
  const found = [];
  let more = true;
  while (more && found.length < most) {
    const last = found.at(-1)?.id ?? after;
    const query = new URLSearchParams([["limit", String(Math.min(100, most - found.length))], ...filters, ...(last ? [["after", last]] : [])]);
    const page = await json(`/v1/runs?${query}`, { signal });
    found.push(...page.data);
    more = page.has_more;
  }
  return [found, more];
}
