/**
 * The normalizers of a `tokenizer.json`, applied to text with offsets, as the Rust library does.
 */
import { TokenizerError } from "../errors.js";
import { Aligned } from "./aligned.js";
import { asInRust, isChinese, isControl, isJoining, isMark, isNonSpacingMark, isSpace, isUnnormalized } from "./characters.js";
import { Charsmap } from "./charsmap.js";
import { escaped } from "./steps.js";

/** @typedef {(text: Aligned) => Aligned} Normalize */

/**
 * Creates a normalizer.
 * @param {any} config A normalizer of `tokenizer.json`, or `null`.
 * @returns {Normalize}
 */
export function normalizerOf(config) {
  if (!config) return (text) => text;
  switch (config.type) {
    case "Sequence": {
      const steps = config.normalizers.map(normalizerOf);
      return (text) => steps.reduce((/** @type {Aligned} */ left, /** @type {Normalize} */ step) => step(left), text);
    }
    case "BertNormalizer":
      return bertNormalizer(config);
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return (text) => normalForm(text, config.type);
    case "Lowercase":
      return lowercased;
    case "StripAccents":
      return (text) => text.filter((character) => !isMark(character));
    case "Precompiled": {
      const charsmap = new Charsmap(config.precompiled_charsmap);
      return (text) => text.changed(partChanges(charsmap.parts(text.text)));
    }
    case "Replace": {
      const pattern = asInRust(new RegExp(config.pattern.Regex ?? escaped(config.pattern.String), "gu"));
      return (text) => text.replaced(matches(text.text, pattern, config.content));
    }
    case "Strip":
      return (text) => stripped(text, config.strip_left ?? config.left, config.strip_right ?? config.right);
    case "Prepend":
      return (text) => (text.length ? prepended(text, config.prepend) : text);
  }
  throw new TokenizerError(`unsupported normalizer in tokenizer.json. Received: ${config.type}`);
}

/** The changes of parts of a text. The last one has the difference of the numbers, as in the Rust library. @param {Iterable<[part: string, replacement: string]>} parts */
function partChanges(parts) {
  /** @type {[string, number][]} */
  const changes = [];
  for (const [part, replacement] of parts) {
    const characters = Array.from(replacement);
    const more = characters.length - Array.from(part).length;
    characters.forEach((character, index) => changes.push([character, index >= characters.length - Math.max(more, 0) ? 1 : 0]));
    if (more < 0 && changes.length) changes[changes.length - 1][1] += more;
  }
  return changes;
}

/** The rules of BERT: control characters, Chinese characters as words, accents, upper case. @param {any} config @returns {Normalize} */
function bertNormalizer(config) {
  const lower = config.lowercase ?? true;
  const strips = config.strip_accents ?? lower;
  return (given) => {
    let text = given;
    if (config.clean_text ?? true) {
      text = text.filter((character) => !isControl(character));
      text = new Aligned(text.characters.map((character) => (isSpace(character) ? " " : character)), text.origins);
    }
    if (config.handle_chinese_chars ?? true) text = separated(text);
    if (strips) text = normalForm(text, "NFD").filter((character) => !isNonSpacingMark(character));
    return lower ? lowercased(text) : text;
  };
}

/** Spaces around Chinese characters, with their offsets. @param {Aligned} text */
function separated(text) {
  if (!text.characters.some(isChinese)) return text;
  const parts = text.characters.map((character) => (isChinese(character) ? [" ", character, " "] : [character]));
  return new Aligned(parts.flat(), parts.flatMap((part, index) => part.map(() => text.origins[index])));
}

/** @param {Aligned} text */
function lowercased(text) {
  return text.changed(text.characters.flatMap((character) => changesOf(Array.from(character.toLowerCase()))));
}

/** The changes of a character's parts: all but the first are new characters. @param {string[]} parts @returns {[string, number][]} */
function changesOf(parts) {
  return parts.map((part, index) => [part, index ? 1 : 0]);
}

/** A normal form of Unicode. @param {Aligned} text @param {string} form */
function normalForm(text, form) {
  const whole = text.text;
  if (whole.normalize(form) === whole) return text;
  /** @type {[string, number][]} */
  const changes = [];
  let start = 0;
  for (let end = 1; end <= text.length; end++) {
    if (end < text.length && isJoining(text.characters[end]) && !isUnnormalized(text.characters[end - 1])) continue;
    changes.push(...clusterChanges(text.characters.slice(start, end), form));
    start = end;
  }
  return text.changed(changes);
}

/** The changes of a character and those that may be joined to it. @param {string[]} characters @param {string} form @returns {[string, number][]} */
function clusterChanges(characters, form) {
  if (isUnnormalized(characters[0])) return changesOf(characters);
  const decomposed = (/** @type {string} */ character) => Array.from(character.normalize(form.startsWith("NFK") ? "NFKD" : "NFD"));
  const parts = characters.flatMap((character) => changesOf(decomposed(character)));
  const used = parts.map(() => false);
  return Array.from(characters.join("").normalize(form), (character) => {
    let change = 1;
    // A joined character replaces all of its parts. Equal parts keep their order.
    for (const part of decomposed(character)) {
      const source = parts.findIndex(([each], index) => !used[index] && each === part);
      used[source] = true;
      change += parts[source][1] - 1;
    }
    return /** @type {[string, number]} */ ([character, change]);
  });
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
  while (left && start < end && isSpace(text.characters[start])) start++;
  while (right && start < end && isSpace(text.characters[end - 1])) end--;
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
