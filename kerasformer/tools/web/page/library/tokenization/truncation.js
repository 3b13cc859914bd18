/**
 * Truncates token sequences, or splits them into chunks, as `kerasformer.tokenization.truncation` does.
 */
import { InputError } from "../errors.js";

/**
 * @typedef {object} Cut
 * @property {number} limit The largest number of tokens, including special tokens.
 * @property {"only_first" | "only_second" | "longest_first"} strategy Which of the two texts is truncated.
 * @property {number} stride Number of tokens that neighbouring chunks share.
 * @property {"left" | "right"} side The side that is truncated.
 */

/**
 * The positions in each of the chunks that together cover a sequence; the first chunk is the truncated sequence.
 * @param {number[]} sequenceIds 0 and 1 for tokens of the first and second text, -1 for special tokens.
 * @param {Cut} cut
 * @returns {number[][]}
 */
export function chunks(sequenceIds, cut) {
  const counts = [0, 1].map((text) => sequenceIds.filter((id) => id === text).length);
  const special = sequenceIds.length - counts[0] - counts[1];
  const room = roomOf(counts, special, cut);
  let [first, second] = [0, 1].map((text) => spans(counts[text], room[text], cut));
  if (first.length > 1 && second.length > 1) [first, second] = [first.slice(0, 1), second.slice(0, 1)];
  const longest = Math.max(first.length, second.length);
  return Array.from({ length: longest }, (_, index) => {
    const ranges = [first[first.length === 1 ? 0 : index], second[second.length === 1 ? 0 : index]];
    const seen = [0, 0];
    return [...sequenceIds.keys()].filter((position) => {
      const text = sequenceIds[position];
      if (text < 0) return true;
      const nth = seen[text]++;
      return ranges[text][0] <= nth && nth < ranges[text][1];
    });
  });
}

/** The number of tokens that remain of each text. @param {number[]} counts @param {number} special @param {Cut} cut */
function roomOf([first, second], special, cut) {
  const budget = cut.limit - special;
  if (first + second <= budget) return [first, second];
  const counts = `${first} and ${second}`;
  let remaining = budget;
  if (cut.strategy === "only_first") first = remaining = budget - second;
  else if (cut.strategy === "only_second") second = remaining = budget - first;
  else {
    // The shorter text keeps up to half; on equal lengths the second gets the odd token.
    const shorter = Math.min(first, second, Math.floor(budget / 2));
    [first, second] = first <= second ? [shorter, budget - shorter] : [budget - shorter, shorter];
  }
  if (remaining < 1) {
    throw new InputError(
      `max_length is too small: ${special} special tokens and texts of ${counts} tokens cannot be truncated to it with ` +
        `'${cut.strategy}'. Received: max_length=${cut.limit}. Set a larger one`,
    );
  }
  return [first, second];
}

/** The range `[start, end)` of each chunk among the tokens of one text. @param {number} count @param {number} keep @param {Cut} cut */
function spans(count, keep, cut) {
  if (keep >= count) return [[0, count]];
  if (keep === 0) return [[0, 0]];
  const step = keep - cut.stride;
  if (step < 1) {
    throw new InputError(
      `stride must be smaller than the ${keep} tokens of text that fit into a chunk. Received: ` +
        `stride=${cut.stride}, max_length=${cut.limit}`,
    );
  }
  const ranges = [];
  for (let start = 0; ; start += step) {
    ranges.push([start, Math.min(start + keep, count)]);
    if (start + keep >= count) break;
  }
  return cut.side === "right" ? ranges : ranges.map(([start, end]) => [count - end, count - start]);
}
