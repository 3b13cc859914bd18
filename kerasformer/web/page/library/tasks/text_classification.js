/** Text classification. */
import { InputError } from "../errors.js";
import { LENGTH, chunksOf, combined, forwardAll, oneOf, whole } from "./chunks.js";
import { checkText, checkTopK, ranked, withDefaults, sigmoid, softmax } from "./shared.js";

/** Returns `[{ label, score }]`, the best first. @type {import("./shared.js").Task} */
export async function textClassification(bundle, inputs, options, controls) {
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
