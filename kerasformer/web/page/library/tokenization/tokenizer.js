/**
 * The tokenizer of a bundle: ids, offsets and texts as `kerasformer.tokenization` has them.
 *
 * Vocabularies, merges, splitting and decoding are the work of `@huggingface/tokenizers`. It knows no offsets, fuses
 * unknown letters across words and takes NFKC for SentencePiece's own table; so the steps are led from here: added
 * tokens, normalizer and template, and the model a word at a time.
 */
import { TokenizerError } from "../errors.js";
import { AddedTokens } from "./added_tokens.js";
import { Aligned } from "./aligned.js";
import { escaped, normalizerOf } from "./normalizers.js";
import { windows } from "./truncation.js";

/**
 * A token of a text.
 * @typedef {object} Token
 * @property {number} id
 * @property {number} type Segment: 1 for the second text of a pair where the tokenizer tells the two apart.
 * @property {number} sequence 0 and 1 for tokens of the first and second text, -1 for those that surround them.
 * @property {number} word Index of the word within its text, -1 outside.
 * @property {[start: number, end: number]} offsets In the text, in characters.
 */

/** Marks a token for its way through the template. */
const MARK = "\u0000";
const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;
/** @type {[number, number]} */
const NOWHERE = [0, 0];

export class Tokenizer {
  /**
   * @param {any} library The module `@huggingface/tokenizers`.
   * @param {any} content `tokenizer.json`.
   * @param {any} settings `tokenizer_config.json`.
   * @throws {TokenizerError} a file that is damaged, or a kind of tokenizer that is not known here.
   */
  constructor(library, content, settings) {
    try {
      this.backend = new library.Tokenizer(content, settings);
      this.normalize = normalizerOf(content.normalizer, library);
    } catch (error) {
      if (error instanceof TokenizerError) throw error;
      throw new TokenizerError(`tokenizer.json cannot be used here: ${error}`, { cause: error });
    }
    /** @type {import("./added_tokens.js").AddedToken[]} */
    const added = content.added_tokens ?? [];
    const plain = (/** @type {any} */ token) => !(token.normalized && content.normalizer);
    this.addedPlain = new AddedTokens(added.filter(plain).map((token) => [token.content, token]));
    this.addedNormalized = new AddedTokens(
      added.filter((token) => !plain(token)).map((token) => [this.normalize(Aligned.of(token.content)).text, token]),
    );
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.settings = settings;
    splitAsInRust(this.backend.pre_tokenizer);
    this.byteLevel = stepOf(content.pre_tokenizer, "ByteLevel");
    this.parts = partsOf(content.pre_tokenizer);
    this.splitsSpaces = stepOf(content.pre_tokenizer, "WhitespaceSplit");
    this.trims = trimming(content.post_processor);
    // RoBERTa's two texts are one segment, which the library does not know.
    this.oneSegment = content.post_processor?.type === "RobertaProcessing";
    this.kind = content.model.type ?? "BPE";
    this.prefix = content.model.continuing_subword_prefix ?? "";
    this.unknown = content.model.unk_token ?? null;
    this.cleansSpaces = settings.clean_up_tokenization_spaces === true;
    this.hasByteFallback = this.tokenToId("<0x0A>") !== undefined;
  }

  /** @param {string} token @returns {number | undefined} */
  tokenToId(token) {
    return this.backend.token_to_id(token);
  }

  /** @param {number} id @returns {string | undefined} */
  token(id) {
    return this.backend.id_to_token(id);
  }

  /** Whether decoding leaves it out. @param {number} id */
  isSpecial(id) {
    return this.special.has(id);
  }

  /** A special token such as `"mask_token"`; `null` without one. @param {string} name @returns {string | null} */
  named(name) {
    const value = this.settings[name] ?? null;
    return value === null || typeof value === "string" ? value : value.content;
  }

  /** @returns {string[]} Arrays that the model takes. */
  get modelInputs() {
    return this.settings.model_input_names ?? ["input_ids", "attention_mask"];
  }

  /**
   * The tokens of a text, or of a pair of texts, surrounded as the model expects.
   * @param {string} text @param {string | null} [pair] @param {boolean} [surrounded]
   * @returns {Token[]}
   */
  encode(text, pair = null, surrounded = true) {
    const texts = [text, pair].map((each) => (each === null ? null : this.tokens(each)));
    const marked = texts.map((tokens, sequence) => tokens && tokens.map((_, place) => `${MARK}${sequence}:${place}`));
    const template = this.backend.post_processor;
    const made = template ? template(marked[0], marked[1], surrounded) : { tokens: marked[0], tokens_pair: marked[1] };
    const tokens = [...made.tokens, ...(made.tokens_pair ?? [])];
    const types = this.oneSegment ? tokens.map(() => 0) : made.token_type_ids;
    return tokens.map((/** @type {string} */ name, /** @type {number} */ index) => {
      if (!name.startsWith(MARK)) return { ...NO_TEXT, id: this.tokenToId(name), type: types?.[index] ?? 0 };
      const [sequence, place] = name.slice(1).split(":").map(Number);
      return { .../** @type {any} */ (texts[sequence])[place], type: types ? types[index] : sequence, sequence };
    });
  }

  /**
   * Text of ids; those that the vocabulary lacks are left out.
   * @param {number[]} ids @param {boolean} [skipSpecial]
   */
  decode(ids, skipSpecial = false) {
    const known = ids.filter((id) => this.token(id) !== undefined && !(skipSpecial && this.special.has(id)));
    if (!known.length) return "";
    return this.backend.decode(known, { clean_up_tokenization_spaces: this.cleansSpaces });
  }

  /**
   * Tokens cut to a length; the first row alone is the truncated text, all together cover it.
   * @param {Token[]} tokens @param {number} limit @param {import("./truncation.js").Cut["strategy"]} strategy
   * @param {number} [stride]
   */
  windows(tokens, limit, strategy, stride = 0) {
    if (tokens.length <= limit) return [tokens];
    const cut = { limit, strategy, stride, side: this.settings.truncation_side ?? "right" };
    const sequences = tokens.map((token) => token.sequence);
    return windows(sequences, cut).map((places) => places.map((place) => tokens[place]));
  }

  /** Tokens of one text, without those that surround it. @param {string} text @returns {Token[]} */
  tokens(text) {
    if (!text.isWellFormed?.() && /\p{Cs}/u.test(text)) {
      throw new TokenizerError("a text holds half of a surrogate pair, which is no Unicode text");
    }
    /** @type {Token[]} */
    const found = [];
    let word = 0;
    const add = (/** @type {number} */ id, /** @type {[number, number]} */ offsets) =>
      found.push({ id, type: 0, sequence: 0, word, offsets });
    const sections = this.addedPlain.split(Aligned.of(text));
    sections.forEach(({ text: section, token }, index) => {
      const parts = token ? [{ text: section, token }] : this.addedNormalized.split(this.normalize(section));
      for (const { text: part, token: inside } of parts) {
        if (inside) {
          add(inside.id, spanOf(part.origins));
          word++;
          continue;
        }
        for (const { letters, origins } of this.words(part, index)) {
          let place = 0;
          for (const name of this.backend.model([letters.join("")])) {
            const count = this.extent(name, letters, place);
            add(this.tokenToId(name) ?? this.backend.model.unk_token_id, this.offsets(letters, origins, place, count));
            place += count;
          }
          word++;
        }
      }
    });
    return found;
  }

  /**
   * The words of a section as the pre-tokenizer spells them, with the origin of each letter.
   * @param {Aligned} section @param {number} index
   * @returns {{ letters: string[], origins: [number, number][] }[]}
   */
  words(section, index) {
    // To Rust, U+0085 is a space as well.
    const text = this.splitsSpaces ? section.text.replaceAll("\u0085", " ") : section.text;
    /** @type {string[]} */
    const words = this.backend.pre_tokenizer ? this.backend.pre_tokenizer(text, { section_index: index }) : [text];
    const parted = this.parts === null ? words : words.flatMap((word) => word.split(/** @type {RegExp} */ (this.parts)));
    const spelled = parted.filter((word) => word).map((word) => Array.from(word));
    if (this.byteLevel) return inBytes(section, spelled);
    let place = 0;
    return spelled.map((letters) => {
      const origins = letters.map((letter, index) => {
        const space = letter === "▁";
        const same = (/** @type {string} */ each) => each === letter || (space && each === " ");
        if (space && index === 0 && this.splitsSpaces) while (/[\s\u0085]/u.test(section.letters[place] ?? "")) place++;
        // A space that the pre-tokenizer put there stands where the word begins.
        if (space && !same(section.letters[place])) return section.origins[Math.min(place, section.length - 1)];
        while (place < section.length && !same(section.letters[place])) place++;
        return section.origins[Math.min(place++, section.length - 1)];
      });
      return { letters, origins };
    });
  }

  /** How many letters of a word a token stands for. @param {string} name @param {string[]} letters @param {number} place */
  extent(name, letters, place) {
    const rest = letters.length - place;
    if (name === this.unknown) return rest;
    const spelled = this.kind === "WordPiece" && place > 0 ? name.slice(this.prefix.length) : name;
    return Math.min(Array.from(spelled).length, rest);
  }

  /**
   * @param {string[]} letters @param {[number, number][]} origins @param {number} place @param {number} count
   * @returns {[number, number]}
   */
  offsets(letters, origins, place, count) {
    const [start, end] = spanOf(origins.slice(place, place + count));
    if (!this.trims) return [start, end];
    const spaces = letters.slice(place, place + count).map((letter) => letter === "Ġ");
    let leading = spaces.indexOf(false) < 0 ? count : spaces.indexOf(false);
    const trailing = count - 1 - spaces.lastIndexOf(false);
    // The space that was put before the text has no place in it.
    if (leading && start === 0 && this.trims.add_prefix_space) leading--;
    const from = Math.min(start + leading, end);
    return [from, Math.max(end - trailing, from)];
  }
}

/** @type {Omit<Token, "id" | "type">} */
const NO_TEXT = { sequence: -1, word: -1, offsets: NOWHERE };

/** From the first to the last origin. @param {[number, number][]} origins @returns {[number, number]} */
function spanOf(origins) {
  return origins.length ? [origins[0][0], origins[origins.length - 1][1]] : NOWHERE;
}

/** Words that are spelled a letter a byte. @param {Aligned} section @param {string[][]} words */
function inBytes(section, words) {
  const encoder = new TextEncoder();
  const origins = section.letters.flatMap((letter, place) =>
    Array.from(encoder.encode(letter), () => section.origins[place]),
  );
  const missing = words.reduce((sum, word) => sum + word.length, 0) - origins.length;
  // A space that the pre-tokenizer put before the text stands where the text begins.
  origins.unshift(...Array.from({ length: missing }, () => section.origins[0]));
  let place = 0;
  return words.map((letters) => ({ letters, origins: origins.slice(place, (place += letters.length)) }));
}

/**
 * Gives each `Split` of a pre-tokenizer all behaviors that it has in Rust; the library knows `Isolated` alone, and
 * `Removed` of patterns.
 * @param {any} step Of the library.
 */
function splitAsInRust(step) {
  (step?.tokenizers ?? []).forEach(splitAsInRust);
  if (step?.config?.type !== "Split") return;
  const { behavior, invert, pattern } = step.config;
  const separator = pattern.String === undefined ? step.pattern : new RegExp(escaped(pattern.String), "gu");
  step.pre_tokenize_text = (/** @type {string} */ text) => parted(text, separator, behavior, invert);
}

/** @param {string} text @param {RegExp} separator @param {string} behavior @param {boolean} invert @returns {string[]} */
function parted(text, separator, behavior, invert) {
  /** @type {{ text: string, separates: boolean }[]} */
  const parts = [];
  let place = 0;
  for (const { 0: found, index } of text.matchAll(separator)) {
    parts.push({ text: text.slice(place, index), separates: invert }, { text: found, separates: !invert });
    place = index + found.length;
  }
  parts.push({ text: text.slice(place), separates: invert });
  const filled = parts.filter((part) => part.text);
  if (behavior === "Removed") return filled.filter((part) => !part.separates).map((part) => part.text);
  /** Whether a part is joined to the one before it. @type {Record<string, (part: number) => boolean>} */
  const joins = {
    Contiguous: (part) => filled[part].separates === filled[part - 1].separates,
    MergedWithPrevious: (part) => filled[part].separates && !filled[part - 1].separates,
    MergedWithNext: (part) => !filled[part].separates && filled[part - 1].separates,
  };
  /** @type {string[]} */
  const words = [];
  filled.forEach((part, index) => {
    if (index && joins[behavior]?.(index)) words[words.length - 1] += part.text;
    else words.push(part.text);
  });
  return words;
}

/** A step of a pre-tokenizer, if it has one of that type. @param {any} config @param {string} type @returns {any} */
function stepOf(config, type) {
  if (!config) return null;
  if (config.type === type) return config;
  return (config.pretokenizers ?? []).map((/** @type {any} */ each) => stepOf(each, type)).find(Boolean) ?? null;
}

/**
 * Where words are parted that the library keeps together: before SentencePiece's spaces, and around each sign of
 * punctuation. `null` if nowhere.
 * @param {any} config
 */
function partsOf(config) {
  const [metaspace, punctuation] = [stepOf(config, "Metaspace"), stepOf(config, "Punctuation")];
  const places = metaspace && metaspace.split !== false ? ["(?=▁)"] : [];
  if (punctuation && (punctuation.behavior ?? "Isolated") === "Isolated") {
    places.push(`(?=${PUNCTUATION})`, `(?<=${PUNCTUATION})`);
  }
  return places.length ? new RegExp(places.join("|"), "u") : null;
}

const PUNCTUATION = "[\\p{P}\\u0021-\\u002F\\u003A-\\u0040\\u005B-\\u0060\\u007B-\\u007E]";

/** The template, if it leaves out the spaces at the ends of tokens in their offsets. @param {any} config @returns {any} */
function trimming(config) {
  const trims = config?.trim_offsets === true && ["ByteLevel", "RobertaProcessing"].includes(config.type);
  if (trims) return config;
  return (config?.processors ?? []).map(trimming).find(Boolean) ?? null;
}
