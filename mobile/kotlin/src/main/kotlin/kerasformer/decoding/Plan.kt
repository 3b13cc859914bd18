package kerasformer.decoding

import kerasformer.CapacityError
import kerasformer.GenerationError
import kerasformer.repr

/**
 * A prepared run.
 *
 * @property prompt The tokens for [Step.start].
 * @property prefix The decoder's tokens before the first new one, also visible to rules.
 * @property config Settings, with the effective lengths.
 * @property last Why the text ends after the largest number of new tokens.
 * @property cache Provides the state after the prompt and keeps the last one.
 */
internal class Plan private constructor(
    val step: Step,
    val prompt: IntArray,
    val prefix: IntArray,
    val config: Config,
    val last: FinishReason,
    val cache: PrefixCache?,
    private val decode: (IntArray) -> String,
) {
    private val deadline = config.maxTime?.let { System.nanoTime() + (it * 1e9).toLong() }

    /** Why a text ends after its last token, or `null`. */
    fun endOf(history: History): FinishReason? = when {
        history.last in config.eosTokenId -> FinishReason.EOS
        config.stopStrings.isNotEmpty() && completesString(config.stopStrings, history, decode) -> FinishReason.STOP
        deadline != null && System.nanoTime() > deadline -> FinishReason.TIME
        else -> null
    }

    companion object {
        private const val DEFAULT_NEW_TOKENS = 20

        /**
         * Checks a prompt, and determines its lengths.
         *
         * @param decode Converts ids to text, to find stop strings.
         * @throws CapacityError The prompt leaves no space for a new token.
         * @throws GenerationError The settings do not fit the model.
         */
        fun of(step: Step, prompt: IntArray, config: Config, cache: PrefixCache?, decode: (IntArray) -> String): Plan {
            val prefix = if (step.isEncoderDecoder) intArrayOf(decoderStart(step, config)) else prompt
            val forced = config.forcedEosTokenId + listOfNotNull(config.forcedBosTokenId)
            if (forced.any { it >= step.vocabSize }) {
                throw GenerationError(
                    "forced tokens must be from 0 to ${step.vocabSize - 1}. Received: ${forced.toList()}. Set forced_bos_token_id and " +
                        "forced_eos_token_id to tokens of this model.",
                )
            }
            val requested = config.maxNewTokens ?: config.maxLength?.let { it - prefix.size } ?: DEFAULT_NEW_TOKENS
            if (requested < 1) {
                throw GenerationError(
                    "max_length includes the prompt and must exceed its length. Received: max_length=${config.maxLength} for a prompt of " +
                        "${prefix.size} tokens. Set max_new_tokens instead.",
                )
            }
            val room = step.capacity - prefix.size
            if (room < 1) {
                throw CapacityError(
                    "the prompt leaves no room for a new token. Expected at most ${step.capacity - 1} tokens. Received: ${prefix.size}. " +
                        "Shorten the prompt, or load or export the model with a larger capacity.",
                    step.capacity - 1, prefix.size,
                )
            }
            val least = config.minNewTokens ?: maxOf(config.minLength - prefix.size, 0)
            val last = if (requested <= room) FinishReason.LENGTH else FinishReason.CAPACITY
            return Plan(step, prompt, prefix, config.withLengths(minOf(requested, room), least), last, cache, decode)
        }

        private fun decoderStart(step: Step, config: Config): Int {
            val start = config.decoderStartTokenId ?: config.bosTokenId
            if (start != null && start < step.vocabSize) return start
            throw GenerationError(
                "an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, from 0 to " +
                    "${step.vocabSize - 1}. Received: ${repr(start)}. Pass it to the call or set it in generation_config.json.",
            )
        }
    }
}

/** Why a generated text ended: an end token, a stop text, the largest length, a full cache, or the time limit. */
enum class FinishReason { EOS, STOP, LENGTH, CAPACITY, TIME }

/** Greedy search and sampling: calls [use] with each new token, including the end token; returns why the text ended. */
internal inline fun generate(plan: Plan, use: (Int) -> Unit): FinishReason {
    val random = Random(plan.config.seed ?: java.security.SecureRandom().nextInt().toLong().and(0xffffffffL))
    val history = History(plan.prefix, plan.prefix.size, plan.prompt)
    var state = plan.cache?.start(plan.prompt) ?: plan.step.start(plan.prompt)
    try {
        repeat(plan.config.maxNewTokens!!) {
            val (logits, after) = plan.step.step(history.last, state, last = true)
            state = after
            val token = choose(applyRules(history, logits, plan.config), plan.config, random::next)
            history.add(token)
            use(token)
            plan.endOf(history)?.let { return it }
        }
        return plan.last
    } finally {
        if (plan.cache == null) state.release() else plan.cache.keep(state, history.ids.copyOf(history.size - 1))
    }
}

/** Number of additional tokens that are decoded, because some tokens have no text. */
private const val MARGIN = 16

/** Whether the last new token completes one of the strings, which may span several tokens and start in the prompt. */
private fun completesString(strings: List<String>, history: History, decode: (IntArray) -> String): Boolean {
    // A token with text has at least one byte, so it is enough to decode the end of the row.
    val longest = strings.maxOf { it.toByteArray().size }
    var end = history.tokens(maxOf(0, history.size - longest - MARGIN))
    var text = decode(end)
    if (text.startsWith('\uFFFD')) {
        // The text starts inside a character, which may make a whole run of bytes unreadable.
        end = history.tokens()
        text = decode(end)
    }
    // A string that is complete before the first new token does not count.
    val old = maxOf(0, end.size - history.numNew)
    val known = if (old > 0) decode(end.copyOf(old)).commonPrefixWith(text).length else 0
    return strings.any { text.indexOf(it, maxOf(0, known - it.length + 1)) >= 0 }
}
