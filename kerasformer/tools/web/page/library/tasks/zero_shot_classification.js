/** Zero-shot classification: classes that are named in the call, with a model for natural language inference. */
import { InputError } from "../errors.js";
import { LENGTH, chunksOfPairs, combined, figuresOf, forwardAll, oneOf } from "./chunks.js";
import { checkText, checkTexts, ranked, sigmoid, softmax, withDefaults } from "./shared.js";

/** Returns `{ sequence, labels, scores }`, the most probable class first. @type {import("./shared.js").Task} */
export async function zeroShotClassification(bundle, inputs, options, controls) {
  const settings = withDefaults(options, {
    candidate_labels: /** @type {string | string[]} */ (""),
    hypothesis_template: "This example is {}.",
    multi_label: false,
    ...LENGTH,
    combine: "mean",
  });
  const labels = labelsOf(settings.candidate_labels);
  const hypotheses = hypothesesOf(checkText(settings.hypothesis_template, "hypothesis_template"), labels);
  const independent = settings.multi_label || labels.length === 1;
  const combine = oneOf("combine", settings.combine, ["mean", "max"]);
  const entailment = entailmentOf(bundle.manifest.info.labels);
  const contradiction = entailment === 0 ? bundle.manifest.info.labels.length - 1 : 0; // as in transformers
  const pairs = chunksOfPairs(bundle, checkText(inputs), hypotheses, settings, { isFirst: true });
  const evidence = [];
  for (const { chunks } of pairs) {
    const outputs = await forwardAll(bundle, chunks, controls);
    const logits = outputs.map(({ logits: row }) => [independent ? row[entailment] - row[contradiction] : row[entailment]]);
    evidence.push(combined(logits, chunks, combine)[0]);
  }
  const scores = independent ? sigmoid(evidence) : softmax(evidence);
  const order = ranked(scores);
  const result = { sequence: inputs, labels: order.map((index) => labels[index]), scores: order.map((index) => scores[index]) };
  const lost = Math.max(...pairs.map(({ figures }) => figures.lost_tokens));
  return { result, figures: { ...figuresOf(pairs), lost_tokens: lost, texts: 1 } };
}

/** The index of the class whose name starts with "entail". @param {string[]} labels */
function entailmentOf(labels) {
  const index = labels.findIndex((label) => label.toLowerCase().startsWith("entail"));
  if (index >= 0 && labels.length > 1) return index;
  throw new InputError(
    "zero-shot-classification needs a model for natural language inference, with a class whose name starts with 'entail' " +
      `and at least one other. Received: the classes ${labels.join(", ") || "none"}`,
  );
}

/** The names of the classes. @param {any} value A list, or names separated by commas. @returns {string[]} */
function labelsOf(value) {
  const names = typeof value === "string" ? value.split(",").map((name) => name.trim()) : checkTexts(value, "candidate_labels");
  const labels = names.filter(Boolean);
  if (labels.length) return labels;
  throw new InputError(`At least one class was expected. Received: candidate_labels=${JSON.stringify(value)}`);
}

/** A sentence about each class. @param {string} template @param {string[]} labels */
function hypothesesOf(template, labels) {
  const [before, after, ...more] = template.split("{}");
  if (after !== undefined && !more.length && !/[{}]/.test(before + after)) return labels.map((label) => before + label + after);
  throw new InputError(
    "hypothesis_template must contain {} once, which is replaced by the name of a class, and no other braces. " +
      `Received: hypothesis_template=${JSON.stringify(template)}`,
  );
}
