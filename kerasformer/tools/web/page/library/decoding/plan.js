/**
 * Prepares a run: checks the prompt, and determines its lengths and the reasons to end.
 */
import { CapacityError, GenerationError } from "../errors.js";
import { completesString } from "./stopping.js";

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {import("./rules.js").History} History */

/**
 * The interface of engines with generating models. A step does not change its input state, so that several hypotheses can
 * continue from one state; a state occupies memory until it is released.
 * @typedef {object} Step
 * @property {boolean} isEncoderDecoder Whether `start` takes the input of an encoder.
 * @property {number} capacity Number of slots of the decoder's cache, for the prompt and generated tokens.
 * @property {number} vocabSize Number of logits.
 * @property {(ids: number[]) => Promise<any>} start Reads all but the last token of a prompt, or encodes a text.
 * @property {(state: any, length: number, ids: number[]) => Promise<any>} resume Keeps the first tokens of a text, at least
 *   one, and reads others after them. Releases the state, unless it returns `null` because the caches of a sliding window no
 *   longer have the keys of these tokens.
 * @property {(token: number, state: any) => Promise<{ logits: Float32Array, state: any }>} step Reads one more token.
 * @property {(state: any) => void} release Frees a state.
 */

/**
 * A prepared run.
 * @typedef {object} Plan
 * @property {Step} step
 * @property {import("./prefix_cache.js").PrefixCache | null} cache Provides the state after the prompt and keeps the last one.
 * @property {number[]} prompt The tokens for `Step.start`.
 * @property {number[]} prefix The decoder's tokens before the first new one, also visible to rules.
 * @property {Config} config Settings, with the effective `max_new_tokens` and `min_new_tokens`.
 * @property {"length" | "capacity"} last The reason if the text ends after `max_new_tokens`.
 * @property {(history: History) => string | null} endOf Returns why a text ends after its last token, or `null`.
 */

const DEFAULT_NEW_TOKENS = 20;

/**
 * @param {Step} step @param {number[]} prompt @param {Config} config
 * @param {(ids: number[]) => string} decode Used to find stop strings.
 * @param {AbortSignal} [signal] Ends the text after the current token.
 * @param {import("./prefix_cache.js").PrefixCache | null} [cache] Caches of an earlier text of this engine.
 * @returns {Plan}
 */
export function plan(step, prompt, config, decode, signal, cache = null) {
  const deadline = performance.now() + 1000 * (config.max_time ?? Infinity);
  const prefix = step.isEncoderDecoder ? [decoderStart(step, config)] : prompt;
  const forced = [...config.forced_eos_token_id, config.forced_bos_token_id ?? 0];
  if (forced.some((token) => token >= step.vocabSize)) {
    throw new GenerationError(`forced tokens must be from 0 to ${step.vocabSize - 1}. Received: ${forced}.`);
  }
  const requested = config.max_new_tokens ?? (config.max_length === null ? DEFAULT_NEW_TOKENS : config.max_length - prefix.length);
  if (requested < 1) {
    throw new GenerationError(
      "max_length includes the prompt and must exceed its length. " +
        `Received: max_length=${config.max_length} for a prompt of ${prefix.length} tokens. Set max_new_tokens instead.`,
    );
  }
  const room = step.capacity - prefix.length;
  if (room < 1) {
    throw new CapacityError(
      `the prompt leaves no space for a new token. Expected at most ${step.capacity - 1} tokens. ` +
        `Received: ${prefix.length}. Shorten the prompt, or export with a larger capacity.`,
      { most: step.capacity - 1, received: prefix.length },
    );
  }
  const least = config.min_new_tokens ?? Math.max(config.min_length - prefix.length, 0);
  const settled = { ...config, max_new_tokens: Math.min(requested, room), min_new_tokens: least };
  /** @param {History} history */
  const endOf = ({ ids, width }) => {
    if (config.eos_token_id.includes(ids[ids.length - 1])) return "eos";
    const strings = config.stop_strings;
    if (strings.length && completesString(strings, ids.slice(0, width), ids.slice(width), decode)) return "stop";
    if (signal?.aborted) return "cancelled";
    return performance.now() > deadline ? "time" : null;
  };
  return { step, cache, prompt, prefix, config: settled, last: requested <= room ? "length" : "capacity", endOf };
}

/** The first token that the decoder of an encoder-decoder reads. @param {Step} step @param {Config} config */
function decoderStart(step, config) {
  const start = config.decoder_start_token_id ?? config.bos_token_id;
  if (start === null || start >= step.vocabSize) {
    throw new GenerationError(
      "an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, " +
        `from 0 to ${step.vocabSize - 1}. Received: ${start}.`,
    );
  }
  return start;
}
