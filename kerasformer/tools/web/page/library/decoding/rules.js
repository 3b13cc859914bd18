/**
 * Logits rules: each changes the scores of the next token. They are applied in the order of this file, which is that of
 * `kerasformer.generation.rules`; references are there.
 */

/**
 * The tokens so far.
 * @typedef {object} History
 * @property {number[]} ids All tokens: the prompt (for an encoder-decoder, the start token) and the generated tokens.
 * @property {number} width Number of tokens before the first generated one.
 * @property {number[]} prompt The prompt; for an encoder-decoder, the encoder's input.
 */

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {(history: History, logits: Float32Array, config: Config) => void} Rule */

/** Rules, which change the logits `(V,)` in place, with the condition of each. @type {[when: (config: Config) => any, rule: Rule][]} */
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
 * Returns the logits after all rules that the settings activate; the engine's array is not changed.
 * @param {History} history @param {Float32Array} logits @param {Config} config
 */
export function applyRules(history, logits, config) {
  const active = RULES.filter(([when]) => when(config));
  if (!active.length) return logits;
  const changed = logits.slice();
  for (const [, rule] of active) rule(history, changed, config);
  return changed;
}

/** @param {History} history */
const numNew = (history) => history.ids.length - history.width;

/** Sets the logits of some tokens to minus infinity. @param {Float32Array} logits @param {Iterable<number>} tokens */
function forbid(logits, tokens) {
  // Ids beyond the vocabulary cannot be generated anyway; a typed array drops them.
  for (const token of tokens) logits[token] = -Infinity;
}

/** Sets the logits of some tokens to 0, and all others to minus infinity. @param {Float32Array} logits @param {number[]} tokens */
function force(logits, tokens) {
  logits.fill(-Infinity);
  for (const token of tokens) logits[token] = 0;
}

/**
 * Replaces positive logits by `logit / penalty` and negative ones by `logit * penalty`, once for each token.
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
 * Forbids tokens that, after `previous`, would complete an n-gram that occurs in `tokens`.
 * @param {Float32Array} logits @param {number[]} tokens @param {number[]} previous @param {number} size
 */
function forbidRepeats(logits, tokens, previous, size) {
  if (previous.length < size - 1) return;
  const prefix = previous.slice(previous.length - size + 1);
  for (let last = size - 1; last < tokens.length; last++) {
    if (prefix.every((token, index) => tokens[last - size + 1 + index] === token)) logits[tokens[last]] = -Infinity;
  }
}

/** Forbids tokens that would complete a bad word, except for a word that is only an end token. @type {Rule} */
function badWords({ ids }, logits, config) {
  for (const word of config.bad_words_ids) {
    const before = word.slice(0, -1);
    const matches = before.every((/** @type {number} */ token, /** @type {number} */ index) => {
      return ids[ids.length - before.length + index] === token;
    });
    if (matches && !(word.length === 1 && config.eos_token_id.includes(word[0]))) forbid(logits, word.slice(-1));
  }
}
