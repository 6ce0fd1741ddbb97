// What runs wait for, answered where it is read.

import { json } from "./api.js";
import { button, fill, h, link, problem } from "./dom.js";
import { block, oneLine, pretty, when } from "./text.js";

const SEARCHED = "/v1/questions";

/**
 * Return the questions that are open, all of them or those of a response.
 * @param {AbortSignal} signal
 * @param {string} [responseId]
 * @returns {Promise<Json[]>}
 */
export async function openQuestions(signal, responseId = "") {
  const of = responseId && `&response_id=${encodeURIComponent(responseId)}`;
  const { data } = await json(`${SEARCHED}?status=open&limit=100${of}`, { signal });
  return data;
}

/**
 * Show a question with a form to answer it.
 * @param {Json} question
 * @param {() => void} answered
 */
export function questionCard(question, answered) {
  const told = h("div");
  const send = async (/** @type {string} */ how, /** @type {Json} */ body) => {
    for (const one of card.querySelectorAll("button")) one.disabled = true;
    try {
      await json(`${SEARCHED}/${encodeURIComponent(question.id)}/${how}`, { method: "POST", ...(how === "answer" && { body }) });
      answered();
    } catch (error) {
      for (const one of card.querySelectorAll("button")) one.disabled = false;
      fill(told, problem(error));
    }
  };
  const card = h("article", { class: "card question" },
    question.kind === "approval" ? approval(question, send) : asked(question, send),
    told,
    h("p", { class: "hint" },
      `Asked ${when(question.created_at)}`, question.expires_at ? `, until ${when(question.expires_at)}` : "", " by ",
      link(`#/runs/${encodeURIComponent(question.run_id)}`, "this run"), ". ",
      button("Withdraw", () => send("cancel", {}), { class: "quiet" })));
  return card;
}

/**
 * @param {Json} question
 * @param {(how: string, body: Json) => void} send
 */
function asked({ body, id }, send) {
  const choices = Array.isArray(body.choices) ? body.choices : [];
  const field = h("textarea", { id: `for-${id}`, rows: 2, value: body.default ?? "" });
  const title = h("label", { class: "asked", for: `for-${id}` }, String(body.question ?? "A question"));
  if (choices.length > 0) {
    return [h("p", { class: "asked" }, String(body.question ?? "")), h("div", { class: "answer-form" }, choices.map((/** @type {unknown} */ choice) => button(oneLine(String(choice), 80), () => send("answer", { answer: String(choice) }))))];
  }
  return [title, h("form", { class: "answer-form", submit: (event) => (event.preventDefault(), send("answer", { answer: field.value })) }, field, h("button", { type: "submit", class: "main" }, "Answer"))];
}

/**
 * @param {Json} question
 * @param {(how: string, body: Json) => void} send
 */
function approval({ body, id }, send) {
  const reason = h("input", { id: `why-${id}`, placeholder: "Why not, if you like to say", "aria-label": "Why not" });
  const of = body.server_label ? `${body.server_label}.` : "";
  return [
    h("p", { class: "asked" }, "May ", h("code", {}, oneLine(`${of}${body.name}`, 120)), " be called?"),
    block(pretty(body.arguments ?? "{}"), "Arguments"),
    h("div", { class: "answer-form" },
      button("Allow", () => send("answer", { approve: true }), { class: "main" }),
      button("Refuse", () => send("answer", { approve: false, ...(reason.value && { reason: reason.value }) })),
      reason),
  ];
}
