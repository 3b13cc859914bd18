/**
 * Texts that a bundle carries with the ids that its model was given: a tokenizer that reads one of them otherwise would
 * have the model answer to another text.
 */
import { TokenizerError } from "../errors.js";

/**
 * @param {import("./tokenizer.js").Tokenizer} tokenizer
 * @param {{ text: string, ids: number[] }[]} texts
 * @throws {TokenizerError} one of them has other ids here; names it.
 */
export function checkTexts(tokenizer, texts) {
  for (const { text, ids } of texts) {
    const received = read(tokenizer, text);
    if (received === ids.join(", ")) continue;
    throw new TokenizerError(
      `the page's tokenizer reads a text otherwise than the model's own, which would then answer to another text. ` +
        `Text: ${JSON.stringify(text)}. Expected ids: ${ids.join(", ")}. Received: ${received}. ` +
        "Run this bundle with kerasformer in Python, or train the model with a tokenizer of BERT's, GPT-2's or T5's kind",
    );
  }
}

/** Ids, or the error in their place. @param {import("./tokenizer.js").Tokenizer} tokenizer @param {string} text */
function read(tokenizer, text) {
  try {
    return tokenizer.encode(text).map(({ id }) => id).join(", ");
  } catch (error) {
    return String(error);
  }
}
