/** Texts that are similar to another one, as `difflib.get_close_matches` of Python finds them. */

const LEAST = 0.5;

/** @param {any} text @param {string[]} known @param {number} count The maximum number of texts. @returns {string[]} The most similar one first. */
export function closest(text, known, count) {
  const wanted = Array.from(String(text));
  return known
    .map((each) => ({ each, score: similarity(Array.from(each), wanted) }))
    .filter(({ score }) => score >= LEAST)
    .sort((a, b) => b.score - a.score || (a.each < b.each ? 1 : -1))
    .slice(0, count)
    .map(({ each }) => each);
}

/** From 0 to 1: the share of characters in common blocks. @param {string[]} a @param {string[]} b */
function similarity(a, b) {
  return (2 * common(a, b)) / (a.length + b.length || 1);
}

/** The number of characters in the longest common block, and in those before and after it. @param {string[]} a @param {string[]} b @returns {number} */
function common(a, b) {
  let [longest, start, from] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    for (let j = 0; j < b.length; j++) {
      let length = 0;
      while (i + length < a.length && j + length < b.length && a[i + length] === b[j + length]) length++;
      if (length > longest) [longest, start, from] = [length, i, j];
    }
  }
  if (!longest) return 0;
  return longest + common(a.slice(0, start), b.slice(0, from)) + common(a.slice(start + longest), b.slice(from + longest));
}
