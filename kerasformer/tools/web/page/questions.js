// The input of each task: its fields, its examples, and the inputs of the engine.

import { nextTurn } from "./conversation.js";
import { find, make } from "./elements.js";
import { FieldError } from "./failures.js";
import { menus } from "./languages.js";

const MOST_EXAMPLES = 3;
let offered = []; // the examples that are shown, each an object of texts by the names of the fields
const TEXT = { name: "text", label: "Text" };
const TEXT_TO_TEXT = { generates: true, fields: [TEXT] };
const QUERY = { name: "query", label: "Query", short: true };
const LINES = { name: "documents", lines: true };

/**
 * Tasks by their Hugging Face names.
 * `title` is the name of the task; `description` is the line under the model's name, unless its card says more; `fields` are the input fields, see `field`; `choices(model)` are further fields
 * with a choice; `generates` marks tasks whose text is streamed; `inParts` marks tasks that read a text that is longer than the
 * model in overlapping parts; `limited` is the field whose text must not be too long, by default the first one; `request(values)`
 * returns what `readFields` returns, where this is not the text with `options`.
 */
const TASKS = {
  "text-classification": { title: "Text classification", description: "Classifies a text.", fields: [TEXT], options: { top_k: null }, inParts: true },
  "token-classification": {
    title: "Named entities",
    description: "Finds names and other entities in a text.",
    fields: [TEXT],
    options: { aggregation_strategy: "simple" },
    inParts: true,
  },
  "zero-shot-classification": {
    title: "Classification by named classes",
    description: "Classifies a text by classes that you name.",
    fields: [
      TEXT,
      { name: "candidate_labels", label: "Classes, separated by commas", short: true, refuses: (value) => !/[^,\s]/.test(value) && "Enter the name of at least one class." },
      { name: "hypothesis_template", label: "Sentence about a class", short: true, refuses: templateProblem },
      { name: "multi_label", label: "Several classes can apply to the text", box: true },
    ],
    limited: "candidate_labels",
    request: ({ text, candidate_labels, hypothesis_template, multi_label }) => ({
      inputs: text, shown: text, options: { candidate_labels, hypothesis_template, multi_label: Boolean(multi_label) },
    }),
    inParts: true,
  },
  "zero-shot-token-classification": {
    title: "Entities of named types",
    description: "Finds entities of the types that you name in a text.",
    fields: [
      TEXT,
      { name: "labels", label: "Types of entities, separated by commas", short: true, refuses: typesProblem },
    ],
    request: ({ text, labels }) => ({ inputs: text, shown: text, options: { labels: names(labels) } }),
  },
  "text-ranking": {
    title: "Ranking",
    description: "Ranks texts by their relevance to a query.",
    fields: [QUERY, { ...LINES, label: "Texts to rank, one in each line" }],
    choices: ({ labels }) => (labels.length < 2 ? [] : [{ name: "label", label: "Class that ranks", choices: labels.map((label) => [label, label]) }]),
    request: ({ query, documents, label }) => ({ inputs: { query, documents: lines(documents) }, shown: query, options: label === undefined ? {} : { label } }),
    inParts: true,
  },
  "sentence-similarity": {
    title: "Similarity of texts",
    description: "Searches a few texts for those that are closest in meaning, or computes the vector of a text.",
    fields: [{ ...QUERY, label: "Text or query" }, { ...LINES, label: "Texts to search or compare with, one in each line (optional)", optional: true }],
    choices: ({ embedding }) => (Object.keys(embedding.prompts).length ? [{ name: "purpose", label: "Purpose", choices: PURPOSES }] : []),
    request: similarityRequest,
    inParts: true,
  },
  "question-answering": {
    title: "Answers in a text",
    description: "Finds the answer to a question in a text.",
    fields: [{ name: "question", label: "Question", short: true }, { name: "context", label: "Text to search" }],
    options: { top_k: 3 },
    request: ({ question, context }) => ({ inputs: { question, context }, shown: context }),
    inParts: true,
  },
  "fill-mask": { title: "Filling a gap", description: "Fills the gap in a text.", fields: [{ ...TEXT, gap: true, refuses: gapProblem }], options: { top_k: 5 } },
  "feature-extraction": {
    title: "Text vectors",
    description: "Computes a vector for a text, and the similarity of two texts.",
    fields: [{ ...TEXT, short: true }, { name: "other", label: "Text to compare with (optional)", optional: true, short: true }],
    options: { pooling: "mean", normalize: true },
    request: ({ text, other }) => ({ inputs: text, shown: text, more: other.trim() ? other : null }),
    inParts: true,
  },
  conversation: {
    title: "Conversation",
    description: "Answers messages, and remembers the conversation.",
    fields: [{ name: "system", label: "Instructions (optional)", short: true, optional: true }, { name: "text", label: "Message" }],
    request: ({ system, text }) => ({ inputs: nextTurn(system, text), shown: text }),
    limited: "text",
    generates: true,
  },
  "text-generation": {
    title: "Text generation",
    description: "Continues a text.",
    fields: [{ ...TEXT, label: "Start of the text" }],
    options: { return_full_text: false },
    generates: true,
  },
  summarization: { ...TEXT_TO_TEXT, title: "Summarization", description: "Summarizes a text." },
  translation: { ...TEXT_TO_TEXT, title: "Translation", description: "Translates a text." },
  "text2text-generation": { ...TEXT_TO_TEXT, title: "Text to text", description: "Turns a text into another one." },
};

/** Whether the page supports a task. @param {string} task */
export function supports(task) {
  return task in TASKS;
}

/** The name of a task. @param {string} task */
export function title(task) {
  return TASKS[task].title;
}

/** What a model is for, in a sentence: that of its card, or what its task does. @param {any} model An entry of site.json. */
export function purpose(model) {
  return model.purpose || TASKS[model.task].description;
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
  find("fields").replaceChildren(...fieldsOf(model).map((each) => field(each, model)));
  offered = model.examples.inputs.slice(0, MOST_EXAMPLES).map((example) => {
    return Object.fromEntries(Object.entries(example).map(([name, text]) => [name, [text].flat().join("\n").replace("{gap}", model.mask_token)]));
  });
  find("examples-field").hidden = !offered.length;
  find("examples").replaceChildren(...offered.map((example) => make("button", {
    type: "button",
    aria: { pressed: "false" },
    onclick: () => {
      fill(model, example);
      onExample();
    },
  }, example.question ?? example.query ?? (example.other ? `${example.text} / ${example.other}` : example.text))));
  if (offered.length) fill(model, offered[0]);
}

/**
 * Writes texts into the fields. When a field gets the focus, its text is selected, so that typing replaces it.
 * @param {any} model An entry of site.json. @param {Object<string, string>} texts By the names of the fields.
 */
export function fill(model, texts) {
  for (const { name, box, choices } of fieldsOf(model)) {
    const input = find(`field-${name}`);
    if (box) input.checked = Boolean(texts[name]);
    else if (!choices) input.value = texts[name] ?? "";
    else if (choices.some(([value]) => value === texts[name])) input.value = texts[name];
    if (input.matches("textarea")) input.onfocus = () => input.select();
    clearError(`field-${name}`);
  }
  markExample(model);
}

/** Marks the example that the fields contain, if any. @param {any} model An entry of site.json. */
export function markExample(model) {
  offered.forEach((example, index) => {
    find("examples").children[index].setAttribute("aria-pressed", String(isInFields(model, example)));
  });
}

function isInFields(model, example) {
  return fieldsOf(model).every(({ name, box, choices }) => {
    const { value, checked } = find(`field-${name}`);
    const expected = example[name] ?? "";
    if (box) return checked === Boolean(expected);
    return value === expected || (choices && !choices.some(([known]) => known === expected));
  });
}

/** Id of the field whose text may be too long. @param {any} model An entry of site.json. */
export function limitedField(model) {
  return `field-${TASKS[model.task].limited ?? TASKS[model.task].fields[0].name}`;
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
 * @throws {FieldError} A field is empty, or its text is refused.
 */
export function readFields(model) {
  const task = TASKS[model.task];
  const fields = fieldsOf(model);
  const values = Object.fromEntries(fields.map(({ name, box }) => {
    const { value, checked } = find(`field-${name}`);
    return [name, box ? (checked ? "yes" : "") : value];
  }));
  for (const { name, optional, box, choices, refuses } of fields) {
    const free = optional || box || choices;
    const problem = !free && !values[name].trim() ? "This field is empty. Enter a text, or choose an example." : refuses?.(values[name], model);
    if (problem) throw new FieldError(`field-${name}`, problem);
  }
  const { options = {}, ...request } = task.request?.(values) ?? { inputs: values.text, shown: values.text };
  const ofModel = Object.fromEntries(OF_MODEL.filter((name) => name in values).map((name) => [name, values[name]]));
  return { more: null, ...request, options: { ...task.options, ...options, ...ofModel }, texts: values };
}

/** Choices that the model offers, which are options of the library with the same names. */
const OF_MODEL = ["prefix", "src_lang", "tgt_lang"];

/** The fields of a model: those of its task, and choices that depend on the model. */
function fieldsOf(model) {
  const { fields, choices = () => [] } = TASKS[model.task];
  return [...menus(model), ...fields, ...choices(model), ...prefixes(model)];
}

/** A query and documents, two kinds of texts with their own prompts; or texts of the same kind, with the default prompt. */
const PURPOSES = [["search", "Search texts for a query"], ["compare", "Compare texts of the same kind"]];

/** Similarities of a text to others, in their order for a search; the vector of the text if there are no others. */
function similarityRequest({ query, documents, purpose = "search" }) {
  const others = lines(documents);
  if (!others.length) return { inputs: query, shown: query };
  return { inputs: purpose === "search" ? { query, documents: others } : { some: [query], others }, shown: query, others };
}

/** The lines of a text, without empty ones. */
function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** Why a sentence about a class cannot be used, or `false`. */
function templateProblem(text) {
  const fits = text.split("{}").length === 2 && !/[{}]/.test(text.replace("{}", ""));
  return !fits && "Put {} once where the name of the class belongs, as in: This example is {}.";
}

/** Names that are separated by commas. */
function names(text) {
  return text.split(",").map((name) => name.trim()).filter(Boolean);
}

/** Why names of types cannot be used, or `false`. */
function typesProblem(text) {
  const types = names(text);
  if (!types.length) return "Enter the name of at least one type.";
  return new Set(types).size < types.length && "Enter each type once.";
}

/** Why a text cannot be filled, or `false`. */
function gapProblem(text, { mask_token: mask }) {
  return !text.includes(mask) && `The text has no gap to fill. Put ${mask} where a word is missing.`;
}

/**
 * The elements of a field: a text of several lines; `short` ones of one line; `lines` are a list of texts; `box` is a checkbox; with
 * `choices`, pairs of values and names, it is a choice, with the value `chosen` at first; `half` are two beside each other. `gap`
 * offers a button that inserts the mask token.
 */
function field({ name, label, short, gap, lines, box, choices, chosen, half }, model) {
  const id = `field-${name}`;
  if (box) return make("label", { className: "box" }, make("input", { id, type: "checkbox" }), label);
  if (choices) {
    const select = make("select", { id }, ...choices.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
    return make("div", { className: half ? "field half" : "field" }, make("label", { htmlFor: id }, label), select);
  }
  const area = make("textarea", {
    id, rows: short ? 1 : lines ? 5 : 3, className: short ? "short" : "", dir: "auto", autocapitalize: "sentences", aria: { describedby: `error-${id}` },
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

/** A choice of the prefix of the text, if the model has several for its task and no languages select one. */
function prefixes(model) {
  if (model.languages) return [];
  const fitting = Object.entries(model.task_prefixes).filter(([task]) => !task || task.startsWith(model.task));
  if (fitting.length < 2) return [];
  return [{ name: "prefix", label: "Task", choices: fitting.map(([, text]) => [text, text.trim().replace(/:$/, "")]) }];
}
