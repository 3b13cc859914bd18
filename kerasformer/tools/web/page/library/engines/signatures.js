/**
 * Selects the signatures of a TFLite bundle, which has one for each length, as `kerasformer.engines.litert.signatures` does.
 */
import { BundleError, CapacityError } from "../errors.js";
import { ofRole } from "../manifest.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {{ size: number, name: string }} Sized The name of a signature, and its length in tokens. */

/**
 * The signatures of a role, in ascending order of the number of tokens that they read.
 * @param {Manifest} manifest @param {string} role @param {boolean} [needed]
 * @returns {Sized[]}
 */
export function byLength(manifest, role, needed = true) {
  const signatures = ofRole(manifest, role)
    .map(([name, { tokens }]) => ({ size: tokens ?? 0, name }))
    .sort((a, b) => a.size - b.size);
  if (needed && !signatures.length) {
    throw new BundleError(
      `The bundle needs signatures of the role ${role}. Received: ${Object.keys(manifest.signatures).join(", ")}`,
    );
  }
  return signatures;
}

/**
 * The shortest signature for a number of tokens.
 * @param {Sized[]} signatures @param {number} length @param {string} what
 * @param {(signature: Sized) => boolean} [holds] Whether the other inputs of a signature are long enough, too.
 */
export function smallest(signatures, length, what, holds = () => true) {
  const signature = signatures.find((each) => each.size >= length && holds(each));
  if (signature) return signature;
  const most = signatures[signatures.length - 1].size;
  throw new CapacityError(`The ${what} must have at most ${most} tokens. Received: ${length}. Shorten the ${what}`, {
    most,
    received: length,
  });
}

/** Steps of one token of one text, in ascending order of their cache lengths. @param {Manifest} manifest @returns {Sized[]} */
export function decodeSteps(manifest) {
  return ofRole(manifest, "decode")
    .filter(([, { rows }]) => rows === 1)
    .map(([name, signature]) => ({ name, size: signature.cache_length ?? Infinity }))
    .sort((a, b) => a.size - b.size);
}

/**
 * The sizes of the calls that read a prompt: prefill lengths, and 1 for a step.
 *
 * The last call may be up to two and a half times longer than the remaining tokens, because the additional slots are
 * overwritten before they are read. It must not exceed the cache: the runtime would then move the whole write back and
 * overwrite older tokens.
 * @param {number} count Number of tokens. @param {number} capacity @param {number[]} lengths Prefill lengths, ascending.
 * @param {number} start Slot of the first token.
 */
export function prefillPlan(count, capacity, lengths, start) {
  const sizes = [];
  for (let position = start; position < start + count; ) {
    const left = start + count - position;
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
