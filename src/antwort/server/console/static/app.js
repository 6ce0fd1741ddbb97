// The frame of the page: where one can go, which view is shown, and who is asking.

import { ApiError, json, login, useKey } from "./api.js";
import { openQuestions } from "./questions.js";
import { button, fill, h, View } from "./dom.js";
import { icon } from "./icons.js";
import { oneLine } from "./text.js";
import "./chat.js";
import "./files.js";
import "./functions.js";
import "./inbox.js";
import "./runs.js";
import "./server.js";

/** @typedef {{name: string, tag: string, icon: Parameters<typeof icon>[0]}} Place */

/** What there is, by the first word of the address. @type {Record<string, Place>} */
const PLACES = {
  chat: { name: "Chat", tag: "chat-view", icon: "chat" },
  runs: { name: "Runs", tag: "runs-view", icon: "runs" },
  inbox: { name: "Inbox", tag: "inbox-view", icon: "inbox" },
  functions: { name: "Functions", tag: "functions-view", icon: "functions" },
  files: { name: "Files", tag: "files-view", icon: "files" },
  server: { name: "Server", tag: "server-view", icon: "server" },
};
const FIRST = "chat";
const LOOKED = 10;

/** The whole page. */
class ConsoleApp extends View {
  show() {
    const { signal } = this;
    /** @type {Map<string, HTMLAnchorElement>} */
    this.links = new Map();
    /** The key with which no questions are seen. @type {string | null} */
    this.blind = null;
    this.place = h("main", { id: "place", tabindex: "-1" });
    this.state = h("p", { class: "server-state", role: "status" });
    this.leave = button("Forget the key", () => {
      useKey("");
      location.reload();
    }, { class: "quiet" });
    fill(
      this,
      h("a", { class: "skip", href: "#place", click: (event) => (event.preventDefault(), this.place?.focus()) }, "Skip to the content"),
      h("header", { class: "side" },
        h("a", { class: "brand", href: `#/${FIRST}` }, h("img", { src: "/console/icon.svg", alt: "", width: 26, height: 26 }), "antwort"),
        h("nav", { "aria-label": "Console" }, this.navigation()),
        h("div", { class: "foot" }, this.leave, this.state)),
      this.place,
    );
    addEventListener("hashchange", () => this.follow(), { signal });
    login.watch(signal, ({ key, wanted }) => {
      if (this.leave) this.leave.hidden = !key;
      if (wanted) askForKey(wanted);
    });
    this.follow();
    void this.repeat(LOOKED, () => this.look());
  }

  navigation() {
    return h("ul", {}, Object.entries(PLACES).map(([word, place]) => {
      const made = h("a", { href: `#/${word}` }, icon(place.icon), h("span", {}, place.name), h("span", { class: "count", hidden: true }));
      this.links?.set(word, made);
      return h("li", {}, made);
    }));
  }

  /** Show what the address says. */
  follow() {
    const [word = "", ...path] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
    const found = Object.hasOwn(PLACES, word) ? word : FIRST;
    const { tag, name } = /** @type {Place} */ (PLACES[found]);
    for (const [one, made] of this.links ?? []) {
      if (one === found) made.setAttribute("aria-current", "page");
      else made.removeAttribute("aria-current");
    }
    document.title = `${name} · antwort`;
    const shown = this.place?.firstElementChild;
    if (shown instanceof View && shown.localName === tag) {
      shown.goTo(path);
      return;
    }
    const view = /** @type {View} */ (document.createElement(tag));
    view.path = path;
    if (this.place) fill(this.place, view);
  }

  /** Tell whether the server is there. */
  async look() {
    let told;
    try {
      const health = await json("/healthz", { signal: this.signal });
      told = [h("span", { class: "dot ok" }), `antwort ${oneLine(String(health.version))}`];
    } catch {
      told = [h("span", { class: "dot failed" }), "The server is away"];
    }
    if (this.state && !this.signal.aborted) fill(this.state, ...told);
    void this.count();
  }

  /** Show at the inbox how many questions are open, to those who may know. */
  async count() {
    const { key, wanted } = login.value;
    if (wanted || key === this.blind) return;
    const { length } = await openQuestions(this.signal).catch((error) => {
      if (error instanceof ApiError && error.status < 500) this.blind = key; // it may not, and need not be told so again
      return [];
    });
    const shown = this.links?.get("inbox")?.querySelector(".count");
    if (!(shown instanceof HTMLElement) || login.value.key !== key) return;
    shown.hidden = length === 0;
    fill(shown, length < 100 ? length : "99+");
    shown.setAttribute("aria-label", `${length} open`);
  }
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Ask the user for a key, which is kept in this tab only. @param {string} why */
function askForKey(why) {
  const shown = document.querySelector("dialog.login");
  if (shown) {
    const said = shown.querySelector(".why");
    if (said) fill(said, why);
    return;
  }
  const field = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const dialog = h("dialog", { class: "login", "aria-labelledby": "login-title", cancel: (event) => event.preventDefault() },
    h("form", { submit: (event) => {
      event.preventDefault();
      dialog.remove();
      useKey(field.value.trim());
    } },
    h("h2", { id: "login-title" }, "API key"),
    h("p", { class: "why" }, why),
    h("label", { for: "key" }, "Key"),
    field,
    h("p", { class: "hint" }, "It stays in this tab, and is gone when you close it."),
    h("button", { type: "submit", class: "main" }, "Go on")));
  document.body.append(dialog);
  dialog.showModal();
  field.focus();
}

customElements.define("console-app", ConsoleApp);
document.body.replaceChildren(document.createElement("console-app"));
