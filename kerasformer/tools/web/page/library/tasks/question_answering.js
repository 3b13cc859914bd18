/** Extractive question answering: answers with their offsets; long texts are read in overlapping chunks. */
import { InputError } from "../errors.js";
import { counted, forwardAll, integer } from "./chunks.js";
import { checkText, checkTopK, ranked, withDefaults, softmax } from "./shared.js";

/** @typedef {import("./shared.js").Token} Token */

const CHUNK_LENGTH = 384; // tokens of question and context together
const NEVER = -1e4;
const SPANS = 20; // number of candidates in one chunk

/** Returns `{ score, start, end, answer }`, or a list of them. @type {import("./shared.js").Task} */
export async function questionAnswering(bundle, inputs, options, controls) {
  const settings = {
    top_k: 1,
    doc_stride: 128,
    chunk_length: /** @type {number | null} */ (null),
    max_answer_len: 15,
    handle_impossible_answer: false,
  };
  const search = withDefaults(options, settings);
  const topK = checkTopK(search.top_k);
  if (!(search.doc_stride >= 0 && search.max_answer_len >= 1)) {
    throw new InputError(
      "doc_stride must be at least 0 and max_answer_len at least 1. " +
        `Received: doc_stride=${search.doc_stride}, max_answer_len=${search.max_answer_len}`,
    );
  }
  const context = checkText(inputs?.context, "context");
  if (!context) throw new InputError("The context must not be empty. Received: an empty text");
  const { chunks, figures } = cut(bundle, checkText(inputs?.question, "question"), context, search);
  const characters = Array.from(context);
  /** @type {Map<string, { score: number, start: number, end: number, answer: string }>} */
  const candidates = new Map();
  let noneScore = Infinity;
  for (const [chunk, outputs] of (await forwardAll(bundle, chunks, controls)).entries()) {
    const tokens = chunks[chunk];
    // The score of the first token is that of "no answer".
    const allowed = tokens.map(({ sequence }, index) => sequence === 1 || index === 0);
    const [starts, ends] = [outputs.start_logits, outputs.end_logits].map((logits) => {
      return softmax(Array.from(logits, (logit, index) => (allowed[index] ? logit : NEVER)));
    });
    noneScore = Math.min(noneScore, starts[0] * ends[0]);
    for (const [first, last, score] of spans(starts, ends, allowed, search.max_answer_len, Math.max(SPANS, topK))) {
      const [start, end] = trimmed(characters, tokens[first].offsets[0], tokens[last].offsets[1]);
      // The same span from two chunks counts once.
      const before = candidates.get(`${start}:${end}`);
      const answer = characters.slice(start, end).join("");
      candidates.set(`${start}:${end}`, { score: Math.max(score, before?.score ?? 0), start, end, answer });
    }
  }
  const answers = [...candidates.values()];
  if (search.handle_impossible_answer || !answers.length) answers.push({ score: noneScore, start: 0, end: 0, answer: "" });
  answers.sort((a, b) => b.score - a.score);
  return { result: topK === 1 ? answers[0] : answers.slice(0, topK), figures };
}

/** Splits question and context into chunks. @param {import("./shared.js").Bundle} bundle @param {string} question @param {string} context @param {{ doc_stride: number, chunk_length: number | null }} search */
function cut(bundle, question, context, { doc_stride: stride, chunk_length: size }) {
  const { tokenizer } = bundle;
  const longest = bundle.manifest.info.max_length;
  const limit = size === null ? Math.min(CHUNK_LENGTH, longest ?? CHUNK_LENGTH) : integer("chunk_length", size, 1, longest);
  const length = tokenizer.encode(question, null, false).length;
  const room = limit - length - tokenizer.encode("", "").length;
  if (room < 1) {
    throw new InputError(
      `The question leaves no space for the context. Expected at most ${limit} tokens for both together. ` +
        `Received: a question of ${length} tokens. Shorten the question`,
    );
  }
  const tokens = tokenizer.encode(question, context);
  return counted(tokenizer.chunks(tokens, limit, "only_second", Math.min(stride, Math.floor(room / 2))), tokens);
}

/**
 * The most probable spans of one chunk: first token, last token, score.
 * @param {number[]} starts @param {number[]} ends @param {boolean[]} allowed @param {number} longest @param {number} count
 * @returns {[number, number, number][]}
 */
function spans(starts, ends, allowed, longest, count) {
  /** @type {[number, number, number][]} */
  const all = [];
  for (let first = 1; first < starts.length; first++) {
    for (let last = first; last < Math.min(first + longest, ends.length); last++) {
      const score = starts[first] * ends[last];
      if (allowed[first] && allowed[last] && score > 0) all.push([first, last, score]);
    }
  }
  const scores = all.map(([, , score]) => score);
  return ranked(scores, count).map((index) => all[index]);
}

/** The span without whitespace at its ends. @param {string[]} characters @param {number} start @param {number} end @returns {[number, number]} */
function trimmed(characters, start, end) {
  const isSpace = (/** @type {number} */ index) => /\s/u.test(characters[index]);
  const stop = start;
  let [from, to] = [start, end];
  while (from < to && isSpace(from)) from++;
  while (to > stop && isSpace(to - 1)) to--;
  return [from, to];
}
