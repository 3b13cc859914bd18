// How the result of each task looks.

import { make, percent } from "./elements.js";

/**
 * Elements that show a result.
 * @param {any} model Of site.json.
 * @param {any} result Of the engine; see library/README.md.
 * @param {{shown: string, other: any, labels: string[]}} asked The text that it is about; the result of a second text, to compare
 *     with; the model's labels, whose places choose their colours.
 * @returns {Node[]}
 */
export function answer(model, result, asked) {
  return VIEWS[model.task](result, asked, model);
}

const MOST_BARS = 20;
const COLOURS = 6; // of labels, in style.css
const VIEWS = {
  "text-classification": classes,
  "token-classification": entities,
  "question-answering": found,
  "fill-mask": fillings,
  "feature-extraction": numbers,
  "text-generation": continued,
  summarization: written("summary_text"),
  translation: written("translation_text"),
  "text2text-generation": written("generated_text"),
};

function classes(result, { labels }, model) {
  if (model.problem_type === "regression") {
    return result.map(({ label, score }) => make("p", { className: "big" }, `${result.length > 1 ? `${label}: ` : ""}${score.toFixed(3)}`));
  }
  return [bars(result.map(({ label, score }) => ({ name: label, score, kind: labels.indexOf(label) })), "bars ranked")];
}

function entities(result, { shown }) {
  if (!result.length) return [make("p", {}, "Nothing was found in this text.")];
  const letters = [...shown]; // Python counts an emoji as one character
  const kinds = [...new Set(result.map((each) => each.entity_group))];
  const parts = [];
  let last = 0;
  for (const { entity_group: kind, start, end } of result) {
    parts.push(letters.slice(last, start).join(""), make("mark", { className: `kind-${(kinds.indexOf(kind) % 5) + 1}` },
      `${letters.slice(start, end).join("")} `, make("small", {}, kind)));
    last = end;
  }
  const text = make("p", { className: "text" }, ...parts, letters.slice(last).join(""));
  const rows = result.map(({ entity_group, word, score }) => ({ name: `${word} – ${entity_group}`, score }));
  return [text, bars(rows)];
}

function found(result, { shown }) {
  const answers = [result].flat().filter(({ answer }) => answer);
  if (!answers.length) return [make("p", {}, "The text does not seem to answer this.")];
  const [{ answer: best, start, end }] = answers;
  const letters = [...shown];
  return [
    make("p", { className: "big" }, best),
    make("p", { className: "text scrolls" }, letters.slice(0, start).join(""),
      make("mark", {}, letters.slice(start, end).join("")), letters.slice(end).join("")),
    bars(answers.map(({ answer, score }) => ({ name: answer, score })), "bars ranked"),
  ];
}

function fillings(result) {
  const gaps = Array.isArray(result[0]) ? result : [result];
  return gaps.flatMap((choices, gap) => [
    ...(gaps.length > 1 ? [make("p", { className: "muted" }, `Gap ${gap + 1}`)] : [make("p", { className: "text" }, choices[0].sequence)]),
    bars(choices.map(({ token_str, score }) => ({ name: token_str.trim() || "(space)", score })), "bars ranked"),
  ]);
}

function numbers(result, { other }) {
  const first = result.slice(0, 12).map((value) => value.toFixed(3)).join(", ");
  const vector = make("p", { className: "muted" }, `A vector of ${result.length} numbers of length 1: ${first}, …`);
  if (other === null) return [vector];
  const cosine = result.reduce((sum, value, place) => sum + value * other[place], 0);
  return [
    make("p", { className: "big" }, `Similarity ${cosine.toFixed(3)}`),
    make("p", { className: "muted" }, "The cosine of the two vectors: 1 is the same meaning to this model, 0 is none in common."),
    vector,
  ];
}

function continued([{ generated_text }], { shown }) {
  return finished(shown, generated_text);
}

function written(key) {
  return (result) => finished("", result[0][key]);
}

function finished(given, text) {
  return [writing(given, text), ...(text.trim() ? [] : [make("p", { className: "muted" }, "The model wrote nothing.")])];
}

/**
 * A text that is being written, or was: what was given, then what is new.
 * @param {string} given
 * @param {string} text
 */
export function writing(given, text) {
  return make("p", { className: "text" }, make("span", { className: "prompt" }, given), make("span", { className: "new" }, text));
}

/** An answer as plain text, for the clipboard. @param {Element} result */
export function plain(result) {
  const lines = [...result.querySelectorAll(".text, .big, .bar")].map((each) => {
    return each.matches(".bar") ? [...each.children].map(({ textContent }) => textContent).join(" ").trim() : each.textContent;
  });
  return lines.join("\n");
}

/** Names with a share of 1 each, as bars; a `kind` has its own colour and pattern. */
function bars(rows, className = "bars") {
  return make("ul", { className }, ...rows.slice(0, MOST_BARS).map(({ name, score, kind = -1 }) => {
    const fill = make("span");
    fill.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    return make("li", { className: kind < 0 ? "bar" : `bar label-${(kind % COLOURS) + 1}` }, make("span", { className: "name" }, name),
      make("span", { className: "value" }, percent(score)), make("span", { className: "track", aria: { hidden: "true" } }, fill));
  }));
}
