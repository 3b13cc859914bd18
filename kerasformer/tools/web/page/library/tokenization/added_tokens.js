/**
 * Added tokens such as `[MASK]`, which are found in a text before any other step of the tokenizer.
 */
import { Aligned } from "./aligned.js";
import { isSpace, isWord } from "./characters.js";

/** @typedef {{ id: number, content: string, single_word: boolean, lstrip: boolean, rstrip: boolean, special: boolean }} AddedToken */
/** @typedef {{ text: Aligned, token: AddedToken | null }} Section */

export class AddedTokens {
  /** @param {[content: string, token: AddedToken][]} tokens The tokens, with their text. */
  constructor(tokens) {
    this.tokens = new Map(tokens.filter(([content]) => content));
    // The longest first, because the longest of several matches at one position counts.
    const contents = [...this.tokens.keys()].sort((a, b) => b.length - a.length);
    const alternatives = contents.map((content) => content.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    this.pattern = contents.length ? new RegExp(alternatives.join("|"), "gu") : null;
  }

  /** Splits a text into sections, some of which are added tokens. @param {Aligned} text @returns {Section[]} */
  split(text) {
    /** @type {Section[]} */
    const sections = [];
    let end = 0;
    for (const [first, last, token] of this.pattern === null ? [] : this.matches(text)) {
      // A token without `lstrip` may be found again in the spaces that the one before it took.
      const start = token.lstrip ? Math.max(first, end) : first;
      if (start > end) sections.push({ text: text.slice(end, start), token: null });
      sections.push({ text: text.slice(start, last), token });
      end = last;
    }
    if (end < text.length) sections.push({ text: text.slice(end), token: null });
    return sections;
  }

  /** Yields the added tokens in a text. @param {Aligned} text @returns {Generator<[start: number, end: number, token: AddedToken]>} */
  *matches({ text, characters }) {
    const toCharacter = characterIndices(text);
    for (const { 0: content, index } of text.matchAll(/** @type {RegExp} */ (this.pattern))) {
      const token = /** @type {AddedToken} */ (this.tokens.get(content));
      let [start, end] = [toCharacter(index), toCharacter(index + content.length)];
      const inWord = isWord(characters[start - 1] ?? "") || isWord(characters[end] ?? "");
      if (token.single_word && inWord) continue;
      while (token.lstrip && start > 0 && isSpace(characters[start - 1])) start--;
      while (token.rstrip && end < characters.length && isSpace(characters[end])) end++;
      yield [start, end, token];
    }
  }
}

/** Returns a function that converts indices of code units to indices of code points. @param {string} text */
function characterIndices(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (/** @type {number} */ unit) => unit;
  return (/** @type {number} */ unit) => Array.from(text.slice(0, unit)).length;
}
