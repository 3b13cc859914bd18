// The display of results, by task.

import { turns } from "./conversation.js";
import { make, percent } from "./elements.js";

/**
 * The elements that show a result.
 * @param {any} model An entry of site.json.
 * @param {any} result The result of the engine; see library/README.md.
 * @param {{shown: string, other: any, labels: string[], inputs?: any, others?: string[]}} query `shown`: the text that the result
 *     refers to. `other`: the result for a second text, to compare with. `labels`: the model's labels; the index of a label
 *     determines its colour. `inputs`: those of the engine. `others`: the texts that a text was compared with.
 * @returns {Node[]}
 */
export function answer(model, result, query) {
  return VIEWS[model.task](result, query, model);
}

const MOST_BARS = 20;
const COLOURS = 6; // number of label colours in style.css
const VIEWS = {
  "text-classification": classes,
  "token-classification": entities,
  "zero-shot-token-classification": entities,
  "zero-shot-classification": named,
  "text-ranking": ranking,
  "sentence-similarity": similarities,
  "question-answering": spans,
  "fill-mask": fillings,
  "feature-extraction": embedding,
  "text-generation": continuation,
  conversation: ([{ generated_text: messages }]) => turns(messages),
  summarization: generated("summary_text"),
  translation: generated("translation_text"),
  "text2text-generation": generated("generated_text"),
};

function classes(result, { labels }, model) {
  if (model.problem_type === "regression") {
    return result.map(({ label, score }) => make("p", { className: "big" }, `${result.length > 1 ? `${label}: ` : ""}${score.toFixed(3)}`));
  }
  return [bars(result.map(({ label, score }) => ({ name: label, score, kind: labels.indexOf(label) })), "bars ranked")];
}

function named({ labels, scores }) {
  return [bars(labels.map((name, index) => ({ name, score: scores[index] })), "bars ranked")];
}

function ranking(result, { inputs }) {
  return scored(result.map(({ corpus_id: index, score }) => ({ name: inputs.documents[index], score })));
}

/** Texts in the order of their similarity, or the vector of a single text. */
function similarities(result, { others }, { embedding }) {
  if (!others) return [vector(result, embedding.normalized)];
  const found = Array.isArray(result[0])
    ? result[0].map((score, index) => ({ name: others[index], score })).sort((one, other) => other.score - one.score)
    : result.map(({ corpus_id: index, score }) => ({ name: others[index], score }));
  return [...scored(found), make("p", { className: "muted small" }, SIMILARITIES[embedding.similarity])];
}

/** The meaning of scores, by the similarity of the model. */
const SIMILARITIES = {
  cosine: "Cosines of the vectors: 1 means the same meaning for this model, 0 means no similarity.",
  dot: "Dot products of the vectors: the higher, the closer in meaning.",
  euclidean: "Negative Euclidean distances of the vectors: 0 means the same meaning for this model.",
  manhattan: "Negative Manhattan distances of the vectors: 0 means the same meaning for this model.",
};

function entities(result, { shown }) {
  if (!result.length) return [make("p", {}, "No entities were found in this text.")];
  const characters = [...shown]; // code points, because offsets count them as Python does
  const kinds = [...new Set(result.map((each) => each.entity_group))];
  const parts = [];
  let last = 0;
  for (const { entity_group: kind, start, end } of result) {
    parts.push(characters.slice(last, start).join(""), make("mark", { className: `kind-${(kinds.indexOf(kind) % 5) + 1}` },
      `${characters.slice(start, end).join("")} `, make("small", {}, kind)));
    last = end;
  }
  const text = make("p", { className: "text" }, ...parts, characters.slice(last).join(""));
  const rows = result.map(({ entity_group, word, score }) => ({ name: `${word} – ${entity_group}`, score }));
  return [text, bars(rows)];
}

function spans(result, { shown }) {
  const answers = [result].flat().filter(({ answer }) => answer);
  if (!answers.length) return [make("p", {}, "No answer was found in this text.")];
  const [{ answer: best, start, end }] = answers;
  const characters = [...shown];
  return [
    make("p", { className: "big" }, best),
    make("p", { className: "text scrolls" }, characters.slice(0, start).join(""),
      make("mark", {}, characters.slice(start, end).join("")), characters.slice(end).join("")),
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

function vector(values, normalized) {
  const first = values.slice(0, 12).map((value) => value.toFixed(3)).join(", ");
  return make("p", { className: "muted" }, `Vector of ${values.length} numbers${normalized ? ", normalized to length 1" : ""}: ${first}, …`);
}

function embedding(result, { other }) {
  if (other === null) return [vector(result, true)];
  const cosine = result.reduce((sum, value, index) => sum + value * other[index], 0);
  return [
    make("p", { className: "big" }, `Similarity ${cosine.toFixed(3)}`),
    make("p", { className: "muted" }, "Cosine of the two vectors: 1 means the same meaning for this model, 0 means no similarity."),
    vector(result, true),
  ];
}

function continuation([{ generated_text }], { shown }) {
  return finished(shown, generated_text);
}

function generated(key) {
  return (result) => finished("", result[0][key]);
}

function finished(prompt, text) {
  return [textElement(prompt, text), ...(text.trim() ? [] : [make("p", { className: "muted" }, "The model generated no text.")])];
}

/**
 * An element for a generated text, after its prompt.
 * @param {string} prompt
 * @param {string} text
 */
export function textElement(prompt, text) {
  return make("p", { className: "text", dir: "auto" }, make("span", { className: "prompt" }, prompt), make("span", { className: "new" }, text));
}

/** An answer as plain text, for the clipboard. @param {Element} result */
export function plainText(result) {
  const lines = [...result.querySelectorAll(".text, .big, .bar")].map((each) => {
    return each.matches(".bar") ? [...each.children].map(({ textContent }) => textContent).join(" ").trim() : each.textContent;
  });
  return lines.join("\n");
}

/** Texts with scores, of which the bars start at the lowest one or 0 and end at the highest one or 1. */
function scored(rows) {
  const scores = rows.map(({ score }) => score);
  const [low, high] = [Math.min(0, ...scores), Math.max(1, ...scores)];
  const list = bars(rows.map(({ name, score }) => ({ name, score: (score - low) / (high - low), value: score.toFixed(3) })), "bars ranked");
  const rest = rows.length > MOST_BARS ? [make("p", { className: "muted small" }, `The best ${MOST_BARS} of ${rows.length} texts.`)] : [];
  return [list, ...rest];
}

/** Names with scores from 0 to 1, as bars; `value` is the number beside the bar; `kind` determines colour and pattern. */
function bars(rows, className = "bars") {
  return make("ul", { className }, ...rows.slice(0, MOST_BARS).map(({ name, score, value = percent(score), kind = -1 }) => {
    const fill = make("span");
    fill.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
    return make("li", { className: kind < 0 ? "bar" : `bar label-${(kind % COLOURS) + 1}` }, make("span", { className: "name" }, name),
      make("span", { className: "value" }, value), make("span", { className: "track", aria: { hidden: "true" } }, fill));
  }));
}
