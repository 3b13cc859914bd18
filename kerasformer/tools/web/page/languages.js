// Menus of the languages of a translation, with the names of languages instead of the codes of the model, which differ from
// model to model: `deu_Latn` (NLLB), `de_DE` (mBART), `de` (T5), `deu` (OPUS-MT).

const NAMES = new Intl.DisplayNames("en", { type: "language", fallback: "none" });

/**
 * The menus of a model: the languages of the input and of the output, for each side with a choice.
 * @param {any} model An entry of site.json.
 */
export function menus({ languages }) {
  if (!languages) return [];
  const { sources, targets, src_lang: source } = languages;
  const target = languages.tgt_lang ?? targets.find((code) => code !== source && isOwn(code)) ?? targets.find((code) => code !== source);
  const sides = [
    { name: "src_lang", label: "Source language", choices: named(sources), chosen: source },
    { name: "tgt_lang", label: "Target language", choices: named(targets), chosen: target },
  ];
  return sides.filter(({ choices }) => choices.length > 1).map((menu, _, { length }) => ({ ...menu, half: length > 1 }));
}

/** Codes with their names, in the order of these; codes without a name are shown themselves. @param {string[]} codes @returns {[string, string][]} */
function named(codes) {
  const short = codes.map((code) => nameOf(localeOf(code)?.language));
  const names = codes.map((code, index) => {
    if (!short[index]) return code;
    if (short.indexOf(short[index]) === short.lastIndexOf(short[index])) return short[index];
    // Several scripts or regions of a language: "Chinese (Simplified)".
    return nameOf(localeOf(code).baseName) ?? code;
  });
  const unique = names.map((name, index) => (names.indexOf(name) === names.lastIndexOf(name) ? name : `${name} (${codes[index]})`));
  return codes.map((code, index) => /** @type {[string, string]} */ ([code, unique[index]])).sort(([, a], [, b]) => a.localeCompare(b, "en"));
}

/** @param {string | undefined} tag */
function nameOf(tag) {
  return tag && NAMES.of(tag);
}

/** @param {string} code */
function localeOf(code) {
  try {
    return new Intl.Locale(code.replaceAll("_", "-"));
  } catch {
    return null; // a code of the model's own
  }
}

/** Whether a code is one of the languages of the browser. @param {string} code */
function isOwn(code) {
  const language = localeOf(code)?.language;
  return navigator.languages.some((each) => new Intl.Locale(each).language === language);
}
