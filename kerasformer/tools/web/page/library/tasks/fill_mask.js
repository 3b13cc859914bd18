/** Fill-mask: words for masked tokens. */
import { InputError, TokenizerError } from "../errors.js";
import { whole } from "./chunks.js";
import { checkText, checkTopK, forward, ranked, rows, withDefaults, softmax } from "./shared.js";

/** Returns `[{ score, token, token_str, sequence }]` for one gap, or a list of such lists for several. @type {import("./shared.js").Task} */
export async function fillMask(bundle, inputs, options) {
  const { top_k: topK, truncation } = withDefaults(options, { top_k: 5, truncation: false });
  const { tokenizer } = bundle;
  const mask = tokenizer.named("mask_token");
  if (mask === null) throw new TokenizerError("fill-mask needs a tokenizer with a mask token. Received: a tokenizer without one");
  const { chunks: [tokens], figures } = whole(bundle, checkText(inputs), truncation);
  const ids = tokens.map(({ id }) => id);
  const gaps = [...ids.keys()].filter((position) => ids[position] === tokenizer.tokenToId(mask));
  if (!gaps.length) throw new InputError(`The text has no ${mask}. Received: ${JSON.stringify(inputs)}`);
  const { logits } = await forward(bundle, tokens);
  const answers = gaps.map((gap) => {
    const scores = softmax(rows(logits, ids.length)[gap]);
    return ranked(scores, checkTopK(topK)).map((token) => ({
      score: scores[token],
      token,
      token_str: tokenizer.decode([token]),
      sequence: tokenizer.decode(ids.toSpliced(gap, 1, token), gaps.length === 1),
    }));
  });
  return { result: answers.length === 1 ? answers[0] : answers, figures };
}
