package kerasformer.decoding

/** The state of a text in a model: its caches and number of tokens. It occupies memory until it is released. */
internal interface State {
    fun release()
}

/**
 * A model that generates. A step leaves its input state valid, so that several hypotheses can continue from one.
 *
 * @property isEncoderDecoder Whether [start] takes the input of an encoder.
 * @property capacity Number of slots of the decoder's cache, for the prompt and generated tokens.
 * @property vocabSize Number of logits.
 */
internal interface Step {
    val isEncoderDecoder: Boolean
    val capacity: Int
    val vocabSize: Int

    /** Reads all but the last token of a prompt, or encodes a text. */
    fun start(ids: IntArray): State

    /**
     * Keeps the first [length] tokens of a text, at least one, and reads others after them. The state is then no longer valid,
     * unless the result is `null`, because the caches of a sliding window no longer have the keys of these tokens.
     */
    fun resume(state: State, length: Int, ids: IntArray): State?

    /** The logits after one more token, and the state after it. With [last], the given state is released. */
    fun step(token: Int, state: State, last: Boolean): Pair<FloatArray, State>
}

/** Reuse of the caches of a text for a text that starts with the same tokens, as the turns of a conversation do. */
internal class PrefixCache(private val step: Step) {
    private var kept: State? = null
    private var ids = IntArray(0)

    /** Reads a prompt, or only its last part; see [Step.start]. */
    fun start(prompt: IntArray): State {
        val state = kept ?: return step.start(prompt)
        kept = null // a state can be resumed once
        val read = prompt.copyOf(prompt.size - 1)
        var common = 0
        while (common < read.size && common < ids.size && read[common] == ids[common]) common++
        if (common > 0) step.resume(state, common, read.copyOfRange(common, read.size))?.let { return it }
        state.release()
        return step.start(prompt)
    }

    /** Keeps a state instead of releasing it. [tokens] are those in its caches. */
    fun keep(state: State, tokens: IntArray) {
        clear()
        kept = state
        ids = tokens
    }

    fun clear() {
        kept?.release()
        kept = null
    }
}
