// Probabilities from recorded logits: temperature, then top-k, then top-p, as in generation.

/**
 * Returns the distribution of one place.
 *
 * Only the best candidates are recorded. The sum of the powers of all others is recorded for each temperature.
 *
 * @param scores Logits of the recorded candidates, best first.
 * @param rest Logarithm of the sum of exp(logit / temperature) over all others; -Infinity if there are none.
 * @param others Number of the others.
 * @param cuts `temperature`, `topK` (0 for all) and `topP` (1 for all).
 * @returns `before` and `after`, probabilities of the recorded candidates without and with both cuts; `restBefore` and
 *   `restAfter`, those of the others together; `held`, the probability of what can be drawn before the cuts; `kept`,
 *   the number of candidates that can be drawn, and `exact`, whether it is known: a nucleus that reaches beyond the
 *   recorded candidates ends somewhere among the others.
 */
export function distribution(scores, rest, others, { temperature, topK, topP }) {
  const scaled = Array.from(scores, (score) => score / temperature);
  const greatest = Math.max(scaled[0], rest);
  const powers = scaled.map((score) => Math.exp(score - greatest));
  const restPower = others ? Math.exp(rest - greatest) : 0;
  const total = powers.reduce((sum, power) => sum + power, 0) + restPower;
  const before = powers.map((power) => power / total);
  const after = [...before];
  let restAfter = restPower / total;
  if (topK && topK < scores.length + others) {
    after.fill(0, topK);
    restAfter = 0;
  }
  let kept = topK ? Math.min(topK, scores.length + others) : scores.length + others;
  let exact = true;
  if (topP < 1) {
    const mass = topP * (after.reduce((sum, share) => sum + share, 0) + restAfter);
    let held = 0;
    let size = 0;
    while (size < Math.min(kept, after.length) && held < mass) held += after[size++];
    if (held < mass && restAfter > 0) {
      exact = false;
      restAfter = Math.min(restAfter, mass - held); // the others that the nucleus needs
    } else {
      after.fill(0, size);
      restAfter = 0;
      kept = size;
    }
  }
  const sum = after.reduce((all, share) => all + share, 0) + restAfter;
  return { before, after: after.map((share) => share / sum), restBefore: restPower / total, restAfter: restAfter / sum, held: sum, kept, exact };
}

/** Returns the probability of each candidate by itself. */
export function sigmoids(scores, temperature) {
  return Array.from(scores, (score) => 1 / (1 + Math.exp(-score / temperature)));
}

/** Returns the index that a random number in [0, 1) draws; the number of candidates for one of the others. */
export function drawIndex(shares, random) {
  let sum = 0;
  const index = shares.findIndex((share) => (sum += share) > random);
  return index < 0 ? shares.length : index;
}
