package kerasformer.decoding

import kotlin.math.exp
import kotlin.math.ln
import kotlin.math.pow
import kerasformer.GenerationError
import kerasformer.repr

/**
 * Beam search for one text, as in `kerasformer.generation.beams`: extends the `n` best hypotheses in parallel, and returns the new
 * tokens of the best one and why it ended.
 *
 * At each step, the `n` running hypotheses have `n * V` continuations. The best `2n` of them are examined (more with several end
 * tokens): those among the first `n` that end become finished hypotheses, and the best `n` that do not end continue. Of equal
 * sums, the continuation of the better hypothesis comes first, then that with the lower token id. As in Python, sums are float32.
 *
 * @param pause Called after each step; it may end the search by an exception.
 */
internal inline fun beamSearch(plan: Plan, pause: () -> Unit): Pair<IntArray, FinishReason> {
    val search = BeamSearch(plan)
    try {
        while (search.isRunning) {
            search.advance()
            pause()
        }
    } finally {
        search.close()
    }
    return search.best
}

/** Tokens, the sum of their log-probabilities, and the state before the last token. */
private class Hypothesis(val history: History, val sum: Float, val state: State)

private class Finished(val score: Float, val tokens: IntArray, val reason: FinishReason)

internal class BeamSearch(private val plan: Plan) {
    private val config = plan.config
    private val finished = ArrayList<Finished>()
    private val states = HashSet<State>()
    private var isHopeless = false
    private var count = 0
    private var running: List<Hypothesis>

    init {
        val start = plan.step.start(plan.prompt).also(states::add)
        running = listOf(Hypothesis(History(plan.prefix, plan.prefix.size, plan.prompt), 0f, start))
    }

    val isRunning: Boolean get() = running.isNotEmpty()

    val best: Pair<IntArray, FinishReason>
        get() = finished.firstOrNull()?.let { it.tokens to it.reason } ?: throw GenerationError("no token can be chosen: rules exclude all of them.")

    /** Extends all running hypotheses by one token. */
    fun advance() {
        count++
        val longer = longest(maxOf(2, 1 + config.eosTokenId.size) * config.numBeams)
        val reasons = longer.map { plan.endOf(it.history) ?: plan.last.takeIf { count == config.maxNewTokens } }
        for (rank in 0 until minOf(config.numBeams, longer.size)) reasons[rank]?.let { finish(longer[rank], it) }
        running = longer.filterIndexed { rank, _ -> reasons[rank] == null }.take(config.numBeams)
        lookAhead(running.firstOrNull()?.sum ?: Float.NEGATIVE_INFINITY)
        if (isHopeless || isFull && config.earlyStopping == true) running = listOf()
        // Several hypotheses may continue from one state, and none from another.
        val used = running.mapTo(HashSet()) { it.state }
        states.filter { it !in used }.forEach { it.release() }
        states.retainAll(used)
    }

    fun close() = states.forEach { it.release() }

    private val isFull: Boolean get() = finished.size == config.numBeams

    /** The best continuations of all hypotheses, in descending order. */
    private fun longest(number: Int): List<Hypothesis> {
        class Candidate(val from: Hypothesis, val state: State, val token: Int, val sum: Float)
        val candidates = running.flatMap { from ->
            val (logits, state) = plan.step.step(from.history.last, from.state, last = false)
            states += state
            val totals = applyRules(from.history, logSoftmax(logits), config)
            for (token in totals.indices) totals[token] += from.sum
            val least = totals.sortedArray()[maxOf(totals.size - number, 0)]
            totals.indices.filter { totals[it] >= least && totals[it] > Float.NEGATIVE_INFINITY }.map { Candidate(from, state, it, totals[it]) }
        }
        if (candidates.isEmpty() && finished.isEmpty()) throw GenerationError("no token can be chosen: rules exclude all of them.")
        return candidates.sortedByDescending { it.sum }.take(number).map { Hypothesis(it.from.history.plus(it.token), it.sum, it.state) }
    }

    /** Adds a hypothesis that ended, if it is among the best. */
    private fun finish(hypothesis: Hypothesis, reason: FinishReason) {
        val tokens = hypothesis.history.tokens(plan.prefix.size)
        finished += Finished(score(hypothesis.sum, tokens.size), tokens, reason)
        finished.sortByDescending { it.score }
        if (finished.size > config.numBeams) finished.removeAt(finished.lastIndex)
    }

    /**
     * Ends the search if the best running sum cannot exceed the worst finished score. A continuation can only lower the sum, but
     * the sum of a longer text is divided by more: `"never"` uses the greatest length, otherwise the current one is used.
     */
    private fun lookAhead(sum: Float) {
        val longest = config.earlyStopping == "never" && config.lengthPenalty > 0
        val worst = if (isFull) finished.last().score else Float.NEGATIVE_INFINITY
        val possible = score(sum, if (longest) config.maxNewTokens!! else count)
        isHopeless = isHopeless || sum == Float.NEGATIVE_INFINITY || possible <= worst
    }

    private fun score(sum: Float, length: Int): Float = sum / length.toDouble().pow(config.lengthPenalty).toFloat()

    private fun logSoftmax(logits: FloatArray): FloatArray {
        val greatest = logits[argmax(logits)]
        if (!greatest.isFinite()) throw GenerationError("no token can be chosen. Expected a finite greatest logit. Received: ${repr(greatest)}.")
        val shifted = FloatArray(logits.size) { logits[it] - greatest }
        val log = ln(shifted.fold(0.0) { sum, each -> sum + exp(each.toDouble()).toFloat() }).toFloat()
        return FloatArray(logits.size) { shifted[it] - log }
    }
}
