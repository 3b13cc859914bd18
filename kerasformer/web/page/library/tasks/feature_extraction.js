/** Feature extraction: vectors of tokens or texts. */
import { InputError } from "../errors.js";
import { checkText, encoded, forward, rows, withDefaults } from "./shared.js";

/** @type {(string | null)[]} */
const POOLINGS = [null, "mean", "cls"];

/** Hidden states of the last layer, for each token or pooled into one vector. @type {import("./shared.js").Task} */
export async function featureExtraction(bundle, inputs, options) {
  const settings = { pooling: null, normalize: false, truncation: false };
  const { pooling, normalize, truncation } = withDefaults(options, settings);
  if (!POOLINGS.includes(pooling)) throw new InputError(`pooling must be null, "mean" or "cls". Received: ${pooling}`);
  const tokens = encoded(bundle, checkText(inputs), truncation);
  const { last_hidden_state: values } = await forward(bundle, tokens);
  const pooled = pooledRows(
    rows(values, tokens.length).map((row) => Array.from(row)),
    pooling,
  );
  const scaled = normalize ? pooled.map(unit) : pooled;
  return { result: pooling === null ? scaled : scaled[0], figures: { prompt_tokens: tokens.length } };
}

/** @param {number[][]} states @param {string | null} pooling */
function pooledRows(states, pooling) {
  if (pooling === null) return states;
  if (pooling === "cls") return states.slice(0, 1);
  return [states[0].map((_, column) => states.reduce((sum, row) => sum + row[column], 0) / states.length)];
}

/** Scales a vector to length 1. @param {number[]} row */
function unit(row) {
  const length = Math.max(Math.sqrt(row.reduce((sum, value) => sum + value * value, 0)), 1e-12);
  return row.map((value) => value / length);
}
