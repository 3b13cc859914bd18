/** Text classification. */
import { InputError } from "../errors.js";
import { checkText, checkTopK, encoded, forward, ranked, withDefaults, sigmoid, softmax } from "./shared.js";

/** Returns `[{ label, score }]`, the best first. @type {import("./shared.js").Task} */
export async function textClassification(bundle, inputs, options) {
  const { top_k: topK, truncation } = withDefaults(options, { top_k: 1, truncation: false });
  const { text, pair } = inputs?.text === undefined ? { text: inputs, pair: null } : inputs;
  if (pair != null && typeof pair !== "string") throw new InputError(`pair must be a string. Received: ${typeof pair}`);
  const tokens = encoded(bundle, checkText(text), truncation, pair ?? null);
  const { logits } = await forward(bundle, tokens);
  const { labels } = bundle.manifest.info;
  const scores = scored(logits, bundle.manifest.info.problem_type);
  const ranking = ranked(scores, topK === null ? undefined : checkTopK(topK));
  const result = ranking.map((index) => ({ label: labels[index], score: scores[index] }));
  return { result, figures: { prompt_tokens: tokens.length } };
}

/** Scores by the type of problem: exclusive classes, independent classes, or a number. @param {Float32Array} logits @param {string | null} problem */
function scored(logits, problem) {
  if (problem === "regression") return Array.from(logits);
  if (problem === "multi_label_classification" || logits.length === 1) return sigmoid(logits);
  return softmax(logits);
}
