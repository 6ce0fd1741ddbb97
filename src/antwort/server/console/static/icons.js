import { svg } from "./dom.js";

/** Paths on a square of 24, drawn with a line. */
const PATHS = {
  chat: ["M4 5.500h16v11H9.500L5 20.500v-4H4z"],
  runs: ["M4 6h10M4 12h16M4 18h7", "M18 6h2M15 18h5"],
  inbox: ["M4 13.500 6.500 5h11L20 13.500V19H4z", "M4 13.500h5l1 2h4l1-2h5"],
  functions: ["M9.500 5C7 5 8.500 11 5.500 12 8.500 13 7 19 9.500 19", "M14.500 5c2.500 0 1 6 4 7-3 1-1.500 7-4 7"],
  files: ["M6 3.500h8l4.500 4.500v12.500H6z", "M14 3.500V8h4.500"],
  server: ["M4.500 5h15v5.500h-15zM4.500 13.500h15V19h-15z", "M8 7.750h.01M8 16.250h.01"],
  send: ["M12 19V5.500M6 11l6-6 6 6"],
  stop: ["M7.500 7.500h9v9h-9z"],
  attach: ["m19 11.500-7.200 7.200a4.600 4.600 0 0 1-6.500-6.500l7.700-7.700a3.100 3.100 0 0 1 4.400 4.400l-7.600 7.600a1.500 1.500 0 0 1-2.200-2.200l6.900-6.900"],
  options: ["M4 7h9M17 7h3M4 17h3M11 17h9", "M13 7a2 2 0 1 0 4 0 2 2 0 1 0-4 0M7 17a2 2 0 1 0 4 0 2 2 0 1 0-4 0"],
  plus: ["M12 5v14M5 12h14"],
  close: ["M6 6l12 12M18 6 6 18"],
  key: ["M8 15.500a3.500 3.500 0 1 0 0-.010M10.700 12.800 19 4.500M16 7.500l2.500 2.500"],
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
