/**
 * The errors of this library, by the names that they have in Python; each says what is wrong, what was expected, what
 * was received and what to do.
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

/** An argument or a text that cannot be used. */
export const InputError = kind("InputError");

/** More tokens than the model or its cache can hold. */
export class CapacityError extends kind("CapacityError") {
  /** @param {string} message @param {{ most: number, received: number }} tokens Allowed, and there. */
  constructor(message, { most, received }) {
    super(message);
    this.most = most;
    this.received = received;
  }
}

/** Generation settings that contradict each other or that are not known here. */
export const GenerationError = kind("GenerationError");

/** A tokenizer that is missing, corrupt or of an unknown kind. */
export const TokenizerError = kind("TokenizerError");

/** An engine that cannot be loaded or run in this browser. */
export const EngineError = kind("RuntimeError");

/** Ends what a caller cancelled. @param {AbortSignal} [signal] */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw new DOMException("This was cancelled.", "AbortError");
}
