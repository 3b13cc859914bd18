/**
 * Compares the answers of an engine in this browser with those of the Keras model, as `kerasformer.engines.fidelity` does with NumPy.
 * `kerasformer.tools.web.references` writes the references.
 */
import { InputError } from "./errors.js";

/** @typedef {{ values: number[][], indices: number[][], per_token: boolean, mean?: number[] }} Answers Largest logits, or a mean vector. */

/**
 * @typedef {object} References
 * @property {"softmax" | "sigmoid" | "none"} distribution
 * @property {number} scale The largest absolute logit.
 * @property {number} tolerance Limit of the differences of logits, relative to `scale`.
 * @property {number} tie Answers whose margin is at most this many logits are not counted.
 * @property {number} min_agreement Minimum share of the same answers.
 * @property {number} min_cosine Minimum cosine similarity of vectors.
 * @property {any[]} texts
 */

/**
 * @typedef {object} Verdict
 * @property {boolean} agrees Whether all figures are within the limits.
 * @property {number} answers Number of compared answers.
 * @property {number} same Number of the same answers, among those that are not near ties.
 * @property {number} decided Number of answers that are not near ties.
 * @property {number} error Largest difference of a logit relative to the largest logit; `NaN` if an answer is not a number.
 * @property {number} tolerance Limit of `error`.
 * @property {number | null} cosine Smallest cosine similarity of a vector.
 */

/** Ends a check after this time on slow devices, but not before the first text. */
const MOST_SECONDS = 5;

/**
 * Runs the reference texts and compares the answers.
 * @param {any} engine @param {References} references @param {AbortSignal} [signal]
 * @returns {Promise<Verdict>}
 * @throws {InputError} The references are not those of this bundle.
 */
export async function checkReferences(engine, references, signal) {
  const end = performance.now() + 1000 * MOST_SECONDS;
  const tally = new Tally(references);
  for (const text of references.texts) {
    if (tally.answers && performance.now() > end) break;
    signal?.throwIfAborted();
    await (text.tokens ? followPrompt : readText)(engine, text, tally);
  }
  return tally.verdict();
}

/** @param {any} engine @param {any} text @param {Tally} tally */
async function readText(engine, { ids, segments, word_slots, label_slots, asked, outputs: expected }, tally) {
  const slots = word_slots ? { word_slots, label_slots } : {};
  const outputs = await engine.run({ ids, segments, mask: ids.map(() => 1), ...slots });
  for (const [name, answers] of Object.entries(expected)) {
    const values = outputs[name];
    if (!values) throw new InputError(`The references are for an output ${name}. Received: ${Object.keys(outputs).join(", ")}`);
    if (answers.mean) tally.vector(meanOf(values, answers.mean.length), answers.mean);
    else {
      const width = label_slots?.length ?? values.length / ids.length;
      rowsOf(name, values, width, asked, answers).forEach((row, index) => tally.answer(row, answers.values[index], answers.indices[index]));
    }
  }
}

/** Follows the recorded tokens, so that an early difference does not change all later answers. @param {any} engine @param {any} text @param {Tally} tally */
async function followPrompt(engine, { prompt, tokens, outputs: { logits } }, tally) {
  let state = await engine.start(prompt);
  try {
    for (const [index, token] of tokens.entries()) {
      const next = await engine.step(token, state);
      engine.release(state);
      state = next.state;
      tally.answer(next.logits, logits.values[index], logits.indices[index]);
    }
  } finally {
    engine.release(state);
  }
}

/** The answers in an output: one, or one for each asked token or span. @param {string} name @param {Float32Array} values @param {number} width @param {number[]} asked @param {Answers} answers */
function rowsOf(name, values, width, asked, answers) {
  if (name === "start_logits" || name === "end_logits") return [Float32Array.from(asked, (index) => values[index])];
  if (!answers.per_token) return [values];
  return asked.map((index) => values.subarray(index * width, (index + 1) * width));
}

/** The mean of the vectors of all tokens. @param {Float32Array} values @param {number} width */
function meanOf(values, width) {
  const count = values.length / width;
  return Array.from({ length: width }, (_, column) => {
    let sum = 0;
    for (let row = 0; row < count; row++) sum += values[row * width + column];
    return sum / count;
  });
}

/** Counts answers and their differences. */
class Tally {
  /** @param {References} references */
  constructor(references) {
    this.references = references;
    this.answers = this.same = this.decided = 0;
    this.error = 0;
    /** @type {number | null} */
    this.cosine = null;
  }

  /** @param {ArrayLike<number>} scores @param {number[]} values @param {number[]} indices */
  answer(scores, values, indices) {
    const { distribution, scale, tie } = this.references;
    const received = indices.map((index) => scores[index]);
    // Math.max keeps NaN, which is within no limit.
    for (const [index, value] of values.entries()) this.error = Math.max(this.error, Math.abs(received[index] - value) / scale);
    const decisions = distribution === "sigmoid" ? values.map((value, index) => [Math.abs(value), value > 0 === received[index] > 0])
      : [[values.length > 1 ? values[0] - values[1] : Infinity, best(scores) === indices[0]]];
    for (const [margin, same] of /** @type {[number, boolean][]} */ (decisions)) {
      this.answers++;
      if (margin <= tie) continue;
      this.decided++;
      if (same) this.same++;
    }
  }

  /** @param {number[]} received @param {number[]} expected */
  vector(received, expected) {
    const dot = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
    const cosine = dot(received, expected) / Math.sqrt(dot(received, received) * dot(expected, expected));
    this.cosine = Math.min(this.cosine ?? 1, cosine);
    this.answers++;
    this.decided++;
    if (cosine >= this.references.min_cosine) this.same++;
  }

  /** @returns {Verdict} */
  verdict() {
    const { answers, same, decided, error, cosine, references: { tolerance, min_agreement } } = this;
    const agrees = answers > 0 && error <= tolerance && same >= min_agreement * decided;
    return { agrees, answers, same, decided, error, tolerance, cosine };
  }
}

/** Index of the first greatest score. @param {ArrayLike<number>} scores */
function best(scores) {
  let first = 0;
  for (let index = 1; index < scores.length; index++) if (scores[index] > scores[first]) first = index;
  return first;
}
