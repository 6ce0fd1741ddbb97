import { everything, json } from "./api.js";
import { fill, h, problem, View } from "./dom.js";
import { questionCard } from "./questions.js";
import { oneLine, when } from "./text.js";

/** What runs wait for, answered in place; and what was answered before. */
class InboxView extends View {
  show() {
    /** Those that are shown: who writes an answer is not to be disturbed by a new question. @type {Map<string, HTMLElement>} */
    this.cards = new Map();
    this.waiting = h("div", { class: "cards" });
    this.nothing = h("p", { class: "empty", hidden: true }, "Nobody waits for you.");
    this.told = h("div");
    this.answered = h("section", {});
    fill(this, h("h1", {}, "Inbox"), h("section", {}, this.told, this.nothing, this.waiting), this.answered);
    void this.repeat(2, () => this.look());
  }

  async look() {
    const { signal, cards, waiting, nothing, told } = this;
    if (!cards || !waiting || !nothing || !told) return;
    try {
      const open = await everything("/v1/questions?status=open&order=asc", signal, 200);
      const ids = new Set(open.map(({ id }) => id));
      for (const [id, card] of cards) {
        if (!ids.has(id)) {
          card.remove();
          cards.delete(id);
        }
      }
      for (const question of open) {
        if (cards.has(question.id)) continue;
        const card = questionCard(question, () => this.look());
        cards.set(question.id, card);
        waiting.append(card);
      }
      nothing.hidden = cards.size > 0;
      fill(told);
      await this.lookBack();
    } catch (error) {
      if (!signal.aborted) fill(told, problem(error));
    }
  }

  async lookBack() {
    const { data } = await json("/v1/questions?limit=30", { signal: this.signal });
    const over = data.filter((/** @type {Json} */ question) => question.status !== "open");
    if (!this.answered || over.length === 0) return;
    fill(this.answered, h("h2", {}, "Before"), h("table", {}, h("tbody", {}, over.map((/** @type {Json} */ question) => h("tr", {},
      h("td", {}, oneLine(question.kind === "approval" ? `Call of ${question.body.name}` : String(question.body.question), 120)),
      h("td", {}, oneLine(outcome(question), 80)),
      h("td", { class: "muted number" }, when(question.answered_at ?? question.created_at)))))));
  }
}

/** @param {Json} question */
function outcome(question) {
  if (question.status !== "answered") return question.status;
  if (question.kind === "approval") return question.approve ? "allowed" : `refused${question.reason ? `: ${question.reason}` : ""}`;
  return question.answer ?? "answered";
}

customElements.define("inbox-view", InboxView);
