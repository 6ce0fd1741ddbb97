// A response as it comes about: events make of it what the server would return.

const OVER = new Set(["completed", "failed", "incomplete", "cancelled"]);

/** Events that add to a text of an item, and which. */
const GROWING = /** @type {Record<string, string>} */ ({
  "response.function_call_arguments.delta": "arguments",
  "response.mcp_call_arguments.delta": "arguments",
  "response.custom_tool_call_input.delta": "input",
  "response.code_interpreter_call_code.delta": "code",
});

/** A response, as far as it has come. */
export class Answer {
  constructor() {
    /** What the server has said of the response itself. @type {Json} */
    this.response = {};
    /** @type {Json[]} */
    this.items = [];
    /** The number of the last event. */
    this.sequence = -1;
    this.failure = "";
    /** What functions have said of how far they are, by call. @type {Map<string, string>} */
    this.progress = new Map();
    /** The items that have changed since somebody looked. @type {Set<number>} */
    this.changed = new Set();
    this.stopped = false;
  }

  /** Make one of a stored response. @param {Json} response */
  static of(response) {
    const made = new Answer();
    made.take({ type: "response", response });
    return made;
  }

  get id() {
    return String(this.response.id ?? "");
  }

  get status() {
    return this.stopped ? "cancelled" : String(this.response.status ?? "in_progress");
  }

  get isOver() {
    return this.stopped || this.failure !== "" || OVER.has(this.status);
  }

  /** The text of the answer. */
  get text() {
    return this.items
      .filter((item) => item.type === "message")
      .flatMap((item) => (item.content ?? []).map((/** @type {Json} */ part) => part.text ?? part.refusal ?? ""))
      .join("\n\n");
  }

  /** Why it has failed, if it has. */
  get problem() {
    return this.failure || String(this.response.error?.message ?? "");
  }

  /** Take an event. @param {Json} event */
  take(event) {
    const { type } = event;
    if (typeof event.sequence_number === "number") this.sequence = event.sequence_number;
    if (event.response) this.takeResponse(event.response);
    else if (type === "error") this.failure = String(event.message ?? event.error?.message ?? "The response has failed.");
    else if (type === "antwort:progress") this.takeProgress(event);
    else if (type === "response.output_item.added" || type === "response.output_item.done") this.put(event.output_index, event.item);
    else this.takePart(event);
  }

  /** @param {Json} response */
  takeResponse(response) {
    const { output, ...rest } = response;
    this.response = rest;
    if (!OVER.has(rest.status) && this.items.length > 0) return;
    if (this.items.length > output.length) this.items.length = output.length;
    output.forEach((/** @type {Json} */ item, /** @type {number} */ index) => this.put(index, item));
  }

  /** @param {Json} event */
  takeProgress(event) {
    const share = typeof event.fraction === "number" ? `${Math.round(100 * event.fraction)} % ` : "";
    this.progress.set(String(event.name), share + String(event.message ?? ""));
    this.items.forEach((item, index) => item.name === event.name && this.changed.add(index));
  }

  /** @param {number} index @param {Json} item */
  put(index, item) {
    this.items[index] = item;
    this.changed.add(index);
  }

  /** Take an event about a part of an item. @param {Json} event */
  takePart(event) {
    const index = event.output_index;
    const item = typeof index === "number" ? this.items[index] : undefined;
    if (!item) return;
    this.changed.add(index);
    const type = String(event.type);
    const field = GROWING[type];
    if (field) item[field] = (item[field] ?? "") + event.delta;
    else if (type.startsWith("response.reasoning_summary_")) takeSummary(item, type, event);
    else if (typeof event.content_index === "number") takeContent(item, type, event);
    else if (type.endsWith("partial_image")) item.partial = event.partial_image_b64;
    else item.phase = /_call\.(\w+)$/.exec(type)?.[1] ?? item.phase;
  }
}

/** @param {Json} item @param {string} type @param {Json} event */
function takeSummary(item, type, event) {
  item.summary ??= [];
  if (type.endsWith("part.added")) item.summary[event.summary_index] = event.part;
  else if (type.endsWith(".delta")) grow(item.summary[event.summary_index], "text", event.delta);
}

/** @param {Json} item @param {string} type @param {Json} event */
function takeContent(item, type, event) {
  item.content ??= [];
  const part = item.content[event.content_index];
  if (type === "response.content_part.added") item.content[event.content_index] = event.part;
  else if (type.endsWith("annotation.added")) part?.annotations?.push(event.annotation);
  else if (type.endsWith(".delta")) grow(part, type === "response.refusal.delta" ? "refusal" : "text", event.delta);
}

/** @param {Json | undefined} part @param {string} field @param {string} delta */
function grow(part, field, delta) {
  if (part) part[field] = (part[field] ?? "") + delta;
}
