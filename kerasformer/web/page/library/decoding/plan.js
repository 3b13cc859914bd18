/**
 * From what a caller gives to what a run needs: the prompt checked, lengths settled, reasons to end.
 */
import { CapacityError, GenerationError } from "../errors.js";
import { says } from "./stopping.js";

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {import("./rules.js").History} History */

/**
 * What every engine offers for models that generate. A state is never changed by a step, so that several hypotheses may
 * go on from one; it takes memory until it is released.
 * @typedef {object} Step
 * @property {boolean} isEncoderDecoder `start` reads the encoder's input.
 * @property {number} capacity Positions of the decoder's cache, prompt and generated tokens together.
 * @property {number} vocabSize Width of the logits.
 * @property {(ids: number[]) => Promise<any>} start Reads all but the last token of a prompt, or what is encoded.
 * @property {(token: number, state: any) => Promise<{ logits: Float32Array, state: any }>} step Reads one more token.
 * @property {(state: any) => void} release Frees a state.
 */

/**
 * A run, ready to start.
 * @typedef {object} Plan
 * @property {Step} step
 * @property {number[]} prompt For `Step.start`.
 * @property {number[]} begin Tokens before the first new one, as rules and the decoder see them.
 * @property {Config} config With `max_new_tokens` and `min_new_tokens` in effect.
 * @property {"length" | "capacity"} last What ends a text that nothing else ends.
 * @property {(history: History) => string | null} endOf Why a text ends after its last token, if it does.
 */

const DEFAULT_NEW_TOKENS = 20;

/**
 * @param {Step} step @param {number[]} prompt @param {Config} config
 * @param {(ids: number[]) => string} decode For stop strings.
 * @param {AbortSignal} [signal] Ends the text with the token at hand.
 * @returns {Plan}
 */
export function plan(step, prompt, config, decode, signal) {
  const deadline = performance.now() + 1000 * (config.max_time ?? Infinity);
  const begin = step.isEncoderDecoder ? [decoderStart(step, config)] : prompt;
  const forced = [...config.forced_eos_token_id, config.forced_bos_token_id ?? 0];
  if (forced.some((token) => token >= step.vocabSize)) {
    throw new GenerationError(`forced tokens must be from 0 to ${step.vocabSize - 1}. Received: ${forced}.`);
  }
  const most = config.max_new_tokens ?? (config.max_length === null ? DEFAULT_NEW_TOKENS : config.max_length - begin.length);
  if (most < 1) {
    throw new GenerationError(
      "max_length counts the prompt too and must exceed it. " +
        `Received: max_length=${config.max_length} for a prompt of ${begin.length} tokens. Set max_new_tokens instead.`,
    );
  }
  const room = step.capacity - begin.length;
  if (room < 1) {
    throw new CapacityError(
      `the prompt leaves no place for a new token. Expected at most ${step.capacity - 1} tokens. ` +
        `Received: ${begin.length}. Shorten the prompt, or export with a larger capacity.`,
      { most: step.capacity - 1, received: begin.length },
    );
  }
  const least = config.min_new_tokens ?? Math.max(config.min_length - begin.length, 0);
  const settled = { ...config, max_new_tokens: Math.min(most, room), min_new_tokens: least };
  /** @param {History} history */
  const endOf = ({ ids, width }) => {
    if (config.eos_token_id.includes(ids[ids.length - 1])) return "eos";
    const strings = config.stop_strings;
    if (strings.length && says(strings, ids.slice(0, width), ids.slice(width), decode)) return "stop";
    if (signal?.aborted) return "cancelled";
    return performance.now() > deadline ? "time" : null;
  };
  return { step, prompt, begin, config: settled, last: most <= room ? "length" : "capacity", endOf };
}

/** The first token that an encoder-decoder's decoder reads. @param {Step} step @param {Config} config */
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
