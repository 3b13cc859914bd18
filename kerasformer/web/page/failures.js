// What a failure means to those who use the page, and where it is shown: by the field that they can mend it in.

/** A field of the page that cannot be used as it is. */
export class FieldError extends Error {
  /** @param {string} field Its id. @param {string} message */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

const OFFLINE = "You are offline, and this model is not kept on this device. Connect, and try again.";

/**
 * A failure in words of the page. Those of the library speak to programmers: they are the detail.
 * @param {any} error @param {string} text Id of the field that the model reads.
 * @returns {{ field: string, text: string, detail: string, fatal: boolean }} `field` is "" where none can mend it; `fatal` asks for
 *     another start of the engine.
 */
export function explained(error, text) {
  const said = (field, words, detail = error.message) => ({ field, text: words, detail, fatal: false });
  if (error instanceof FieldError) return said(error.field, error.message, "");
  switch (error.name) {
    case "CapacityError": return said(text, tooLong(error), "");
    case "InputError": return said(text, "The model cannot read this.");
    case "GenerationError": return said("settings", "The model cannot write with these settings. Change them.");
    case "TokenizerError":
      return said("", "This browser reads texts otherwise than the model learned to, so its answers would be wrong.");
    case "BundleError":
      return { ...said("", navigator.onLine ? "The model could not be loaded: a file of it is missing or damaged." : OFFLINE), fatal: true };
    case "RuntimeError":
      return { ...said("", "The engine could not go on. Another engine, another browser or a device with more memory may."), fatal: true };
    default: return said("", "Something went wrong.");
  }
}

function tooLong({ most, received }) {
  const by = received > most ? `: it has ${received} tokens (pieces of words), and the model reads ${most} at most` : "";
  return `The text is too long${by}. Shorten it.`;
}
