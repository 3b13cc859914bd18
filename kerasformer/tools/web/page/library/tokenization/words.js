/**
 * Words of tokenizers whose pre-tokenizer does not find them: where it leaves a text whole (LLaMA 2, Gemma, ByT5) or splits words
 * into characters, white space separates words.
 */

import { isSpace } from "./characters.js";

/**
 * Changes the words of the tokens of a text.
 * @param {string} text @param {import("./tokenizer.js").Token[]} tokens
 * @param {(id: number, part: string) => boolean} isWord Whether a token is a word that the white space around it does not decide.
 * @returns {import("./tokenizer.js").Token[]}
 */
export function withSpacedWords(text, tokens, isWord) {
  const characters = Array.from(text);
  const spaced = spacedWords(characters);
  let [lastWord, lastSpaced, number] = [-2, -2, -1];
  return tokens.map((token) => {
    const [start, end] = token.offsets;
    let first = start;
    while (first < end && isSpace(characters[first])) first++;
    if (first === end) first = start;
    const word = isWord(token.id, characters.slice(start, end).join("")) ? token.word : -1;
    if (word !== lastWord || spaced[first] !== lastSpaced) number++;
    [lastWord, lastSpaced] = [word, spaced[first]];
    return { ...token, word: number };
  });
}

/**
 * The index of the word of each character, and of the end of the text. A word includes one space before it; other white space
 * between words is a word of its own, as for GPT-2.
 * @param {string[]} characters @returns {number[]}
 */
function spacedWords(characters) {
  const { length } = characters;
  const separates = (/** @type {number} */ at) => {
    const beforeWord = characters[at] === " " && at + 1 < length && !isSpace(characters[at + 1]);
    return isSpace(characters[at]) && !beforeWord;
  };
  /** @type {number[]} */
  const words = [];
  let number = -1;
  while (words.length < length) {
    number++;
    const space = separates(words.length);
    do words.push(number);
    while (words.length < length && (space ? separates(words.length) : !isSpace(characters[words.length])));
  }
  return [...words, Math.max(number, 0)];
}
