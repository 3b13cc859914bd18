/**
 * The languages of a translation, with the rules and errors of `kerasformer.pipelines.translation` and of
 * `kerasformer.tokenization.languages`: tokens of languages (NLLB, mBART), tokens such as `>>fra<<` at the start of a text
 * (OPUS-MT), or prefixes (T5).
 */
import { closest } from "../closest.js";
import { InputError } from "../errors.js";

/** @typedef {import("./shared.js").Bundle} Bundle */
/** @typedef {{ src_lang: string | null, tgt_lang: string | null }} Languages */

/**
 * What the languages of a call change.
 * @typedef {object} Spoken
 * @property {string} prefix Text put before the input.
 * @property {Record<string, any>} settings Generation settings that take precedence over those of the bundle.
 * @property {(ids: number[]) => number[]} mark Puts the token of the input's language into the ids of a text; throws if the
 *   text has no token of its language.
 */

const SETTINGS = ["forced_bos_token_id", "decoder_start_token_id"];
const MARK = /^>>(\S+)<<$/u;

/**
 * @param {Bundle} bundle @param {Languages} languages @param {string | null} prefix The one of the call.
 * @param {Record<string, any>} given The generation settings of the bundle and of the call.
 * @returns {Spoken}
 */
export function spoken(bundle, languages, prefix, given) {
  const { info } = bundle;
  const translates = info.task === "translation";
  const marks = translates ? marksOf(bundle) : {};
  const prefixes = prefixesFor(info, info.task);
  const asked = languages.src_lang !== null || languages.tgt_lang !== null;
  const codes = Object.keys(marks);
  const same = { settings: {}, mark: (/** @type {number[]} */ ids) => ids };
  if (codes.length) {
    if (prefix !== null) refuse(languages);
    const mark = (/** @type {number[]} */ ids) => {
      if (codes.length > 1 && !Object.values(marks).includes(ids[0])) throw missing("tgt_lang", "output", codes);
      return ids;
    };
    return { ...same, prefix: prefix ?? markOf(languages, codes), mark };
  }
  if (info.languages) {
    const { settings, mark } = withTokens(info.languages, languages, given);
    return { settings, mark, prefix: prefix ?? defaultPrefix(info, info.task) };
  }
  if (translates && prefix === null && asked && Object.keys(prefixes).length) {
    const task = taskBetween(languages, Object.keys(prefixes));
    return { ...same, prefix: prefixes[task], settings: info.task_settings?.[task] ?? {} };
  }
  refuse(languages);
  return { ...same, prefix: prefix ?? defaultPrefix(info, info.task) };
}

/** The prefixes of a task; those of translations name the languages. @param {any} info @param {string} task @returns {Record<string, string>} */
function prefixesFor(info, task) {
  return Object.fromEntries(Object.entries(info.task_prefixes).filter(([name]) => name && name.startsWith(task)));
}

/**
 * The text before an input: that of the task, of all tasks, or of the only variant of the task.
 * @param {any} info @param {string} task
 * @returns {string}
 */
export function defaultPrefix(info, task) {
  const texts = Object.values(prefixesFor(info, task));
  const known = info.task_prefixes[task] ?? info.task_prefixes[""];
  if (known != null) return known;
  if (texts.length > 1) {
    const listed = texts.map((text) => JSON.stringify(text)).join(", ");
    throw new InputError(`This model has several prefixes for ${task}. Set prefix to one of ${listed}`);
  }
  return texts[0] ?? "";
}

/** Ids of tokens such as `>>fra<<`, by the codes of the languages. @param {Bundle} bundle @returns {Record<string, number>} */
function marksOf({ tokenizer }) {
  return Object.fromEntries(tokenizer.vocabulary().flatMap(([token, id]) => {
    const match = MARK.exec(token);
    return match ? [[match[1], id]] : [];
  }).sort());
}

/** The text that marks the language of the output. @param {Languages} languages @param {string[]} codes */
function markOf({ src_lang: source, tgt_lang: target }, codes) {
  if (source !== null) {
    throw new InputError(
      `This model marks the language of the output alone. Expected: no src_lang. Received: src_lang=${JSON.stringify(source)}`,
    );
  }
  if (target === null) return "";
  if (!codes.includes(target)) throw unknown("tgt_lang", target, codes, closest(target, codes, 1));
  return `>>${target}<< `;
}

/**
 * The token of the input's language, and the setting that selects the language of the output.
 * @param {{ ids: Record<string, number>, after: boolean, setting: string, src_lang: string | null, tgt_lang: string | null }} known
 * @param {Languages} languages @param {Record<string, any>} given
 */
function withTokens(known, languages, given) {
  const codes = Object.entries(known.ids).sort(([, a], [, b]) => a - b).map(([code]) => code);
  const chosen = (/** @type {"src_lang" | "tgt_lang"} */ name) => {
    const code = languages[name];
    if (code === null) return known[name];
    if (Object.hasOwn(known.ids, code)) return code;
    const alike = Object.fromEntries(codes.map((each) => [each.toLowerCase(), each]));
    throw unknown(name, code, codes, closest(String(code).toLowerCase(), Object.keys(alike), 3).map((each) => alike[each]));
  };
  const [source, target] = [chosen("src_lang"), chosen("tgt_lang")];
  const ids = Object.values(known.ids);
  if (target === null && !SETTINGS.some((name) => ids.includes(given[name]))) throw missing("tgt_lang", "output", codes);
  if (source === null) throw missing("src_lang", "input", codes);
  const mark = (/** @type {number[]} */ text) => text.with(known.after ? -1 : 0, known.ids[source]);
  return { mark, settings: target === null ? {} : { [known.setting]: known.ids[target] } };
}

/** The task that translates between two languages, one of which may be missing. @param {Languages} languages @param {string[]} tasks */
function taskBetween({ src_lang: source, tgt_lang: target }, tasks) {
  const pairs = tasks.map((task) => /** @type {[string, string]} */ (task.replace("translation_", "").split("_to_")));
  const found = tasks.filter((_, index) => {
    return [source, target].every((code, side) => code === null || code === pairs[index][side]);
  });
  if (found.length === 1) return found[0];
  if (found.length) {
    const side = source === null ? 0 : 1;
    const codes = pairs.filter((_, index) => found.includes(tasks[index])).map((pair) => pair[side]);
    throw missing(["src_lang", "tgt_lang"][side], ["input", "output"][side], codes);
  }
  const listed = pairs.map((pair) => pair.join(" to "));
  const received = Object.entries({ src_lang: source, tgt_lang: target }).filter(([, code]) => code !== null);
  throw new InputError(
    `The model does not translate between these languages. Expected: one of ${listed.join(", ")}. Received: ` +
      received.map(([name, code]) => `${name}=${JSON.stringify(code)}`).join(", ") +
      hint(closest(`${source ?? ""} to ${target ?? ""}`, listed, 1)),
  );
}

/** Throws if languages are passed to a model that does not distinguish them. @param {Languages} languages */
function refuse({ src_lang: source, tgt_lang: target }) {
  if (source === null && target === null) return;
  throw new InputError(
    "The texts of this model are not marked with a language. Expected: neither src_lang nor tgt_lang. " +
      `Received: src_lang=${JSON.stringify(source)}, tgt_lang=${JSON.stringify(target)}`,
  );
}

/** @param {string} name @param {string} texts @param {string[]} codes */
function missing(name, texts, codes) {
  return new InputError(
    `The language of the ${texts} is missing. Expected ${name} to be one of ${codes.join(", ")}. Received: none`,
  );
}

/** @param {string} name @param {any} code @param {string[]} codes @param {string[]} close */
function unknown(name, code, codes, close) {
  return new InputError(
    `${name} must be a language of the model. Expected: one of ${codes.join(", ")}. Received: ${JSON.stringify(code)}` +
      hint(close.map((each) => JSON.stringify(each))),
  );
}

/** @param {string[]} close */
function hint(close) {
  return close.length ? `. Did you mean ${close.join(" or ")}?` : "";
}
