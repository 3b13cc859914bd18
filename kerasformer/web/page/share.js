// Links to a question: all of it is behind "#", which no browser sends to a server.

/**
 * The address that opens the page with a question.
 * @param {Object<string, string>} question By the names of its controls; empty ones are left out.
 */
export function linkTo(question) {
  const said = Object.entries(question).filter(([, value]) => value !== "");
  return new URL(`#${new URLSearchParams(said)}`, location.href).href;
}

/** What the address asks, `null` where it asks nothing. @returns {Object<string, string> | null} */
export function linked() {
  const question = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return "model" in question ? question : null;
}

/** Puts a text on the clipboard. @param {string} text @returns {Promise<boolean>} Whether the browser lets pages do it. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
