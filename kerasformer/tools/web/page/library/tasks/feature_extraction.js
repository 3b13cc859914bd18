/** Feature extraction: vectors of tokens or texts. */
import { InputError } from "../errors.js";
import { LENGTH, bestLocations, chunksOf, combined, forwardAll } from "./chunks.js";
import { checkText, rows, unit, withDefaults } from "./shared.js";

/** @type {(string | null)[]} */
const POOLINGS = [null, "mean", "cls"];

/** Hidden states of the last layer, for each token or pooled into one vector; pooled in the graph of some bundles. @type {import("./shared.js").Task} */
export async function featureExtraction(bundle, inputs, options, controls) {
  const settings = withDefaults(options, { pooling: /** @type {string | null} */ (null), normalize: false, ...LENGTH });
  const { pooling, normalize } = settings;
  if (!POOLINGS.includes(pooling)) throw new InputError(`pooling must be null, "mean" or "cls". Received: ${pooling}`);
  const { chunks, figures } = chunksOf(bundle, checkText(inputs), settings);
  const outputs = await forwardAll(bundle, chunks, controls);
  const scaled = normalize ? unit : (/** @type {number[]} */ row) => row;
  if (outputs[0].sentence_embedding) {
    if (pooling === "cls") {
      throw new InputError(`This bundle computes the mean of the token vectors. Expected: "mean" or null as pooling. Received: ${pooling}`);
    }
    return { result: scaled(combined(outputs.map((each) => Array.from(each.sentence_embedding)), chunks)), figures };
  }
  const states = outputs.map(({ last_hidden_state: values }, chunk) => {
    return rows(values, chunks[chunk].length).map((row) => Array.from(row));
  });
  if (pooling === null) return { result: bestLocations(chunks).map(({ chunk, index }) => scaled(states[chunk][index])), figures };
  const vectors = states.map((each) => (each.length === 0 ? zeros(bundle) : pooling === "cls" ? each[0] : mean(each)));
  return { result: scaled(combined(vectors, chunks)), figures };
}

/** The vector of a text without tokens, which a tokenizer that adds no special tokens returns. @param {import("./shared.js").Bundle} bundle */
function zeros({ manifest: { signatures } }) {
  const [{ outputs }] = Object.values(signatures);
  return new Array(Number(outputs.last_hidden_state.shape[2])).fill(0);
}

/** The mean of several vectors. @param {number[][]} vectors */
function mean(vectors) {
  return vectors[0].map((_, column) => vectors.reduce((sum, row) => sum + row[column], 0) / vectors.length);
}
