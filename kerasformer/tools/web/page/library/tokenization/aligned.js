/**
 * Text with the offsets of each character in the original text, which every step of a tokenizer preserves. As in Python, a
 * character is a code point.
 */

export class Aligned {
  /**
   * @param {string[]} characters Code points.
   * @param {[start: number, end: number][]} origins The offsets of each in the original text.
   */
  constructor(characters, origins) {
    this.characters = characters;
    this.origins = origins;
  }

  /** Creates an aligned text from an original text. @param {string} text */
  static of(text) {
    const characters = Array.from(text);
    return new Aligned(
      characters,
      characters.map((_, index) => [index, index + 1]),
    );
  }

  get text() {
    return this.characters.join("");
  }

  get length() {
    return this.characters.length;
  }

  /** @param {number} start @param {number} [end] */
  slice(start, end) {
    return new Aligned(this.characters.slice(start, end), this.origins.slice(start, end));
  }

  /** The text without the characters that do not fulfil a condition. @param {(character: string) => boolean} keep */
  filter(keep) {
    const kept = this.characters.map(keep);
    if (!kept.includes(false)) return this;
    return new Aligned(this.characters.filter((_, index) => kept[index]), this.origins.filter((_, index) => kept[index]));
  }

  /**
   * Replaces the text. A new character replaces the next one of this text (its change is 0), is inserted (1), or replaces the next one
   * and as many others as `-change`. An inserted one gets the offsets of the character before it.
   * @param {Iterable<[character: string, change: number]>} changes
   */
  changed(changes) {
    /** @type {string[]} */
    const characters = [];
    /** @type {[number, number][]} */
    const origins = [];
    let next = 0;
    for (const [character, change] of changes) {
      const source = change > 0 ? next - 1 : Math.min(next, this.length - 1);
      characters.push(character);
      origins.push(source < 0 ? [0, 0] : this.origins[source]);
      if (change <= 0) next += 1 - change;
    }
    return new Aligned(characters, origins);
  }

  /**
   * Replaces parts of the text. The characters of a replacement get the offsets of the characters of its part, one by one. If there
   * are fewer, the first one replaces several; if there are more, the additional ones get the offsets of the last.
   * @param {Iterable<[part: string, replacement: string]>} parts The parts, which together are this text.
   */
  replaced(parts) {
    /** @type {string[]} */
    const characters = [];
    /** @type {[number, number][]} */
    const origins = [];
    let position = 0;
    for (const [part, replacement] of parts) {
      const count = Array.from(part).length;
      const inserted = Array.from(replacement);
      inserted.forEach((character, index) => {
        const source = index && index + Math.max(count - inserted.length, 0);
        characters.push(character);
        origins.push(this.origins[position + Math.min(source, count - 1)]);
      });
      position += count;
    }
    return new Aligned(characters, origins);
  }
}
