import js from "@eslint/js";

/** Ways in which text could become more than text, or a script could come from elsewhere. */
const MARKUP = ["innerHTML", "outerHTML", "insertAdjacentHTML", "setHTMLUnsafe", "srcdoc", "write", "writeln"];

export default [
  js.configs.recommended,
  {
    files: ["**/*.js"],
    rules: {
      "no-undef": "off", // tsc knows what there is
      "no-restricted-properties": ["error", ...MARKUP.map((property) => ({ property, message: "Make nodes with h()." }))],
      "no-restricted-globals": ["error", "eval", "localStorage"],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-console": "error",
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      complexity: ["error", 15],
      "max-lines": ["error", 700],
      "max-lines-per-function": ["error", { max: 60, skipComments: true }],
      "require-await": "error",
    },
  },
];
