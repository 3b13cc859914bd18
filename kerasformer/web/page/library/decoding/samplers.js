/**
 * From logits to a token: the best one, or a draw from the candidates that temperature and cuts leave, in the order of
 * `kerasformer.decoding.samplers`, where the sources are named. Arithmetic is that of float32, as there.
 */
import { GenerationError } from "../errors.js";

/** @typedef {import("./settings.js").Config} Config */

/**
 * Tokens that may still be drawn, in the order of their ids.
 * @typedef {{ logits: Float32Array, tokens: Uint32Array | null }} Candidates `tokens` are all where it is `null`.
 */

/**
 * One token.
 * @param {Float32Array} logits @param {Config} config @param {() => number} uniform A random number in [0, 1).
 */
export function choose(logits, config, uniform) {
  const best = argmax(logits);
  if (!Number.isFinite(logits[best])) {
    throw new GenerationError(
      `no token can be chosen. Expected a finite greatest logit. Received: ${logits[best]}. Check that the settings ` +
        "(suppress_tokens, …) leave a token.",
    );
  }
  if (!config.do_sample) return best;
  const { logits: left, tokens } = candidates(logits, config);
  const place = draw(powers(left), uniform());
  return tokens === null ? place : tokens[place];
}

/** Place of the first greatest; of the first that is no number, if there is one. @param {Float32Array} values */
export function argmax(values) {
  let best = 0;
  for (let place = 0; place < values.length; place++) {
    if (Number.isNaN(values[place])) return place;
    if (values[place] > values[best]) best = place;
  }
  return best;
}

/** @param {Float32Array} logits @param {Config} config @returns {Candidates} */
function candidates(logits, config) {
  /** @type {Candidates} */
  let left = { logits, tokens: null };
  if (config.temperature !== 1) left = { ...left, logits: logits.map((each) => each / Math.fround(config.temperature)) };
  if (config.top_k) left = topK(left, config.top_k);
  if (config.top_p < 1) left = topP(left, config.top_p);
  if (config.min_p !== null) left = minP(left, config.min_p);
  return left;
}

/** Those for which `which` is true, by their places. @param {Candidates} from @param {(place: number) => boolean} which */
function keep(from, which) {
  const places = [];
  for (let place = 0; place < from.logits.length; place++) if (which(place)) places.push(place);
  return {
    logits: Float32Array.from(places, (place) => from.logits[place]),
    tokens: Uint32Array.from(places, (place) => (from.tokens === null ? place : from.tokens[place])),
  };
}

/** The `k` most probable tokens, with ties. @param {Candidates} from @param {number} k */
function topK(from, k) {
  if (k >= from.logits.length) return from;
  const least = from.logits.slice().sort()[from.logits.length - k];
  return keep(from, (place) => from.logits[place] >= least);
}

/**
 * The nucleus: the fewest most probable tokens that together hold probability `p`; of equal ones the last come first.
 * Tokens of which each holds less than `(1 - p) / V` hold less than `1 - p` together, and need not be sorted.
 * @param {Candidates} from @param {number} p
 */
function topP(from, p) {
  const weights = powers(from.logits);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const worth = keep(from, (place) => weights[place] >= ((1 - p) * total) / weights.length);
  const few = worth.logits.length ? worth : from;
  const fewWeights = few === from ? weights : powers(few.logits);
  const order = Array.from(few.logits.keys()).sort((a, b) => few.logits[b] - few.logits[a] || b - a);
  const kept = new Set();
  let mass = 0;
  for (const place of order) {
    kept.add(place);
    mass += fewWeights[place];
    if (mass >= p * total) break;
  }
  return keep(few, (place) => kept.has(place));
}

/** Tokens with at least `p` times the best one's probability. @param {Candidates} from @param {number} p */
function minP(from, p) {
  const greatest = from.logits[argmax(from.logits)];
  const least = Math.fround(Math.log(p));
  return keep(from, (place) => Math.fround(from.logits[place] - greatest) >= least);
}

/** Probabilities times an unknown factor: the best one is 1. @param {Float32Array} logits */
function powers(logits) {
  const greatest = logits[argmax(logits)];
  return logits.map((logit) => Math.exp(Math.fround(logit - greatest)));
}

/**
 * A place drawn in proportion to the weights: the inverse of the cumulative distribution, in the order of the ids.
 * @param {Float32Array} weights @param {number} uniform
 */
function draw(weights, uniform) {
  const target = uniform * weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  let last = 0;
  for (let place = 0; place < weights.length; place++) {
    sum += weights[place];
    if (sum > target) return place;
    if (weights[place] > 0) last = place;
  }
  return last; // only rounding leads here
}
