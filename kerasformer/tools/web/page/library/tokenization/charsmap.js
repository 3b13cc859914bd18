/**
 * The normalization of SentencePiece: the table of replacements in a `Precompiled` normalizer.
 *
 * The table is a double array (a trie in 32-bit units) over UTF-8, followed by the replacements, each ended by a 0.
 * References: `spm_precompiled`, which the Rust library `tokenizers` uses; google/sentencepiece, `normalizer.cc`.
 */

export class Charsmap {
  /** @param {string} base64 The field `precompiled_charsmap`. */
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const size = new DataView(bytes.buffer).getUint32(0, true);
    this.units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.replacements = bytes.subarray(4 + size);
    this.graphemes = new Intl.Segmenter("und", { granularity: "grapheme" });
    this.known = new Map();
  }

  /**
   * Yields the parts of a text that are replaced separately, with their replacements.
   * @param {string} text @returns {Generator<[part: string, replacement: string]>}
   */
  *parts(text) {
    for (const { segment } of this.graphemes.segment(text)) {
      const whole = new TextEncoder().encode(segment).length < 6 ? this.find(segment) : undefined;
      if (whole !== undefined) yield [segment, whole];
      else for (const character of segment) yield [character, this.find(character) ?? character];
    }
  }

  /** The replacement for the first key of the table with which a text starts, if any. @param {string} text */
  find(text) {
    if (!this.known.has(text)) this.known.set(text, this.search(new TextEncoder().encode(text)));
    return this.known.get(text);
  }

  /** Walks the trie. @param {Uint8Array} key @returns {string | undefined} */
  search(key) {
    let node = offset(this.units[0]);
    for (const byte of key) {
      if (byte === 0) return undefined;
      node ^= byte;
      const unit = this.units[node];
      // Compares the label of the unit; values have the highest bit set.
      if ((unit & 0x800000ff) !== byte) return undefined;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) return this.replacement(this.units[node] & 0x7fffffff);
    }
    return undefined;
  }

  /** Decodes a replacement. @param {number} start Its offset in bytes. */
  replacement(start) {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.replacements.subarray(start, this.replacements.indexOf(0, start)));
  }
}

/** The offset of a unit's children. @param {number} unit */
function offset(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
