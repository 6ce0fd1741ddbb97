// Elements are made here, and nowhere of text: there is no way from a string to markup.

import { inert } from "./text.js";

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */
/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */

const ADDRESS = /^(?:https?:\/\/|#|\/console\/|blob:)/i;
/** Attributes through which text would become more than text. */
const REFUSED = /^(?:style|srcdoc|action|formaction|xlink:href)$/i;

/**
 * Make an element. A function among the attributes listens to the event of that name.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value") /** @type {any} */ (element).value = value;
    else if (!REFUSED.test(name) && !name.startsWith("on")) element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else element.append(...inert(String(child)));
  }
}

/**
 * Put other children into an element.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * Let an element have these children, in this order; those that are there stay as they are, with the focus they have.
 * @param {Element} element
 * @param {Element[]} children
 */
export function settle(element, children) {
  const wanted = new Set(children);
  for (const child of [...element.children]) if (!wanted.has(child)) child.remove();
  let next = element.firstElementChild;
  for (const child of children) {
    if (child === next) next = next.nextElementSibling;
    else element.insertBefore(child, next);
  }
}

/**
 * Make a link, if its address is one to a page of the web or of the console; else only its text.
 * @param {string} address
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function link(address, ...children) {
  if (!ADDRESS.test(address)) return h("span", {}, ...children);
  const outside = /^https?:/i.test(address);
  return h("a", { href: address, ...(outside ? { target: "_blank", rel: "noopener noreferrer nofollow", title: address } : {}) }, ...children);
}

/**
 * Make an element of SVG, with attributes of numbers and words of ours.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...SVGElement} children
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** A view: it lives while it is on the page, and whatever it has begun ends with it. */
export class View extends HTMLElement {
  constructor() {
    super();
    /** What follows the name of the view in the address. @type {string[]} */
    this.path = [];
    this.ending = new AbortController();
  }

  /** Whatever is begun for the view is to end with this. */
  get signal() {
    return this.ending.signal;
  }

  connectedCallback() {
    this.ending = new AbortController();
    this.show();
  }

  disconnectedCallback() {
    this.ending.abort();
  }

  /** Show it. */
  show() {}

  /** Take another path, while it is on the page. @param {string[]} path */
  goTo(path) {
    this.path = path;
    this.ending.abort();
    this.ending = new AbortController();
    this.show();
  }

  /**
   * Do something now, and again after some time as long as the view is there and somebody can see it.
   * @param {number} seconds
   * @param {() => Promise<void>} work
   */
  async repeat(seconds, work) {
    const { signal } = this;
    while (!signal.aborted) {
      if (!document.hidden) await work();
      await pause(seconds, signal);
    }
  }
}

/**
 * Wait, no longer than a signal lets.
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(seconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

/**
 * Make a table that scrolls where it is wider than the page.
 * @param {string[]} head
 * @param {HTMLElement | HTMLElement[]} rows its body, or what is in that
 * @param {string} [kind]
 * @param {number} [numbers] the first column of numbers
 */
export function table(head, rows, kind = "", numbers = head.length) {
  const titles = head.map((name, index) => (name ? h("th", { scope: "col", class: index < numbers ? null : "number" }, name) : h("td")));
  return h("div", { class: "scrolls" }, h("table", { class: kind }, h("thead", {}, h("tr", {}, titles)), Array.isArray(rows) ? h("tbody", {}, rows) : rows));
}

/**
 * Say that something went wrong, where it did.
 * @param {unknown} error
 */
export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error));
}

/**
 * Make a button.
 * @param {string} label
 * @param {(event: MouseEvent) => void} press
 * @param {{class?: string, icon?: Node, disabled?: boolean, title?: string}} [options]
 */
export function button(label, press, options = {}) {
  const { icon, ...rest } = options;
  return h("button", { type: "button", click: press, "aria-label": icon ? label : null, title: icon ? label : null, ...rest }, icon ?? label);
}

/**
 * Put a text into the clipboard, and say on the button that it is there.
 * @param {string} label
 * @param {() => string} text
 */
export function copier(label, text) {
  const made = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      made.textContent = "Copied";
    } catch {
      made.textContent = "Not allowed here";
    }
    await pause(1.5);
    made.textContent = label;
  }, { class: "quiet" });
  return made;
}
