/**
 * Steps of `@huggingface/tokenizers`, changed so that they split and decode as those of the Rust library do.
 */

import { EACH_DIGIT, WORDS, asInRust } from "./characters.js";

const BYTE = /^<0x([0-9A-Fa-f]{2})>$/;

/**
 * Changes a pre-tokenizer: the spaces, words and punctuation of its patterns are those of Rust, and `Split` has all behaviors.
 * @param {any} step A step of the library. @param {any} config Its part of `tokenizer.json`.
 */
export function splitAsInRust(step, config) {
  if (!step) return;
  (step.tokenizers ?? []).forEach((/** @type {any} */ each, /** @type {number} */ index) => splitAsInRust(each, config.pretokenizers[index]));
  const { type, behavior, invert, pattern } = config;
  const words = type === "Digits" && config.individual_digits ? EACH_DIGIT : WORDS[type];
  if (words && (type !== "Punctuation" || (behavior ?? "Isolated") === "Isolated")) {
    step.pre_tokenize_text = (/** @type {string} */ text) => text.match(words) ?? [];
  } else if (type === "ByteLevel") {
    step.pattern = asInRust(step.pattern);
  } else if (type === "Split") {
    const separator = pattern.String === undefined ? asInRust(step.pattern) : new RegExp(escaped(pattern.String), "gu");
    step.pre_tokenize_text = (/** @type {string} */ text) => splitText(text, separator, behavior, invert);
  }
}

/** Splits a text at separators. @param {string} text @param {RegExp} separator @param {string} behavior @param {boolean} invert @returns {string[]} */
function splitText(text, separator, behavior, invert) {
  /** @type {{ text: string, separates: boolean }[]} */
  const parts = [];
  let end = 0;
  for (const { 0: match, index } of text.matchAll(separator)) {
    parts.push({ text: text.slice(end, index), separates: invert }, { text: match, separates: !invert });
    end = index + match.length;
  }
  parts.push({ text: text.slice(end), separates: invert });
  const nonEmpty = parts.filter((part) => part.text);
  if (behavior === "Removed") return nonEmpty.filter((part) => !part.separates).map((part) => part.text);
  /** Whether a part is joined to the one before it. @type {Record<string, (part: number) => boolean>} */
  const joins = {
    Contiguous: (part) => nonEmpty[part].separates === nonEmpty[part - 1].separates,
    MergedWithPrevious: (part) => nonEmpty[part].separates && !nonEmpty[part - 1].separates,
    MergedWithNext: (part) => !nonEmpty[part].separates && nonEmpty[part - 1].separates,
  };
  /** @type {string[]} */
  const words = [];
  nonEmpty.forEach((part, index) => {
    if (index && joins[behavior]?.(index)) words[words.length - 1] += part.text;
    else words.push(part.text);
  });
  return words;
}

/**
 * A decoder with the same text in the JavaScript library as in the Rust library: its `Metaspace` removes the first space even
 * if `prepend_scheme` is `never`.
 * @param {any} config @returns {any}
 */
export function decoderOf(config) {
  if (config?.decoders) return { ...config, decoders: config.decoders.map(decoderOf) };
  if (config?.type !== "Metaspace" || config.prepend_scheme !== "never") return config;
  return { type: "Replace", pattern: { String: config.replacement }, content: " " };
}

/**
 * A model with the scores of its tokens as the Rust library reads them: the digits as a number, divided by a power of ten. Both
 * steps round, and a difference of the last bit decides between paths with the same scores in another order.
 * @param {any} config @returns {any}
 */
export function modelOf(config) {
  if (config.type !== "Unigram") return config;
  const scoreOf = (/** @type {number} */ exact) => {
    const [digits, power] = Math.abs(exact).toExponential().split("e");
    const exponent = Number(power) - Math.max(digits.length - 2, 0);
    const number = Number(digits.replace(".", ""));
    return Math.sign(exact) * (exponent < 0 ? number / 10 ** -exponent : number * 10 ** exponent);
  };
  const vocab = config.vocab.map((/** @type {[string, number]} */ [token, score]) => [token, scoreOf(score)]);
  return { ...config, vocab };
}

/**
 * Changes a decoder: tokens of bytes in sequence are a text, or as many replacement characters if they are no UTF-8.
 * @param {any} step A step of the library.
 */
export function decodeAsInRust(step) {
  (step?.decoders ?? []).forEach(decodeAsInRust);
  if (step?.config?.type !== "ByteFallback") return;
  step.decode_chain = (/** @type {string[]} */ tokens) => {
    /** @type {string[]} */
    const texts = [];
    /** @type {number[]} */
    let bytes = [];
    for (const token of [...tokens, ""]) {
      const match = BYTE.exec(token);
      if (match) bytes.push(parseInt(match[1], 16));
      else {
        if (bytes.length) texts.push(textOf(bytes));
        texts.push(token);
        bytes = [];
      }
    }
    return texts.slice(0, -1);
  };
}

/** @param {number[]} bytes */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return "\ufffd".repeat(bytes.length);
  }
}

/** The step of a pre-tokenizer with a type, if there is one. @param {any} config @param {string} type @returns {any} */
export function stepOf(config, type) {
  if (!config) return null;
  if (config.type === type) return config;
  return (config.pretokenizers ?? []).map((/** @type {any} */ each) => stepOf(each, type)).find(Boolean) ?? null;
}

/** A pattern that matches a text literally. @param {string} text */
export function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&").replace(/\\-/g, "-");
}
