/**
 * The normalizers of a `tokenizer.json`, applied character by character to text with offsets, as the Rust library does. The
 * JavaScript library normalizes each character.
 */
import { TokenizerError } from "../errors.js";
import { Aligned } from "./aligned.js";
import { Charsmap } from "./charsmap.js";
import { SPACE, escaped, withSpaces } from "./steps.js";

/** @typedef {(text: Aligned) => Aligned} Normalize */

/** Classes of the library that change each character, with its marks, independently. @type {Record<string, string>} */
const BY_CHARACTER = {
  BertNormalizer: "BertNormalizer",
  NFC: "NFCNormalizer",
  NFD: "NFDNormalizer",
  NFKC: "NFKCNormalizer",
  NFKD: "NFKDNormalizer",
  Lowercase: "LowercaseNormalizer",
  StripAccents: "StripAccentsNormalizer",
};

/** A character with its marks, or a decomposed Korean syllable. */
const CLUSTER = /[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]+|\P{M}?\p{M}+|\P{M}/gu;

/**
 * Creates a normalizer.
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
      const pattern = withSpaces(new RegExp(config.pattern.Regex ?? escaped(config.pattern.String), "gu"));
      return (text) => text.replaced(matches(text.text, pattern, config.content));
    }
    case "Strip":
      return (text) => stripped(text, config.strip_left ?? config.left, config.strip_right ?? config.right);
    case "Prepend":
      return (text) => (text.length ? prepended(text, config.prepend) : text);
  }
  if (!(config.type in BY_CHARACTER)) {
    throw new TokenizerError(`unsupported normalizer in tokenizer.json. Received: ${config.type}`);
  }
  const normalize = new library[BY_CHARACTER[config.type]](config);
  return (text) => text.replaced(byCharacter(text.text, normalize));
}

/** Normalizes each character separately, or together with its marks if the result differs. @param {string} text @param {(text: string) => string} normalize */
function* byCharacter(text, normalize) {
  for (const [cluster] of text.matchAll(CLUSTER)) {
    const characters = Array.from(cluster);
    /** @type {[string, string][]} */
    const single = characters.map((character) => [character, normalize(character)]);
    const whole = normalize(cluster);
    if (single.map(([, replacement]) => replacement).join("") === whole) yield* single;
    else yield /** @type {[string, string]} */ ([cluster, whole]);
  }
}

/** Replaces the matches of a pattern. @param {string} text @param {RegExp} pattern @param {string} content */
function* matches(text, pattern, content) {
  let end = 0;
  for (const { 0: match, index } of text.matchAll(pattern)) {
    for (const character of text.slice(end, index)) yield /** @type {[string, string]} */ ([character, character]);
    // The replacement of several characters gets the offsets of the last one.
    const characters = Array.from(match);
    for (const character of characters.slice(0, -1)) yield /** @type {[string, string]} */ ([character, ""]);
    yield /** @type {[string, string]} */ ([characters[characters.length - 1], content]);
    end = index + match.length;
  }
  for (const character of text.slice(end)) yield /** @type {[string, string]} */ ([character, character]);
}

/** Removes whitespace at the ends. @param {Aligned} text @param {boolean} left @param {boolean} right */
function stripped(text, left, right) {
  let [start, end] = [0, text.length];
  while (left && start < end && SPACE.test(text.characters[start])) start++;
  while (right && start < end && SPACE.test(text.characters[end - 1])) end--;
  return text.slice(start, end);
}

/** Adds a prefix. @param {Aligned} text @param {string} before */
function prepended(text, before) {
  const characters = Array.from(before);
  return new Aligned(
    [...characters, ...text.characters],
    [...characters.map(() => /** @type {[number, number]} */ ([...text.origins[0]])), ...text.origins],
  );
}
