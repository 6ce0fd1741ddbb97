import { h, svg } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 72;

/**
 * Draw how a number went, with what it is now.
 * @param {string} title
 * @param {(number | null)[]} values the latest last; null where nobody has looked
 * @param {(value: number) => string} told
 * @param {number} most how many values fit
 */
export function chart(title, values, told, most) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(...known, 1e-9);
  const latest = values.at(-1);
  const step = WIDTH / Math.max(most - 1, 1);
  const first = most - values.length;
  /** @type {string[]} */
  const lines = [];
  let drawing = false;
  values.forEach((value, index) => {
    if (value === null) {
      drawing = false;
      return;
    }
    const x = ((first + index) * step).toFixed(1);
    const y = (HEIGHT - 3 - (value / top) * (HEIGHT - 10)).toFixed(1);
    lines.push(`${drawing ? "L" : "M"}${x} ${y}`);
    drawing = true;
  });
  const now = latest === null || latest === undefined ? "–" : told(latest);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", preserveAspectRatio: "none" },
    svg("path", { d: `M0 ${HEIGHT - 0.5}H${WIDTH}`, class: "ground" }),
    svg("path", { d: lines.join(""), class: "line" }));
  picture.setAttribute("aria-label", `${title}: ${now} now, ${known.length ? told(Math.max(...known)) : "nothing"} at most`);
  return h("figure", { class: "chart-box" }, h("figcaption", {}, h("span", {}, title), h("strong", {}, now)), picture);
}
