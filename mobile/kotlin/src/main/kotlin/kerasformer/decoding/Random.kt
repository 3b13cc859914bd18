package kerasformer.decoding

import java.math.BigInteger

/**
 * The random numbers of NumPy's `default_rng(seed)`, so that a seed gives the same text as in Python.
 *
 * References: O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
 * Generation" (PCG64, XSL-RR output); O'Neill 2015, "Developing a seed_seq Alternative", as NumPy's `SeedSequence` implements it.
 */
internal class Random(seed: Long) {
    private val increment: BigInteger
    private var state = BigInteger.ZERO

    init {
        val words = seedWords(seed)
        increment = joined(words[2], words[3]).shiftLeft(1).or(BigInteger.ONE).and(MASK)
        advance()
        state = state.add(joined(words[0], words[1])).and(MASK)
        advance()
    }

    /** The next number in [0, 1), with 53 random bits. */
    fun next(): Double {
        advance()
        val folded = state.shiftRight(64).toLong() xor state.toLong()
        return (java.lang.Long.rotateRight(folded, state.shiftRight(122).toInt()) ushr 11) / TWO_TO_53
    }

    private fun advance() {
        state = state.multiply(MULTIPLIER).add(increment).and(MASK)
    }

    private companion object {
        val MASK: BigInteger = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE)
        val MULTIPLIER = BigInteger("2360ed051fc65da44385df649fccf645", 16)
        const val TWO_TO_53 = 9007199254740992.0
        const val POOL_SIZE = 4

        fun joined(high: Long, low: Long): BigInteger =
            BigInteger.valueOf(high).shiftLeft(64).or(BigInteger.valueOf(low).and(BigInteger.ONE.shiftLeft(64).subtract(BigInteger.ONE))).and(MASK)

        /** `SeedSequence(seed).generate_state(4, uint64)`. */
        fun seedWords(seed: Long): LongArray {
            val pool = mixedPool(seed)
            var constant = 0x8b51f9dd.toInt()
            val words = IntArray(2 * POOL_SIZE) { index ->
                val word = pool[index % POOL_SIZE] xor constant
                constant *= 0x58f38ded
                (word * constant).let { it xor (it ushr 16) }
            }
            return LongArray(POOL_SIZE) { (words[2 * it + 1].toLong() shl 32) or (words[2 * it].toLong() and 0xffffffffL) }
        }

        fun mixedPool(seed: Long): IntArray {
            val entropy = if (seed ushr 32 == 0L) intArrayOf(seed.toInt()) else intArrayOf(seed.toInt(), (seed ushr 32).toInt())
            var constant = 0x43b0d7e5
            fun hashed(value: Int): Int {
                val start = value xor constant
                constant *= 0x931e8875.toInt()
                return (start * constant).let { it xor (it ushr 16) }
            }
            val pool = IntArray(POOL_SIZE) { hashed(entropy.getOrElse(it) { 0 }) }
            for (from in 0 until POOL_SIZE) {
                for (to in 0 until POOL_SIZE) {
                    if (from == to) continue
                    val mixed = 0xca01f9dd.toInt() * pool[to] - 0x4973f715 * hashed(pool[from])
                    pool[to] = mixed xor (mixed ushr 16)
                }
            }
            return pool
        }
    }
}
