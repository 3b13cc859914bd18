/**
 * Cutting token sequences to a length: which tokens stay, which windows cover the rest; as
 * `kerasformer.tokenization.truncation`.
 */
import { InputError } from "../errors.js";

/**
 * @typedef {object} Cut
 * @property {number} limit Tokens that may stay, special tokens included.
 * @property {"only_first" | "only_second" | "longest_first"} strategy Which of the two texts gives way.
 * @property {number} stride Tokens that neighbouring windows share.
 * @property {"left" | "right"} side The end that is cut off.
 */

/**
 * Positions that stay in each of the windows that together cover a sequence; the first alone is the truncated one.
 * @param {number[]} sequenceIds 0 and 1 for tokens of the first and second text, -1 for special tokens.
 * @param {Cut} cut
 * @returns {number[][]}
 */
export function windows(sequenceIds, cut) {
  const counts = [0, 1].map((text) => sequenceIds.filter((id) => id === text).length);
  const special = sequenceIds.length - counts[0] - counts[1];
  const room = roomOf(counts, special, cut);
  let [first, second] = [0, 1].map((text) => spans(counts[text], room[text], cut));
  if (first.length > 1 && second.length > 1) [first, second] = [first.slice(0, 1), second.slice(0, 1)];
  const longest = Math.max(first.length, second.length);
  return Array.from({ length: longest }, (_, index) => {
    const kept = [first[first.length === 1 ? 0 : index], second[second.length === 1 ? 0 : index]];
    const seen = [0, 0];
    return [...sequenceIds.keys()].filter((place) => {
      const text = sequenceIds[place];
      if (text < 0) return true;
      const nth = seen[text]++;
      return kept[text][0] <= nth && nth < kept[text][1];
    });
  });
}

/** Tokens of each text that may stay. @param {number[]} counts @param {number} special @param {Cut} cut */
function roomOf([first, second], special, cut) {
  const budget = cut.limit - special;
  if (first + second <= budget) return [first, second];
  const counts = `${first} and ${second}`;
  let kept = budget;
  if (cut.strategy === "only_first") first = kept = budget - second;
  else if (cut.strategy === "only_second") second = kept = budget - first;
  else {
    // The shorter text keeps up to half; on equal lengths the second gets the odd token.
    const shorter = Math.min(first, second, Math.floor(budget / 2));
    [first, second] = first <= second ? [shorter, budget - shorter] : [budget - shorter, shorter];
  }
  if (kept < 1) {
    throw new InputError(
      `max_length leaves no room: ${special} special tokens and texts of ${counts} tokens cannot be cut to it by ` +
        `'${cut.strategy}'. Received: max_length=${cut.limit}. Give a larger one`,
    );
  }
  return [first, second];
}

/** `[start, end)` among the tokens of one text, for each window. @param {number} count @param {number} keep @param {Cut} cut */
function spans(count, keep, cut) {
  if (keep >= count) return [[0, count]];
  if (keep === 0) return [[0, 0]];
  const step = keep - cut.stride;
  if (step < 1) {
    throw new InputError(
      `stride must be smaller than the ${keep} tokens of text that fit into a window. Received: ` +
        `stride=${cut.stride}, max_length=${cut.limit}`,
    );
  }
  const found = [];
  for (let start = 0; ; start += step) {
    found.push([start, Math.min(start + keep, count)]);
    if (start + keep >= count) break;
  }
  return cut.side === "right" ? found : found.map(([start, end]) => [count - end, count - start]);
}
