/**
 * Long texts: truncation, splitting into overlapping chunks, and the combination of the chunks' results, as in
 * `kerasformer.pipelines.chunks`.
 */
import { pause } from "../decoding/pause.js";
import { CapacityError, InputError, throwIfAborted } from "../errors.js";
import { forward } from "./shared.js";

/** @typedef {import("./shared.js").Bundle} Bundle */
/** @typedef {import("./shared.js").Token} Token */
/** @typedef {{ truncation: boolean, chunk_length: number | null, stride: number | null }} Length */
/** @typedef {{ chunks: Token[][], figures: Record<string, number> }} Chunks The chunks of a text, and their numbers. */

/** Defaults of the options for texts that are longer than the model. @type {Length} */
export const LENGTH = { truncation: false, chunk_length: null, stride: null };

/**
 * The chunks of a text; the start of the text if `truncation` is set.
 * @param {Bundle} bundle @param {string} text @param {Length} length
 * @returns {Chunks}
 */
export function chunksOf({ tokenizer, manifest: { info } }, text, { truncation, chunk_length: size, stride: overlap }) {
  const special = tokenizer.encode("").length;
  const limit = size === null ? info.max_length : integer("chunk_length", size, special + 1, info.max_length);
  const tokens = tokenizer.encode(text);
  if (limit == null) return counted([tokens], tokens);
  if (truncation) return counted(tokenizer.chunks(tokens, limit, "only_first").slice(0, 1), tokens);
  const room = limit - special;
  const stride = overlap === null ? Math.floor(room / 4) : integer("stride", overlap, 0, room - 1);
  return counted(tokenizer.chunks(tokens, limit, "only_first", stride), tokens);
}

/**
 * A text, or a pair of texts, in one piece: truncated to the length of the model if `truncation` is set.
 * @param {Bundle} bundle @param {string} text @param {boolean} truncation @param {string | null} [pair]
 * @returns {Chunks} A single chunk.
 */
export function whole({ tokenizer, manifest: { info } }, text, truncation, pair = null) {
  const tokens = tokenizer.encode(text, pair);
  const limit = info.max_length;
  if (limit == null || tokens.length <= limit) return counted([tokens], tokens);
  if (truncation) return counted(tokenizer.chunks(tokens, limit, "longest_first").slice(0, 1), tokens);
  throw new CapacityError(
    `A text is longer than the model. Expected at most ${limit} tokens. Received: ${tokens.length}. ` +
      "Shorten the text, or set truncation: true",
    { most: limit, received: tokens.length },
  );
}

/**
 * Pairs of one text and each of several others, in chunks: the long text is split, and each of its chunks contains the whole
 * other text. Overlaps are those that fit the longest of the other texts.
 * @param {Bundle} bundle
 * @param {string} long The text that is split.
 * @param {string[]} others
 * @param {Length} length
 * @param {{ isFirst: boolean, cut?: "only_first" | "only_second" | "longest_first" }} form Whether the long text is the first of
 *     each pair, and which text is truncated if `truncation` is set.
 * @returns {Chunks[]} For each of the other texts.
 * @throws {CapacityError} One of the others leaves no space for the long text.
 */
export function chunksOfPairs({ tokenizer, manifest: { info } }, long, others, length, { isFirst, cut }) {
  const strategy = isFirst ? "only_first" : "only_second";
  const lengths = others.map((text) => tokenizer.encode(text, null, false).length);
  const kept = length.truncation ? tokenizer.encode("").length : tokenizer.encode("", "").length + Math.max(0, ...lengths);
  const limit = length.chunk_length === null ? info.max_length : integer("chunk_length", length.chunk_length, kept + 1, info.max_length);
  const pairs = others.map((text) => (isFirst ? tokenizer.encode(long, text) : tokenizer.encode(text, long)));
  if (limit == null) return pairs.map((tokens) => counted([tokens], tokens));
  if (length.truncation) return pairs.map((tokens) => counted(tokenizer.chunks(tokens, limit, cut ?? strategy).slice(0, 1), tokens));
  if (kept >= limit) {
    throw new CapacityError(
      `Special tokens and the other text of a pair leave no space for a text. Expected: fewer than ${limit} tokens. ` +
        `Received: ${kept}. Shorten the other text`,
      { most: limit - 1, received: kept },
    );
  }
  const stride = length.stride === null ? Math.floor((limit - kept) / 4) : integer("stride", length.stride, 0, limit - kept - 1);
  return pairs.map((tokens) => counted(tokenizer.chunks(tokens, limit, strategy, stride), tokens));
}

/**
 * The figures of several texts: the sums of their tokens, and the largest number of chunks.
 * @param {Chunks[]} texts
 */
export function figuresOf(texts) {
  const each = (/** @type {string} */ name) => texts.map(({ figures }) => figures[name]);
  const sum = (/** @type {string} */ name) => each(name).reduce((total, count) => total + count, 0);
  const counts = { prompt_tokens: sum("prompt_tokens"), chunks: Math.max(0, ...each("chunks")), lost_tokens: sum("lost_tokens") };
  return { ...counts, texts: texts.length };
}

/** @param {Token[][]} chunks @param {Token[]} tokens Those of the whole text. @returns {Chunks} */
export function counted(chunks, tokens) {
  const read = new Set(chunks.flat().map(({ position }) => position)).size;
  const sum = chunks.reduce((total, chunk) => total + chunk.length, 0);
  return { chunks, figures: { prompt_tokens: sum, chunks: chunks.length, lost_tokens: tokens.length - read } };
}

/**
 * Runs the model on each chunk.
 * @param {Bundle} bundle @param {Token[][]} chunks @param {import("./shared.js").Controls} controls
 */
export async function forwardAll(bundle, chunks, { signal }) {
  const outputs = [];
  for (const chunk of chunks) {
    if (outputs.length) await pause();
    throwIfAborted(signal);
    outputs.push(await forward(bundle, chunk));
  }
  return outputs;
}

/**
 * The values of a text from those of its chunks: their mean, weighted by numbers of tokens without special tokens, or the
 * greatest ones.
 * @param {number[][]} values @param {Token[][]} chunks @param {string} combine `"mean"` or `"max"`.
 * @param {number} text Which text of a pair was split: 0 or 1.
 */
export function combined(values, chunks, combine = "mean", text = 0) {
  if (values.length === 1) return values[0];
  if (combine === "max") return values[0].map((_, column) => Math.max(...values.map((row) => row[column])));
  const weights = chunks.map((chunk) => Math.max(1, chunk.filter(({ sequence }) => sequence === text).length));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return values[0].map((_, column) => values.reduce((sum, row, index) => sum + weights[index] * row[column], 0) / total);
}

/**
 * For each token of a text, the chunk with the most context around it, and its index there.
 * @param {Token[][]} chunks
 * @returns {{ chunk: number, index: number, token: Token }[]} In the order of the tokens.
 */
export function bestLocations(chunks) {
  const texts = chunks.map((chunk) => chunk.filter(({ sequence }) => sequence >= 0).map(({ position }) => position));
  const [starts, ends] = [texts.map((positions) => positions[0]), texts.map((positions) => positions[positions.length - 1])];
  const [first, last] = [Math.min(...starts), Math.max(...ends)];
  /** @type {Map<number, { chunk: number, index: number, token: Token, margin: number }>} */
  const best = new Map();
  chunks.forEach((tokens, chunk) => tokens.forEach((token, index) => {
    // At the start and the end of the whole text, no context is missing.
    const before = starts[chunk] === first ? Infinity : token.position - starts[chunk];
    const after = ends[chunk] === last ? Infinity : ends[chunk] - token.position;
    const margin = Math.min(before, after);
    const known = best.get(token.position);
    if (!known || margin > known.margin) best.set(token.position, { chunk, index, token, margin });
  }));
  return [...best.values()].sort((a, b) => a.token.position - b.token.position);
}

/** Returns an integer in a range, or throws. @param {string} name @param {any} value @param {number} least @param {number | null} [most] */
export function integer(name, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= (most ?? Infinity)) return value;
  const range = most == null ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new InputError(`${name} must be an integer ${range}. Received: ${value}`);
}

/** Returns one of several values, or throws. @param {string} name @param {any} value @param {string[]} values @returns {string} */
export function oneOf(name, value, values) {
  if (values.includes(value)) return value;
  throw new InputError(`${name} must be one of ${values.join(", ")}. Received: ${value}`);
}
