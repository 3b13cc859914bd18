/** Feature extraction: vectors of tokens or texts. */
import { InputError } from "../errors.js";
import { LENGTH, bestLocations, chunksOf, combined, forwardAll } from "./chunks.js";
import { checkText, rows, withDefaults } from "./shared.js";

/** @type {(string | null)[]} */
const POOLINGS = [null, "mean", "cls"];

/** Hidden states of the last layer, for each token or pooled into one vector. @type {import("./shared.js").Task} */
export async function featureExtraction(bundle, inputs, options, controls) {
  const settings = withDefaults(options, { pooling: /** @type {string | null} */ (null), normalize: false, ...LENGTH });
  const { pooling, normalize } = settings;
  if (!POOLINGS.includes(pooling)) throw new InputError(`pooling must be null, "mean" or "cls". Received: ${pooling}`);
  const { chunks, figures } = chunksOf(bundle, checkText(inputs), settings);
  const outputs = await forwardAll(bundle, chunks, controls);
  const states = outputs.map(({ last_hidden_state: values }, chunk) => {
    return rows(values, chunks[chunk].length).map((row) => Array.from(row));
  });
  const scaled = normalize ? unit : (/** @type {number[]} */ row) => row;
  if (pooling === null) return { result: bestLocations(chunks).map(({ chunk, index }) => scaled(states[chunk][index])), figures };
  const vectors = states.map((each) => (pooling === "cls" ? each[0] : mean(each)));
  return { result: scaled(combined(vectors, chunks)), figures };
}

/** The mean of several vectors. @param {number[][]} vectors */
function mean(vectors) {
  return vectors[0].map((_, column) => vectors.reduce((sum, row) => sum + row[column], 0) / vectors.length);
}

/** Scales a vector to length 1. @param {number[]} row */
function unit(row) {
  const length = Math.max(Math.sqrt(row.reduce((sum, value) => sum + value * value, 0)), 1e-12);
  return row.map((value) => value / length);
}
