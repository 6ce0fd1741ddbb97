// The functions of the server: what each takes, and a try of it.

import { ApiError, json } from "./api.js";
import { button, fill, h, link, problem, View } from "./dom.js";
import { schemaForm } from "./schema_form.js";
import { block, duration, number, oneLine, pretty } from "./text.js";

/** @typedef {import("./api.js").Json} Json */

/** The protocol by which functions are called without a model. */
const HEADERS = { "mcp-protocol-version": "2025-11-25", accept: "application/json, text/event-stream" };

class FunctionsView extends View {
  show() {
    void this.read();
  }

  async read() {
    const { signal } = this;
    const [name] = this.path;
    try {
      const { data } = await json("/v1/functions", { signal });
      const found = data.find((/** @type {Json} */ one) => one.name === name);
      if (name && !found) fill(this, h("h1", {}, "Functions"), h("p", { class: "empty" }, "There is no function of this name."));
      else if (found) this.one(found);
      else await this.list(data);
    } catch (error) {
      if (!signal.aborted) fill(this, h("h1", {}, "Functions"), problem(error));
    }
  }

  /** @param {Json[]} functions */
  async list(functions) {
    const providers = h("section", {});
    const rows = h("tbody");
    const search = h("input", { type: "search", placeholder: "Find a function", "aria-label": "Find a function", input: () => show() });
    const show = () => {
      const wanted = search.value.toLowerCase();
      fill(rows, functions.filter(({ name, description }) => `${name} ${description}`.toLowerCase().includes(wanted)).map((one) => h("tr", {},
        h("td", {}, link(`#/functions/${encodeURIComponent(one.name)}`, h("code", {}, oneLine(one.name, 80)))),
        h("td", {}, oneLine(String(one.description).split("\n")[0] ?? "", 160)),
        h("td", { class: "muted" }, oneLine(one.provider, 40)))));
    };
    show();
    fill(this,
      h("div", { class: "head" }, h("h1", {}, "Functions"), h("div", { class: "search" }, search)),
      h("section", { class: "scrolls" }, h("table", {}, h("thead", {}, h("tr", {}, ["Name", "What it does", "Provider"].map((name) => h("th", { scope: "col" }, name)))), rows)),
      providers);
    try {
      const { data } = await json("/v1/providers", { signal: this.signal });
      fill(providers, h("h2", {}, "Providers"), h("table", {}, h("tbody", {}, data.map((/** @type {Json} */ one) => h("tr", {},
        h("td", {}, h("code", {}, oneLine(one.name, 60))),
        h("td", {}, h("span", { class: `state ${one.enabled ? "ok" : ""}` }, one.enabled ? oneLine(one.offer).replaceAll("_", " ") : "disabled")),
        h("td", { class: "muted" }, `${number(one.functions.length)} functions, ${number(one.routes.length)} routes`))))));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403) && !this.signal.aborted) fill(providers, problem(error));
    }
  }

  /** @param {Json} found */
  one(found) {
    const form = schemaForm(found.parameters);
    const result = h("div", { "aria-live": "polite" });
    const run = h("button", { type: "submit", class: "main" }, "Call it");
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      run.disabled = true;
      fill(result, h("p", { class: "muted working" }, "Working"));
      await this.call(found.name, form, result);
      run.disabled = false;
    };
    fill(this,
      h("p", {}, link("#/functions", "All functions")),
      h("h1", {}, oneLine(found.name, 120)),
      h("p", { class: "facts muted" }, oneLine([found.provider, `scope ${found.scope}`, ...found.tool_types].join(" · "))),
      h("p", { class: "about" }, String(found.description)),
      h("section", {}, h("h2", {}, "Try it"), h("form", { class: "card cards", submit }, form.element, h("div", {}, run), result)),
      h("section", {}, h("h2", {}, "Schema"), block(pretty(found.parameters), "Schema")));
  }

  /** @param {string} name @param {import("./schema_form.js").Form} form @param {HTMLElement} place */
  async call(name, form, place) {
    const begun = performance.now();
    try {
      const params = { name, arguments: form.read() };
      const answer = await json("/mcp", { signal: this.signal, headers: HEADERS, body: { jsonrpc: "2.0", id: 1, method: "tools/call", params } });
      if (answer.error) throw new Error(String(answer.error.message));
      const { content = [], structuredContent, isError } = answer.result;
      fill(place,
        h("p", {}, h("span", { class: `state ${isError ? "failed" : "ok"}` }, isError ? "error" : "success"), h("span", { class: "muted" }, ` ${duration((performance.now() - begun) / 1000)}`)),
        structuredContent ? block(pretty(structuredContent), "Result") : content.map((/** @type {Json} */ part) => part.type === "image" ? h("img", { class: "picture", alt: "Result", src: `data:image/png;base64,${part.data}` }) : block(pretty(part.text ?? part), "Result")),
        button("Clear", () => fill(place), { class: "quiet" }));
    } catch (error) {
      if (!this.signal.aborted) fill(place, problem(error));
    }
  }
}

customElements.define("functions-view", FunctionsView);
