/**
 * Zero-shot token classification: entities of types that are named in the call, with a model of GLiNER, as in
 * `kerasformer.pipelines.span_extraction`. The model reads the names of the types, each after a mark, a separator, and the words of the
 * text. It scores the spans of up to `max_width` words for each type.
 */
import { CapacityError, InputError, throwIfAborted } from "../errors.js";
import { checkText, checkTexts, forward, ranked, sigmoid, withDefaults } from "./shared.js";

/** @typedef {import("./shared.js").Token} Token */
/** @typedef {{ text: string, start: number, end: number }} Word A word of a text, with its offsets in characters. */
/** @typedef {{ first: number, last: number, label: number, score: number }} Span Its first and last word, its type and probability. */
/** @typedef {{ max_width: number, max_words: number, label_token: string, separator: string, max_labels: number | null }} SpanInfo */

const LETTERS = "[\\p{L}\\p{N}_]+";
/** A word, perhaps with hyphens, or another character that is no space, as Python's `re` reads `\w+(?:[-_]\w+)*|\S`. */
const WORD = new RegExp(`${LETTERS}(?:-${LETTERS})*|[^\\p{White_Space}\\x1C-\\x1F]`, "gu");

/** Returns `[{ entity_group, score, word, start, end }]` in the order of the text. @type {import("./shared.js").Task} */
export async function zeroShotTokenClassification(bundle, inputs, options, controls) {
  const settings = withDefaults(options, {
    labels: /** @type {string | string[]} */ (""),
    threshold: 0.5,
    flat_ner: true,
    multi_label: false,
    truncation: false,
  });
  const { tokenizer, manifest: { info } } = bundle;
  const spans = /** @type {SpanInfo} */ (info.spans);
  const labels = labelsOf(settings.labels, spans);
  const threshold = probability("threshold", settings.threshold);
  const text = checkText(inputs);
  const words = wordsOf(tokenizer, text);
  if (!words.length) return { result: [], figures: { prompt_tokens: 0, chunks: 0, lost_tokens: 0 } };
  const read = (/** @type {Word[]} */ part) => {
    const prompt = labels.flatMap((label) => [spans.label_token, label]);
    return tokenizer.encode([...prompt, spans.separator, ...part.map((word) => word.text)]);
  };
  const whole = read(words);
  const count = fitting(whole, labels, info.max_length, spans.max_words);
  const kept = words.slice(0, count);
  if (kept.length < words.length && !settings.truncation) {
    throw new CapacityError(
      `A text is too long. Expected: at most ${spans.max_words} words and, with the labels, ${info.max_length ?? "any number of"} tokens. ` +
        `Received: ${words.length} words, of which ${count} can be read with these labels. Split the text, or set truncation: true to ` +
        "omit its last words",
      { most: info.max_length ?? Infinity, received: whole.length },
    );
  }
  const tokens = kept.length < words.length ? read(kept) : whole;
  throwIfAborted(controls.signal);
  const outputs = await forward(bundle, tokens, slotsOf(tokens, labels.length, kept.length));
  const found = candidates(outputs.span_logits, kept.length, labels.length, threshold);
  const characters = Array.from(text);
  const result = withoutConflicts(found, settings.flat_ner, settings.multi_label).map(({ first, last, label, score }) => {
    const [{ start }, { end }] = [kept[first], kept[last]];
    return { entity_group: labels[label], score, word: characters.slice(start, end).join(""), start, end };
  });
  return { result, figures: { prompt_tokens: tokens.length, chunks: 1, lost_tokens: whole.length - tokens.length } };
}

/** The names of the types. @param {any} value A list, or names separated by commas. @param {SpanInfo} spans @returns {string[]} */
function labelsOf(value, { label_token: mark, separator, max_labels: most }) {
  const labels = typeof value === "string" ? value.split(",").map((name) => name.trim()) : checkTexts(value, "labels");
  if (!labels.length || labels.some((label) => !label.trim())) {
    throw new InputError(
      `labels must be names of types, such as ["person", "city"], none of them empty. Received: ${JSON.stringify(value)}`,
    );
  }
  const double = labels.filter((label, index) => labels.indexOf(label) < index);
  if (double.length) throw new InputError(`labels must differ. Received several times: ${[...new Set(double)].sort().join(", ")}`);
  const marked = labels.find((label) => label.includes(mark) || label.includes(separator));
  if (marked !== undefined) throw new InputError(`labels must not contain ${mark} or ${separator}. Received: ${JSON.stringify(marked)}`);
  if (most == null || labels.length <= most) return labels;
  throw new CapacityError(
    `The bundle reads at most ${most} labels in one call. Received: ${labels.length}. Call it several times, or export the model with a ` +
      "larger num_labels",
    { most, received: labels.length, option: "labels" },
  );
}

/** Returns a number from 0 to 1, or throws. @param {string} name @param {any} value @returns {number} */
function probability(name, value) {
  if (typeof value === "number" && value >= 0 && value <= 1) return value;
  throw new InputError(`${name} must be a number from 0 to 1. Received: ${JSON.stringify(value)}`);
}

/**
 * The words of a text, without those that the tokenizer removes, such as control characters.
 * @param {import("../tokenization/tokenizer.js").Tokenizer} tokenizer @param {string} text @returns {Word[]}
 */
function wordsOf(tokenizer, text) {
  const length = (/** @type {string} */ part) => Array.from(part).length;
  let [end, unit] = [0, 0]; // in characters, and in the units of JavaScript's texts
  const words = Array.from(text.matchAll(WORD), ({ 0: word, index }) => {
    const start = end + length(text.slice(unit, index));
    [end, unit] = [start + length(word), index + word.length];
    return { text: word, start, end };
  });
  const present = new Set(tokenizer.encode(words.map((word) => word.text), null, false).map(({ word }) => word));
  return words.filter((_, index) => present.has(index));
}

/** The index of the first word of a text after so many labels, their marks and the separator. @param {number} labels */
const firstWord = (labels) => 2 * labels + 1;

/**
 * The number of words of a text that the model can read: a word counts if all of its tokens fit.
 * @param {Token[]} tokens Of the labels and the text. @param {string[]} labels @param {number | null} limit @param {number} most
 */
function fitting(tokens, labels, limit, most) {
  const last = tokens.findLastIndex(({ word }) => word >= 0);
  const space = limit == null ? last + 1 : limit - (tokens.length - 1 - last); // without special tokens at the end
  const cut = space <= last ? tokens[space].word : tokens[last].word + 1;
  const count = Math.min(cut - firstWord(labels.length), most);
  if (count >= 1) return count;
  const needed = tokens.filter(({ word }) => word >= 0 && word < firstWord(labels.length)).length;
  throw new CapacityError(
    `The labels leave no space for a text. Expected: fewer than ${limit} tokens with special tokens. Received: ${needed} tokens of ` +
      `${labels.length} labels. Pass fewer labels, or shorter ones`,
    { most: /** @type {number} */ (limit), received: needed, option: "labels" },
  );
}

/**
 * The slots of the first tokens of words, and of the marks of labels.
 * @param {Token[]} tokens @param {number} labels @param {number} words
 */
function slotsOf(tokens, labels, words) {
  /** @type {Map<number, number>} */
  const slots = new Map();
  tokens.forEach(({ word }, slot) => {
    if (!slots.has(word)) slots.set(word, slot);
  });
  const at = (/** @type {number} */ word) => slots.get(word) ?? -1;
  return {
    word_slots: Array.from({ length: words }, (_, index) => at(firstWord(labels) + index)),
    label_slots: Array.from({ length: labels }, (_, index) => at(2 * index)),
  };
}

/**
 * The spans whose probability exceeds a threshold, the most probable first.
 * @param {Float32Array} logits Of the spans of `k + 1` words from each word, for each label: `(W, K, C)`.
 * @param {number} words @param {number} labels @param {number} threshold @returns {Span[]}
 */
function candidates(logits, words, labels, threshold) {
  const widths = logits.length / words / labels;
  // As in Python, probabilities are float32, in which those of very certain spans are equal.
  const found = sigmoid(logits).map(Math.fround).flatMap((score, index) => {
    const label = index % labels;
    const width = Math.floor(index / labels) % widths;
    const first = Math.floor(index / labels / widths);
    return score > Math.fround(threshold) && first + width < words ? [{ first, last: first + width, label, score }] : [];
  });
  return ranked(found.map(({ score }) => score)).map((index) => found[index]);
}

/**
 * The spans that do not conflict with a more probable one, in the order of the text.
 * @param {Span[]} spans The most probable first.
 * @param {boolean} flat Whether spans that overlap conflict even if one of them lies within the other.
 * @param {boolean} several Whether a span may have several labels.
 */
function withoutConflicts(spans, flat, several) {
  /** @type {Span[]} */
  const chosen = [];
  /** @type {Map<string, Span>} */
  const known = new Map();
  for (const span of spans) {
    const { first, last } = span;
    const place = `${first} ${last}`;
    const conflicts = (/** @type {Span} */ other) => {
      const overlaps = other.first <= last && first <= other.last;
      const within = (other.first <= first && last <= other.last) || (first <= other.first && other.last <= last);
      return overlaps && (flat || !within);
    };
    if (known.has(place) ? !several : [...known.values()].some(conflicts)) continue;
    known.set(place, span);
    chosen.push(span);
  }
  return chosen.sort((a, b) => a.first - b.first);
}
