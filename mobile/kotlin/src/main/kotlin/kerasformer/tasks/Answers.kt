package kerasformer.tasks

import kerasformer.InputError
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.Strategy
import kerasformer.tokenization.Unicode
import kerasformer.tokenization.chunks
import kerasformer.tokenization.span
import kerasformer.tokenization.toCodePoints
import kerasformer.repr

/**
 * An answer in a text.
 *
 * @property start Start in the text, in Unicode code points; see [kerasformer.tokenization.span].
 * @property end End in the text; an answer from 0 to 0 means that the text has none.
 */
data class Answer(val answer: String, val score: Double, val start: Int, val end: Int)

private const val CHUNK_LENGTH = 384 // tokens of question and context together
private const val NEVER = -1e4
private const val SPANS = 20 // number of candidates in one chunk

internal suspend fun Runtime.answers(
    question: String, context: String, topK: Int, docStride: Int, chunkLength: Int?, maxAnswerLength: Int, handleImpossible: Boolean,
): List<Answer> {
    require("question-answering")
    checkTopK(topK, optional = false)
    checkRange("doc_stride", docStride, 0, null)
    checkRange("max_answer_len", maxAnswerLength, 1, null)
    if (context.isEmpty()) throw InputError("Each question needs a context that is not empty. Received: an empty context for ${repr(question)}")
    val chunks = chunksOfContext(question, context, docStride, chunkLength)
    val chars = context.toCodePoints()
    val candidates = LinkedHashMap<Pair<Int, Int>, Double>()
    var none = Double.POSITIVE_INFINITY
    for ((chunk, output) in outputs(chunks).withIndex()) {
        val tokens = chunks[chunk]
        // The score of the first token is that of "no answer".
        val allowed = BooleanArray(tokens.size) { it == 0 || tokens.sequenceIds[it] == 1 }
        val (starts, ends) = listOf("start_logits", "end_logits").map { name ->
            val logits = output.getValue(name)
            softmax(DoubleArray(tokens.size) { if (allowed[it]) logits[it].toDouble() else NEVER })
        }
        none = minOf(none, starts[0] * ends[0])
        for ((first, last, score) in spans(starts, ends, allowed, maxAnswerLength, maxOf(SPANS, topK))) {
            val span = trimmed(chars, tokens.start(first), tokens.end(last))
            candidates[span] = maxOf(score, candidates[span] ?: 0.0) // the same span from two chunks counts once
        }
    }
    val answers = candidates.map { (span, score) -> Answer(context.span(span.first, span.second), score, span.first, span.second) }.toMutableList()
    if (handleImpossible || answers.isEmpty()) answers += Answer("", none, 0, 0)
    return answers.sortedByDescending { it.score }.take(topK)
}

private fun Runtime.chunksOfContext(question: String, context: String, docStride: Int, chunkLength: Int?): List<Encoding> {
    val limit = chunkLength?.let { checkRange("chunk_length", it, 1, maxLength, optional = true) } ?: minOf(CHUNK_LENGTH, maxLength ?: CHUNK_LENGTH)
    val length = tokenizer.encode(question, special = false).size
    val room = limit - length - tokenizer.encode("", "").size
    if (room < 1) throw InputError("The question must be shorter than the $limit tokens of a chunk. Received: $length tokens")
    return tokenizer.chunks(encode(question, context), limit, Strategy.ONLY_SECOND, minOf(docStride, room / 2))
}

/** The most probable spans of one chunk: first token, last token, score. */
private fun spans(starts: DoubleArray, ends: DoubleArray, allowed: BooleanArray, longest: Int, count: Int): List<Triple<Int, Int, Double>> {
    val all = ArrayList<Triple<Int, Int, Double>>()
    for (first in 1 until starts.size) {
        for (last in first until minOf(first + longest, ends.size)) {
            val score = starts[first] * ends[last]
            if (allowed[first] && allowed[last] && score > 0) all += Triple(first, last, score)
        }
    }
    return all.sortedByDescending { it.third }.take(count)
}

/** The span without white space at its ends. */
private fun trimmed(chars: IntArray, start: Int, end: Int): Pair<Int, Int> {
    var (from, to) = start to end
    while (from < to && Unicode.isSpace(chars[from])) from++
    while (to > start && Unicode.isSpace(chars[to - 1])) to--
    return from to to
}
