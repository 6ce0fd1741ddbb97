// Vector stores with their files and a search, files, and variables.

import { ApiError, everything, json, request, upload } from "./api.js";
import { button, fill, h, link, problem, table, View } from "./dom.js";
import { passageAddress, placeOfPassage } from "./passages.js";
import { block, number, oneLine, pretty, size, when } from "./text.js";

const KINDS = /** @type {Record<string, string>} */ ({ completed: "ok", in_progress: "waiting", failed: "failed", cancelled: "failed", expired: "failed" });
const PARTLY = 20_000;
/** Characters of a paragraph that is marked as a whole. */
const PARAGRAPH = 2_000;
const STORES = "/v1/vector_stores";

/** @param {Json} one */
function state(one) {
  return h("span", { class: `state ${KINDS[one.status] ?? ""}` }, oneLine(String(one.status)).replaceAll("_", " "));
}

class FilesView extends View {
  show() {
    const [kind, id] = this.path;
    this.told = h("div");
    const [, , file, passage = ""] = this.path;
    if (kind === "store" && id && file) void this.passage(id, file, passage);
    else if (kind === "store" && id) void this.store(id);
    else if (kind === "file" && id) void this.file(id);
    else if (kind === "variable" && id) void this.variable(id);
    else void this.overview();
  }

  /** Do something and say what went wrong. @param {() => Promise<unknown>} work */
  async try(work) {
    try {
      if (this.told) fill(this.told);
      await work();
    } catch (error) {
      if (!this.signal.aborted && this.told) fill(this.told, problem(error));
    }
  }

  async overview() {
    const stores = h("section");
    const files = h("section");
    const variables = h("section");
    fill(this, h("h1", {}, "Files"), this.told, stores, files, variables);
    await Promise.all([this.stores(stores), this.files(files), this.variables(variables)]);
  }

  /** Show a part of the page, if the server has it. @param {HTMLElement} place @param {string} title @param {() => Promise<void>} work */
  async section(place, title, work) {
    try {
      await work();
    } catch (error) {
      if (this.signal.aborted) return;
      const missing = error instanceof ApiError && error.status === 404;
      fill(place, h("h2", {}, title), missing ? h("p", { class: "hint" }, error.message) : problem(error));
    }
  }

  /** @param {HTMLElement} place */
  stores(place) {
    return this.section(place, "Vector stores", async () => {
      const found = await everything(STORES, this.signal, 200);
      const name = h("input", { "aria-label": "Name of a new vector store", placeholder: "Name of a new one" });
      const make = async () => {
        const made = await json(STORES, { body: { name: name.value } });
        location.hash = `#/files/store/${made.id}`;
      };
      fill(place, h("h2", {}, "Vector stores"),
        found.length > 0 && table(["Name", "State", "Files", "Size"], found.map((one) => h("tr", {},
          h("td", {}, link(`#/files/store/${encodeURIComponent(one.id)}`, oneLine(one.name || one.id, 80))),
          h("td", {}, state(one)),
          h("td", {}, number(one.file_counts.total)),
          h("td", {}, size(one.usage_bytes))))),
        h("form", { class: "line", submit: (event) => (event.preventDefault(), this.try(make)) }, name, h("button", { type: "submit" }, "Make")));
    });
  }

  /** @param {HTMLElement} place */
  files(place) {
    return this.section(place, "Files", async () => {
      const { data, has_more: more } = await json("/v1/files?limit=50", { signal: this.signal });
      fill(place, h("h2", {}, "Files"), this.uploader(() => this.files(place)),
        data.length > 0 && table(["Name", "Purpose", "Size", "Created"], data.map((/** @type {Json} */ one) => h("tr", {},
          h("td", {}, link(`#/files/file/${encodeURIComponent(one.id)}`, oneLine(one.filename, 80))),
          h("td", { class: "muted" }, oneLine(one.purpose)),
          h("td", {}, size(one.bytes)),
          h("td", { class: "muted" }, when(one.created_at))))),
        more && h("p", { class: "hint" }, "These are the latest."));
    });
  }

  /** @param {HTMLElement} place */
  variables(place) {
    return this.section(place, "Variables", async () => {
      const { data } = await json("/v1/variables?limit=50", { signal: this.signal });
      fill(place, h("h2", {}, "Variables"), data.length === 0 ? h("p", { class: "hint" }, "None.") : table(["Key", "Scope", "Size", "Created"], data.map((/** @type {Json} */ one) => h("tr", {},
        h("td", {}, link(`#/files/variable/${encodeURIComponent(one.id)}`, oneLine(one.key, 80))),
        h("td", { class: "muted" }, oneLine(String(one.scope))),
        h("td", {}, size(one.bytes)),
        h("td", { class: "muted" }, when(one.created_at))))));
    });
  }

  /** Make what takes files. @param {(file: Json) => Promise<unknown>} taken */
  uploader(taken) {
    const list = h("ul", { class: "plain" });
    const take = (/** @type {FileList | null | undefined} */ files) => {
      for (const file of files ?? []) {
        const bar = h("progress", { max: 1, "aria-label": oneLine(file.name, 60) });
        const line = h("li", { class: "line" }, h("span", {}, oneLine(file.name, 60)), bar);
        list.append(line);
        upload(file, "assistants", (share) => (bar.value = share), this.signal).then(async (made) => {
          line.remove();
          await taken(made);
        }).catch((error) => this.signal.aborted || fill(line, problem(error)));
      }
    };
    const picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to upload", change: () => take(picker.files) });
    return h("div", { class: "drop", dragover: (event) => event.preventDefault(), drop: (event) => (event.preventDefault(), take(event.dataTransfer?.files)) },
      h("p", {}, "Drop files here, or ", button("choose them", () => picker.click())), picker, list);
  }

  // --- one vector store ----------------------------------------------------------------------------------------------

  /** @param {string} id */
  async store(id) {
    const one = `${STORES}/${encodeURIComponent(id)}`;
    const head = h("div", { class: "head" });
    const rows = h("div");
    const found = h("div", { class: "cards", "aria-live": "polite" });
    const query = h("input", { type: "search", "aria-label": "Search", placeholder: "Search in it" });
    /** @type {Map<string, string>} */
    const names = new Map();
    const search = async () => {
      const { data } = await json(`${one}/search`, { body: { query: query.value, max_num_results: 10 }, signal: this.signal });
      fill(found, data.length === 0 ? h("p", { class: "empty" }, "Nothing is like that.") : data.map((/** @type {Json} */ one) => hit(id, one)));
    };
    const look = async () => {
      const [store, files] = await Promise.all([json(one, { signal: this.signal }), json(`${one}/files?limit=100`, { signal: this.signal })]);
      fill(head, h("h1", {}, oneLine(store.name || store.id, 120)), state(store), h("span", { class: "muted" }, size(store.usage_bytes)));
      for (const { id } of files.data) if (!names.has(id)) names.set(id, await nameOf(id, this.signal));
      fill(rows, files.data.length > 0 && table(["File", "State", "Size"], files.data.map((/** @type {Json} */ file) => row(file, names.get(file.id) ?? file.id))));
    };
    fill(this, h("p", {}, link("#/files", "All files")), head, this.told,
      h("section", {}, h("form", { class: "line", submit: (event) => (event.preventDefault(), this.try(search)) }, query, h("button", { type: "submit", class: "main" }, "Search")), found),
      h("section", {}, h("h2", {}, "Files"), this.uploader((file) => this.try(() => json(`${one}/files`, { body: { file_id: file.id } }))), rows));
    await this.repeat(2, () => this.try(look));
  }

  /** Show a file as it was read, at a passage. @param {string} store @param {string} id @param {string} passage */
  async passage(store, id, passage) {
    await this.try(async () => {
      const one = `${STORES}/${encodeURIComponent(store)}/files/${encodeURIComponent(id)}`;
      const [{ filename, data }, file] = await Promise.all([json(`${one}/content`, { signal: this.signal }), json(one, { signal: this.signal })]);
      const text = data.map((/** @type {Json} */ part) => String(part.text)).join("\n");
      const place = passage ? placeOfPassage(text, passage) : null;
      const mark = h("mark", { tabindex: -1 });
      const [begin, end] = place ?? [0, 0];
      const from = Math.max(0, begin - PARTLY / 2);
      if (place) fill(mark, text.slice(begin, Math.max(end, passageEnd(text, end))));
      const rest = begin + (mark.textContent?.length ?? 0);
      fill(this, h("p", {}, link(`#/files/store/${encodeURIComponent(store)}`, "Its vector store")),
        h("div", { class: "head" }, h("h1", {}, oneLine(filename, 120)), state(file), link(`#/files/file/${encodeURIComponent(id)}`, "The file itself")),
        h("p", { class: "facts muted" }, "What was read out of it", file.status_details?.pages ? `, ${number(file.status_details.pages)} pages` : "", progressOf(file)), this.told,
        passage && !place && [h("p", { class: "hint" }, "The passage is not found in it as it is now:"), block(passage, "Passage")],
        h("section", {}, h("div", { class: "block whole" }, h("pre", { tabindex: 0, "aria-label": oneLine(filename, 120) },
          from > 0 && "…\n", text.slice(from, begin), place && mark, text.slice(place ? rest : 0, rest + PARTLY), rest + PARTLY < text.length && "\n…"))));
      mark.scrollIntoView({ block: "center" });
    });
    if (this.told?.childNodes.length) fill(this, h("h1", {}, "File"), this.told);
  }

  // --- one file, one variable ----------------------------------------------------------------------------------------

  /** @param {string} id */
  async file(id) {
    await this.try(async () => {
      const one = `/v1/files/${encodeURIComponent(id)}`;
      const file = await json(one, { signal: this.signal });
      const remove = () => this.try(async () => {
        await json(one, { method: "DELETE" });
        location.hash = "#/files";
      });
      await this.content(oneLine(file.filename, 120), [file.purpose, size(file.bytes), when(file.created_at), file.id], `${one}/content`, remove);
    });
    if (this.told?.childNodes.length) fill(this, h("h1", {}, "File"), this.told);
  }

  /** @param {string} id */
  async variable(id) {
    await this.try(async () => {
      const one = `/v1/variables/${encodeURIComponent(id)}`;
      const variable = await json(one, { signal: this.signal });
      const remove = () => this.try(async () => {
        await json(one, { method: "DELETE" });
        location.hash = "#/files";
      });
      await this.content(oneLine(variable.key, 120), [String(variable.scope), size(variable.bytes), when(variable.created_at), variable.id], `${one}/content`, remove);
    });
    if (this.told?.childNodes.length) fill(this, h("h1", {}, "Variable"), this.told);
  }

  /** Show the beginning of a content. @param {string} title @param {string[]} about @param {string} path @param {() => void} remove */
  async content(title, about, path, remove) {
    const answer = await request(path, { signal: this.signal, headers: { range: `bytes=0-${PARTLY - 1}` } }).catch((error) => {
      if (error instanceof ApiError && error.status === 416) return null; // there is nothing in it
      throw error;
    });
    const bytes = new Uint8Array(answer ? await answer.arrayBuffer() : []);
    const isText = !bytes.slice(0, 1000).includes(0);
    fill(this, h("p", {}, link("#/files", "All files")), h("div", { class: "head" }, h("h1", {}, title), button("Delete", remove)),
      h("p", { class: "facts muted" }, oneLine(about.join(" · "))), this.told,
      h("section", {}, isText ? block(pretty(new TextDecoder().decode(bytes)), title) : h("p", { class: "empty" }, "It is no text."),
        answer?.status === 206 && bytes.length === PARTLY && h("p", { class: "hint" }, "This is its beginning.")));
  }
}

/** Return where the paragraph ends that a place is in. @param {string} text @param {number} at */
function passageEnd(text, at) {
  const end = text.slice(at, at + PARAGRAPH).search(/\n\s*\n/);
  return end < 0 ? at : at + end;
}

/** Return the name of a file; its id if nobody tells. @param {string} id @param {AbortSignal} signal */
async function nameOf(id, signal) {
  const file = await json(`/v1/files/${encodeURIComponent(id)}`, { signal }).catch(() => ({ filename: id }));
  return String(file.filename);
}

/** @param {Json} file @param {string} name */
function row(file, name) {
  return h("tr", {},
    h("td", {}, link(`#/files/file/${encodeURIComponent(file.id)}`, oneLine(name, 80)), file.last_error && problem(file.last_error.message)),
    h("td", {}, state(file), progressOf(file)),
    h("td", {}, size(file.usage_bytes ?? 0)));
}

/** Tell how far a file is, and what of it was not read. @param {Json} file */
function progressOf({ status_details: details }) {
  if (!details) return null;
  const { phase, pages, chunks, chunks_embedded: embedded, warnings } = details;
  const far = phase === "done" ? "" : [phase, pages && `${number(pages)} pages`, chunks && `${number(embedded)} of ${number(chunks)} chunks`].filter(Boolean).join(", ");
  return h("span", { class: "muted" }, ` ${oneLine([far, ...warnings].filter(Boolean).join(" "), 200)}`);
}

/** @param {string} store @param {Json} found */
function hit(store, found) {
  const texts = found.content.map((/** @type {Json} */ part) => String(part.text));
  return h("article", { class: "card" },
    h("div", { class: "head" }, link(passageAddress(store, found.file_id, texts[0] ?? ""), oneLine(found.filename, 80)), h("span", { class: "state" }, Number(found.score).toFixed(3))),
    texts.map((/** @type {string} */ text) => block(text, "Chunk")));
}

customElements.define("files-view", FilesView);
