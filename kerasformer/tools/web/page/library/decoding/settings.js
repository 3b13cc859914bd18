/**
 * Generation settings, with the names, meanings and defaults of `kerasformer.generation.GenerationConfig`.
 */
import { GenerationError } from "../errors.js";

/** @typedef {[expected: string, valid: (value: any) => boolean]} Check */
/** @typedef {{ default: any, check: Check, samples?: boolean, listed?: boolean }} Setting */
/** @typedef {Readonly<Record<string, any>>} Config */

/** @param {any} value */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
/** @param {number} low @returns {Check} */
const integer = (low) => [`an integer of at least ${low}`, (value) => Number.isSafeInteger(value) && value >= low];
/** @param {number} low @param {number} high @returns {Check} */
const between = (low, high) => [
  `a number from ${low} to ${high}`,
  (value) => isNumber(value) && low <= value && value <= high,
];
/** @type {Check} */
const NUMBER = ["a finite number", isNumber];
/** @type {Check} */
const POSITIVE = ["a number above 0", (value) => isNumber(value) && value > 0];
// With smaller values, the divided logits would exceed float32.
/** @type {Check} */
const TEMPERATURE = [
  "0, for the most probable token, or a number of at least 1e-06",
  (value) => isNumber(value) && (value === 0 || value >= 1e-6),
];
/** @type {Check} */
const EARLY = ['true, false or "never"', (value) => typeof value === "boolean" || value === "never"];
/** @type {Check} */
const FLAG = ["true or false", (value) => typeof value === "boolean"];
const TOKEN = integer(0);
/** @type {Check} */
const TOKENS = ["a token id or a list of them", (value) => value.every(TOKEN[1])];
/** @type {Check} */
const SEQUENCES = [
  "a list of non-empty lists of token ids",
  (value) => Array.isArray(value) && value.every((each) => Array.isArray(each) && each.length && TOKENS[1](each)),
];
/** @type {Check} */
const STRINGS = [
  "a non-empty string or a list of them",
  (value) => value.every((/** @type {any} */ each) => typeof each === "string" && each),
];

/** @type {Record<string, Setting>} */
const SETTINGS = {
  max_new_tokens: { default: null, check: integer(1) },
  max_length: { default: null, check: integer(1) },
  min_new_tokens: { default: null, check: integer(0) },
  min_length: { default: 0, check: integer(0) },
  do_sample: { default: null, check: FLAG },
  num_beams: { default: 1, check: integer(1) },
  length_penalty: { default: 1, check: NUMBER },
  early_stopping: { default: false, check: EARLY },
  temperature: { default: 1, check: TEMPERATURE, samples: true },
  top_k: { default: 0, check: integer(0), samples: true },
  top_p: { default: 1, check: between(0, 1), samples: true },
  min_p: { default: null, check: between(0, 1), samples: true },
  seed: { default: null, check: integer(0), samples: true },
  encoder_repetition_penalty: { default: 1, check: POSITIVE },
  repetition_penalty: { default: 1, check: POSITIVE },
  frequency_penalty: { default: 0, check: NUMBER },
  presence_penalty: { default: 0, check: NUMBER },
  no_repeat_ngram_size: { default: 0, check: integer(0) },
  encoder_no_repeat_ngram_size: { default: 0, check: integer(0) },
  bad_words_ids: { default: [], check: SEQUENCES },
  forced_bos_token_id: { default: null, check: TOKEN },
  forced_eos_token_id: { default: [], check: TOKENS, listed: true },
  suppress_tokens: { default: [], check: TOKENS, listed: true },
  begin_suppress_tokens: { default: [], check: TOKENS, listed: true },
  eos_token_id: { default: [], check: TOKENS, listed: true },
  pad_token_id: { default: null, check: TOKEN },
  bos_token_id: { default: null, check: TOKEN },
  decoder_start_token_id: { default: null, check: TOKEN },
  stop_strings: { default: [], check: STRINGS, listed: true },
  max_time: { default: null, check: POSITIVE },
};

/** The settings of a bundle that have an effect in Python but are unsupported here. @param {Record<string, any>} stored */
export function ignoredSettings(stored) {
  return Object.fromEntries(Object.entries(stored).filter(([name]) => !(name in SETTINGS)));
}

/**
 * Combines the settings of the bundle with those of the caller, which take precedence.
 *
 * A sampling setting without `do_sample` enables sampling; `null` restores a default.
 *
 * @param {Record<string, any>} stored Content of `generation_config.json`.
 * @param {Record<string, any>} given Settings of the caller.
 * @returns {Config}
 */
export function settle(stored, given) {
  for (const name of Object.keys(given)) checkName(name);
  const changes = { ...given };
  /** @type {Record<string, any>} */
  const settings = { do_sample: false };
  for (const [name, value] of Object.entries(stored)) if (name in SETTINGS) settings[name] = value ?? settings[name];
  if (changes.max_length != null && !("max_new_tokens" in changes)) changes.max_new_tokens = null;
  if (changes.min_length != null && !("min_new_tokens" in changes)) changes.min_new_tokens = null;
  const beams = changes.num_beams ?? settings.num_beams ?? 1;
  const requestsSampling = Object.entries(changes).some(([name, value]) => {
    // A seed alone does not turn beams into samples.
    return SETTINGS[name].samples && value != null && !(name === "seed" && beams > 1);
  });
  if (requestsSampling && !("do_sample" in changes)) changes.do_sample = true;
  Object.assign(settings, changes);
  const config = Object.fromEntries(Object.keys(SETTINGS).map((name) => [name, checked(name, settings[name])]));
  if (config.temperature === 0) Object.assign(config, { temperature: 1, do_sample: false });
  config.do_sample ??= Object.entries(SETTINGS).some(([name, { samples, default: usual }]) => {
    return samples && config[name] !== usual;
  });
  if (config.do_sample && config.num_beams > 1) {
    throw new GenerationError(
      `beam search with sampling is unsupported in a browser. Received: num_beams=${config.num_beams} with ` +
        "sampling. Set num_beams: 1, or do_sample: false.",
    );
  }
  return Object.freeze(config);
}

/** Throws for an unknown setting. @param {string} name */
function checkName(name) {
  if (name in SETTINGS) return;
  const known = Object.keys(SETTINGS).sort().join(", ");
  throw new GenerationError(`${name} is not a generation setting that the page supports. Expected one of ${known}`);
}

/** Returns the value of a setting, or throws. @param {string} name @param {any} value */
function checked(name, value) {
  const { default: usual, check, listed } = SETTINGS[name];
  if (value == null) return usual;
  const [expected, valid] = check;
  const plain = listed && !Array.isArray(value) ? [value] : value;
  if (valid(plain)) return plain;
  throw new GenerationError(`${name} must be ${expected}. Received: ${JSON.stringify(value)}`);
}
