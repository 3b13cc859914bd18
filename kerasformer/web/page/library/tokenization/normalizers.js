/**
 * The normalizers of a `tokenizer.json`, applied to text that keeps its offsets, letter by letter as the Rust library
 * does it. What they do to a letter is the JavaScript library's work.
 */
import { TokenizerError } from "../errors.js";
import { Aligned } from "./aligned.js";
import { Charsmap } from "./charsmap.js";

/** @typedef {(text: Aligned) => Aligned} Normalize */

/** Classes of the library that change each letter, with its marks, by itself. @type {Record<string, string>} */
const BY_LETTER = {
  BertNormalizer: "BertNormalizer",
  NFC: "NFCNormalizer",
  NFD: "NFDNormalizer",
  NFKC: "NFKCNormalizer",
  NFKD: "NFKDNormalizer",
  Lowercase: "LowercaseNormalizer",
  StripAccents: "StripAccentsNormalizer",
};

/** A letter with its marks, or a Korean syllable in parts. */
const CLUSTER = /[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]+|\P{M}?\p{M}+|\P{M}/gu;

/**
 * @param {any} config A normalizer of `tokenizer.json`, or `null`.
 * @param {any} library The module `@huggingface/tokenizers`.
 * @returns {Normalize}
 */
export function normalizerOf(config, library) {
  if (!config) return (text) => text;
  switch (config.type) {
    case "Sequence": {
      const steps = config.normalizers.map((/** @type {any} */ each) => normalizerOf(each, library));
      return (text) => steps.reduce((/** @type {Aligned} */ left, /** @type {Normalize} */ step) => step(left), text);
    }
    case "Precompiled": {
      const charsmap = new Charsmap(config.precompiled_charsmap);
      return (text) => text.replaced(charsmap.parts(text.text));
    }
    case "Replace": {
      const pattern = new RegExp(config.pattern.Regex ?? escaped(config.pattern.String), "gu");
      return (text) => text.replaced(matches(text.text, pattern, config.content));
    }
    case "Strip":
      return (text) => stripped(text, config.strip_left ?? config.left, config.strip_right ?? config.right);
    case "Prepend":
      return (text) => (text.length ? prepended(text, config.prepend) : text);
  }
  if (!(config.type in BY_LETTER)) {
    throw new TokenizerError(`the tokenizer has a normalizer that is not known here. Received: ${config.type}`);
  }
  const normalize = new library[BY_LETTER[config.type]](config);
  return (text) => text.replaced(byLetter(text.text, normalize));
}

/** Each letter by itself, or with its marks where that is not the same. @param {string} text @param {(text: string) => string} normalize */
function* byLetter(text, normalize) {
  for (const [cluster] of text.matchAll(CLUSTER)) {
    const letters = Array.from(cluster);
    /** @type {[string, string][]} */
    const single = letters.map((letter) => [letter, normalize(letter)]);
    const whole = normalize(cluster);
    if (single.map(([, replacement]) => replacement).join("") === whole) yield* single;
    else yield /** @type {[string, string]} */ ([cluster, whole]);
  }
}

/** @param {string} text @param {RegExp} pattern @param {string} content */
function* matches(text, pattern, content) {
  let place = 0;
  for (const { 0: found, index } of text.matchAll(pattern)) {
    for (const letter of text.slice(place, index)) yield /** @type {[string, string]} */ ([letter, letter]);
    // What takes the place of several letters stands for the last of them.
    const letters = Array.from(found);
    for (const letter of letters.slice(0, -1)) yield /** @type {[string, string]} */ ([letter, ""]);
    yield /** @type {[string, string]} */ ([letters[letters.length - 1], content]);
    place = index + found.length;
  }
  for (const letter of text.slice(place)) yield /** @type {[string, string]} */ ([letter, letter]);
}

/** @param {Aligned} text @param {boolean} left @param {boolean} right */
function stripped(text, left, right) {
  let [start, end] = [0, text.length];
  while (left && start < end && /\s/u.test(text.letters[start])) start++;
  while (right && start < end && /\s/u.test(text.letters[end - 1])) end--;
  return text.slice(start, end);
}

/** @param {Aligned} text @param {string} before */
function prepended(text, before) {
  const letters = Array.from(before);
  return new Aligned(
    [...letters, ...text.letters],
    [...letters.map(() => /** @type {[number, number]} */ ([...text.origins[0]])), ...text.origins],
  );
}

/** A pattern that matches a text itself. @param {string} text */
export function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&").replace(/\\-/g, "-");
}
