// The input of each task: its fields, its examples, and the inputs of the engine.

import { find, make } from "./elements.js";
import { FieldError } from "./failures.js";

const MOST_EXAMPLES = 3;
const TEXT = { name: "text", label: "Text" };
const TEXT_TO_TEXT = { generates: true, fields: [TEXT] };

/**
 * Tasks by their Hugging Face names.
 * `description` is the line under the model's name; `fields` are the input fields; `generates` marks tasks whose text is streamed;
 * `inParts` marks tasks that read a text that is longer than the model in overlapping parts.
 */
const TASKS = {
  "text-classification": { description: "Classifies a text.", fields: [TEXT], options: { top_k: null }, inParts: true },
  "token-classification": {
    description: "Finds names and other entities in a text.",
    fields: [TEXT],
    options: { aggregation_strategy: "simple" },
    inParts: true,
  },
  "question-answering": {
    description: "Finds the answer to a question in a text.",
    fields: [{ name: "question", label: "Question", short: true }, { name: "context", label: "Text to search" }],
    options: { top_k: 3 },
    inParts: true,
  },
  "fill-mask": { description: "Fills the gap in a text.", fields: [{ ...TEXT, gap: true }], options: { top_k: 5 } },
  "feature-extraction": {
    description: "Computes a vector for a text, and the similarity of two texts.",
    fields: [{ ...TEXT, short: true }, { name: "other", label: "Text to compare with (optional)", optional: true, short: true }],
    options: { pooling: "mean", normalize: true },
    inParts: true,
  },
  "text-generation": {
    description: "Continues a text.",
    fields: [{ ...TEXT, label: "Start of the text" }],
    options: { return_full_text: false },
    generates: true,
  },
  summarization: { ...TEXT_TO_TEXT, description: "Summarizes a text." },
  translation: { ...TEXT_TO_TEXT, description: "Translates a text." },
  "text2text-generation": { ...TEXT_TO_TEXT, description: "Generates a text from another text." },
};

/** Whether the page supports a task. @param {string} task */
export function supports(task) {
  return task in TASKS;
}

/** What a task does, in a sentence. @param {string} task */
export function description(task) {
  return TASKS[task].description;
}

/** Whether the text of a task is streamed token by token. @param {string} task */
export function generates(task) {
  return Boolean(TASKS[task].generates);
}

/** Whether a text that is longer than the model is read in parts; for other tasks it is an error. @param {string} task */
export function inParts(task) {
  return Boolean(TASKS[task].inParts);
}

/**
 * Shows the fields and examples of a model's task, with the first example in the fields.
 * @param {any} model An entry of site.json.
 * @param {() => void} onExample Called when the user chooses an example.
 */
export function show(model, onExample) {
  find("fields").replaceChildren(...TASKS[model.task].fields.map((each) => field(each, model)), ...prefixes(model));
  const offered = model.examples.inputs.slice(0, MOST_EXAMPLES).map((example) => {
    return Object.fromEntries(Object.entries(example).map(([name, text]) => [name, text.replace("{gap}", model.mask_token)]));
  });
  find("examples-field").hidden = !offered.length;
  find("examples").replaceChildren(...offered.map((example) => make("button", {
    type: "button",
    onclick: () => {
      fill(model, example);
      onExample();
    },
  }, example.question ?? (example.other ? `${example.text} / ${example.other}` : example.text))));
  if (offered.length) fill(model, offered[0]);
}

/**
 * Writes texts into the fields. When a field gets the focus, its text is selected, so that typing replaces it.
 * @param {any} model An entry of site.json. @param {Object<string, string>} texts By the names of the fields.
 */
export function fill(model, texts) {
  for (const { name } of TASKS[model.task].fields) {
    const area = find(`field-${name}`);
    area.value = texts[name] ?? "";
    area.onfocus = () => area.select();
    clearError(`field-${name}`);
  }
  const prefix = find("field-prefix");
  if (prefix && [...prefix.options].some(({ value }) => value === texts.prefix)) prefix.value = texts.prefix;
}

/** Id of the field whose text may be too long. @param {any} model An entry of site.json. */
export function mainField(model) {
  return `field-${TASKS[model.task].fields[0].name}`;
}

/** Shows an error beside a field. @param {string} id @param {string} text @param {string} [detail] Shown on demand. */
export function showError(id, text, detail = "") {
  const [input, error] = [find(id), find(`error-${id}`)];
  if (input?.matches("input, textarea")) input.setAttribute("aria-invalid", "true");
  const more = detail ? [make("details", {}, make("summary", {}, "Details for the author of this page"), detail)] : [];
  error.replaceChildren(make("p", {}, text), ...more);
  error.hidden = false;
}

/** Removes the error of a field. @param {string} id */
export function clearError(id) {
  const error = find(`error-${id}`);
  find(id)?.removeAttribute("aria-invalid");
  if (error) error.hidden = true;
}

/**
 * Reads the fields.
 * @param {any} model An entry of site.json.
 * @returns {{inputs: any, more: string | null, shown: string, options: Object<string, any>, texts: Object<string, string>}} `inputs`
 *     and `options` for the engine; `more` is a second text to compare with; `shown` is the text that the answer refers to; `texts`
 *     are the contents of the fields, by their names.
 * @throws {FieldError} A field is empty, or there is no gap.
 */
export function readFields(model) {
  const task = TASKS[model.task];
  const values = Object.fromEntries(task.fields.map(({ name }) => [name, find(`field-${name}`).value]));
  const empty = task.fields.find(({ name, optional }) => !optional && !values[name].trim());
  if (empty) throw new FieldError(`field-${empty.name}`, "This field is empty. Enter a text, or choose an example.");
  if (task.fields[0].gap && !values.text.includes(model.mask_token)) {
    throw new FieldError("field-text", `The text has no gap to fill. Put ${model.mask_token} where a word is missing.`);
  }
  const prefix = find("field-prefix")?.value;
  return {
    inputs: "question" in values ? { question: values.question, context: values.context } : values.text,
    more: values.other?.trim() ? values.other : null,
    shown: values.context ?? values.text,
    options: { ...task.options, ...(prefix === undefined ? {} : { prefix }) },
    texts: { ...values, ...(prefix === undefined ? {} : { prefix }) },
  };
}

function field({ name, label, short, gap }, model) {
  const id = `field-${name}`;
  const area = make("textarea", {
    id, rows: short ? 1 : 3, className: short ? "short" : "", autocapitalize: "sentences", aria: { describedby: `error-${id}` },
    oninput: () => {
      area.onfocus = null;
      clearError(id);
    },
  });
  const parts = [make("label", { htmlFor: id }, label), area, errorElement(id)];
  if (gap) parts.push(make("button", { type: "button", className: "quiet gap", onclick: () => insert(area, model.mask_token) }, `Insert ${model.mask_token}`));
  return make("div", { className: "field" }, ...parts);
}

/** The element in which `showError` shows the error of a field. @param {string} id */
export function errorElement(id) {
  return make("div", { id: `error-${id}`, className: "error", role: "alert", hidden: true });
}

function insert(area, text) {
  area.onfocus = null;
  area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.focus();
}

/** A choice of the prefix of the text, if the model has several for its task. */
function prefixes(model) {
  const fitting = Object.entries(model.task_prefixes).filter(([task]) => task.startsWith(model.task));
  if (fitting.length < 2) return [];
  const choices = fitting.map(([, text]) => make("option", { value: text }, text.trim().replace(/:$/, "")));
  return [make("div", { className: "field" }, make("label", { htmlFor: "field-prefix" }, "Task"), make("select", { id: "field-prefix" }, ...choices))];
}
