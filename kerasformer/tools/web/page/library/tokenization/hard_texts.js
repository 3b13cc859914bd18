/**
 * Checks the texts of a bundle that tokenizers may read differently. With other ids, the model would answer a different
 * text.
 */
import { TokenizerError } from "../errors.js";

/**
 * Compares the ids of texts with the expected ones.
 * @param {import("./tokenizer.js").Tokenizer} tokenizer
 * @param {{ text: string, ids: number[] }[]} texts
 * @throws {TokenizerError} A text has other ids; the message contains the text.
 */
export function checkTexts(tokenizer, texts) {
  for (const { text, ids } of texts) {
    const received = read(tokenizer, text);
    if (received === ids.join(", ")) continue;
    throw new TokenizerError(
      `the page's tokenizer reads a text differently from the model's own, so the model would answer a different text. ` +
        `Text: ${JSON.stringify(text)}. Expected ids: ${ids.join(", ")}. Received: ${received}. ` +
        "Run this bundle with kerasformer in Python, or train the model with a tokenizer like that of BERT, GPT-2 or T5",
    );
  }
}

/** The ids of a text as a string, or the error. @param {import("./tokenizer.js").Tokenizer} tokenizer @param {string} text */
function read(tokenizer, text) {
  try {
    return tokenizer.encode(text).map(({ id }) => id).join(", ");
  } catch (error) {
    return String(error);
  }
}
