// The request that a turn has made, for programs. The key is none of it: it comes from the environment.

import { copier, fill, h } from "./dom.js";

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @type {Record<string, (body: Json, origin: string) => string>} */
const LANGUAGES = {
  curl: (body, origin) =>
    `curl ${origin}/v1/responses \\\n  -H "authorization: Bearer $ANTWORT_API_KEY" \\\n  -H 'content-type: application/json' \\\n  -d ${quoted(JSON.stringify(body, null, 2))}`,
  Python: (body, origin) =>
    `import json, os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key=os.environ.get("ANTWORT_API_KEY", "none"))\n` +
    `request = json.loads(r'''${JSON.stringify(body, null, 2).replaceAll("'", "\\u0027")}''')\n` +
    "response = client.responses.create(**request)\nprint(response.output_text)",
  JavaScript: (body, origin) =>
    `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${origin}/v1", apiKey: process.env.ANTWORT_API_KEY ?? "none" });\n` +
    `const response = await client.responses.create(${JSON.stringify(body, null, 2)});\nconsole.log(response.output_text);`,
};

/**
 * Show a request in the languages of those who write programs.
 * @param {Json} body
 */
export function showRequest(body) {
  const whole = { ...body };
  delete whole.stream;
  let text = "";
  const code = h("pre", { class: "code", tabindex: 0, "aria-label": "Request" });
  const tabs = h("div", { class: "tabs" }, Object.keys(LANGUAGES).map((name) => h("button", { type: "button", click: () => choose(name) }, name)));
  const choose = (/** @type {string} */ name) => {
    text = LANGUAGES[name]?.(whole, location.origin) ?? "";
    fill(code, text);
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  };
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "request-title", close: () => dialog.remove() },
    h("div", { class: "head" }, h("h2", { id: "request-title" }, "This request"), copier("Copy", () => text),
      h("button", { type: "button", click: () => dialog.close() }, "Close")),
    tabs, code);
  choose("curl");
  document.body.append(dialog);
  dialog.showModal();
}
