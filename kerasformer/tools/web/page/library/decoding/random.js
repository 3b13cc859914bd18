/**
 * Generates the random numbers of NumPy's `default_rng(seed)`, so that a seed gives the same text as in Python.
 *
 * References: O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random
 * Number Generation" (PCG64, XSL-RR output); O'Neill 2015, "Developing a seed_seq Alternative", as NumPy's
 * `SeedSequence` implements it.
 */

const MASK_32 = 0xffffffffn;
const MASK_64 = (1n << 64n) - 1n;
const MASK_128 = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
const POOL_SIZE = 4;

/** A stream of numbers in [0, 1). */
export class Random {
  /** @param {number} seed An integer of at least 0. */
  constructor(seed) {
    const [stateHigh, stateLow, incrementHigh, incrementLow] = seedWords(BigInt(seed));
    this.increment = ((((incrementHigh << 64n) | incrementLow) << 1n) | 1n) & MASK_128;
    this.state = 0n;
    this.advance();
    this.state = (this.state + ((stateHigh << 64n) | stateLow)) & MASK_128;
    this.advance();
  }

  advance() {
    this.state = (this.state * MULTIPLIER + this.increment) & MASK_128;
  }

  /** Returns the next number, with 53 random bits. */
  next() {
    this.advance();
    const folded = (this.state >> 64n) ^ (this.state & MASK_64);
    const turn = this.state >> 122n;
    const bits = ((folded >> turn) | (folded << (64n - turn))) & MASK_64;
    return Number(bits >> 11n) / 2 ** 53;
  }
}

/** Returns a random seed. */
export function freshSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

/**
 * Computes `SeedSequence(seed).generate_state(4, uint64)`.
 * @param {bigint} seed
 */
function seedWords(seed) {
  const pool = mixedPool(seed);
  /** @type {bigint[]} */
  const words = [];
  let constant = 0x8b51f9ddn;
  for (let index = 0; index < 8; index++) {
    let word = pool[index % POOL_SIZE] ^ constant;
    constant = (constant * 0x58f38dedn) & MASK_32;
    word = (word * constant) & MASK_32;
    words.push(word ^ (word >> 16n));
  }
  return [0, 2, 4, 6].map((index) => (words[index + 1] << 32n) | words[index]);
}

/** @param {bigint} seed */
function mixedPool(seed) {
  /** @type {bigint[]} */
  const entropy = [];
  for (let rest = seed; rest > 0n || !entropy.length; rest >>= 32n) entropy.push(rest & MASK_32);
  let constant = 0x43b0d7e5n;
  const hashed = (/** @type {bigint} */ value) => {
    value ^= constant;
    constant = (constant * 0x931e8875n) & MASK_32;
    value = (value * constant) & MASK_32;
    return value ^ (value >> 16n);
  };
  const mixed = (/** @type {bigint} */ x, /** @type {bigint} */ y) => {
    const value = (0xca01f9ddn * x - 0x4973f715n * y) & MASK_32;
    return value ^ (value >> 16n);
  };
  const pool = Array.from({ length: POOL_SIZE }, (_, index) => hashed(entropy[index] ?? 0n));
  for (let from = 0; from < POOL_SIZE; from++) {
    for (let to = 0; to < POOL_SIZE; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  }
  for (const word of entropy.slice(POOL_SIZE)) {
    for (let to = 0; to < POOL_SIZE; to++) pool[to] = mixed(pool[to], hashed(word));
  }
  return pool;
}
