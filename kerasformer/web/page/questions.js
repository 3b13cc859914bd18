// What each task asks for: its fields, the examples of the site, and what goes to the engine.

import { find, make } from "./elements.js";
import { FieldError } from "./failures.js";

const MOST_EXAMPLES = 3;
const TEXT = { name: "text", label: "Text" };
const REWRITES = { writes: true, fields: [TEXT] };

/**
 * Tasks by their names at Hugging Face.
 * `says` is the line under the model's name; `fields` are asked for; `writes` tells that text comes token by token.
 */
const TASKS = {
  "text-classification": { says: "Tells what kind of text this is.", fields: [TEXT], options: { top_k: null } },
  "token-classification": {
    says: "Finds names and other things in a text.",
    fields: [TEXT],
    options: { aggregation_strategy: "simple" },
  },
  "question-answering": {
    says: "Finds the answer to a question in a text.",
    fields: [{ name: "question", label: "Question", short: true }, { name: "context", label: "Text to look in" }],
    options: { top_k: 3 },
  },
  "fill-mask": { says: "Fills the gap in a text.", fields: [{ ...TEXT, gap: true }], options: { top_k: 5 } },
  "feature-extraction": {
    says: "Turns texts into numbers, and tells how near two of them are.",
    fields: [{ ...TEXT, short: true }, { name: "other", label: "Text to compare it with (may stay empty)", optional: true, short: true }],
    options: { pooling: "mean", normalize: true },
  },
  "text-generation": {
    says: "Continues a text.",
    fields: [{ ...TEXT, label: "Beginning of the text" }],
    options: { return_full_text: false },
    writes: true,
  },
  summarization: { ...REWRITES, says: "Says the same in fewer words." },
  translation: { ...REWRITES, says: "Translates a text." },
  "text2text-generation": { ...REWRITES, says: "Writes a text from another." },
};

/** Whether the page knows a task. @param {string} task */
export function known(task) {
  return task in TASKS;
}

/** What a task does, in a sentence. @param {string} task */
export function says(task) {
  return TASKS[task].says;
}

/** Whether a task's text comes token by token. @param {string} task */
export function writes(task) {
  return Boolean(TASKS[task].writes);
}

/**
 * Puts the fields and examples of a model's task on the page, the first example in the fields.
 * @param {any} model Of site.json.
 * @param {() => void} onExample Called when an example was tapped.
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
 * Puts texts into the fields; they are selected when one is entered, so that typing replaces them.
 * @param {any} model Of site.json. @param {Object<string, string>} texts By the names of the fields.
 */
export function fill(model, texts) {
  for (const { name } of TASKS[model.task].fields) {
    const area = find(`field-${name}`);
    area.value = texts[name] ?? "";
    area.onfocus = () => area.select();
    mend(`field-${name}`);
  }
  const prefix = find("field-prefix");
  if (prefix && [...prefix.options].some(({ value }) => value === texts.prefix)) prefix.value = texts.prefix;
}

/** Id of the field whose text may be too long. @param {any} model Of site.json. */
export function mainField(model) {
  return `field-${TASKS[model.task].fields[0].name}`;
}

/** Shows what is wrong with a field, by it. @param {string} id @param {string} text @param {string} [detail] Folded away. */
export function complain(id, text, detail = "") {
  const [input, error] = [find(id), find(`error-${id}`)];
  if (input?.matches("input, textarea")) input.setAttribute("aria-invalid", "true");
  const more = detail ? [make("details", {}, make("summary", {}, "For those who made this page"), detail)] : [];
  error.replaceChildren(make("p", {}, text), ...more);
  error.hidden = false;
}

/** Takes a complaint back. @param {string} id */
export function mend(id) {
  const error = find(`error-${id}`);
  find(id)?.removeAttribute("aria-invalid");
  if (error) error.hidden = true;
}

/**
 * What the fields say.
 * @param {any} model Of site.json.
 * @returns {{inputs: any, more: string | null, shown: string, options: Object<string, any>, texts: Object<string, string>}} `inputs`
 *     for the engine; `more` is a second text to compare with; `shown` is the text that the answer is about; `texts` are those of the
 *     fields, by their names.
 * @throws {FieldError} A field is empty, or there is no gap.
 */
export function asked(model) {
  const task = TASKS[model.task];
  const said = Object.fromEntries(task.fields.map(({ name }) => [name, find(`field-${name}`).value]));
  const empty = task.fields.find(({ name, optional }) => !optional && !said[name].trim());
  if (empty) throw new FieldError(`field-${empty.name}`, "There is nothing to read. Type something, or tap an example.");
  if (task.fields[0].gap && !said.text.includes(model.mask_token)) {
    throw new FieldError("field-text", `The text has no gap to fill. Put ${model.mask_token} where a word is missing.`);
  }
  const prefix = find("field-prefix")?.value;
  return {
    inputs: "question" in said ? { question: said.question, context: said.context } : said.text,
    more: said.other?.trim() ? said.other : null,
    shown: said.context ?? said.text,
    options: { ...task.options, ...(prefix === undefined ? {} : { prefix }) },
    texts: { ...said, ...(prefix === undefined ? {} : { prefix }) },
  };
}

function field({ name, label, short, gap }, model) {
  const id = `field-${name}`;
  const area = make("textarea", {
    id, rows: short ? 1 : 3, className: short ? "short" : "", autocapitalize: "sentences", aria: { describedby: `error-${id}` },
    oninput: () => {
      area.onfocus = null;
      mend(id);
    },
  });
  const parts = [make("label", { htmlFor: id }, label), area, complaint(id)];
  if (gap) parts.push(make("button", { type: "button", className: "quiet gap", onclick: () => insert(area, model.mask_token) }, `Insert ${model.mask_token}`));
  return make("div", { className: "field" }, ...parts);
}

/** Where `complain` says what is wrong with a field. @param {string} id */
export function complaint(id) {
  return make("div", { id: `error-${id}`, className: "error", role: "alert", hidden: true });
}

function insert(area, text) {
  area.onfocus = null;
  area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.focus();
}

/** A choice of what stands before the text, where the model knows several for its task. */
function prefixes(model) {
  const fitting = Object.entries(model.task_prefixes).filter(([task]) => task.startsWith(model.task));
  if (fitting.length < 2) return [];
  const choices = fitting.map(([, text]) => make("option", { value: text }, text.trim().replace(/:$/, "")));
  return [make("div", { className: "field" }, make("label", { htmlFor: "field-prefix" }, "What to do"), make("select", { id: "field-prefix" }, ...choices))];
}
