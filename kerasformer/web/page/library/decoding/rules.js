/**
 * Logits rules: what may be said next. Each is one small function, applied in the order of this file, which is that of
 * `kerasformer.decoding.rules`, where the sources are named.
 */

/**
 * What has been said so far.
 * @typedef {object} History
 * @property {number[]} ids All tokens: the prompt (an encoder-decoder's start token) and what was generated.
 * @property {number} width Tokens before the first generated one.
 * @property {number[]} prompt The tokens that the model was given; what an encoder read.
 */

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {(history: History, logits: Float32Array, config: Config) => void} Rule */

/** Changes the logits `(V,)` in place. @type {[when: (config: Config) => any, rule: Rule][]} */
const RULES = [
  [
    (config) => config.encoder_repetition_penalty !== 1,
    (history, logits, config) => penalize(logits, history.prompt, 1 / config.encoder_repetition_penalty),
  ],
  [
    (config) => config.repetition_penalty !== 1,
    (history, logits, config) => penalize(logits, history.ids, config.repetition_penalty),
  ],
  [(config) => config.frequency_penalty || config.presence_penalty, frequencyAndPresencePenalty],
  [
    (config) => config.no_repeat_ngram_size,
    (history, logits, config) => forbidRepeats(logits, history.ids, history.ids, config.no_repeat_ngram_size),
  ],
  [
    (config) => config.encoder_no_repeat_ngram_size,
    ({ ids, prompt }, logits, config) => forbidRepeats(logits, prompt, ids, config.encoder_no_repeat_ngram_size),
  ],
  [(config) => config.bad_words_ids.length, badWords],
  [
    (config) => config.min_new_tokens,
    (history, logits, config) => {
      if (numNew(history) < config.min_new_tokens) forbid(logits, config.eos_token_id);
    },
  ],
  [
    (config) => config.forced_bos_token_id !== null,
    (history, logits, config) => {
      if (history.ids.length === 1) force(logits, [config.forced_bos_token_id]);
    },
  ],
  [
    (config) => config.forced_eos_token_id.length,
    (history, logits, config) => {
      if (numNew(history) === config.max_new_tokens - 1) force(logits, config.forced_eos_token_id);
    },
  ],
  [
    (config) => config.suppress_tokens.length,
    (history, logits, config) => forbid(logits, config.suppress_tokens),
  ],
  [
    (config) => config.begin_suppress_tokens.length,
    (history, logits, config) => {
      const first = Number(history.width === 1 && config.forced_bos_token_id !== null);
      if (numNew(history) === first) forbid(logits, config.begin_suppress_tokens);
    },
  ],
];

/**
 * Logits after all rules that the settings ask for; the engine's own array stays untouched.
 * @param {History} history @param {Float32Array} logits @param {Config} config
 */
export function applyRules(history, logits, config) {
  const wanted = RULES.filter(([when]) => when(config));
  if (!wanted.length) return logits;
  const changed = logits.slice();
  for (const [, rule] of wanted) rule(history, changed, config);
  return changed;
}

/** @param {History} history */
const numNew = (history) => history.ids.length - history.width;

/** Minus infinity for these tokens. @param {Float32Array} logits @param {Iterable<number>} tokens */
function forbid(logits, tokens) {
  // Ids beyond the vocabulary cannot be generated anyway; a typed array drops them.
  for (const token of tokens) logits[token] = -Infinity;
}

/** Logit 0 for these tokens, minus infinity for all others. @param {Float32Array} logits @param {number[]} tokens */
function force(logits, tokens) {
  logits.fill(-Infinity);
  for (const token of tokens) logits[token] = 0;
}

/**
 * `logit / penalty` if positive, `logit * penalty` if negative, once for each token.
 * @param {Float32Array} logits @param {number[]} tokens @param {number} penalty
 */
function penalize(logits, tokens, penalty) {
  const factor = Math.fround(penalty);
  for (const token of new Set(tokens)) {
    logits[token] = logits[token] < 0 ? logits[token] * factor : logits[token] / factor;
  }
}

/** @type {Rule} */
function frequencyAndPresencePenalty(history, logits, config) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const token of history.ids.slice(history.width)) counts.set(token, (counts.get(token) ?? 0) + 1);
  for (const [token, count] of counts) {
    logits[token] -= Math.fround(count * config.frequency_penalty + config.presence_penalty);
  }
}

/**
 * Forbids tokens that would complete an n-gram of `tokens` after what was `said`.
 * @param {Float32Array} logits @param {number[]} tokens @param {number[]} said @param {number} size
 */
function forbidRepeats(logits, tokens, said, size) {
  if (said.length < size - 1) return;
  const prefix = said.slice(said.length - size + 1);
  for (let last = size - 1; last < tokens.length; last++) {
    if (prefix.every((token, place) => tokens[last - size + 1 + place] === token)) logits[tokens[last]] = -Infinity;
  }
}

/** Forbids the token that would complete a bad word; a word that is just an end token stays allowed. @type {Rule} */
function badWords({ ids }, logits, config) {
  for (const word of config.bad_words_ids) {
    const before = word.slice(0, -1);
    const says = before.every((/** @type {number} */ token, /** @type {number} */ place) => {
      return ids[ids.length - before.length + place] === token;
    });
    if (says && !(word.length === 1 && config.eos_token_id.includes(word[0]))) forbid(logits, word.slice(-1));
  }
}
