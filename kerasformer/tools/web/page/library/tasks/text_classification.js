/** Text classification, and ranking of documents by a classifier of pairs (a cross-encoder). */
import { InputError } from "../errors.js";
import { LENGTH, chunksOf, chunksOfPairs, combined, figuresOf, forwardAll, oneOf, whole } from "./chunks.js";
import { checkText, checkTexts, checkTopK, ranked, rankedDocuments, withDefaults, sigmoid, softmax } from "./shared.js";

/** @typedef {(logits: Float32Array) => number[]} Activation */

/** Functions for the scores of cross-encoders, by their names in checkpoints. @type {Record<string, Activation>} */
const ACTIVATIONS = {
  "torch.nn.modules.linear.Identity": (logits) => Array.from(logits),
  "torch.nn.modules.activation.Sigmoid": sigmoid,
  "torch.nn.modules.activation.Tanh": (logits) => Array.from(logits, Math.tanh),
};

/** Returns `[{ label, score }]`, the best first; ranks documents for `{ query, documents }`. @type {import("./shared.js").Task} */
export async function textClassification(bundle, inputs, options, controls) {
  if (inputs?.query !== undefined) return rank(bundle, inputs, options, controls);
  const settings = withDefaults(options, { top_k: 1, ...LENGTH, combine: "mean" });
  const { top_k: topK, truncation } = settings;
  const combine = oneOf("combine", settings.combine, ["mean", "max"]);
  const { text, pair } = inputs?.text === undefined ? { text: inputs, pair: null } : inputs;
  if (pair != null && typeof pair !== "string") throw new InputError(`pair must be a string. Received: ${typeof pair}`);
  const { chunks, figures } =
    pair == null ? chunksOf(bundle, checkText(text), settings) : whole(bundle, checkText(text), truncation, pair);
  const { labels, problem_type: problem } = bundle.manifest.info;
  const outputs = await forwardAll(bundle, chunks, controls);
  const scores = combined(
    outputs.map(({ logits }) => scored(logits, problem)),
    chunks,
    combine,
  );
  const ranking = ranked(scores, topK === null ? undefined : checkTopK(topK));
  const result = ranking.map((index) => ({ label: labels[index], score: scores[index] }));
  return { result, figures };
}

/** Scores by the type of problem: exclusive classes, independent classes, or a number. @param {Float32Array} logits @param {string | null} problem */
function scored(logits, problem) {
  if (problem === "regression") return Array.from(logits);
  if (problem === "multi_label_classification" || logits.length === 1) return sigmoid(logits);
  return softmax(logits);
}

/** Returns `[{ corpus_id, score }]`, the most relevant document first. @type {import("./shared.js").Task} */
async function rank(bundle, { query, documents }, options, controls) {
  const settings = withDefaults(options, {
    top_k: /** @type {number | null} */ (null),
    label: /** @type {string | null} */ (null),
    return_documents: false,
    ...LENGTH,
    combine: "max",
  });
  const { labels, score_activation: name } = bundle.manifest.info;
  const column = columnOf(labels, settings.label);
  const combine = oneOf("combine", settings.combine, ["mean", "max"]);
  const activate = activationOf(name, labels);
  const [question, texts] = [checkText(query, "query"), checkTexts(documents, "documents")];
  const form = { isFirst: false, cut: /** @type {const} */ ("longest_first") };
  const pairs = texts.map((text) => chunksOfPairs(bundle, text, [question], settings, form)[0]);
  const scores = [];
  for (const { chunks } of pairs) {
    const outputs = await forwardAll(bundle, chunks, controls);
    scores.push(combined(outputs.map(({ logits }) => [activate(logits)[column]]), chunks, combine, 1)[0]);
  }
  return { result: rankedDocuments(scores, texts, settings), figures: figuresOf(pairs) };
}

/** The index of the class that ranks documents. @param {string[]} labels @param {string | null} label */
function columnOf(labels, label) {
  if (label === null && labels.length === 1) return 0;
  if (label !== null && labels.includes(label)) return labels.indexOf(label);
  throw new InputError(
    `A model with several classes ranks by one of them. Expected: label, one of ${labels.join(", ")}. Received: ${label}`,
  );
}

/** @param {string | null} name @param {string[]} labels @returns {Activation} */
function activationOf(name, labels) {
  if (name == null) return labels.length === 1 ? sigmoid : (logits) => Array.from(logits);
  if (name in ACTIVATIONS) return ACTIVATIONS[name];
  throw new InputError(
    `The checkpoint has an unsupported function for scores. Expected: ${Object.keys(ACTIVATIONS).join(" or ")}. Received: ${name}`,
  );
}
