/**
 * The tokenizer of a bundle, with the ids, offsets and texts of `kerasformer.tokenization`.
 *
 * `@huggingface/tokenizers` implements vocabularies, merges, splitting and decoding. However, it has no offsets, merges unknown
 * characters across words, and uses NFKC instead of SentencePiece's table. Therefore this module applies the steps itself:
 * added tokens, normalizer and template, and the model to one word at a time.
 */
import { InputError, TokenizerError } from "../errors.js";
import { AddedTokens } from "./added_tokens.js";
import { Aligned } from "./aligned.js";
import { isSpace } from "./characters.js";
import { normalizerOf } from "./normalizers.js";
import { decodeAsInRust, decoderOf, modelOf, splitAsInRust, stepOf } from "./steps.js";
import { chunks } from "./truncation.js";
import { withSpacedWords } from "./words.js";

/**
 * A token of a text.
 * @typedef {object} Token
 * @property {number} id
 * @property {number} type Segment: 1 for the second text of a pair if the tokenizer distinguishes the two.
 * @property {number} sequence 0 and 1 for tokens of the first and second text, -1 for special tokens around them.
 * @property {number} position Index of the token in its text, or pair of texts, with special tokens.
 * @property {number} word Index of the word in its text, -1 for special tokens.
 * @property {[start: number, end: number]} offsets Offsets in the text, in characters.
 */

/** Prefix of placeholders for tokens in the template. */
const MARK = "\u0000";
const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;
/** @type {[number, number]} */
const NO_OFFSETS = [0, 0];

export class Tokenizer {
  /**
   * @param {any} library The module `@huggingface/tokenizers`.
   * @param {any} content Content of `tokenizer.json`.
   * @param {any} settings Content of `tokenizer_config.json`.
   * @throws {TokenizerError} A file is damaged, or the kind of tokenizer is unsupported.
   */
  constructor(library, content, settings) {
    try {
      this.backend = new library.Tokenizer({ ...content, decoder: decoderOf(content.decoder), model: modelOf(content.model) }, settings);
      this.normalize = normalizerOf(content.normalizer);
    } catch (error) {
      if (error instanceof TokenizerError) throw error;
      throw new TokenizerError(`tokenizer.json cannot be used in a browser: ${error}`, { cause: error });
    }
    /** @type {import("./added_tokens.js").AddedToken[]} */
    const added = content.added_tokens ?? [];
    const plain = (/** @type {any} */ token) => !(token.normalized && content.normalizer);
    const found = added.filter((token) => !(token.special && settings.split_special_tokens));
    this.addedPlain = new AddedTokens(found.filter(plain).map((token) => [token.content, token]));
    this.addedNormalized = new AddedTokens(
      found.filter((token) => !plain(token)).map((token) => [this.normalize(Aligned.of(token.content)).text, token]),
    );
    /** The content of added tokens by their ids. @type {Map<number, string>} */
    this.added = new Map(added.map((token) => [token.id, token.content]));
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.settings = settings;
    splitAsInRust(this.backend.pre_tokenizer, content.pre_tokenizer);
    decodeAsInRust(this.backend.decoder);
    this.byteLevel = stepOf(content.pre_tokenizer, "ByteLevel");
    this.metaspace = stepOf(content.pre_tokenizer, "Metaspace");
    this.parts = partsOf(this.metaspace);
    this.splitsSpaces = stepOf(content.pre_tokenizer, "WhitespaceSplit");
    this.trims = trimming(content.post_processor);
    // RoBERTa's two texts are one segment; the library assigns two.
    this.oneSegment = content.post_processor?.type === "RobertaProcessing";
    this.kind = content.model.type ?? "BPE";
    this.prefix = content.model.continuing_subword_prefix ?? "";
    this.unknown = content.model.unk_token ?? null;
    // In byte-pair encoding, each unknown character is a token.
    this.fusesUnknown = this.kind !== "BPE" || content.model.fuse_unk === true;
    this.cleansSpaces = settings.clean_up_tokenization_spaces === true;
    // Whether decoding omits bytes that are not valid UTF-8.
    this.skipsIncomplete = settings.errors === "ignore" && this.byteLevel !== null;
    this.hasByteFallback = this.tokenToId("<0x0A>") !== undefined;
    const parts = (/** @type {string} */ text) => this.words(this.normalize(Aligned.of(text)), 0).length;
    this.joinsWords = parts("a a") === 1;
    this.splitsWords = parts("aa") > 1;
    /** Characters that were removed from a pruned vocabulary. @type {Set<string>} */
    this.dropped = new Set(settings.dropped_characters ?? "");
    /** The tokenizer of the texts that the model writes, which may be another one (Marian). @type {Tokenizer} */
    this.writer = this;
  }

  /** @param {string} token @returns {number | undefined} */
  tokenToId(token) {
    return this.backend.token_to_id(token);
  }

  /** @param {number} id @returns {string | undefined} */
  token(id) {
    return this.backend.id_to_token(id);
  }

  /** All tokens with their ids. @returns {[string, number][]} */
  vocabulary() {
    return [...this.backend.get_vocab(true)];
  }

  /** Whether a token is special, so that decoding can omit it. @param {number} id */
  isSpecial(id) {
    return this.special.has(id);
  }

  /** Whether a token was added to the vocabulary. @param {number} id */
  isAdded(id) {
    return this.added.has(id);
  }

  /** The special token with a name such as `"mask_token"`, or `null`. @param {string} name @returns {string | null} */
  named(name) {
    const value = this.settings[name] ?? null;
    return value === null || typeof value === "string" ? value : value.content;
  }

  /** @returns {string[]} The names of the model's input arrays. */
  get modelInputs() {
    return this.settings.model_input_names ?? ["input_ids", "attention_mask"];
  }

  /**
   * The tokens of a text or a pair of texts, with special tokens.
   * @param {string | string[]} text A text, or its words, of which each is tokenized by itself (`is_split_into_words` in Python).
   * @param {string | null} [pair] @param {boolean} [addSpecialTokens]
   * @returns {Token[]}
   */
  encode(text, pair = null, addSpecialTokens = true) {
    const texts = [text, pair].map((each) => (Array.isArray(each) ? this.tokensOfWords(each) : each === null ? null : this.tokens(each)));
    const marked = texts.map((tokens, sequence) => tokens && tokens.map((_, index) => `${MARK}${sequence}:${index}`));
    const template = this.backend.post_processor;
    const result = template ? template(marked[0], marked[1], addSpecialTokens) : { tokens: marked[0], tokens_pair: marked[1] };
    const tokens = [...result.tokens, ...(result.tokens_pair ?? [])];
    const types = this.oneSegment ? tokens.map(() => 0) : result.token_type_ids;
    return tokens.map((/** @type {string} */ name, /** @type {number} */ index) => {
      if (!name.startsWith(MARK)) return { ...SPECIAL, id: this.tokenToId(name), type: types?.[index] ?? 0, position: index };
      const [sequence, nth] = name.slice(1).split(":").map(Number);
      return { .../** @type {any} */ (texts[sequence])[nth], type: types ? types[index] : sequence, sequence, position: index };
    });
  }

  /**
   * The text of ids; ids that the vocabulary lacks are omitted.
   * @param {number[]} ids @param {boolean} [skipSpecial]
   */
  decode(ids, skipSpecial = false) {
    const known = ids.filter((id) => this.token(id) !== undefined && !(skipSpecial && this.special.has(id)));
    if (!known.length) return "";
    if (this.skipsIncomplete) return decodedBytes(known.flatMap((id) => this.bytes(id)));
    return this.backend.decode(known, { clean_up_tokenization_spaces: this.cleansSpaces });
  }

  /** The bytes of a token, each of whose characters represents one. @param {number} id @returns {number[]} */
  bytes(id) {
    const token = this.token(id) ?? "";
    if (this.added.has(id)) return [...new TextEncoder().encode(token)];
    return Array.from(token, (character) => BYTE_CHARACTERS.indexOf(character));
  }

  /**
   * Splits tokens into chunks, which together cover them; the first one is the truncated text.
   * @param {Token[]} tokens @param {number} limit @param {import("./truncation.js").Cut["strategy"]} strategy
   * @param {number} [stride]
   */
  chunks(tokens, limit, strategy, stride = 0) {
    if (tokens.length <= limit) return [tokens];
    const cut = { limit, strategy, stride, side: this.settings.truncation_side ?? "right" };
    const sequences = tokens.map((token) => token.sequence);
    return chunks(sequences, cut).map((positions) => positions.map((position) => tokens[position]));
  }

  /** The tokens of one text, without special tokens around it. @param {string} text @returns {Token[]} */
  tokens(text) {
    if (!text.isWellFormed?.() && /\p{Cs}/u.test(text)) {
      throw new TokenizerError("the text contains a lone surrogate, so it is not valid Unicode");
    }
    /** @type {Token[]} */
    const tokens = [];
    let word = 0;
    const add = (/** @type {number} */ id, /** @type {[number, number]} */ offsets) =>
      tokens.push({ id, type: 0, sequence: 0, position: tokens.length, word, offsets });
    const sections = this.addedPlain.split(Aligned.of(text));
    sections.forEach(({ text: section, token }, index) => {
      const parts = token ? [{ text: section, token }] : this.addedNormalized.split(this.normalize(section));
      for (const { text: part, token: inside } of parts) {
        if (inside) {
          add(inside.id, this.offsets(part.characters, part.origins, 0, part.origins.length));
          word++;
          continue;
        }
        for (const { characters, origins } of this.words(part, index)) {
          let [start, bytes] = [0, 0];
          for (const name of this.backend.model([characters.join("")])) {
            const isByte = this.hasByteFallback && BYTE.test(name);
            const count = isByte ? 1 : this.extent(name, characters, start);
            add(this.tokenToId(name) ?? this.backend.model.unk_token_id, this.offsets(characters, origins, start, count));
            // Each token of a byte has the offsets of its character.
            if (isByte && ++bytes < new TextEncoder().encode(characters[start]).length) continue;
            [start, bytes] = [start + count, 0];
          }
          word++;
        }
      }
    });
    if (this.dropped.size) this.checkCharacters(text, tokens);
    if (!this.joinsWords && !this.splitsWords) return tokens;
    return withSpacedWords(text, tokens, (id, part) => !this.splitsWords || part.includes(this.added.get(id) ?? "\u0000"));
  }

  /** The tokens of words, which are those of `words` in the tokens; offsets count from the start of a word. @param {string[]} words @returns {Token[]} */
  tokensOfWords(words) {
    return words.flatMap((text, word) => this.tokens(text).map((token) => ({ ...token, word })));
  }

  /**
   * Throws an `InputError` if an unknown token contains characters that were removed from the vocabulary.
   * @param {string} text @param {Token[]} tokens
   */
  checkCharacters(text, tokens) {
    const [characters, unknown] = [Array.from(text), this.backend.model.unk_token_id];
    const parts = tokens.filter(({ id }) => id === unknown).map(({ offsets }) => characters.slice(...offsets).join(""));
    const found = new Set(parts.flatMap((part) => Array.from(this.normalize(Aligned.of(part)).text)));
    const dropped = Array.from(found).filter((character) => this.dropped.has(character)).sort();
    if (!dropped.length) return;
    const more = dropped.length > SHOWN ? ` and ${dropped.length - SHOWN} more` : "";
    throw new InputError(
      "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the languages for " +
        `which it was pruned. Received: ${dropped.slice(0, SHOWN).join(", ")}${more}. Change it, or use the original model`,
    );
  }

  /**
   * The words of a section in the form of the pre-tokenizer, with the original offsets of each character.
   * @param {Aligned} section @param {number} index
   * @returns {{ characters: string[], origins: [number, number][] }[]}
   */
  words(section, index) {
    const { text } = section;
    /** @type {string[]} */
    const words = this.backend.pre_tokenizer ? this.backend.pre_tokenizer(text, { section_index: index }) : [text];
    const parts = this.parts === null ? words : words.flatMap((word) => word.split(/** @type {RegExp} */ (this.parts)));
    const split = parts.filter((word) => word).map((word) => Array.from(word));
    if (this.byteLevel) return inBytes(section, split);
    let position = 0;
    return split.map((characters) => {
      const origins = characters.map((character, index) => {
        const space = this.metaspace !== null && character === "▁";
        const same = (/** @type {string} */ each) => each === character || (space && each === " ");
        if (space && index === 0 && this.splitsSpaces) while (isSpace(section.characters[position] ?? "")) position++;
        // A space that the pre-tokenizer inserted gets the offsets of the start of the word.
        if (space && !same(section.characters[position])) return section.origins[Math.min(position, section.length - 1)];
        while (position < section.length && !same(section.characters[position])) position++;
        return section.origins[Math.min(position++, section.length - 1)];
      });
      return { characters, origins };
    });
  }

  /** The number of characters of a word that a token covers. @param {string} name @param {string[]} characters @param {number} start */
  extent(name, characters, start) {
    const rest = characters.length - start;
    if (name === this.unknown) {
      if (!this.fusesUnknown) return 1;
      if (this.kind !== "BPE") return rest;
      const known = characters.findIndex((character, index) => index > start && this.tokenToId(character) !== undefined);
      return known < 0 ? rest : known - start;
    }
    const text = this.kind === "WordPiece" && start > 0 ? name.slice(this.prefix.length) : name;
    return Math.min(Array.from(text).length, rest);
  }

  /**
   * The offsets of a token, which covers `count` characters of a word.
   * @param {string[]} characters @param {[number, number][]} origins @param {number} first @param {number} count
   * @returns {[number, number]}
   */
  offsets(characters, origins, first, count) {
    const [start, end] = spanOf(origins.slice(first, first + count));
    if (!this.trims) return [start, end];
    // Added tokens may include the spaces around them.
    const spaces = characters.slice(first, first + count).map((character) => character === "Ġ" || isSpace(character));
    let leading = spaces.indexOf(false) < 0 ? count : spaces.indexOf(false);
    const trailing = count - 1 - spaces.lastIndexOf(false);
    // A space that was added before the text is not part of the text; several were in the text.
    if (leading === 1 && start === 0 && this.trims.add_prefix_space) leading = 0;
    const from = Math.min(start + leading, end);
    return [from, Math.max(end - trailing, from)];
  }
}

/** The maximum number of characters in an error message. */
const SHOWN = 10;
/** The fields of special tokens. @type {Omit<Token, "id" | "type" | "position">} */
const SPECIAL = { sequence: -1, word: -1, offsets: NO_OFFSETS };

/** The span from the first to the last offsets. @param {[number, number][]} origins @returns {[number, number]} */
function spanOf(origins) {
  return origins.length ? [origins[0][0], origins[origins.length - 1][1]] : NO_OFFSETS;
}

/** The characters that represent bytes in byte-level vocabularies, as in GPT-2. */
const BYTE_CHARACTERS = byteCharacters();

function byteCharacters() {
  let others = 0;
  const printed = (/** @type {number} */ byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printed(byte) ? byte : 0x100 + others++));
}

/** The text of bytes, without those that are not valid UTF-8. @param {number[]} bytes */
function decodedBytes(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const first = bytes[start];
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    try {
      text += decoder.decode(Uint8Array.from(bytes.slice(start, start + length)));
      start += length;
    } catch {
      start++;
    }
  }
  return text;
}

/** The origins of byte-level words, which have one character for each byte. @param {Aligned} section @param {string[][]} words */
function inBytes(section, words) {
  const encoder = new TextEncoder();
  const origins = section.characters.flatMap((character, index) =>
    Array.from(encoder.encode(character), () => section.origins[index]),
  );
  const missing = words.reduce((sum, word) => sum + word.length, 0) - origins.length;
  // A space that the pre-tokenizer added before the text gets the offsets of its first character.
  origins.unshift(...Array.from({ length: missing }, () => section.origins[0]));
  let position = 0;
  return words.map((characters) => ({ characters, origins: origins.slice(position, (position += characters.length)) }));
}

/** A pattern of the positions at which words must be split further than the library does: before SentencePiece's spaces. @param {any} metaspace */
const partsOf = (metaspace) => (metaspace && metaspace.split !== false ? /(?=▁)/u : null);

const BYTE = /^<0x[0-9A-F]{2}>$/;

/** The template, if it excludes spaces at the ends of tokens from their offsets. @param {any} config @returns {any} */
function trimming(config) {
  const trims = config?.trim_offsets === true && ["ByteLevel", "RobertaProcessing"].includes(config.type);
  if (trims) return config;
  return (config?.processors ?? []).map(trimming).find(Boolean) ?? null;
}
