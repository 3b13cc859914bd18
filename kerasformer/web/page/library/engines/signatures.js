/**
 * The signatures of a TFLite bundle: one for each length, and which of them to run; as
 * `kerasformer.runtime.litert.signatures`.
 */
import { BundleError, CapacityError } from "../errors.js";
import { ofRole } from "../manifest.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {{ size: number, name: string }} Sized A signature and its length in tokens. */

/**
 * Signatures of a role, ascending by the tokens that they read.
 * @param {Manifest} manifest @param {string} role @param {boolean} [needed]
 * @returns {Sized[]}
 */
export function byLength(manifest, role, needed = true) {
  const found = ofRole(manifest, role)
    .map(([name, { tokens }]) => ({ size: tokens ?? 0, name }))
    .sort((a, b) => a.size - b.size);
  if (needed && !found.length) {
    throw new BundleError(
      `The bundle needs signatures of the role ${role}. Received: ${Object.keys(manifest.signatures).join(", ")}`,
    );
  }
  return found;
}

/** The first that holds so many tokens. @param {Sized[]} signatures @param {number} length @param {string} what */
export function smallest(signatures, length, what) {
  const found = signatures.find(({ size }) => size >= length);
  if (found) return found;
  const most = signatures[signatures.length - 1].size;
  throw new CapacityError(`The ${what} has at most ${most} tokens here. Received: ${length}. Shorten it`, {
    most,
    received: length,
  });
}

/** Steps of one token of one text, ascending by how many slots they see. @param {Manifest} manifest @returns {Sized[]} */
export function decodeSteps(manifest) {
  return ofRole(manifest, "decode")
    .filter(([, { rows }]) => rows === 1)
    .map(([name, signature]) => ({ name, size: signature.cache_length ?? 0 }))
    .sort((a, b) => a.size - b.size);
}

/**
 * Sizes of the runs that read so many tokens: prefill lengths, and 1 for a step.
 *
 * The last run may be wider than what is left, up to two and a half times: what it writes too much is overwritten before
 * it is read. It may not reach beyond the cache, though: the runtime would move the whole write back over older tokens.
 * @param {number} count @param {number} capacity @param {number[]} lengths Ascending.
 */
export function prefillPlan(count, capacity, lengths) {
  const sizes = [];
  for (let position = 0; position < count; ) {
    const left = count - position;
    const fitting = lengths.filter((length) => position + length <= capacity);
    const whole = fitting.filter((length) => length <= left).pop();
    const enough = fitting.find((length) => length >= left);
    let size = whole ?? 1;
    if (left > 1 && enough !== undefined && (enough <= 2.5 * left || whole === undefined)) size = enough;
    if (left === 1) size = 1;
    sizes.push(size);
    position += Math.min(size, left);
  }
  return sizes;
}
