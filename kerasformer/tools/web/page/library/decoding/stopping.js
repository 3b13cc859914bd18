/** Stop strings. */

/** Number of additional tokens that are decoded, because some tokens have no text. */
const MARGIN = 16;

/**
 * Whether the last new token completes one of the strings, which may span several tokens and start in the prompt.
 * @param {string[]} strings @param {number[]} before The tokens before the first new one.
 * @param {number[]} tokens The new tokens; without the last one, no string was complete.
 * @param {(ids: number[]) => string} decode
 */
export function completesString(strings, before, tokens, decode) {
  // A token with text has at least one byte, so it is enough to decode the end of the row.
  const longest = Math.max(...strings.map((string) => new TextEncoder().encode(string).length));
  const row = [...before, ...tokens];
  let end = row.slice(-(longest + MARGIN));
  let text = decode(end);
  if (text.startsWith("\ufffd")) {
    // The text starts inside a character, which may make a whole run of bytes unreadable.
    end = row;
    text = decode(end);
  }
  const old = Math.max(0, end.length - tokens.length);
  // A string that is complete before the first new token does not count.
  const known = old ? commonPrefix(decode(end.slice(0, old)), text) : 0;
  return strings.some((string) => text.indexOf(string, Math.max(0, known - string.length + 1)) >= 0);
}

/** The length of the common prefix of two texts. @param {string} a @param {string} b */
function commonPrefix(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}
