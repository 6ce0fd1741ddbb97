// The functions of the server: what each takes, and a try of it.

import { ApiError, json, request } from "./api.js";
import { button, fill, h, link, problem, table, View } from "./dom.js";
import { quantile, samples, sum } from "./metrics.js";
import { schemaForm } from "./schema_form.js";
import { block, duration, number, oneLine, pretty, when } from "./text.js";

/** The protocol by which functions are called without a model. */
const HEADERS = { "mcp-protocol-version": "2025-11-25", accept: "application/json, text/event-stream" };

const CALLS = "antwort_builtin_tool_executions_total";
const TIMES = "antwort_builtin_tool_duration_seconds";
/** As many runs are looked through for the last errors of a function. */
const LOOKED_THROUGH = 5;
/** Characters of an error. */
const LONGEST = 400;

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
    /** @type {import("./metrics.js").Sample[]} */
    const measured = await measures(this.signal);
    const rows = h("tbody");
    const search = h("input", { type: "search", placeholder: "Find a function", "aria-label": "Find a function", input: () => show() });
    const show = () => {
      const wanted = search.value.toLowerCase();
      fill(rows, functions.filter(({ name, description }) => `${name} ${description}`.toLowerCase().includes(wanted)).map((one) => h("tr", {},
        h("td", {}, link(`#/functions/${encodeURIComponent(one.name)}`, h("code", {}, oneLine(one.name, 80)))),
        h("td", {}, oneLine(String(one.description).split("\n")[0] ?? "", 160)),
        h("td", { class: "muted" }, oneLine(one.provider, 40)),
        h("td", { class: "number" }, told(measured, one.name)))));
    };
    show();
    fill(this,
      h("div", { class: "head" }, h("h1", {}, "Functions"), h("div", { class: "search" }, search)),
      h("section", {}, table(["Name", "What it does", "Provider", "Calls"], rows, "", 3)),
      providers);
    try {
      const { data } = await json("/v1/providers", { signal: this.signal });
      const services = data.flatMap((/** @type {Json} */ one) => one.services.map((/** @type {Json} */ service) => serviceRow(one.name, service)));
      fill(providers,
        services.length > 0 && [h("h2", {}, "MCP servers and other services"), h("div", { class: "scrolls" }, h("table", { class: "services" }, h("tbody", {}, services)))],
        h("h2", {}, "Providers"), h("table", {}, h("tbody", {}, data.map((/** @type {Json} */ one) => h("tr", {},
        h("td", {}, h("code", {}, oneLine(one.name, 60))),
        h("td", {}, h("span", { class: `state ${one.enabled ? "ok" : ""}` }, one.enabled ? oneLine(one.offer).replaceAll("_", " ") : "disabled")),
        h("td", { class: "muted" }, `${number(one.functions.length)} functions, ${number(one.routes.length)} routes, ${number(one.checks.length)} checks`))))));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403) && !this.signal.aborted) fill(providers, problem(error));
    }
  }

  /** Show how often a function was called, and why it failed last. @param {HTMLElement} place @param {string} name */
  async past(place, name) {
    const { signal } = this;
    const measured = await measures(signal);
    const isIt = (/** @type {Record<string, string>} */ labels) => labels.tool_name === name;
    const counts = measured.filter((sample) => sample.name === CALLS && isIt(sample.labels)).map(({ labels, value }) => `${number(value)} ${oneLine(labels.status ?? "", 40)}`);
    const times = [0.5, 0.99].map((share) => quantile([], measured, TIMES, share, isIt));
    const facts = [...counts, times[0] !== null && `median ${duration(times[0] ?? 0)}`, times[1] !== null && `99 % within ${duration(times[1] ?? 0)}`].filter(Boolean);
    const failures = await lastFailures(name, signal).catch((error) => {
      if (error instanceof ApiError && error.status === 403) return null;
      throw error;
    });
    if (signal.aborted) return;
    fill(place, h("h2", {}, "What became of it"),
      measured.length > 0 && h("p", { class: "facts" }, facts.length > 0 ? `Since the server started: ${facts.join(", ")}.` : "It was not called since the server started."),
      failures === null ? h("p", { class: "hint" }, "Its last errors are shown to keys with the scopes runs:read and traces:read.")
        : failures.length > 0 ? h("ul", { class: "plain past" }, failures.map(({ run, failure, at }) => h("li", {},
          link(`#/runs/${encodeURIComponent(run)}/${encodeURIComponent(`${failure.response_id} call ${failure.call_id}`)}`, when(at)),
          h("span", { class: "why bad" }, ` ${oneLine(String(failure.message || failure.status), LONGEST)}`))))
          : h("p", { class: "hint" }, "None of the latest runs has an error of it."));
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
      void look();
    };
    const past = h("section");
    const look = () => this.past(past, found.name).catch((error) => this.signal.aborted || fill(past, problem(error)));
    void look();
    fill(this,
      h("p", {}, link("#/functions", "All functions")),
      h("h1", {}, oneLine(found.name, 120)),
      h("p", { class: "facts muted" }, oneLine([found.provider, `scope ${found.scope}`, ...found.tool_types].join(" · "))),
      h("p", { class: "about" }, String(found.description)),
      h("section", {}, h("h2", {}, "Try it"), h("form", { class: "card cards", submit }, form.element, h("div", {}, run), result)),
      past,
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

/** @param {string} provider @param {Json} service */
function serviceRow(provider, service) {
  return h("tr", {},
    h("td", {}, h("code", {}, oneLine(service.name, 60)), h("div", { class: "hint" }, oneLine(provider, 60))),
    h("td", {}, h("span", { class: `state ${service.state === "ok" ? "ok" : "failed"}` }, oneLine(service.state))),
    h("td", {}, service.functions.length === 0 ? h("span", { class: "muted" }, "No functions") : h("ul", { class: "names" }, service.functions.map((/** @type {string} */ name) => h("li", {}, link(`#/functions/${encodeURIComponent(name)}`, h("code", {}, oneLine(name, 60))))))));
}

/** Return what the server has measured; nothing for those who may not know. @param {AbortSignal} signal */
async function measures(signal) {
  const answer = await request("/metrics", { signal }).catch(() => null);
  return answer ? samples(await answer.text()) : [];
}

/** How often a function was called, and how often that failed. @param {import("./metrics.js").Sample[]} measured @param {string} name */
function told(measured, name) {
  const all = sum(measured, CALLS, ({ tool_name: tool }) => tool === name);
  const well = sum(measured, CALLS, ({ tool_name: tool, status }) => tool === name && status === "success");
  return all === 0 ? "–" : [number(all), all > well && h("span", { class: "flaw" }, `${number(all - well)} failed`)];
}

/**
 * Return the last errors of a function, of the latest runs that have some.
 * @param {string} name
 * @param {AbortSignal} signal
 * @returns {Promise<{run: string, at: number, failure: Json}[]>}
 */
async function lastFailures(name, signal) {
  const query = new URLSearchParams({ function: name, failed: "true", limit: String(LOOKED_THROUGH) });
  const { data } = await json(`/v1/runs?${query}`, { signal });
  const found = await Promise.all(data.map(async (/** @type {Json} */ run) => {
    const { failures } = await json(`/v1/responses/${encodeURIComponent(run.id)}/trace?max_length=${LONGEST}`, { signal });
    return failures.filter((/** @type {Json} */ one) => one.kind === "call" && one.name === name).slice(0, LOOKED_THROUGH).map((/** @type {Json} */ failure) => ({ run: run.id, at: run.created_at, failure }));
  }));
  return found.flat();
}

customElements.define("functions-view", FunctionsView);
