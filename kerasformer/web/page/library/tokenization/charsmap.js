/**
 * SentencePiece's own normalization: a table of replacements that a `Precompiled` normalizer carries.
 *
 * The table is a double array (a trie in 32-bit units) over UTF-8, followed by the replacements, each ended by a 0.
 * Reference: `spm_precompiled`, which the Rust library of tokenizers uses; google/sentencepiece, `normalizer.cc`.
 */

export class Charsmap {
  /** @param {string} base64 `precompiled_charsmap`. */
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const size = new DataView(bytes.buffer).getUint32(0, true);
    this.units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.replacements = bytes.subarray(4 + size);
    this.graphemes = new Intl.Segmenter("und", { granularity: "grapheme" });
    this.known = new Map();
  }

  /**
   * The parts of a text that are replaced each by itself, with what they become.
   * @param {string} text @returns {Generator<[part: string, replacement: string]>}
   */
  *parts(text) {
    for (const { segment } of this.graphemes.segment(text)) {
      const whole = new TextEncoder().encode(segment).length < 6 ? this.find(segment) : undefined;
      if (whole !== undefined) yield [segment, whole];
      else for (const letter of segment) yield [letter, this.find(letter) ?? letter];
    }
  }

  /** What the table says of a text, which begins with one of its keys. @param {string} text */
  find(text) {
    if (!this.known.has(text)) this.known.set(text, this.search(new TextEncoder().encode(text)));
    return this.known.get(text);
  }

  /** @param {Uint8Array} key @returns {string | undefined} */
  search(key) {
    let place = offset(this.units[0]);
    for (const byte of key) {
      if (byte === 0) return undefined;
      place ^= byte;
      const unit = this.units[place];
      // The label of a unit, with the bit that only values have.
      if ((unit & 0x800000ff) !== byte) return undefined;
      place ^= offset(unit);
      if ((unit >>> 8) & 1) return this.replacement(this.units[place] & 0x7fffffff);
    }
    return undefined;
  }

  /** @param {number} start */
  replacement(start) {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.replacements.subarray(start, this.replacements.indexOf(0, start)));
  }
}

/** Where the children of a unit lie. @param {number} unit */
function offset(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
