// Talking to a model: a tree of turns, of which one path is shown.

import { Answer } from "./answer.js";
import { ApiError, events, GoneError, json, patiently } from "./api.js";
import { Composer } from "./composer.js";
import { button, fill, h, problem, View } from "./dom.js";
import { openQuestions, questionCard } from "./questions.js";
import { Turn } from "./turn.js";

/** So that calls of the server's own functions are seen, and how far they are. */
const SHOWING = { "antwort-show-calls": "1", "antwort-show-progress": "1" };
/** So that citations lead to the passage. */
const INCLUDED = ["file_search_call.results"];
const MOST_TURNS = 100;
const NEAR = 120;

class ChatView extends View {
  show() {
    /** @type {Turn[]} */
    this.turns = [];
    /** @type {Turn | null} */
    this.leaf = null;
    /** What is being answered ends with this. @type {AbortController | null} */
    this.answering = null;
    this.list = h("div", { class: "turns" });
    this.notice = h("div", { class: "notice" });
    this.composer = new Composer(this.signal, (content, options) => this.send(content, options), () => this.stop());
    fill(this,
      h("div", { class: "head" }, h("h1", {}, "Chat"), button("New chat", () => this.renew())),
      this.list, h("div", { class: "dock" }, this.notice, this.composer.element));
    const [id] = this.path;
    if (id) void this.open(id);
    else this.render();
    this.composer.field.focus({ preventScroll: true });
  }

  /** The turns from the first to the last that is shown. @returns {Turn[]} */
  shown() {
    const path = [];
    for (let turn = this.leaf ?? null; turn; turn = turn.parent) path.unshift(turn);
    return path;
  }

  /** What turns may ask of the chat. @returns {import("./turn.js").Chat} */
  get hands() {
    return {
      retry: (turn) => this.begin(turn.parent, turn.content, turn.body),
      branch: (turn) => this.choose(turn),
      step: (turn, by) => this.step(turn, by),
      respond: (turn, items) => this.begin(turn, items, { ...turn.body, ...(turn.answer.id && { previous_response_id: turn.answer.id }), input: items }),
      versions: (turn) => [this.beside(turn).indexOf(turn), this.beside(turn).length],
      isLast: (turn) => turn === this.leaf,
    };
  }

  /** @param {Turn} turn */
  beside(turn) {
    return (this.turns ?? []).filter((other) => other.parent === turn.parent);
  }

  /** Show another version of a turn, with what came after it last. @param {Turn} turn @param {number} by */
  step(turn, by) {
    const all = this.beside(turn);
    let next = all[all.indexOf(turn) + by];
    while (next) {
      this.leaf = next;
      next = (this.turns ?? []).findLast((other) => other.parent === this.leaf);
    }
    this.render();
  }

  /** Go on from a turn. @param {Turn} turn */
  choose(turn) {
    const left = this.leaf;
    this.leaf = turn;
    this.render();
    if (this.notice && left !== turn) {
      fill(this.notice, h("p", { class: "hint" }, "You go on from an earlier turn. ", button("Back to the latest", () => {
        this.leaf = left ?? null;
        this.render();
      }, { class: "quiet" })));
    }
    this.composer?.field.focus();
  }

  renew() {
    if (location.hash === "#/chat") this.goTo([]);
    else location.hash = "#/chat";
  }

  /** @param {Json[]} content @param {Json} options */
  send(content, options) {
    const parent = this.leaf ?? null;
    const previous = parent?.continues;
    this.begin(parent, content, {
      ...options,
      ...(previous && { previous_response_id: previous }),
      input: [{ type: "message", role: "user", content }],
      include: INCLUDED,
      stream: true,
    });
  }

  /** @param {Turn | null} parent @param {Json[]} content @param {Json} body */
  begin(parent, content, body) {
    const turn = new Turn(parent, content, body, this.hands);
    this.turns?.push(turn);
    this.leaf = turn;
    this.render();
    turn.element.scrollIntoView({ block: "end" });
    void this.answer(turn);
  }

  /** Ask for the answer of a turn, and show it as it comes. @param {Turn} turn */
  async answer(turn) {
    const ending = new AbortController();
    this.answering = ending;
    const signal = AbortSignal.any([this.signal, ending.signal]);
    this.composer?.busy(true);
    if (turn.body.background) void this.askAlong(turn, signal);
    try {
      await this.follow(turn, "/v1/responses", { body: turn.body, headers: SHOWING }, signal);
    } catch (error) {
      if (!signal.aborted) turn.answer.take({ type: "error", message: /** @type {Error} */ (error).message });
    }
    if (ending.signal.aborted) turn.answer.stopped = true;
    if (this.answering === ending) {
      this.answering = null;
      this.composer?.busy(false);
    }
    if (this.signal.aborted) return;
    turn.lost = "";
    fill(turn.asking);
    turn.render();
    if (turn === this.leaf && turn.answer.id && !turn.answer.failure) history.replaceState(null, "", `#/chat/${turn.answer.id}`);
    this.render();
  }

  /**
   * Take the events of a stream, and of others in its place if it breaks off, until the response is over.
   * @param {Turn} turn
   * @param {string} path
   * @param {import("./api.js").Options} options
   * @param {AbortSignal} signal
   */
  async follow(turn, path, options, signal) {
    try {
      await this.take(turn, path, { ...options, signal });
    } catch (error) {
      if (!(error instanceof GoneError) || !turn.answer.id) throw error;
    }
    if (turn.answer.isOver || signal.aborted) return;
    turn.lost = "The connection is lost; trying again";
    turn.render();
    const one = `/v1/responses/${encodeURIComponent(turn.answer.id)}`;
    await patiently(signal, async () => {
      if (turn.answer.response.background) {
        await this.take(turn, `${one}?stream=true&starting_after=${turn.answer.sequence}`, { headers: SHOWING, signal });
      } else {
        turn.answer.take({ type: "response", response: await json(one, { headers: SHOWING, signal }) });
      }
      turn.render();
      if (!turn.answer.isOver) throw new GoneError("It is not over.");
    });
  }

  /** @param {Turn} turn @param {string} path @param {import("./api.js").Options} options */
  async take(turn, path, options) {
    let planned = false;
    for await (const event of events(path, options)) {
      turn.lost = "";
      turn.answer.take(event);
      if (planned) continue;
      planned = true;
      requestAnimationFrame(() => {
        planned = false;
        this.atTheEnd(() => turn.render());
      });
    }
  }

  /** Do something that makes the page longer, and stay at its end if that is what is seen. @param {() => void} work */
  atTheEnd(work) {
    const page = this.parentElement;
    const isNear = page && page.scrollHeight - page.scrollTop - page.clientHeight < NEAR;
    work();
    if (page && isNear) page.scrollTop = page.scrollHeight;
  }

  /** Show what a response in the background waits for. @param {Turn} turn @param {AbortSignal} signal */
  async askAlong(turn, signal) {
    let shown = "";
    let may = true;
    await this.repeat(1.5, async () => {
      if (!may || signal.aborted || turn.answer.isOver || !turn.answer.id) return;
      const found = await openQuestions(signal, turn.answer.id).catch((error) => {
        may = !(error instanceof ApiError && error.status < 500);
        return [];
      });
      const ids = found.map(({ id }) => id).join();
      if (ids === shown || turn.answer.isOver) return;
      shown = ids;
      this.atTheEnd(() => fill(turn.asking, found.map((question) => questionCard(question, () => fill(turn.asking)))));
    });
  }

  /** Stop what is being answered; what goes on without a reader is cancelled. */
  stop() {
    const turn = this.leaf;
    const { id, response } = turn?.answer ?? new Answer();
    if (response.background && id) json(`/v1/responses/${encodeURIComponent(id)}/cancel`, { method: "POST" }).catch(() => {});
    this.answering?.abort();
  }

  /** Show a chat that is stored, by its last response. @param {string} id */
  async open(id) {
    const { signal } = this;
    if (this.list) fill(this.list, h("p", { class: "muted working" }, "Reading"));
    try {
      const parts = [];
      for (let next = id; next && parts.length < MOST_TURNS; next = parts[0]?.response.previous_response_id ?? "") {
        parts.unshift(await stored(next, signal));
      }
      for (const { response, items } of parts) this.leaf = this.restored(response, items);
    } catch (error) {
      if (signal.aborted) return;
      const missing = error instanceof ApiError && error.status === 404;
      if (this.list) fill(this.list, missing ? h("p", { class: "empty" }, "There is no such chat, or it is not yours.") : problem(error));
      return;
    }
    this.render();
    this.leaf?.element.scrollIntoView({ block: "end" });
    if (this.leaf && !this.leaf.answer.isOver) void this.goOn(this.leaf);
  }

  /** @param {Json} response @param {Json[]} items */
  restored(response, items) {
    const content = items.flatMap((item) => (item.type === "message" ? (typeof item.content === "string" ? [{ type: "input_text", text: item.content }] : item.content) : item.type.endsWith("_output") || item.type.endsWith("_response") ? [item] : []));
    const body = { model: response.model, ...(response.previous_response_id && { previous_response_id: response.previous_response_id }), ...(response.background && { background: true }), ...(response.tools?.length && { tools: response.tools }), input: [{ type: "message", role: "user", content }], stream: true };
    const turn = new Turn(this.leaf ?? null, content, body, this.hands);
    turn.answer = Answer.of(response);
    this.turns?.push(turn);
    return turn;
  }

  /** Follow a response that is still being made. @param {Turn} turn */
  async goOn(turn) {
    const ending = new AbortController();
    this.answering = ending;
    const signal = AbortSignal.any([this.signal, ending.signal]);
    this.composer?.busy(true);
    const path = `/v1/responses/${encodeURIComponent(turn.answer.id)}?stream=true`;
    if (turn.answer.response.background) void this.askAlong(turn, signal);
    await this.follow(turn, path, { headers: SHOWING }, signal).catch((error) => signal.aborted || turn.answer.take({ type: "error", message: error.message }));
    this.answering = null;
    if (this.signal.aborted) return;
    this.composer?.busy(false);
    fill(turn.asking);
    this.render();
  }

  render() {
    const turns = this.shown();
    this.classList.toggle("fresh", turns.length === 0);
    if (this.notice) fill(this.notice);
    if (!this.list) return;
    if (turns.length === 0) fill(this.list, h("p", { class: "welcome" }, "What would you like to know?"));
    else fill(this.list, turns.map((turn) => turn.element));
    for (const turn of turns) turn.render();
  }
}

/** @param {string} id @param {AbortSignal} signal */
async function stored(id, signal) {
  const one = `/v1/responses/${encodeURIComponent(id)}`;
  const [response, items] = await Promise.all([
    json(`${one}?include=${INCLUDED}`, { signal, headers: SHOWING }),
    json(`${one}/input_items?order=asc&limit=100`, { signal }),
  ]);
  return { response, items: /** @type {Json[]} */ (items.data) };
}

customElements.define("chat-view", ChatView);
