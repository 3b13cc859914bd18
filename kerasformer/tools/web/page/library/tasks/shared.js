/**
 * Shared by all tasks: checks of inputs and options, arrays for the model, probabilities.
 */
import { InputError } from "../errors.js";

/** @typedef {import("../index.js").Bundle} Bundle */
/** @typedef {import("../tokenization/tokenizer.js").Token} Token */
/** @typedef {{ onToken?: (text: string) => void, signal?: AbortSignal }} Controls */
/** @typedef {Record<string, any>} Options */
/** @typedef {(bundle: Bundle, inputs: any, options: Options, controls: Controls) => Promise<{ result: any, figures: any }>} Task */

/** Returns a text, or throws. @param {any} value @param {string} what @returns {string} */
export function checkText(value, what = "text") {
  if (typeof value === "string") return value;
  throw new InputError(`A ${what} was expected. Received: ${JSON.stringify(value)?.slice(0, 80)}`);
}

/**
 * Returns the options, completed by their defaults.
 * @template {Options} T
 * @param {Options} options @param {T} defaults
 * @returns {T}
 */
export function withDefaults(options, defaults) {
  const unknown = Object.keys(options).filter((name) => !(name in defaults));
  if (unknown.length) {
    throw new InputError(`Unknown options: ${unknown.join(", ")}. Expected: ${Object.keys(defaults).join(", ")}`);
  }
  return { ...defaults, ...options };
}

/** Returns a number of results, or throws. @param {any} value */
export function checkTopK(value) {
  if (Number.isInteger(value) && value >= 1) return value;
  throw new InputError(`top_k must be at least 1. Received: ${value}`);
}

/** Returns a list of texts, or throws. @param {any} value @param {string} what @returns {string[]} */
export function checkTexts(value, what = "texts") {
  if (Array.isArray(value)) return value.map((text) => checkText(text));
  throw new InputError(`A list of ${what} was expected. Received: ${JSON.stringify(value)?.slice(0, 80)}`);
}

/** Documents in the order of their scores. @param {number[]} scores @param {string[]} documents @param {{ top_k: number | null, return_documents: boolean }} settings */
export function rankedDocuments(scores, documents, { top_k: topK, return_documents: withText }) {
  return ranked(scores, topK === null ? undefined : checkTopK(topK)).map((index) => ({
    corpus_id: index,
    score: scores[index],
    ...(withText ? { text: documents[index] } : {}),
  }));
}

/**
 * Runs the model on tokens; throws if an output is not finite.
 * @param {Bundle} bundle @param {Token[]} tokens
 * @param {Record<string, number[]>} [slots] Further inputs of a model that finds spans, by kind.
 * @returns {Promise<Record<string, Float32Array>>}
 */
export async function forward(bundle, tokens, slots = {}) {
  const engine = /** @type {any} */ (bundle.engine);
  /** @type {Record<string, Float32Array>} */
  const outputs = await engine.run({
    ids: tokens.map(({ id }) => id),
    mask: tokens.map(() => 1),
    segments: tokens.map(({ type }) => type),
    ...slots,
  });
  for (const [name, values] of Object.entries(outputs)) {
    const index = values.findIndex((value) => !Number.isFinite(value));
    if (index >= 0) {
      throw new InputError(
        `The model's output for a text is not finite. Expected: finite numbers. Received: ${values[index]} in ${name}. Its ` +
          "weights are so large that sums of them exceed the range of its numbers, or the question has more tokens than a " +
          "model with global tokens accepts.",
      );
    }
  }
  return outputs;
}

/** Splits an array into one row for each token. @param {Float32Array} values @param {number} count */
export function rows(values, count) {
  const width = values.length / count;
  return Array.from({ length: count }, (_, row) => values.subarray(row * width, (row + 1) * width));
}

/** Probabilities. @param {Iterable<number>} logits @returns {number[]} */
export function softmax(logits) {
  const values = Array.from(logits);
  const greatest = values.reduce((best, value) => Math.max(best, value), -Infinity);
  const powers = values.map((value) => Math.exp(value - greatest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** The probability of each class, independent of the others. @param {Iterable<number>} logits */
export function sigmoid(logits) {
  return Array.from(logits, (logit) => 0.5 + 0.5 * Math.tanh(0.5 * logit)); // unlike exp, this cannot overflow
}

/** Scales a vector to length 1; a vector of zeros is unchanged. @param {number[]} row */
export function unit(row) {
  const length = Math.max(Math.sqrt(row.reduce((sum, value) => sum + value * value, 0)), 1e-12);
  return row.map((value) => value / length);
}

/** Indices of the greatest values in descending order; equal values keep their order. @param {ArrayLike<number>} values @param {number} [count] */
export function ranked(values, count) {
  return Array.from({ length: values.length }, (_, index) => index)
    .sort((a, b) => values[b] - values[a] || a - b)
    .slice(0, count);
}
