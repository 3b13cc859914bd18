/** Embeddings of texts and their similarity; pooling, projections and normalization are part of the model. */
import { InputError } from "../errors.js";
import { LENGTH, chunksOf, combined, figuresOf, forwardAll, integer } from "./chunks.js";
import { checkText, checkTexts, rankedDocuments, unit, withDefaults } from "./shared.js";

/** @typedef {import("./shared.js").Bundle} Bundle */
/** @typedef {import("./chunks.js").Chunks} Chunks */

const ENCODE = {
  prompt_name: /** @type {string | null} */ (null),
  prompt: /** @type {string | null} */ (null),
  truncate_dim: /** @type {number | null} */ (null),
  normalize: /** @type {boolean | null} */ (null),
  ...LENGTH,
};
const RANK = { ...ENCODE, top_k: /** @type {number | null} */ (null), return_documents: false };
const QUERY = ["query"];
const DOCUMENT = ["document", "passage", "corpus"];

/** @typedef {typeof ENCODE} Settings */
/** @typedef {{ vectors: number[][], parts: Chunks[] }} Encoded The embeddings of texts, and their chunks. */

/**
 * The embedding of a text, and those of a list of texts; for `{ query, documents }`, documents in the order of their similarity to
 * the query, `[{ corpus_id, score }]`; for `{ some, others }`, the similarities of two lists of texts.
 * @type {import("./shared.js").Task}
 */
export async function sentenceSimilarity(bundle, inputs, options, controls) {
  if (inputs?.query !== undefined) return rank(bundle, inputs, options, controls);
  const settings = withDefaults(options, ENCODE);
  const encode = (/** @type {string[]} */ texts) => encoded(bundle, texts, promptOf(bundle, settings), settings, controls);
  const isList = Array.isArray(inputs);
  if (isList || inputs?.some === undefined) {
    const { vectors, parts } = await encode(isList ? checkTexts(inputs) : [checkText(inputs)]);
    return { result: isList ? vectors : vectors[0], figures: figuresOf(parts) };
  }
  const [rows, columns] = [await encode(checkTexts(inputs.some)), await encode(checkTexts(inputs.others))];
  const result = rows.vectors.map((row) => columns.vectors.map((column) => similarity(bundle, row, column)));
  return { result, figures: figuresOf([...rows.parts, ...columns.parts]) };
}

/** @type {import("./shared.js").Task} */
async function rank(bundle, { query, documents }, options, controls) {
  const settings = withDefaults(options, RANK);
  const texts = checkTexts(documents, "documents");
  const [question, found] = [
    await encoded(bundle, [checkText(query, "query")], promptOf(bundle, settings, QUERY), settings, controls),
    await encoded(bundle, texts, promptOf(bundle, settings, DOCUMENT), settings, controls),
  ];
  const scores = found.vectors.map((vector) => similarity(bundle, question.vectors[0], vector));
  return { result: rankedDocuments(scores, texts, settings), figures: figuresOf([...question.parts, ...found.parts]) };
}

/** @param {Bundle} bundle @param {string[]} texts @param {string} prompt @param {Settings} settings @param {import("./shared.js").Controls} controls @returns {Promise<Encoded>} */
async function encoded(bundle, texts, prompt, settings, controls) {
  const { dimension, normalized, truncate_dim: fewer } = bundle.manifest.info.embedding;
  const size = settings.truncate_dim === null ? (fewer ?? dimension) : integer("truncate_dim", settings.truncate_dim, 1, dimension);
  const parts = texts.map((text) => chunksOf(bundle, prompt + text, settings));
  const vectors = [];
  for (const { chunks } of parts) {
    const outputs = await forwardAll(bundle, chunks, controls);
    const whole = combined(outputs.map(({ sentence_embedding: values }) => Array.from(values)), chunks).slice(0, size);
    vectors.push(settings.normalize ?? normalized ? unit(whole) : whole);
  }
  return { vectors, parts };
}

/**
 * The text to put before inputs: the requested prompt; else the first prompt of some names; else the default prompt.
 * @param {Bundle} bundle @param {Settings} settings @param {string[] | null} [names]
 */
function promptOf(bundle, { prompt, prompt_name: name }, names = null) {
  const { prompts, default_prompt: usual } = bundle.manifest.info.embedding;
  if (name !== null && prompt !== null) throw new InputError("Only one of prompt_name and prompt can be set. Received: both");
  if (prompt !== null) return checkText(prompt, "prompt");
  if (name === null) {
    const known = names?.find((each) => each in prompts);
    if (names) return known === undefined ? "" : prompts[known];
    return usual == null ? "" : prompts[usual];
  }
  if (name in prompts) return prompts[name];
  const known = Object.keys(prompts).join(", ") || "none; set prompt to the text";
  throw new InputError(`The model has no prompt of this name. Expected: ${known}. Received: ${name}`);
}

/** The similarity of two embeddings, larger for closer ones. @param {Bundle} bundle @param {number[]} one @param {number[]} other */
function similarity(bundle, one, other) {
  const kind = bundle.manifest.info.embedding.similarity;
  if (kind === "cosine") return dot(unit(one), unit(other));
  if (kind === "dot") return dot(one, other);
  const differences = one.map((value, index) => value - other[index]);
  if (kind === "manhattan") return -differences.reduce((sum, value) => sum + Math.abs(value), 0);
  return -Math.sqrt(dot(differences, differences));
}

/** @param {number[]} one @param {number[]} other */
function dot(one, other) {
  return one.reduce((sum, value, index) => sum + value * other[index], 0);
}
