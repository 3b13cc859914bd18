// Error messages for users of the page, and the field beside which each is shown.

/** An invalid value in a field of the page. */
export class FieldError extends Error {
  /** @param {string} field Its id. @param {string} message */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** No engine of the model gives its answers in this browser. */
export class WrongAnswersError extends Error {
  /** @param {string} message How the answers differ. */
  constructor(message) {
    super(message);
    this.name = "WrongAnswersError";
  }
}

const OFFLINE = "You are offline, and this model is not stored on this device. Connect to the internet and try again.";

/**
 * Returns the message for an error. Messages of the library are for programmers; they become the detail.
 * @param {any} error @param {string} text Id of the field that the model reads.
 * @returns {{ field: string, text: string, detail: string, fatal: boolean }} `field` is "" if no field can correct the error;
 *     `fatal` means that the engine must be restarted.
 */
export function explain(error, text) {
  const failure = (field, words, detail = error.message) => ({ field, text: words, detail, fatal: false });
  if (error instanceof FieldError) return failure(error.field, error.message, "");
  switch (error.name) {
    case "CapacityError":
      if (error.option) return failure(`field-${error.option}`, "The model cannot read so many names at once. Remove some, or use shorter ones.");
      return failure(text, tooLong(error), "");
    case "InputError": return failure(text, "The model cannot read this input.");
    case "GenerationError": return failure("settings", "The model cannot generate text with these settings. Change them.");
    case "TokenizerError":
      return failure("", "The tokenizer of this page reads texts differently from the model's own, so the answers would be wrong.");
    case "BundleError":
      return { ...failure("", navigator.onLine ? "The model could not be loaded: one of its files is missing or damaged." : OFFLINE), fatal: true };
    case "WrongAnswersError":
      return { ...failure("", "In this browser, the model answers differently from the original model. The answers would be wrong, so the page does not show them. Try another browser."), fatal: true };
    case "RuntimeError":
      return { ...failure("", "The engine failed. Try another engine, another browser, or a device with more memory."), fatal: true };
    default: return failure("", "Something went wrong.");
  }
}

function tooLong({ most, received }) {
  const counts = received > most ? `: it has ${received} tokens (pieces of words), and the model reads at most ${most}` : "";
  return `The text is too long${counts}. Shorten it.`;
}
