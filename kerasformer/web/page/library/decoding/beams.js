/**
 * Beam search: the `n` best hypotheses, extended side by side; as `kerasformer.decoding.beams`, for one text.
 *
 * At each step the `n` running hypotheses have `n * V` continuations. The best `2n` of them are looked at (more with
 * several end tokens): those among the first `n` that end are put aside as finished, and the best `n` that do not end
 * run on. Of equal sums the first counts: that of the better hypothesis, then that of the lower token id. Sums are
 * float32, as there.
 */
import { GenerationError } from "../errors.js";
import { pause } from "./pause.js";
import { applyRules } from "./rules.js";
import { argmax } from "./samplers.js";

/** @typedef {import("./settings.js").Config} Config */
/** @typedef {{ ids: number[], sum: number, state: any }} Hypothesis Its tokens, the sum of their log-probabilities. */

/**
 * The new tokens of the best hypothesis, and why it ended; `"none"` where rules left no hypothesis.
 * @param {import("./plan.js").Plan} run
 * @returns {Promise<{ tokens: number[], reason: string }>}
 */
export async function beamSearch(run) {
  const { step, prompt, begin } = run;
  const finished = new Finished(run.config);
  const state = await step.start(prompt);
  const held = new Set([state]);
  try {
    /** @type {Hypothesis[]} */
    let running = [{ ids: begin, sum: 0, state }];
    for (let count = 1; running.length; count++) {
      const found = [];
      for (const { ids, sum, state: before } of running) {
        const { logits, state: after } = await step.step(ids[ids.length - 1], before);
        held.add(after);
        const logs = applyRules({ ids, width: begin.length, prompt }, logSoftmax(logits), run.config);
        found.push({ ids, state: after, totals: logs.map((log) => log + sum) });
      }
      await pause();
      running = advance(run, finished, found, count);
      // Several hypotheses may go on from one state, and none from another.
      const kept = new Set(running.map((hypothesis) => hypothesis.state));
      for (const each of held) if (!kept.has(each) && held.delete(each)) step.release(each);
    }
  } finally {
    for (const each of held) step.release(each);
  }
  return finished.best[0] ?? { tokens: [], reason: "none" };
}

/**
 * Puts aside the hypotheses that end, and gives those that run on.
 * @param {import("./plan.js").Plan} run @param {Finished} finished
 * @param {{ ids: number[], state: any, totals: Float32Array }[]} found @param {number} count Of new tokens.
 */
function advance({ prompt, begin, config, last, endOf }, finished, found, count) {
  const longer = best(found, Math.max(2, 1 + config.eos_token_id.length) * config.num_beams);
  if (!longer.length && !finished.best.length) throw new GenerationError("no token can be chosen: rules leave none.");
  const reasons = longer.map(({ ids }) => {
    return endOf({ ids, width: begin.length, prompt }) ?? (count === config.max_new_tokens ? last : null);
  });
  longer.slice(0, config.num_beams).forEach(({ ids, sum }, rank) => {
    if (reasons[rank] !== null) finished.add(sum, ids.slice(begin.length), reasons[rank]);
  });
  const running = longer.filter((_, rank) => reasons[rank] === null).slice(0, config.num_beams);
  finished.lookAhead(running[0]?.sum ?? -Infinity, count);
  return finished.closed ? [] : running;
}

/** The best finished hypotheses, best first, and whether better ones can still come. */
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

  /** Whether nothing more is added. */
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
   * Gives up hope if the best running sum cannot beat the worst finished score. A continuation can only lower the sum,
   * but a longer one is divided by more: `"never"` reckons with the greatest length, otherwise the present one counts.
   * @param {number} sum @param {number} count
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
 * The best continuations of all hypotheses, in their order.
 * @param {{ ids: number[], state: any, totals: Float32Array }[]} found @param {number} count
 * @returns {Hypothesis[]}
 */
function best(found, count) {
  const few = found.flatMap(({ ids, state, totals }) => {
    const least = totals.slice().sort()[Math.max(totals.length - count, 0)];
    const tokens = [...totals.keys()].filter((token) => totals[token] >= least && totals[token] > -Infinity);
    return tokens.map((token) => ({ ids, state, token, sum: totals[token] }));
  });
  few.sort((a, b) => b.sum - a.sum); // stable: of equal ones the first
  return few.slice(0, count).map(({ ids, token, sum, state }) => ({ ids: [...ids, token], sum, state }));
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
