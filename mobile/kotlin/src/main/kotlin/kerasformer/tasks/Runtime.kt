package kerasformer.tasks

import kotlin.math.exp
import kotlin.math.sqrt
import kotlin.math.tanh
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kerasformer.Bundle
import kerasformer.InputError
import kerasformer.TokenizerError
import kerasformer.decoding.PrefixCache
import kerasformer.decoding.Step
import kerasformer.engine.DynamicStep
import kerasformer.engine.Engine
import kerasformer.engine.Forward
import kerasformer.engine.Slots
import kerasformer.engine.StaticStep
import kerasformer.int
import kerasformer.repr
import kerasformer.template.ChatTemplate
import kerasformer.text
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.Tokenizer

/** An open model, as the tasks use it. */
internal class Runtime(val bundle: Bundle, val tokenizer: Tokenizer, engine: Engine) {
    val info = bundle.info
    val labels: List<String> = (info["labels"] as? List<*>).orEmpty().map { it.toString() }
    val maxLength: Int? = info.int("max_length")
    private val generates = bundle.ofRole("decode").isNotEmpty()
    private val forward = if (generates) null else Forward(bundle, engine)
    private val generator = if (!generates) null else if (bundle.format == "tflite") StaticStep(bundle, engine) else DynamicStep(bundle, engine)

    /** The chat template, which is read when it is first used. */
    val chat: ChatTemplate? by lazy { tokenizer.settings["chat_template"]?.let { ChatTemplate(it, tokenizer) } }

    /** The caches of the last conversation, which its next turn continues. */
    val conversationCache: PrefixCache by lazy { PrefixCache(step) }

    val step: Step get() = generator ?: throw InputError("This model generates no text. Received: a bundle for ${info.text("task")}")

    /** Throws unless the model performs a task. */
    fun require(vararg tasks: String) {
        val known = info.text("task").orEmpty()
        if (tasks.none { performer(it) == performer(known) }) throw InputError("This bundle is for $known. Received: the task ${tasks.first()}")
    }

    fun encode(text: String, pair: String? = null): Encoding = tokenizer.encode(text, pair).also(::checkKnown)

    fun encodeWords(words: List<String>): Encoding = tokenizer.encodeWords(words).also(::checkKnown)

    /** Checks that all tokens are in the vocabulary of the model. */
    private fun checkKnown(tokens: Encoding) {
        val size = info.int("vocab_size") ?: 0
        val highest = tokens.ids.maxOrNull() ?: return
        if (size == 0 || highest < size) return
        throw TokenizerError(
            "A text contains a token that the model lacks: ${repr(tokenizer.token(highest))} with the id $highest. Expected ids below $size, " +
                "the vocabulary size. Received: a tokenizer of ${tokenizer.vocabSize} tokens. Use the tokenizer that the model was trained with",
        )
    }

    /** The outputs for each chunk of a text; a cancellation takes effect between them. */
    suspend fun outputs(chunks: List<Encoding>): List<Map<String, FloatArray>> = chunks.map { chunk ->
        currentCoroutineContext().ensureActive()
        forward!!.run(chunk)
    }

    /** The outputs for a text whose words and labels have slots. */
    suspend fun outputs(tokens: Encoding, slots: Slots): Map<String, FloatArray> {
        currentCoroutineContext().ensureActive()
        return forward!!.run(tokens, slots)
    }

    private companion object {
        val PERFORMED_BY = mapOf(
            "conversation" to "text-generation", "summarization" to "text2text-generation", "translation" to "text2text-generation",
            "text-ranking" to "text-classification", "zero-shot-classification" to "text-classification",
        )

        fun performer(task: String): String = PERFORMED_BY[task] ?: task
    }
}

/** How the results of a text's chunks are combined: their mean, weighted by numbers of tokens, or the greatest values. */
enum class Combine { MEAN, MAX }

internal fun FloatArray.toDoubles(): DoubleArray = DoubleArray(size) { this[it].toDouble() }

/** One row for each token. */
internal fun rows(values: FloatArray, count: Int): List<DoubleArray> {
    val width = values.size / maxOf(count, 1)
    return List(count) { row -> DoubleArray(width) { values[row * width + it].toDouble() } }
}

internal fun softmax(logits: DoubleArray): DoubleArray {
    val greatest = logits.maxOrNull() ?: 0.0
    val powers = DoubleArray(logits.size) { exp(logits[it] - greatest) }
    val sum = powers.sum()
    return DoubleArray(logits.size) { powers[it] / sum }
}

/** The probability of each class, independent of the others. */
internal fun sigmoid(logits: DoubleArray): DoubleArray = DoubleArray(logits.size) { 0.5 + 0.5 * tanh(0.5 * logits[it]) } // unlike exp, this cannot overflow

/** Scales a vector to length 1; a vector of zeros is unchanged. */
internal fun unit(row: DoubleArray): DoubleArray {
    val length = maxOf(sqrt(row.sumOf { it * it }), 1e-12)
    return DoubleArray(row.size) { row[it] / length }
}

/** Indices of the greatest values in descending order; equal values keep their order. */
internal fun ranked(values: DoubleArray, count: Int? = null): List<Int> =
    values.indices.sortedByDescending { values[it] }.let { if (count == null) it else it.take(count) }

internal fun argmax(values: DoubleArray): Int = values.indices.maxByOrNull { values[it] } ?: 0

internal fun checkTopK(topK: Int?, optional: Boolean = true): Int? {
    if (topK == null || topK >= 1) return topK
    throw InputError("top_k must be an integer of at least 1${if (optional) ", or None" else ""}. Received: top_k=$topK")
}

/** Checks an integer argument, whose errors have the words of Python. */
internal fun checkRange(name: String, value: Int, least: Int, most: Int?, optional: Boolean = false): Int {
    if (value >= least && (most == null || value <= most)) return value
    val range = if (most == null) "of at least $least" else "from $least to $most"
    throw InputError("$name must be an integer $range${if (optional) ", or None" else ""}. Received: $name=$value")
}
