/**
 * Tokens that are found in a text before anything else is done to it, such as `[MASK]`.
 */
import { Aligned } from "./aligned.js";

/** @typedef {{ id: number, content: string, single_word: boolean, lstrip: boolean, rstrip: boolean, special: boolean }} AddedToken */
/** @typedef {{ text: Aligned, token: AddedToken | null }} Section */

export class AddedTokens {
  /** @param {[content: string, token: AddedToken][]} tokens By what they look like in the text. */
  constructor(tokens) {
    this.tokens = new Map(tokens.filter(([content]) => content));
    // The longest first, as of several that begin at a place the longest counts.
    const contents = [...this.tokens.keys()].sort((a, b) => b.length - a.length);
    const alternatives = contents.map((content) => content.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    this.pattern = contents.length ? new RegExp(alternatives.join("|"), "gu") : null;
  }

  /** The text in sections, some of which are such tokens. @param {Aligned} text @returns {Section[]} */
  split(text) {
    /** @type {Section[]} */
    const sections = [];
    let end = 0;
    for (const [first, last, token] of this.pattern === null ? [] : this.places(text)) {
      const start = Math.max(first, end);
      if (start > end) sections.push({ text: text.slice(end, start), token: null });
      sections.push({ text: text.slice(start, last), token });
      end = last;
    }
    if (end < text.length) sections.push({ text: text.slice(end), token: null });
    return sections;
  }

  /** @param {Aligned} text @returns {Generator<[start: number, end: number, token: AddedToken]>} */
  *places({ text, letters }) {
    const place = placesOf(text);
    for (const { 0: found, index } of text.matchAll(/** @type {RegExp} */ (this.pattern))) {
      const token = /** @type {AddedToken} */ (this.tokens.get(found));
      let [start, end] = [place(index), place(index + found.length)];
      const inWord = /\w/.test(letters[start - 1] ?? "") || /\w/.test(letters[end] ?? "");
      if (token.single_word && inWord) continue;
      while (token.lstrip && start > 0 && /\s/u.test(letters[start - 1])) start--;
      while (token.rstrip && end < letters.length && /\s/u.test(letters[end])) end++;
      yield [start, end, token];
    }
  }
}

/** From places of code units to those of code points. @param {string} text */
function placesOf(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (/** @type {number} */ unit) => unit;
  return (/** @type {number} */ unit) => Array.from(text.slice(0, unit)).length;
}
