/**
 * Chooses a token from logits: the best one, or a sample from the candidates that temperature and cutoffs leave. Order and
 * float32 arithmetic are those of `kerasformer.generation.samplers`; references are there.
 */
import { GenerationError } from "../errors.js";

/** @typedef {import("./settings.js").Config} Config */

/**
 * Tokens that can be sampled, in the order of their ids.
 * @typedef {{ logits: Float32Array, tokens: Uint32Array | null }} Candidates `tokens` is `null` for all tokens.
 */

/**
 * Chooses a token.
 * @param {Float32Array} logits @param {Config} config @param {() => number} uniform A random number in [0, 1).
 */
export function choose(logits, config, uniform) {
  const best = argmax(logits);
  if (!Number.isFinite(logits[best])) {
    throw new GenerationError(
      `no token can be chosen. Expected a finite greatest logit. Received: ${logits[best]}. Check that the settings ` +
        "(suppress_tokens, …) allow a token.",
    );
  }
  if (!config.do_sample) return best;
  const { logits: remaining, tokens } = candidates(logits, config);
  const index = sampleIndex(unnormalized(remaining), uniform());
  return tokens === null ? index : tokens[index];
}

/** Index of the first greatest value, or of the first NaN if there is one. @param {Float32Array} values */
export function argmax(values) {
  let best = 0;
  for (let index = 0; index < values.length; index++) {
    if (Number.isNaN(values[index])) return index;
    if (values[index] > values[best]) best = index;
  }
  return best;
}

/** Applies temperature and cutoffs. @param {Float32Array} logits @param {Config} config @returns {Candidates} */
function candidates(logits, config) {
  /** @type {Candidates} */
  let remaining = { logits, tokens: null };
  if (config.temperature !== 1) remaining = { ...remaining, logits: logits.map((each) => each / Math.fround(config.temperature)) };
  if (config.top_k) remaining = topK(remaining, config.top_k);
  if (config.top_p < 1) remaining = topP(remaining, config.top_p);
  if (config.min_p !== null) remaining = minP(remaining, config.min_p);
  return remaining;
}

/** The candidates whose index fulfils a condition. @param {Candidates} from @param {(index: number) => boolean} condition */
function keep(from, condition) {
  const indices = [];
  for (let index = 0; index < from.logits.length; index++) if (condition(index)) indices.push(index);
  return {
    logits: Float32Array.from(indices, (index) => from.logits[index]),
    tokens: Uint32Array.from(indices, (index) => (from.tokens === null ? index : from.tokens[index])),
  };
}

/** The `k` most probable tokens, including ties. @param {Candidates} from @param {number} k */
function topK(from, k) {
  if (k >= from.logits.length) return from;
  const least = from.logits.slice().sort()[from.logits.length - k];
  return keep(from, (index) => from.logits[index] >= least);
}

/**
 * The nucleus: the smallest set of most probable tokens with total probability `p`; of equally probable tokens, the last come
 * first. Tokens with probabilities below `(1 - p) / V` have less than `1 - p` together, and need not be sorted.
 * @param {Candidates} from @param {number} p
 */
function topP(from, p) {
  const weights = unnormalized(from.logits);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const probable = keep(from, (index) => weights[index] >= ((1 - p) * total) / weights.length);
  const selected = probable.logits.length ? probable : from;
  const selectedWeights = selected === from ? weights : unnormalized(selected.logits);
  const order = Array.from(selected.logits.keys()).sort((a, b) => selected.logits[b] - selected.logits[a] || b - a);
  const nucleus = new Set();
  let mass = 0;
  for (const index of order) {
    nucleus.add(index);
    mass += selectedWeights[index];
    if (mass >= p * total) break;
  }
  return keep(selected, (index) => nucleus.has(index));
}

/** Tokens with at least `p` times the probability of the best one. @param {Candidates} from @param {number} p */
function minP(from, p) {
  const greatest = from.logits[argmax(from.logits)];
  const least = Math.fround(Math.log(p));
  return keep(from, (index) => Math.fround(from.logits[index] - greatest) >= least);
}

/** Unnormalized probabilities, scaled so that the greatest is 1. @param {Float32Array} logits */
function unnormalized(logits) {
  const greatest = logits[argmax(logits)];
  return logits.map((logit) => Math.exp(Math.fround(logit - greatest)));
}

/**
 * Samples an index in proportion to the weights, by inverting the cumulative distribution.
 * @param {Float32Array} weights @param {number} uniform
 */
function sampleIndex(weights, uniform) {
  const target = uniform * weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  let last = 0;
  for (let index = 0; index < weights.length; index++) {
    sum += weights[index];
    if (sum > target) return index;
    if (weights[index] > 0) last = index;
  }
  return last; // reached only because of rounding
}
