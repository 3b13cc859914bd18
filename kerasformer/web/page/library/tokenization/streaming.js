/**
 * Text of tokens that arrive one after another, without ever showing half a character; as
 * `kerasformer.tokenization.streaming`.
 */

// Enough context for a decoder that treats the first token of a text in its own way.
const CONTEXT = 4;
const WINDOW = 32;
const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;
// The longest pattern that the clean-up of spaces replaces has four characters; one more for what it leaves.
const CLEAN_UP_REACH = 5;

/** Decodes ids as they come; the pieces together equal the decoded whole. */
export class TextStream {
  /** @param {import("./tokenizer.js").Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    /** @type {number[]} */
    this.ids = [];
    this.sent = 0;
  }

  /** Takes the next tokens and returns the text that is now certain. @param {number[]} ids */
  put(ids) {
    this.ids.push(...ids.filter((id) => !this.tokenizer.isSpecial(id) && this.tokenizer.token(id) !== undefined));
    const text = this.decode(this.ids);
    const certain = Math.min(this.certain(text), text.length);
    const piece = text.slice(this.sent, certain);
    this.sent = Math.max(this.sent, certain);
    if (certain === text.length && this.ids.length > WINDOW) {
      // Everything was given out: what comes next depends on the last tokens alone.
      this.ids = this.ids.slice(-CONTEXT);
      this.sent = this.decode(this.ids).length;
    }
    return piece;
  }

  /** Returns what was held back. */
  end() {
    return this.decode(this.ids).slice(this.sent);
  }

  /** @param {number[]} ids */
  decode(ids) {
    return this.tokenizer.decode(ids);
  }

  /** How much of the text no later token changes. @param {string} text */
  certain(text) {
    if (this.tokenizer.hasByteFallback) {
      let run = this.ids.length;
      while (run > 0 && BYTE_TOKEN.test(this.tokenizer.token(this.ids[run - 1]) ?? "")) run--;
      // A run of bytes becomes text only as a whole.
      if (run < this.ids.length) return this.decode(this.ids.slice(0, run)).length;
    }
    // U+FFFD at the end stands for the first bytes of a character whose last ones may still come.
    const certain = text.endsWith("\ufffd") ? text.length - 1 : text.length;
    if (!this.tokenizer.cleansSpaces) return certain;
    const space = text.indexOf(" ", Math.max(certain - CLEAN_UP_REACH, 0));
    return space < 0 || space >= certain ? certain : space;
  }
}
