// What each task asks for: its fields, its examples, and what goes to the engine.

import { find, make } from "./elements.js";

const PACKAGE = "This package contains a small program that reads a text file and counts how often each word occurs in it. "
  + "The result is printed as a table that is sorted by frequency. It can ignore upper and lower case.";
const LIGHTHOUSE = "The lighthouse was built in 1874 by Ada Berg on a small island north of the harbour. It burned oil until "
  + "1931, when a cable brought electricity, and its light can be seen from thirty kilometres away.";

const TEXT = { name: "text", label: "Text" };
const REWRITES = { writes: true, names: ["Rewrites a text"], fields: [TEXT], examples: [{ text: PACKAGE }] };

/**
 * Tasks by their names at Hugging Face.
 * `says` is the line under the model's name; `fields` are asked for; `writes` tells that text comes token by token.
 */
const TASKS = {
  "text-classification": {
    says: "Tells what kind of text this is.",
    fields: [TEXT],
    examples: [
      { text: "A warm, funny and beautifully acted film." },
      { text: "Two hours of my life that I will never get back." },
      { text: "The music is lovely, but nothing else in this film works." },
    ],
    options: { top_k: null },
  },
  "token-classification": {
    says: "Finds names and other things in a text.",
    fields: [TEXT],
    examples: [{ text: "Ada Lovelace met Charles Babbage in London in June 1833." }, { text: LIGHTHOUSE }],
    options: { aggregation_strategy: "simple" },
  },
  "question-answering": {
    says: "Finds the answer to a question in a text.",
    fields: [{ name: "question", label: "Question", short: true }, { name: "context", label: "Text to look in" }],
    examples: [
      { question: "Who built the lighthouse?", context: LIGHTHOUSE },
      { question: "How far can its light be seen?", context: LIGHTHOUSE },
    ],
    options: { top_k: 3 },
  },
  "fill-mask": {
    says: "Fills the gap in a text.",
    fields: [{ ...TEXT, gap: true }],
    examples: [{ text: "The capital of France is {gap}." }, { text: "The film was {gap}, and I left early." }],
    options: { top_k: 5 },
  },
  "feature-extraction": {
    says: "Turns texts into numbers, and tells how near two of them are.",
    fields: [TEXT, { name: "other", label: "Text to compare it with (may stay empty)", optional: true }],
    examples: [
      { text: "How do I bake bread?", other: "A recipe for a simple loaf." },
      { text: "How do I bake bread?", other: "The train was late again." },
    ],
    options: { pooling: "mean", normalize: true },
  },
  "text-generation": {
    says: "Continues a text.",
    fields: [{ ...TEXT, label: "Beginning of the text" }],
    examples: [
      { text: "The old man looked at the sea and" },
      { text: "It was late in the evening when" },
      { text: "Once upon a time" },
    ],
    options: { return_full_text: false },
    writes: true,
  },
  summarization: { ...REWRITES, says: "Says the same in fewer words.", examples: [{ text: PACKAGE }, { text: LIGHTHOUSE }] },
  translation: { ...REWRITES, says: "Translates a text.", examples: [{ text: "The house is wonderful." }, { text: "Where is the station?" }] },
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
 * Puts the fields and examples of a model's task on the page.
 * @param {any} model Of site.json.
 * @param {() => void} onExample Called when an example was tapped.
 */
export function show(model, onExample) {
  const task = TASKS[model.task];
  find("fields").replaceChildren(...task.fields.map((each) => field(each, model)), ...prefixes(model));
  find("examples").replaceChildren(...task.examples.map((example) => {
    const texts = Object.fromEntries(Object.entries(example).map(([name, text]) => [name, text.replace("{gap}", model.mask_token)]));
    return make("button", {
      type: "button",
      onclick: () => {
        for (const { name } of task.fields) find(`field-${name}`).value = texts[name] ?? "";
        onExample();
      },
    }, texts.question ?? (texts.other ? `${texts.text} / ${texts.other}` : texts.text));
  }));
}

/**
 * What the fields say.
 * @param {any} model Of site.json.
 * @returns {{inputs: any, more: string | null, shown: string, options: Object<string, any>}} `inputs` for the engine; `more` is a
 *     second text to compare with; `shown` is the text that the answer is about.
 * @throws {RangeError} A field is empty, or there is no gap.
 */
export function asked(model) {
  const task = TASKS[model.task];
  const said = Object.fromEntries(task.fields.map(({ name }) => [name, find(`field-${name}`).value]));
  const empty = task.fields.find(({ name, optional }) => !optional && !said[name].trim());
  if (empty) {
    find(`field-${empty.name}`).focus();
    throw new RangeError(`${empty.label}: there is nothing to read. Type something, or tap an example.`);
  }
  if (task.fields[0].gap && !said.text.includes(model.mask_token)) {
    throw new RangeError(`The text has no gap to fill. Put ${model.mask_token} where a word is missing.`);
  }
  const prefix = find("field-prefix");
  return {
    inputs: "question" in said ? { question: said.question, context: said.context } : said.text,
    more: said.other?.trim() ? said.other : null,
    shown: said.context ?? said.text,
    options: { ...task.options, ...(prefix ? { prefix: prefix.value } : {}) },
  };
}

function field({ name, label, short, gap }, model) {
  const area = make("textarea", { id: `field-${name}`, rows: short ? 1 : 3, className: short ? "short" : "", autocapitalize: "sentences" });
  const parts = [make("label", { htmlFor: `field-${name}` }, label), area];
  if (gap) parts.push(make("button", { type: "button", className: "quiet gap", onclick: () => insert(area, model.mask_token) }, `Insert ${model.mask_token}`));
  return make("div", { className: "field" }, ...parts);
}

function insert(area, text) {
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
