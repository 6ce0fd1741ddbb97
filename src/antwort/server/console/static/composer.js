// Where a message is written: its text, its files, and what else the request says.

import { json, upload } from "./api.js";
import { button, fill, h, problem } from "./dom.js";
import { icon } from "./icons.js";
import { oneLine, size } from "./text.js";

/** @typedef {{name: string, isImage: boolean, id: string, share: number, failure: string}} Attached */

const KEPT = "antwort.request";

/** What the server has to choose from. @param {AbortSignal} signal */
async function offered(signal) {
  const list = async (/** @type {Promise<Json>} */ asked) => (await asked.catch(() => ({ data: [] }))).data;
  const rpc = { jsonrpc: "2.0", id: 1, method: "prompts/list", params: {} };
  const headers = { "mcp-protocol-version": "2025-11-25", accept: "application/json, text/event-stream" };
  const [models, functions, agents, stores] = await Promise.all([
    list(json("/v1/models", { signal })),
    list(json("/v1/functions", { signal })),
    json("/mcp", { signal, body: rpc, headers }).then(({ result }) => result?.prompts ?? [], () => []),
    list(json("/v1/vector_stores?limit=100", { signal })),
  ]);
  return { models, functions, agents, stores };
}

/** The part of the page in which requests are made. */
export class Composer {
  /**
   * @param {AbortSignal} signal
   * @param {(content: Json[], options: Json) => void} send
   * @param {() => void} stop
   */
  constructor(signal, send, stop) {
    this.signal = signal;
    this.sendRequest = send;
    /** @type {Attached[]} */
    this.files = [];
    this.isBusy = false;
    /** @type {Json} */
    this.options = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    this.field = h("textarea", { rows: 1, placeholder: "Ask something", "aria-label": "Message", keydown: (event) => this.key(event), input: () => this.grow(), paste: (event) => this.take(event.clipboardData?.files) });
    this.attached = h("ul", { class: "attached plain", "aria-label": "Files" });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach", change: () => (this.take(this.picker.files), (this.picker.value = "")) });
    this.panel = h("div", { class: "options", hidden: true });
    this.summary = h("span", { class: "hint" });
    this.sender = button("Send", () => (this.isBusy ? stop() : this.send()), { class: "round main", icon: icon("send") });
    this.told = h("div");
    this.opener = button("Options", () => this.unfold(), { class: "round", icon: icon("options") });
    this.opener.setAttribute("aria-expanded", "false");
    this.element = h("div", { class: "composer", dragover: (event) => event.preventDefault(), drop: (event) => (event.preventDefault(), this.take(event.dataTransfer?.files)) },
      this.panel,
      h("div", { class: "writing" },
        this.attached, this.field,
        h("div", { class: "tools" },
          button("Attach files", () => this.picker.click(), { class: "round", icon: icon("attach") }), this.opener, this.summary, this.picker,
          this.sender)),
      this.told);
    this.sumUp();
    void this.offer();
  }

  /** Show whether an answer is coming. @param {boolean} isBusy */
  busy(isBusy) {
    this.isBusy = isBusy;
    fill(this.sender, icon(isBusy ? "stop" : "send"));
    this.sender.setAttribute("aria-label", isBusy ? "Stop" : "Send");
    this.sender.title = isBusy ? "Stop" : "Send";
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.isBusy) this.send();
  }

  grow() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, 240)}px`;
  }

  /** Take files and upload them. @param {FileList | null | undefined} files */
  take(files) {
    for (const file of files ?? []) {
      /** @type {Attached} */
      const one = { name: file.name, isImage: /^image\/(png|jpeg|webp|gif)$/.test(file.type), id: "", share: 0, failure: "" };
      this.files.push(one);
      upload(file, one.isImage ? "vision" : "user_data", (share) => {
        one.share = share;
        this.showFiles();
      }, this.signal).then(({ id }) => (one.id = id), (error) => (one.failure = String(error.message))).finally(() => this.showFiles());
    }
    this.showFiles();
  }

  showFiles() {
    fill(this.attached, this.files.map((one) => h("li", { class: one.failure ? "failed" : "" },
      h("span", {}, oneLine(one.name, 40)),
      h("span", { class: "muted" }, one.failure ? oneLine(one.failure) : one.id ? "" : `${Math.round(100 * one.share)} %`),
      button(`Leave out ${oneLine(one.name, 40)}`, () => {
        this.files = this.files.filter((other) => other !== one);
        this.showFiles();
      }, { class: "round", icon: icon("close") }))));
  }

  send() {
    const text = this.field.value.trim();
    const ready = this.files.filter((one) => one.id);
    if (this.files.some((one) => !one.id && !one.failure)) return this.tell("A file is still on its way.");
    if (!text && ready.length === 0) return;
    let options;
    try {
      options = this.request();
    } catch (error) {
      return this.tell(error);
    }
    fill(this.told);
    const files = ready.map((one) => (one.isImage ? { type: "input_image", file_id: one.id, detail: "auto" } : { type: "input_file", file_id: one.id }));
    this.field.value = "";
    this.files = [];
    this.showFiles();
    this.grow();
    this.sendRequest([...(text ? [{ type: "input_text", text }] : []), ...files], options);
  }

  /** @param {unknown} error */
  tell(error) {
    fill(this.told, problem(error));
  }

  /** Return what the request says besides its input. @returns {Json} */
  request() {
    const { model, agent, functions = [], stores = [], background, schema, instructions } = this.options;
    const tools = [
      ...functions.map((/** @type {string} */ name) => ({ type: "function", name })),
      ...(stores.length > 0 ? [{ type: "file_search", vector_store_ids: stores }] : []),
    ];
    return {
      ...(model && { model }),
      ...(agent && { agent }),
      ...(instructions && { instructions }),
      ...(tools.length > 0 && { tools }),
      ...(background && { background: true }),
      ...(schema && { text: { format: { type: "json_schema", name: "answer", schema: schemaOf(schema), strict: true } } }),
    };
  }

  unfold() {
    this.panel.hidden = !this.panel.hidden;
    this.opener.setAttribute("aria-expanded", String(!this.panel.hidden));
  }

  /** @param {Json} changes */
  change(changes) {
    this.options = { ...this.options, ...changes };
    sessionStorage.setItem(KEPT, JSON.stringify(this.options));
    this.sumUp();
  }

  sumUp() {
    const { model, agent, functions = [], stores = [], background, schema } = this.options;
    const said = [agent, model, functions.length > 0 && `${functions.length} functions`, stores.length > 0 && "file search", schema && "structured", background && "in the background"];
    fill(this.summary, oneLine(said.filter(Boolean).join(" · "), 120));
  }

  /** Show what there is to choose. */
  async offer() {
    const { models, functions, agents, stores } = await offered(this.signal);
    const chosen = this.options;
    fill(this.panel,
      h("div", { class: "columns" },
        select("Model", "model", ["", ...models.map((/** @type {Json} */ one) => one.id)], chosen.model, (model) => this.change({ model })),
        select("Agent", "agent", ["", ...agents.map((/** @type {Json} */ one) => one.name)], chosen.agent, (agent) => this.change({ agent }))),
      several("Functions", functions.map((/** @type {Json} */ one) => [one.name, one.name]), chosen.functions, (names) => this.change({ functions: names })),
      stores.length > 0 && several("Search in", stores.map((/** @type {Json} */ one) => [one.id, `${one.name || one.id} (${size(one.usage_bytes)})`]), chosen.stores, (ids) => this.change({ stores: ids })),
      text("Instructions", "instructions", chosen.instructions, (instructions) => this.change({ instructions })),
      text("JSON schema of the answer", "schema", chosen.schema, (schema) => this.change({ schema })),
      h("label", { class: "choice" }, h("input", { type: "checkbox", checked: chosen.background, change: (event) => this.change({ background: event.target.checked }) }),
        "In the background: it goes on when you leave, and shows among the runs"));
  }
}

/** @param {string} text */
function schemaOf(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The JSON schema cannot be read: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}

/**
 * @param {string} label
 * @param {string} id
 * @param {string[]} values
 * @param {string | undefined} chosen
 * @param {(value: string) => void} take
 */
function select(label, id, values, chosen, take) {
  const field = h("select", { id: `option-${id}`, change: (event) => take(event.target.value) },
    values.map((value) => h("option", { value }, value ? oneLine(value, 60) : "As the server has it")));
  field.value = chosen ?? "";
  if (field.selectedIndex < 0) field.selectedIndex = 0;
  return h("div", { class: "field" }, h("label", { for: `option-${id}` }, label), field);
}

/**
 * @param {string} label
 * @param {string[][]} values
 * @param {string[] | undefined} chosen
 * @param {(values: string[]) => void} take
 */
function several(label, values, chosen = [], take) {
  const picked = new Set(chosen);
  const boxes = values.map(([value = "", shown = ""]) => h("label", { class: "choice" },
    h("input", { type: "checkbox", checked: picked.has(value), change: (event) => {
      picked[event.target.checked ? "add" : "delete"](value);
      take([...picked]);
    } }), oneLine(shown, 60)));
  return h("fieldset", {}, h("legend", {}, label), h("div", { class: "boxes" }, boxes.length > 0 ? boxes : h("span", { class: "hint" }, "None")));
}

/** @param {string} label @param {string} id @param {string | undefined} value @param {(value: string) => void} take */
function text(label, id, value, take) {
  return h("div", { class: "field" }, h("label", { for: `option-${id}` }, label),
    h("textarea", { id: `option-${id}`, rows: 2, value: value ?? "", spellcheck: "false", change: (event) => take(event.target.value.trim()) }));
}
