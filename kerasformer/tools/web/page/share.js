// Links to a question. Everything is after "#", which browsers do not send to servers.

/**
 * Returns the address that opens the page with a question.
 * @param {Object<string, string>} question Values by the names of their controls; empty values are omitted.
 */
export function linkTo(question) {
  const entries = Object.entries(question).filter(([, value]) => value !== "");
  return new URL(`#${new URLSearchParams(entries)}`, location.href).href;
}

/** Returns the question in the address, or `null`. @returns {Object<string, string> | null} */
export function readLink() {
  const question = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return "model" in question ? question : null;
}

/** Copies a text to the clipboard. @param {string} text @returns {Promise<boolean>} Whether the browser allowed it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
