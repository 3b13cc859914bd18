/**
 * The properties of characters as the Rust library `tokenizers` (0.23) reads them. Its tables are of several versions of Unicode, most
 * of them older than those of JavaScript engines, so that the characters in the lists have fewer properties there.
 */

/** The content of a class of characters. @param {string} text Code points and ranges of them, in hexadecimal numbers. */
function ranges(text) {
  return text.replace(/[0-9A-F]+/g, "\\u{$&}").replaceAll(" ", "");
}

/** Marks that `StripAccents` does not remove. */
const NEW_MARKS = ranges(
  "7FD 897-89F 8CA-8D3 9FE AFA-AFF B55 C04 C3C CF3 D00 D3B-D3C D81 EBA ECE 1715 180F 1ABF-1ADD 1AE0-1AEB 1CF7 " +
    "1DF6-1DFA A82C A8FF 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 11070 " +
    "11073-11074 110C2 11145-11146 111C9 111CE-111CF 11241 1133B 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 " +
    "113D2 113E1-113E2 1145E 1182C-1183A 11930-11935 11937-11938 1193B-1193E 11940 11942-11943 119D1-119D7 " +
    "119DA-119E0 119E4 11A01-11A0A 11A33-11A39 11A3B-11A3E 11A47 11A51-11A5B 11A8A-11A99 11B60-11B67 11D31-11D36 " +
    "11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D8A-11D8E 11D90-11D91 11D93-11D97 11EF3-11EF6 11F00-11F01 11F03 " +
    "11F34-11F3A 11F3E-11F42 11F5A 13440 13447-13455 1611E-1612F 16F4F 16F7F-16F87 16FE4 16FF0-16FF1 1CF00-1CF2D " +
    "1CF30-1CF46 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5",
);
/** Accents that BERT's normalizer does not remove. */
const NEW_NON_SPACING_MARKS = ranges(
  "7FD 897-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1ADD 1AE0-1AEB " +
    "1DF6-1DFB A82C A8C5 A8FF A9BD 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 11070 " +
    "11073-11074 110C2 111C9 111CF 1123E 11241 1133B 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11438-1143F " +
    "11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB 119E0 " +
    "11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11B60 11B62-11B64 " +
    "11B66 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A " +
    "11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 11F00-11F01 11F36-11F3A 11F40 11F42 11F5A " +
    "13440 13447-13455 1611E-16129 1612D-1612F 16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46 1E000-1E006 1E008-1E018 " +
    "1E01B-1E021 1E023-1E024 1E026-1E02A 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 " +
    "1E6EE-1E6EF 1E6F5 1E944-1E94A",
);
/** Punctuation characters that are no words of their own. */
const NEW_PUNCTUATION = ranges(
  "61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 10D6E 10EAD 10ED0 10F55-10F59 10F86-10F89 " +
    "113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 " +
    "11A9A-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2 " +
    "16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F",
);
/** Letters, marks and digits that patterns do not match. */
const NEW_WORDS = ranges(
  "88F C5C CDC 1ACF-1ADD 1AE0-1AEB A7CE-A7CF A7D2 A7D4 A7F1 10940-10959 10EC5-10EC7 10EFA-10EFB 11B60-11B67 " +
    "11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E 18D80-18DF2 1E6C0-1E6DE " +
    "1E6E0-1E6F5 1E6FE-1E6FF 2B73A-2B73F 2CEA2-2CEAD",
);
/** Characters that a normal form neither changes nor moves. */
const NOT_NORMALIZED = ranges(
  "7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ADD 1AE0-1AEB 1DF6-1DFA 32FF A7F1-A7F4 A82C AB69 105C9 " +
    "105E4 10781-10785 10787-107B0 107B2-107BA 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFB 10EFD-10EFF " +
    "10F46-10F50 10F82-10F85 11070 1133B 11383 11385 1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A " +
    "11938 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 16121-16128 1612F " +
    "16D68-16D6A 16FF0-16FF1 1CCD6-1CCF9 1E030-1E06D 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF " +
    "1E6E3 1E6E6 1E6EE-1E6EF 1E6F5 1F16C 1FBF0-1FBF9",
);

const ASCII_PUNCTUATION = "\\u0021-\\u002F\\u003A-\\u0040\\u005B-\\u0060\\u007B-\\u007E";
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
const PUNCTUATION = `(?:(?![${NEW_PUNCTUATION}])[\\p{P}${ASCII_PUNCTUATION}]|[\\u166D\\u{111C9}])`;

/** Patterns of the words of some pre-tokenizers. @type {Record<string, RegExp>} */
export const WORDS = {
  BertPreTokenizer: new RegExp(`${PUNCTUATION}|(?:(?!${PUNCTUATION})\\P{White_Space})+`, "gu"),
  WhitespaceSplit: /\P{White_Space}+/gu,
  Whitespace: new RegExp(`(?:(?![${NEW_WORDS}])[${WORD}])+|(?:[^${WORD}\\p{White_Space}]|[${NEW_WORDS}])+`, "gu"),
  Punctuation: new RegExp(`${PUNCTUATION}|(?:(?!${PUNCTUATION}).)+`, "gsu"),
  Digits: /\p{N}+|\P{N}+/gu,
};
export const EACH_DIGIT = /\p{N}|\P{N}+/gu;

/** A function that tells whether a pattern matches a character. @param {string} pattern @returns {(character: string) => boolean} */
function matcher(pattern) {
  const expression = new RegExp(`^(?:${pattern})$`, "u");
  /** @type {Map<string, boolean>} */
  const known = new Map();
  return (character) => {
    let result = known.get(character);
    if (result === undefined) known.set(character, (result = expression.test(character)));
    return result;
  };
}

/** A space of Unicode: unlike `\s` in JavaScript's patterns, U+0085 is one, and U+FEFF is none. */
export const isSpace = matcher("\\p{White_Space}");
/** A character of a word, as `\w` in Rust's patterns. */
export const isWord = matcher(`(?![${NEW_WORDS}])[${WORD}]`);
/** A mark of any kind, which `StripAccents` removes. */
export const isMark = matcher(`(?![${NEW_MARKS}])\\p{M}|[\\u1CF2\\u1CF3]`);
/** An accent, which BERT's normalizer removes. */
export const isNonSpacingMark = matcher(`(?![${NEW_NON_SPACING_MARKS}])\\p{Mn}|[\\u1734\\u{1171E}]`);
/** A character that BERT's normalizer removes. */
export const isControl = matcher("(?![\\t\\n\\r\\u0890\\u0891\\u08E2\\u{110CD}\\u{13430}-\\u{1343F}])[\\p{Cc}\\p{Cf}\\p{Co}]|\\uFFFD");
/** A Chinese character, around which BERT's normalizer puts spaces. */
export const isChinese = matcher(
  "[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}\\u{2B740}-\\u{2B81F}\\u{2B920}-\\u{2CEAF}" +
    "\\uF900-\\uFAFF\\u{2F800}-\\u{2FA1F}]",
);
/** Whether a normal form leaves a character as it is. */
export const isUnnormalized = matcher(`[${NOT_NORMALIZED}]`);
/** A character that a normal form may join to the ones before it, or order before them: marks and parts of Korean syllables. */
export const isJoining = matcher(`(?![${NOT_NORMALIZED}])[\\p{M}\\u1100-\\u11FF\\u3130-\\u318F\\uD7B0-\\uD7FB\\uFF9E-\\uFFDC]`);

/** A pattern with the spaces and the letters of the Rust library. @param {RegExp} pattern */
export function asInRust({ source, flags }) {
  const spaces = /** @type {Record<string, string>} */ ({ "\\s": "\\p{White_Space}", "\\S": "\\P{White_Space}" });
  const withSpaces = (/** @type {string} */ part) => part.replace(/\\./gsu, (escape) => spaces[escape] ?? escape);
  const changed = source.replace(/\[\^?(?:\\.|[^\]\\])*\]|\\p\{[^}]*\}|\\./gsu, (part) => {
    const known = withSpaces(part);
    if (!/\\p\{(?:L|M|N)/u.test(part)) return known;
    return part.startsWith("[^") ? `(?:${known}|[${NEW_WORDS}])` : `(?:(?![${NEW_WORDS}])${known})`;
  });
  return new RegExp(changed, flags);
}
