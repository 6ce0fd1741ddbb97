// Text of strangers, made safe to show: it is always text, never markup, and nothing in it is invisible.

/** Characters that change the order of others, or are not seen at all; tabs and line breaks are seen. */
// eslint-disable-next-line no-control-regex -- these are what is looked for
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
const MOST = 4000;

/**
 * Return text as nodes; what cannot be seen is a mark with its number.
 * @param {string} text
 * @returns {Node[]}
 */
export function inert(text) {
  /** @type {Node[]} */
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > done) nodes.push(document.createTextNode(text.slice(done, found.index)));
    nodes.push(markOf(found[0]));
    done = found.index + found[0].length;
  }
  if (done < text.length || nodes.length === 0) nodes.push(document.createTextNode(text.slice(done)));
  return nodes;
}

/** @param {string} character */
function markOf(character) {
  const code = `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
  const mark = document.createElement("span");
  mark.className = "unseen";
  mark.title = "A character that is not seen";
  mark.textContent = code;
  return mark;
}

/**
 * Return a text on one line, for attributes and labels: what cannot be seen is written out.
 * @param {string} text
 * @param {number} [most]
 */
export function oneLine(text, most = 200) {
  const line = text.slice(0, 4 * most).replace(UNSEEN, (character) => markOf(character).textContent).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/**
 * Show a text as it is, in a block; a large one is cut, with a button that shows the rest.
 * @param {string} text
 * @param {string} [label] what it is, for those who hear it
 * @returns {HTMLElement}
 */
export function block(text, label = "") {
  const box = document.createElement("div");
  box.className = "block";
  const pre = document.createElement("pre");
  if (label) pre.setAttribute("aria-label", label);
  pre.tabIndex = 0;
  box.append(pre);
  pre.append(...inert(text.slice(0, MOST)));
  if (text.length > MOST) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "quiet";
    more.textContent = `Show all ${text.length.toLocaleString("en")} characters`;
    more.addEventListener("click", () => {
      pre.replaceChildren(...inert(text));
      more.remove();
    });
    box.append(more);
  }
  return box;
}

/**
 * Return JSON as people read it; what is none as it is.
 * @param {unknown} value a value, or a text that may be JSON
 */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  if (value.length > 200_000 || !/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/** @param {number | null | undefined} seconds since 1970 */
export function when(seconds) {
  if (!seconds) return "";
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  return today
    ? at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : at.toLocaleDateString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let left = bytes;
  while (left >= 1000 && unit < units.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${units[unit]}`;
}

/** @param {number} count */
export function number(count) {
  return count.toLocaleString("en");
}
