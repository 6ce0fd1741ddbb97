// A form for the arguments of a function, made of their schema.

import { h } from "./dom.js";
import { oneLine, pretty } from "./text.js";

/** @typedef {{element: HTMLElement, read: () => Json}} Form */

/**
 * Make a form for an object. What it has no fields for is written as JSON.
 * @param {Json} schema
 * @returns {Form}
 */
export function schemaForm(schema) {
  const properties = Object.entries(schema.properties ?? {});
  const required = new Set(schema.required ?? []);
  const fields = properties.map(([name, inner]) => field(name, resolved(inner, schema), required.has(name)));
  return {
    element: h("div", { class: "cards" }, fields.length > 0 ? fields.map(({ element }) => element) : h("p", { class: "hint" }, "It takes nothing.")),
    read: () => Object.fromEntries(fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined)),
  };
}

/** @param {Json} inner @param {Json} schema @returns {Json} */
function resolved(inner, schema) {
  const name = /^#\/\$defs\/(.+)$/.exec(inner.$ref ?? "")?.[1];
  const found = name === undefined ? inner : { ...schema.$defs?.[name], ...inner };
  const others = (found.anyOf ?? []).filter((/** @type {Json} */ one) => one.type !== "null");
  return others.length === 1 ? { ...found, ...others[0] } : found;
}

/** @param {string} name @param {Json} schema @param {boolean} required */
function field(name, schema, required) {
  const id = `argument-${name}`;
  const [input, read] = inputOf(id, schema);
  const hint = schema.description ? h("p", { class: "hint", id: `${id}-hint` }, String(schema.description)) : null;
  if (hint) input.setAttribute("aria-describedby", hint.id);
  const about = [required ? "" : "optional", typeof schema.type === "string" ? schema.type : ""].filter(Boolean).join(", ");
  const element = h("div", { class: "field" }, h("label", { for: id }, oneLine(name, 80), h("span", { class: "muted" }, about && ` ${about}`)), input, hint);
  return {
    name,
    element,
    read: () => {
      const value = read();
      if (value === undefined && required && schema.type === "string") return "";
      if (value === undefined && required) throw new Error(`'${name}' is missing.`);
      return value;
    },
  };
}

/** @param {string} id @param {Json} schema @returns {[HTMLElement, () => unknown]} */
function inputOf(id, schema) {
  const given = schema.default ?? undefined;
  if (Array.isArray(schema.enum)) {
    const select = h("select", { id }, h("option", { value: "" }, "–"), schema.enum.map((value, index) => h("option", { value: String(index), selected: value === given }, oneLine(String(value)))));
    return [select, () => (select.value === "" ? undefined : schema.enum[Number(select.value)])];
  }
  if (schema.type === "boolean") {
    const select = h("select", { id }, ["", "true", "false"].map((value) => h("option", { value, selected: String(given) === value }, value || "–")));
    return [select, () => (select.value === "" ? undefined : select.value === "true")];
  }
  if (schema.type === "integer" || schema.type === "number") {
    const input = h("input", { id, type: "number", step: schema.type === "integer" ? 1 : "any", value: given ?? "" });
    return [input, () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (schema.type === "string") {
    const input = h("textarea", { id, rows: 1, value: given ?? "" });
    return [input, () => (input.value === "" ? undefined : input.value)];
  }
  const input = h("textarea", { id, rows: 3, class: "json", spellcheck: "false", value: given === undefined ? "" : pretty(given) });
  return [input, () => (input.value.trim() === "" ? undefined : parsed(input.value, id))];
}

/** @param {string} text @param {string} id */
function parsed(text, id) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`'${id.replace("argument-", "")}' is no JSON: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}
