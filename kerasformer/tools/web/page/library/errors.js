/**
 * The errors of this library, named as in Python. Messages contain what is wrong, what was expected, what was received, and
 * what to do.
 */

/** @param {string} name */
const kind = (name) =>
  class extends Error {
    /** @param {string} message @param {ErrorOptions} [options] */
    constructor(message, options) {
      super(message, options);
      this.name = name;
    }
  };

/** A bundle that is incomplete, changed, or written by a newer version. */
export const BundleError = kind("BundleError");

/** An invalid argument or text. */
export const InputError = kind("InputError");

/** More tokens than the model or its cache can hold. */
export class CapacityError extends kind("CapacityError") {
  /**
   * @param {string} message @param {{ most: number, received: number, option?: string }} tokens The allowed and the received number, and
   *     the option that has too many; by default it is the text.
   */
  constructor(message, { most, received, option }) {
    super(message);
    this.most = most;
    this.received = received;
    this.option = option;
  }
}

/** Generation settings that contradict each other or that are unsupported. */
export const GenerationError = kind("GenerationError");

/** A tokenizer that is missing, corrupt or unsupported. */
export const TokenizerError = kind("TokenizerError");

/** An engine that cannot be loaded or run in this browser. */
export const EngineError = kind("RuntimeError");

/** Throws an `AbortError` if the caller cancelled. @param {AbortSignal} [signal] */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw new DOMException("The call was cancelled.", "AbortError");
}
