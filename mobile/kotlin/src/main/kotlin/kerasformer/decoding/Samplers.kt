package kerasformer.decoding

import kotlin.math.exp
import kotlin.math.ln
import kerasformer.GenerationError
import kerasformer.repr

/**
 * Chooses a token from logits: the best one, or a sample from the candidates that temperature and cutoffs leave. Order and
 * float32 arithmetic are those of `kerasformer.generation.samplers`; references are there.
 *
 * @param uniform A random number in [0, 1).
 * @throws GenerationError The rules allow no token, or a logit is not a number.
 */
internal fun choose(logits: FloatArray, config: Config, uniform: () -> Double): Int {
    val best = argmax(logits)
    if (!logits[best].isFinite()) {
        throw GenerationError(
            "no token can be chosen. Expected a finite greatest logit in each row. Received: ${repr(logits[best])}. Check that the rules " +
                "(suppress_tokens, ...) allow at least one token and that the model's weights contain no NaN.",
        )
    }
    if (!config.doSample) return best
    var remaining = Candidates(logits, null)
    if (config.temperature != 1f) remaining = Candidates(FloatArray(logits.size) { logits[it] / config.temperature }, null)
    if (config.topK > 0) remaining = topK(remaining, config.topK)
    if (config.topP < 1) remaining = topP(remaining, config.topP)
    config.minP?.let { remaining = minP(remaining, it) }
    return remaining.token(sampled(remaining.weights(), uniform()))
}

/** Index of the first greatest value, or of the first NaN if there is one. */
internal fun argmax(values: FloatArray): Int {
    var best = 0
    for (index in values.indices) {
        if (values[index].isNaN()) return index
        if (values[index] > values[best]) best = index
    }
    return best
}

/** Tokens that can be sampled, in the order of their ids; all tokens if [tokens] is `null`. */
private class Candidates(val logits: FloatArray, val tokens: IntArray?) {
    fun token(index: Int): Int = tokens?.get(index) ?: index

    inline fun keep(condition: (Int) -> Boolean): Candidates {
        val indices = logits.indices.filter(condition)
        return Candidates(FloatArray(indices.size) { logits[indices[it]] }, IntArray(indices.size) { token(indices[it]) })
    }

    /** Unnormalized probabilities, scaled so that the greatest is 1. */
    fun weights(): FloatArray {
        val greatest = logits[argmax(logits)]
        return FloatArray(logits.size) { exp((logits[it] - greatest).toDouble()).toFloat() }
    }
}

private fun total(weights: FloatArray): Double = weights.fold(0.0) { sum, weight -> sum + weight }

/** The most probable tokens, including ties. */
private fun topK(from: Candidates, count: Int): Candidates {
    if (count >= from.logits.size) return from
    val least = from.logits.sortedArray()[from.logits.size - count]
    return from.keep { from.logits[it] >= least }
}

/**
 * The nucleus: the smallest set of most probable tokens with total probability [p]; of equally probable tokens, the last come
 * first. Tokens with probabilities below `(1 - p) / V` have less than `1 - p` together, and need not be sorted.
 */
private fun topP(from: Candidates, p: Double): Candidates {
    val all = from.weights()
    val sum = total(all)
    val selected = from.keep { all[it] >= (1 - p) * sum / all.size }.takeIf { it.logits.isNotEmpty() } ?: from
    val weights = selected.weights()
    val order = selected.logits.indices.sortedWith(compareByDescending<Int> { selected.logits[it] }.thenByDescending { it })
    val nucleus = BooleanArray(weights.size)
    var mass = 0.0
    for (index in order) {
        nucleus[index] = true
        mass += weights[index]
        if (mass >= p * sum) break
    }
    return selected.keep { nucleus[it] }
}

/** Tokens with at least [p] times the probability of the best one. */
private fun minP(from: Candidates, p: Double): Candidates {
    val greatest = from.logits[argmax(from.logits)]
    val least = ln(p).toFloat()
    return from.keep { from.logits[it] - greatest >= least }
}

/** An index in proportion to the weights, by inverting the cumulative distribution. */
private fun sampled(weights: FloatArray, uniform: Double): Int {
    val target = uniform * total(weights)
    var sum = 0.0
    for (index in weights.indices) {
        sum += weights[index]
        if (sum > target) return index
    }
    return weights.indices.last { weights[it] > 0 } // reached only because of rounding
}
