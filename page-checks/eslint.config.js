import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "consistent-return": "error",
      curly: ["error", "multi-line"],
      "default-case-last": "error",
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-shadow": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "Text must never be parsed as HTML: build elements with h()." },
        { property: "outerHTML", message: "Text must never be parsed as HTML: build elements with h()." },
        { property: "insertAdjacentHTML", message: "Text must never be parsed as HTML: build elements with h()." },
      ],
    },
  },
];
