/**
 * Beam search for one text, as in `kerasformer.generation.beams`: extends the `n` best hypotheses in parallel.
 *
 * At each step, the `n` running hypotheses have `n * V` continuations. The best `2n` of them are examined (more with
 * several end tokens): those among the first `n` that end become finished hypotheses, and the best `n` that do not end
 * continue. Of equal sums, the continuation of the better hypothesis comes first, then that with the lower token id. As in
 * Python, sums are float32.
 */
import { GenerationError } from "../errors.js";
import { pause } from "./pause.js";
import { applyRules } from "./rules.js";
import { argmax } from "./samplers.js";

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {{ ids: number[], sum: number, state: any }} Hypothesis Tokens, the sum of their log-probabilities, and a state. */

/**
 * Returns the new tokens of the best hypothesis and why it ended, or `"none"` if rules exclude every hypothesis.
 * @param {import("./plan.js").Plan} run
 * @returns {Promise<{ tokens: number[], reason: string }>}
 */
export async function beamSearch(run) {
  const { step, cache, prompt, prefix } = run;
  const finished = new Finished(run.config);
  const state = await (cache ?? step).start(prompt);
  const states = new Set([state]);
  try {
    /** @type {Hypothesis[]} */
    let running = [{ ids: prefix, sum: 0, state }];
    for (let count = 1; running.length; count++) {
      const extended = [];
      for (const { ids, sum, state: before } of running) {
        const { logits, state: after } = await step.step(ids[ids.length - 1], before);
        states.add(after);
        const logs = applyRules({ ids, width: prefix.length, prompt }, logSoftmax(logits), run.config);
        extended.push({ ids, state: after, totals: logs.map((log) => log + sum) });
      }
      await pause();
      running = advance(run, finished, extended, count);
      // Several hypotheses may continue from one state, and none from another.
      const used = new Set(running.map((hypothesis) => hypothesis.state));
      for (const each of states) if (!used.has(each) && states.delete(each)) step.release(each);
    }
  } finally {
    for (const each of states) step.release(each);
  }
  return finished.best[0] ?? { tokens: [], reason: "none" };
}

/**
 * Adds the hypotheses that end to `finished`, and returns those that continue.
 * @param {import("./plan.js").Plan} run @param {Finished} finished
 * @param {{ ids: number[], state: any, totals: Float32Array }[]} extended The running hypotheses, with a sum for each next token.
 * @param {number} count Number of new tokens.
 */
function advance({ prompt, prefix, config, last, endOf }, finished, extended, count) {
  const longer = best(extended, Math.max(2, 1 + config.eos_token_id.length) * config.num_beams);
  if (!longer.length && !finished.best.length) throw new GenerationError("no token can be chosen: rules exclude all of them.");
  const reasons = longer.map(({ ids }) => {
    return endOf({ ids, width: prefix.length, prompt }) ?? (count === config.max_new_tokens ? last : null);
  });
  longer.slice(0, config.num_beams).forEach(({ ids, sum }, rank) => {
    if (reasons[rank] !== null) finished.add(sum, ids.slice(prefix.length), reasons[rank]);
  });
  const running = longer.filter((_, rank) => reasons[rank] === null).slice(0, config.num_beams);
  finished.lookAhead(running[0]?.sum ?? -Infinity, count);
  return finished.closed ? [] : running;
}

/** The best finished hypotheses, best first, and whether better ones are possible. */
class Finished {
  /** @param {Config} config */
  constructor(config) {
    this.config = config;
    /** @type {{ score: number, tokens: number[], reason: string }[]} */
    this.best = [];
    this.hopeless = false;
  }

  get full() {
    return this.best.length === this.config.num_beams;
  }

  /** Whether no further hypothesis is accepted. */
  get closed() {
    return this.hopeless || (this.full && this.config.early_stopping === true);
  }

  /** Adds a hypothesis if it is among the best. @param {number} sum @param {number[]} tokens @param {any} reason */
  add(sum, tokens, reason) {
    const score = this.score(sum, tokens.length);
    this.best.push({ score, tokens, reason });
    this.best.sort((a, b) => b.score - a.score);
    this.best.length = Math.min(this.best.length, this.config.num_beams);
  }

  /**
   * Ends the search if the best running sum cannot exceed the worst finished score. A continuation can only lower the sum,
   * but the sum of a longer text is divided by more: `"never"` uses the greatest length, otherwise the current one is used.
   * @param {number} sum @param {number} count Number of new tokens.
   */
  lookAhead(sum, count) {
    const longest = this.config.early_stopping === "never" && this.config.length_penalty > 0;
    const worst = this.full ? this.best[this.best.length - 1].score : -Infinity;
    const possible = this.score(sum, longest ? this.config.max_new_tokens : count);
    this.hopeless ||= sum === -Infinity || possible <= worst;
  }

  /** @param {number} sum @param {number} length */
  score(sum, length) {
    return Math.fround(sum / Math.fround(length ** this.config.length_penalty));
  }
}

/**
 * The best continuations of all hypotheses, in descending order.
 * @param {{ ids: number[], state: any, totals: Float32Array }[]} extended @param {number} count
 * @returns {Hypothesis[]}
 */
function best(extended, count) {
  const candidates = extended.flatMap(({ ids, state, totals }) => {
    const least = totals.slice().sort()[Math.max(totals.length - count, 0)];
    const tokens = [...totals.keys()].filter((token) => totals[token] >= least && totals[token] > -Infinity);
    return tokens.map((token) => ({ ids, state, token, sum: totals[token] }));
  });
  candidates.sort((a, b) => b.sum - a.sum); // stable: equal sums keep their order
  return candidates.slice(0, count).map(({ ids, token, sum, state }) => ({ ids: [...ids, token], sum, state }));
}

/** @param {Float32Array} logits */
function logSoftmax(logits) {
  const greatest = logits[argmax(logits)];
  if (!Number.isFinite(greatest)) {
    throw new GenerationError(`no token can be chosen. Expected a finite greatest logit. Received: ${greatest}.`);
  }
  const shifted = logits.map((logit) => logit - greatest);
  const total = shifted.reduce((sum, each) => sum + Math.fround(Math.exp(each)), 0);
  const log = Math.fround(Math.log(total));
  return shifted.map((each) => each - log);
}
