package kerasformer.decoding

/**
 * The tokens so far.
 *
 * @property width Number of tokens before the first generated one.
 * @property prompt The prompt; for an encoder-decoder, the encoder's input.
 */
internal class History(prefix: IntArray, val width: Int, val prompt: IntArray) {
    /** All tokens: the prompt (for an encoder-decoder, the start token) and the generated tokens; [size] are used. */
    var ids: IntArray = prefix.copyOf(prefix.size + 32)
        private set
    var size = prefix.size
        private set
    val numNew: Int get() = size - width
    val last: Int get() = ids[size - 1]

    fun add(token: Int) {
        if (size == ids.size) ids = ids.copyOf(size * 2)
        ids[size++] = token
    }

    fun tokens(from: Int = 0): IntArray = ids.copyOfRange(from, size)

    fun plus(token: Int): History = History(tokens(), width, prompt).also { it.add(token) }
}

/**
 * The logits after all rules that the settings activate, in the order of `kerasformer.generation.rules`; references are there.
 * The given array is not changed.
 */
internal fun applyRules(history: History, logits: FloatArray, config: Config): FloatArray {
    val changed = logits.copyOf()
    if (config.encoderRepetitionPenalty != 1.0) penalize(changed, history.prompt, history.prompt.size, 1 / config.encoderRepetitionPenalty)
    if (config.repetitionPenalty != 1.0) penalize(changed, history.ids, history.size, config.repetitionPenalty)
    if (config.frequencyPenalty != 0.0 || config.presencePenalty != 0.0) penalizeOccurrences(changed, history, config)
    if (config.noRepeatNgramSize > 0) forbidRepeats(changed, history.ids, history.size, history, config.noRepeatNgramSize)
    if (config.encoderNoRepeatNgramSize > 0) forbidRepeats(changed, history.prompt, history.prompt.size, history, config.encoderNoRepeatNgramSize)
    for (word in config.badWordsIds) {
        // An end token alone is no bad word.
        if (word.size == 1 && word[0] in config.eosTokenId) continue
        if (endsWith(history, word, word.size - 1)) forbid(changed, intArrayOf(word.last()))
    }
    if (history.numNew < (config.minNewTokens ?: 0)) forbid(changed, config.eosTokenId)
    if (config.forcedBosTokenId != null && history.size == 1) force(changed, intArrayOf(config.forcedBosTokenId))
    if (config.forcedEosTokenId.isNotEmpty() && history.numNew == config.maxNewTokens!! - 1) force(changed, config.forcedEosTokenId)
    forbid(changed, config.suppressTokens)
    val first = if (history.width == 1 && config.forcedBosTokenId != null) 1 else 0
    if (history.numNew == first) forbid(changed, config.beginSuppressTokens)
    return changed
}

/** Sets the logits of tokens to minus infinity; ids beyond the vocabulary cannot be generated anyway. */
private fun forbid(logits: FloatArray, tokens: IntArray) {
    for (token in tokens) if (token < logits.size) logits[token] = Float.NEGATIVE_INFINITY
}

/** Sets the logits of tokens to 0, and all others to minus infinity. */
private fun force(logits: FloatArray, tokens: IntArray) {
    logits.fill(Float.NEGATIVE_INFINITY)
    for (token in tokens) if (token < logits.size) logits[token] = 0f
}

/** Replaces positive logits by `logit / penalty` and negative ones by `logit * penalty`, once for each token. */
private fun penalize(logits: FloatArray, tokens: IntArray, count: Int, penalty: Double) {
    val factor = penalty.toFloat()
    for (token in tokens.take(count).toSet()) {
        if (token < logits.size) logits[token] = if (logits[token] < 0) logits[token] * factor else logits[token] / factor
    }
}

private fun penalizeOccurrences(logits: FloatArray, history: History, config: Config) {
    for ((token, count) in history.tokens(history.width).toList().groupingBy { it }.eachCount()) {
        if (token < logits.size) logits[token] -= (count * config.frequencyPenalty + config.presencePenalty).toFloat()
    }
}

/** Forbids tokens that, after the last ones, would complete a sequence of some size that occurs in [tokens]. */
private fun forbidRepeats(logits: FloatArray, tokens: IntArray, count: Int, history: History, size: Int) {
    if (history.size < size - 1) return
    val start = history.size - size + 1
    for (last in size - 1 until count) {
        val repeats = (0 until size - 1).all { tokens[last - size + 1 + it] == history.ids[start + it] }
        if (repeats && tokens[last] < logits.size) logits[tokens[last]] = Float.NEGATIVE_INFINITY
    }
}

/** Whether the last tokens are the first [count] ones of a word. */
private fun endsWith(history: History, word: IntArray, count: Int): Boolean =
    count <= history.size && (0 until count).all { history.ids[history.size - count + it] == word[it] }
