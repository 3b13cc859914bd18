/**
 * Greedy search and sampling, one token at a time.
 */
import { pause } from "./pause.js";
import { Random, freshSeed } from "./random.js";
import { applyRules } from "./rules.js";
import { choose } from "./samplers.js";

/**
 * Yields the new tokens as they are chosen, including the end token; returns why the text ended: `"eos"`, `"stop"`,
 * `"length"`, `"capacity"`, `"time"` or `"cancelled"`.
 * @param {import("./plan.js").Plan} run
 * @returns {AsyncGenerator<number, string>}
 */
export async function* generate({ step, cache, prompt, prefix, config, last, endOf }) {
  const random = new Random(config.seed ?? freshSeed());
  const history = { ids: [...prefix], width: prefix.length, prompt };
  let state = await (cache ?? step).start(prompt);
  try {
    for (let count = 0; count < config.max_new_tokens; count++) {
      const read = await step.step(history.ids[history.ids.length - 1], state);
      step.release(state);
      state = read.state;
      const token = choose(applyRules(history, read.logits, config), config, () => random.next());
      history.ids.push(token);
      yield token;
      await pause();
      const reason = endOf(history);
      if (reason !== null) return reason;
    }
    return last;
  } finally {
    if (cache) cache.keep(state, history.ids.slice(0, -1));
    else step.release(state);
  }
}
