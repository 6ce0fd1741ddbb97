// How the server is: its health, charts of the last minutes, and for those who look after it how it is set up.

import { showKeys, showSettings } from "./administration.js";
import { ApiError, json, request } from "./api.js";
import { chart } from "./charts.js";
import { fill, h, problem, table, View } from "./dom.js";
import { most, quantile, samples, sum } from "./metrics.js";
import { duration, number, oneLine } from "./text.js";

/** @typedef {import("./metrics.js").Sample} Sample */

const EVERY = 2;
/** As many looks as a chart is wide at first. */
const FEW = 12;
/** As many looks as make five minutes. */
const MOST = 150;

/** What is drawn: a name, how it is told, and how it comes out of two looks that are some seconds apart. */
const CHARTS = /** @type {[string, (value: number) => string, (before: Sample[], now: Sample[], seconds: number) => number | null][]} */ ([
  ["Requests a second", (value) => value.toFixed(1), rate("antwort_http_request_duration_seconds_count")],
  ["Errors a second", (value) => value.toFixed(1), rate("antwort_http_requests_total", ({ status, code }) => /^[5]/.test(status ?? code ?? ""))],
  ["Tokens a second", (value) => number(Math.round(value)), rate("gen_ai_client_token_usage_sum")],
  ["Model turn, median", duration, (before, now) => quantile(before, now, "gen_ai_client_operation_duration_seconds", 0.5)],
  ["Event loop lag, 99 %", duration, (before, now) => quantile(before, now, "antwort_loop_lag_seconds", 0.99)],
  ["Waiting in queues", (value) => number(value), (_before, now) => sum(now, "antwort_queue_waiting")],
  ["Wait in a queue, 99 %", duration, (before, now) => quantile(before, now, "antwort_queue_wait_seconds", 0.99)],
  ["Runs in the background", (value) => number(value), (_before, now) => sum(now, "antwort_background_responses")],
  ["Workers", (value) => number(value), (_before, now) => most(now, "antwort_live_workers")],
]);

/**
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [which]
 * @returns {(before: Sample[], now: Sample[], seconds: number) => number}
 */
function rate(name, which) {
  return (before, now, seconds) => Math.max(0, sum(now, name, which) - sum(before, name, which)) / seconds;
}

/** How the server is: whether it is ready, which models it has, and what it was asked in the last minutes. */
class ServerView extends View {
  show() {
    this.health = h("section", { "aria-labelledby": "health" });
    this.models = h("section", { "aria-labelledby": "models" });
    this.drawn = h("div", { class: "charts" });
    const keys = h("section");
    const settings = h("section");
    /** @type {(number | null)[][]} */
    this.values = CHARTS.map(() => []);
    /** @type {{at: number, all: Sample[]} | null} */
    this.earlier = null;
    fill(this,
      h("h1", {}, "Server"),
      this.health,
      h("section", { "aria-labelledby": "charts" }, h("h2", { id: "charts" }, "Since you look"), this.drawn),
      this.models, keys, settings);
    void showKeys(keys, this.signal);
    void showSettings(settings, this.signal);
    void this.repeat(5, () => this.lookAtHealth());
    void this.repeat(30, () => this.lookAtModels());
    void this.repeat(EVERY, () => this.measure());
  }

  async lookAtHealth() {
    const { signal, health } = this;
    if (!health) return;
    try {
      const ready = await json("/readyz", { signal });
      const parts = [
        ...ready.backends.map((/** @type {any} */ one) => row(one.name, one.state, `${number(one.models)} ${one.models === 1 ? "model" : "models"}`)),
        ...ready.services.map((/** @type {any} */ one) => row(`${one.provider}: ${one.name}`, one.state, "")),
      ];
      fill(health,
        h("h2", { id: "health" }, "Health"),
        h("p", {}, h("span", { class: "state ok" }, "ready"), ` antwort ${ready.version}, answered by ${oneLine(ready.model)}`),
        parts.length > 0 && table(["Service", "State", ""], parts));
    } catch (error) {
      if (!signal.aborted) fill(health, h("h2", { id: "health" }, "Health"), h("p", {}, h("span", { class: "state failed" }, "not ready")), problem(error));
    }
  }

  async lookAtModels() {
    const { signal, models } = this;
    if (!models) return;
    try {
      const { data } = await json("/v1/models", { signal });
      fill(models, h("h2", { id: "models" }, "Models"),
        h("ul", { class: "plain" }, data.map((/** @type {any} */ model) => h("li", {}, h("code", {}, model.id), h("span", { class: "muted" }, ` ${oneLine(model.owned_by)}`)))));
    } catch (error) {
      if (!signal.aborted) fill(models, h("h2", { id: "models" }, "Models"), problem(error));
    }
  }

  async measure() {
    const { signal, drawn, values } = this;
    if (!drawn || !values) return;
    try {
      const answer = await request("/metrics", { signal });
      const now = { at: performance.now(), all: samples(await answer.text()) };
      const before = this.earlier;
      this.earlier = now;
      if (before) CHARTS.forEach(([, , value], index) => values[index]?.push(value(before.all, now.all, (now.at - before.at) / 1000)));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 403) {
        fill(drawn, h("p", { class: "hint" }, "Your key may not read the metrics: that needs the scope ", h("code", {}, "metrics"), "."));
        return;
      }
      this.earlier = null;
      for (const one of values) one.push(null);
    }
    for (const one of values) one.splice(0, Math.max(0, one.length - MOST));
    fill(drawn, CHARTS.map(([title, told], index) => chart(title, values[index] ?? [], told, Math.max(FEW, values[index]?.length ?? 0))));
  }
}

/** @param {string} name @param {string} state @param {string} more */
function row(name, state, more) {
  const well = /^(ok|ready|known)$/.test(state);
  return h("tr", {}, h("td", {}, h("code", {}, oneLine(name))), h("td", {}, h("span", { class: `state ${well ? "ok" : "waiting"}` }, oneLine(state).replaceAll("_", " "))), h("td", { class: "muted" }, more));
}

customElements.define("server-view", ServerView);
