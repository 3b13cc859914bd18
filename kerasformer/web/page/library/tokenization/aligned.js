/**
 * Text that remembers where in the original each of its characters comes from, through all that a tokenizer does to it.
 * A character is a code point, as in Python; offsets count those.
 */

export class Aligned {
  /**
   * @param {string[]} letters Code points.
   * @param {[start: number, end: number][]} origins Of each, in the original text.
   */
  constructor(letters, origins) {
    this.letters = letters;
    this.origins = origins;
  }

  /** @param {string} text */
  static of(text) {
    const letters = Array.from(text);
    return new Aligned(
      letters,
      letters.map((_, place) => [place, place + 1]),
    );
  }

  get text() {
    return this.letters.join("");
  }

  get length() {
    return this.letters.length;
  }

  /** @param {number} start @param {number} [end] */
  slice(start, end) {
    return new Aligned(this.letters.slice(start, end), this.origins.slice(start, end));
  }

  /**
   * The text with other letters. The letters of a replacement stand for those of its part, one for one; if they are
   * fewer, the first one was made of several; if they are more, those beyond stand for the last.
   * @param {Iterable<[part: string, replacement: string]>} parts Which together are this text.
   */
  replaced(parts) {
    /** @type {string[]} */
    const letters = [];
    /** @type {[number, number][]} */
    const origins = [];
    let place = 0;
    for (const [part, replacement] of parts) {
      const count = Array.from(part).length;
      const now = Array.from(replacement);
      now.forEach((letter, index) => {
        const source = index && index + Math.max(count - now.length, 0);
        letters.push(letter);
        origins.push(this.origins[place + Math.min(source, count - 1)]);
      });
      place += count;
    }
    return new Aligned(letters, origins);
  }
}
