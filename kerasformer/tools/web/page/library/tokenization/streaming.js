/**
 * Decodes tokens that arrive one after another, without returning incomplete characters, as
 * `kerasformer.tokenization.streaming` does.
 */

// Enough context for decoders that treat the first token of a text differently.
const CONTEXT = 4;
const WINDOW = 32;
const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;
// The longest pattern that the clean-up of spaces replaces has four characters, plus one for its replacement.
const CLEAN_UP_REACH = 5;

/** Decodes ids incrementally; the pieces together equal the text of all ids. */
export class TextStream {
  /** @param {import("./tokenizer.js").Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    /** @type {number[]} */
    this.ids = [];
    this.sent = 0;
  }

  /** Adds tokens and returns the text that has become certain. @param {number[]} ids */
  put(ids) {
    this.ids.push(...ids.filter((id) => !this.tokenizer.isSpecial(id) && this.tokenizer.token(id) !== undefined));
    const text = this.decode(this.ids);
    const certain = Math.min(this.certain(text), text.length);
    const piece = text.slice(this.sent, certain);
    this.sent = Math.max(this.sent, certain);
    if (certain === text.length && this.ids.length > WINDOW) {
      // All text has been returned, and further text depends only on the last tokens.
      this.ids = this.ids.slice(-CONTEXT);
      this.sent = this.decode(this.ids).length;
    }
    return piece;
  }

  /** Returns the remaining text. */
  end() {
    return this.decode(this.ids).slice(this.sent);
  }

  /** @param {number[]} ids */
  decode(ids) {
    return this.tokenizer.decode(ids);
  }

  /** The length of the text that later tokens cannot change. @param {string} text */
  certain(text) {
    if (this.tokenizer.hasByteFallback) {
      let run = this.ids.length;
      while (run > 0 && BYTE_TOKEN.test(this.tokenizer.token(this.ids[run - 1]) ?? "")) run--;
      // A run of byte tokens can only be decoded as a whole.
      if (run < this.ids.length) return this.decode(this.ids.slice(0, run)).length;
    }
    // U+FFFD at the end means that the last character is incomplete so far.
    const certain = text.endsWith("\ufffd") ? text.length - 1 : text.length;
    if (!this.tokenizer.cleansSpaces) return certain;
    const space = text.indexOf(" ", Math.max(certain - CLEAN_UP_REACH, 0));
    return space < 0 || space >= certain ? certain : space;
  }
}
