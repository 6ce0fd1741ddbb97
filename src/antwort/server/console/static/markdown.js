// What models write, as nodes. A small part of Markdown is known; everything else stays the text that it is.

import { fill, h, link } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {Map<string, string>} Marks texts such as `[1]` that lead somewhere, with where */

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.+)$/;
const ITEM = /^(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)$/;
const ORDERED = /^\s*\d/;
const QUOTE = /^\s*>\s?/;
const RULE = /^\s*(?:-{3,}|\*{3,}|_{3,})\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const DASHES = /^\s*\|[\s:|-]+\|\s*$/;
const MOST = 100_000;

/** The nodes of each block that is shown, by what they were made of. @type {WeakMap<Element, string>} */
const MADE_OF = new WeakMap();

/**
 * Show a text in an element. What is shown already and has not changed stays: text that grows is cheap.
 * @param {Element} element
 * @param {string} text
 * @param {Marks} [marks]
 */
export function showMarkdown(element, text, marks = new Map()) {
  const made = text.length > MOST ? [text] : blocks(text);
  const key = [...marks.keys()].join();
  made.forEach((source, index) => {
    const shown = element.children[index];
    const of = key + source;
    if (shown && MADE_OF.get(shown) === of) return;
    const next = text.length > MOST ? h("p", { class: "as-it-is" }, source) : blockOf(source, marks);
    MADE_OF.set(next, of);
    if (shown) shown.replaceWith(next);
    else element.append(next);
  });
  while (element.children.length > made.length) element.lastElementChild?.remove();
}

/** Cut a text into blocks. @param {string} text @returns {string[]} */
function blocks(text) {
  /** @type {string[]} */
  const found = [];
  /** @type {string[]} */
  let open = [];
  let fence = "";
  const close = () => {
    if (open.length > 0) found.push(open.join("\n"));
    open = [];
  };
  for (const line of text.replaceAll("\r\n", "\n").split("\n")) {
    const opening = FENCE.exec(line)?.[1];
    if (fence) {
      open.push(line);
      if (opening && opening.startsWith(fence) && line.trim() === opening) {
        fence = "";
        close();
      }
    } else if (opening) {
      close();
      fence = opening;
      open.push(line);
    } else if (line.trim() === "") {
      close();
    } else if (HEADING.test(line) || RULE.test(line)) {
      close();
      found.push(line);
    } else {
      if (open.length > 0 && kindOf(open[0] ?? "") !== kindOf(line) && kindOf(line) !== "text") close();
      open.push(line);
    }
  }
  close();
  return found;
}

/** @param {string} line */
function kindOf(line) {
  if (ITEM.test(line)) return "list";
  if (QUOTE.test(line)) return "quote";
  return ROW.test(line) ? "table" : "text";
}

/** @param {string} source @param {Marks} marks @returns {HTMLElement} */
function blockOf(source, marks) {
  const lines = source.split("\n");
  const first = lines[0] ?? "";
  const fence = FENCE.exec(first);
  if (fence) return codeOf(lines, fence);
  const heading = lines.length === 1 ? HEADING.exec(first) : null;
  if (heading) return headingOf(heading, marks);
  if (RULE.test(first)) return h("hr");
  const kind = kindOf(first);
  if (kind === "list") return listOf(lines, marks);
  if (kind === "quote") return h("blockquote", {}, inline(lines.map((line) => line.replace(QUOTE, "")).join("\n"), marks));
  if (kind === "table" && DASHES.test(lines[1] ?? "")) return tableOf(lines, marks);
  return h("p", {}, inline(source, marks));
}

/** @param {string[]} lines @param {RegExpExecArray} fence */
function codeOf(lines, fence) {
  const isClosed = lines.length > 1 && (lines.at(-1) ?? "").trim() === fence[1];
  return h("pre", { class: "code", tabindex: 0, "aria-label": fence[2] || "code" }, h("code", {}, lines.slice(1, isClosed ? -1 : undefined).join("\n")));
}

/** The page has headings of its own above these. @param {RegExpExecArray} heading @param {Marks} marks */
function headingOf(heading, marks) {
  return h((heading[1] ?? "").length < 3 ? "h3" : "h4", {}, inline(heading[2] ?? "", marks));
}

/** @param {string[]} lines @param {Marks} marks */
function listOf(lines, marks) {
  const top = listFor(lines[0] ?? "");
  const start = Number.parseInt(lines[0] ?? "", 10);
  if (start > 1) top.setAttribute("start", String(start));
  const open = [{ depth: 0, list: top }];
  for (const line of lines) {
    const [, indent, text] = ITEM.exec(line) ?? [];
    const { list } = open.at(-1) ?? { list: top };
    if (indent === undefined || text === undefined) list.lastElementChild?.append(" ", ...h("span", {}, inline(line.trim(), marks)).childNodes);
    else place(open, indent.length, line).append(h("li", {}, inline(text, marks)));
  }
  return top;
}

/** @param {string} line */
function listFor(line) {
  return h(ORDERED.test(line) ? "ol" : "ul");
}

/**
 * Return the list that an item of some depth belongs to; a new one within the last item, if it is deeper than that.
 * @param {{depth: number, list: HTMLElement}[]} open
 * @param {number} depth
 * @param {string} line
 */
function place(open, depth, line) {
  const last = () => /** @type {{depth: number, list: HTMLElement}} */ (open.at(-1));
  while (open.length > 1 && depth <= last().depth - 2) open.pop();
  const above = last().list.lastElementChild;
  if (above && depth >= last().depth + 2 && open.length < 6) {
    const list = listFor(line);
    above.append(list);
    open.push({ depth, list });
  }
  return last().list;
}

/** @param {string[]} lines @param {Marks} marks */
function tableOf(lines, marks) {
  const cells = (/** @type {string} */ line) => line.trim().slice(1, -1).split("|").map((cell) => inline(cell.trim(), marks));
  const [head = "", , ...rows] = lines;
  return h("div", { class: "scrolls" }, h("table", {},
    h("thead", {}, h("tr", {}, cells(head).map((cell) => h("th", { scope: "col" }, cell)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, cells(row).map((cell) => h("td", {}, cell)))))));
}

const INLINE = /(`+)([^`]|[^`][\s\S]{0,2000}?[^`])\1(?!`)|\*\*(?=\S)([\s\S]{0,2000}?\S)\*\*|(?<![\w*])[*_](?=[^\s*_])([^*_\n]*[^\s*_])[*_](?![\w*])|\[([^\]\n]{1,500})\]\((\S{1,2000}?)\)|(https?:\/\/[^\s<>"'`\])]{1,2000}[^\s<>"'`\]).,;:!?])|(【[^】\n]{1,60}】|\[[^\]\n]{1,60}\])/g;

/**
 * Return the nodes of text within a block.
 * @param {string} text
 * @param {Marks} marks
 * @returns {Child[]}
 */
function inline(text, marks) {
  /** @type {Child[]} */
  const found = [];
  let done = 0;
  for (const match of text.matchAll(INLINE)) {
    const [all, , code, strong, emphasis, label, address, bare, mark] = match;
    /** @type {Child} */
    let node = null;
    if (code !== undefined) node = h("code", {}, code);
    else if (strong !== undefined) node = h("strong", {}, inline(strong, marks));
    else if (emphasis !== undefined) node = h("em", {}, inline(emphasis, marks));
    else if (label !== undefined && address !== undefined) node = /^https?:\/\//i.test(address) ? link(address, label) : null;
    else if (bare !== undefined) node = link(bare, bare);
    else if (mark !== undefined && marks.has(mark)) node = h("sup", {}, link(marks.get(mark) ?? "", mark.replace(/[[\]【】]/g, "")));
    if (node === null) continue;
    found.push(text.slice(done, match.index), node);
    done = match.index + all.length;
  }
  found.push(text.slice(done));
  return found;
}

/** Make an element with a text that does not change. @param {string} text */
export function markdown(text) {
  const element = h("div", { class: "prose" });
  fill(element);
  showMarkdown(element, text);
  return element;
}
