import { svg } from "./dom.js";

/** Paths on a square of 24, drawn with a line. */
const PATHS = {
  chat: ["M4 5.5h16v11H9.5L5 20.5v-4H4z"],
  runs: ["M4 6h10M4 12h16M4 18h7", "M18 6h2M15 18h5"],
  inbox: ["M4 13.5 6.5 5h11L20 13.5V19H4z", "M4 13.5h5l1 2h4l1-2h5"],
  functions: ["M9.5 5C7 5 8.5 11 5.5 12 8.5 13 7 19 9.5 19", "M14.5 5c2.5 0 1 6 4 7-3 1-1.5 7-4 7"],
  files: ["M6 3.5h8l4.5 4.5v12.5H6z", "M14 3.5V8h4.5"],
  server: ["M4.5 5h15v5.5h-15zM4.5 13.5h15V19h-15z", "M8 7.75h.01M8 16.25h.01"],
  send: ["M12 19V5.5M6 11l6-6 6 6"],
  stop: ["M7.5 7.5h9v9h-9z"],
  attach: ["m19 11.5-7.2 7.2a4.6 4.6 0 0 1-6.5-6.5l7.7-7.7a3.1 3.1 0 0 1 4.4 4.4l-7.6 7.6a1.5 1.5 0 0 1-2.2-2.2l6.9-6.9"],
  options: ["M4 7h9M17 7h3M4 17h3M11 17h9", "M13 7a2 2 0 1 0 4 0 2 2 0 1 0-4 0M7 17a2 2 0 1 0 4 0 2 2 0 1 0-4 0"],
  plus: ["M12 5v14M5 12h14"],
  close: ["M6 6l12 12M18 6 6 18"],
  key: ["M8 15.5a3.5 3.5 0 1 0 0-.01M10.7 12.8 19 4.5M16 7.5l2.5 2.5"],
  back: ["M14 6l-6 6 6 6"],
  next: ["M10 6l6 6-6 6"],
};

/**
 * Draw a small picture that means nothing without its label.
 * @param {keyof typeof PATHS} name
 */
export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" },
    ...PATHS[name].map((path) => svg("path", { d: path })),
  );
}
