// One turn of a chat: what was said, what came of it, and what can be done with it.

import { Answer } from "./answer.js";
import { button, copier, fill, h, link, problem } from "./dom.js";
import { itemView } from "./items.js";
import { showRequest } from "./snippets.js";
import { number, oneLine } from "./text.js";

/**
 * What a turn can ask of the chat that it is in.
 * @typedef {{
 *   retry: (turn: Turn) => void,
 *   branch: (turn: Turn) => void,
 *   step: (turn: Turn, by: number) => void,
 *   respond: (turn: Turn, items: Json[]) => void,
 *   versions: (turn: Turn) => [number, number],
 *   isLast: (turn: Turn) => boolean,
 * }} Chat
 */

/** A turn, and its place on the page. */
export class Turn {
  /**
   * @param {Turn | null} parent
   * @param {Json[]} content what was said: parts of a message, or items that answer calls
   * @param {Json} body the request
   * @param {Chat} chat
   */
  constructor(parent, content, body, chat) {
    this.parent = parent;
    this.content = content;
    this.body = body;
    this.chat = chat;
    this.answer = new Answer();
    this.lost = "";
    /** @type {HTMLElement[]} */
    this.views = [];
    this.said = h("div", { class: "said" }, content.map(partView));
    this.items = h("div", { class: "items" });
    this.asking = h("div", { class: "asking" });
    this.state = h("div", { class: "turn-state", role: "status" });
    this.actions = h("div", { class: "actions" });
    this.element = h("article", { class: "turn", "aria-label": "Turn" }, this.said, this.items, this.asking, this.state, this.actions);
  }

  /** The response that the next turn continues: that of this turn, unless nothing came of it. @returns {string} */
  get continues() {
    const { status, id } = this.answer;
    if (id && (status === "completed" || status === "incomplete")) return id;
    return this.parent?.continues ?? "";
  }

  /** Show what has changed. */
  render() {
    const { answer } = this;
    if (answer.isOver) answer.items.forEach((_, index) => answer.changed.add(index));
    const found = answer.items.flatMap((item) => (item?.type === "file_search_call" ? (item.results ?? []) : []));
    for (const index of answer.changed) {
      const item = answer.items[index];
      if (!item) continue;
      const before = this.views[index];
      const kept = before?.dataset.type === item.type ? before : undefined;
      const made = itemView(item, {
        isOver: answer.isOver,
        found,
        progress: answer.progress.get(String(item.name)),
        ...(this.chat.isLast(this) && { respond: (/** @type {Json[]} */ items) => this.chat.respond(this, items) }),
      }, kept);
      made.dataset.type = item.type;
      if (made !== before) {
        if (before) before.replaceWith(made);
        else this.items.append(made);
        this.views[index] = made;
      }
    }
    while (this.views.length > answer.items.length) this.views.pop()?.remove();
    answer.changed.clear();
    this.renderState();
  }

  renderState() {
    const { answer } = this;
    if (!answer.isOver) {
      const quiet = answer.items.length === 0;
      fill(this.state, this.lost ? h("p", { class: "muted working" }, this.lost) : quiet && h("p", { class: "muted working" }, answer.status === "queued" ? "Waiting for its turn" : "Working"));
      this.actions.hidden = true;
      return;
    }
    const reason = oneLine(String(answer.response.incomplete_details?.reason)).replaceAll("_", " ");
    fill(this.state,
      answer.problem && problem(answer.problem),
      answer.status === "cancelled" && h("p", { class: "muted" }, "Stopped."),
      answer.status === "incomplete" && h("p", { class: "muted" }, `It ended early: ${reason}.`));
    this.actions.hidden = false;
    const { usage, model, background } = answer.response;
    fill(this.actions,
      this.versions(),
      answer.text && copier("Copy", () => answer.text),
      button("Retry", () => this.chat.retry(this), { class: "quiet" }),
      this.continues && button("Branch", () => this.chat.branch(this), { class: "quiet", title: "Go on from here, beside what came later" }),
      button("Code", () => showRequest(this.body), { class: "quiet" }),
      background && link(`#/runs/${encodeURIComponent(answer.id)}`, "Run"),
      h("span", { class: "used" }, [model && oneLine(String(model), 40), usage && `${number(usage.total_tokens)} tokens`].filter(Boolean).join(" · ")));
  }

  /** Show which of several tries this is. */
  versions() {
    const [nth, all] = this.chat.versions(this);
    if (all < 2) return null;
    const step = (/** @type {string} */ label, /** @type {string} */ sign, /** @type {number} */ by, /** @type {boolean} */ disabled) =>
      button(label, () => this.chat.step(this, by), { class: "quiet", icon: h("span", {}, sign), disabled });
    return h("span", { class: "versions" }, step("Earlier version", "‹", -1, nth === 0), `${nth + 1}/${all}`, step("Later version", "›", 1, nth === all - 1));
  }
}

/** Show a part of what somebody has said. @param {Json} part */
function partView(part) {
  if (part.type === "input_text") return h("p", {}, part.text);
  if (part.type === "function_call_output") return h("p", {}, typeof part.output === "string" ? part.output : "An answer");
  if (part.type === "mcp_approval_response") return h("p", {}, part.approve ? "Allowed." : "Refused.");
  const name = part.filename ?? part.file_id ?? (part.type === "input_image" ? "A picture" : "A file");
  return h("p", { class: "file" }, oneLine(String(name), 60));
}
