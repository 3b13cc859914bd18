/** Ends that a token id alone does not tell. */

/** Tokens that a window is longer than it need be, for there are tokens without text. */
const MARGIN = 16;

/**
 * Whether the last new token completes one of the strings, which may span tokens and begin in the prompt.
 * @param {string[]} strings @param {number[]} before Tokens before the first new one.
 * @param {number[]} tokens New tokens, before whose last one no string was complete.
 * @param {(ids: number[]) => string} decode
 */
export function says(strings, before, tokens, decode) {
  // A token with text holds a byte or more, so the end of the row is enough.
  const longest = Math.max(...strings.map((string) => new TextEncoder().encode(string).length));
  const row = [...before, ...tokens];
  let said = row.slice(-(longest + MARGIN));
  let text = decode(said);
  if (text.startsWith("\ufffd")) {
    // The window begins within a character, and a whole run of bytes may be unreadable.
    said = row;
    text = decode(said);
  }
  const old = Math.max(0, said.length - tokens.length);
  // A string that was already there before the first new token ends nothing.
  const known = old ? commonPrefix(decode(said.slice(0, old)), text) : 0;
  return strings.some((string) => text.indexOf(string, Math.max(0, known - string.length + 1)) >= 0);
}

/** Length of what both begin with. @param {string} a @param {string} b */
function commonPrefix(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}
