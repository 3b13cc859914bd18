package kerasformer.tokenization

import kerasformer.InputError
import kerasformer.text

/** Which of two texts is truncated. */
enum class Strategy { ONLY_FIRST, ONLY_SECOND, LONGEST_FIRST }

/**
 * Splits tokens into chunks that together cover a text; the first one is the truncated text.
 *
 * @param limit The largest number of tokens of a chunk, including special tokens.
 * @param stride Number of tokens that neighbouring chunks share.
 * @throws InputError The limit or the stride leaves no space for a text.
 */
fun Tokenizer.chunks(tokens: Encoding, limit: Int, strategy: Strategy = Strategy.LONGEST_FIRST, stride: Int = 0): List<Encoding> {
    if (tokens.size <= limit) return listOf(tokens)
    val isLeft = settings.text("truncation_side") == "left"
    val counts = listOf(0, 1).map { text -> tokens.sequenceIds.count { it == text } }
    val room = roomOf(counts, tokens.size - counts.sum(), limit, strategy)
    var spans = listOf(0, 1).map { spans(counts[it], room[it], stride, limit, isLeft) }
    if (spans.all { it.size > 1 }) spans = spans.map { it.take(1) }
    return List(spans.maxOf { it.size }) { chunk ->
        val seen = IntArray(2)
        tokens.select(
            (0 until tokens.size).filter { position ->
                val text = tokens.sequenceIds[position]
                text < 0 || seen[text]++ in spans[text].let { it.getOrNull(chunk) ?: it[0] }
            },
        )
    }
}

/** The number of tokens that remain of each text. */
private fun roomOf(counts: List<Int>, special: Int, limit: Int, strategy: Strategy): List<Int> {
    val (first, second) = counts
    val budget = limit - special
    if (first + second <= budget) return counts
    // The shorter text keeps up to half; on equal lengths the second gets the odd token.
    val shorter = minOf(first, second, Math.floorDiv(budget, 2))
    val (room, remaining) = when (strategy) {
        Strategy.ONLY_FIRST -> listOf(budget - second, second) to budget - second
        Strategy.ONLY_SECOND -> listOf(first, budget - first) to budget - first
        Strategy.LONGEST_FIRST -> (if (first <= second) listOf(shorter, budget - shorter) else listOf(budget - shorter, shorter)) to budget
    }
    if (remaining >= 1) return room
    throw InputError(
        "max_length is too small: $special special tokens and texts of $first and $second tokens cannot be truncated to it with " +
            "'${strategy.name.lowercase()}'. Received: max_length=$limit. Set a larger one",
    )
}

/** The tokens of one text in each chunk. */
private fun spans(count: Int, keep: Int, stride: Int, limit: Int, isLeft: Boolean): List<IntRange> {
    if (keep >= count || keep == 0) return listOf(0 until minOf(count, keep))
    if (keep <= stride) {
        throw InputError("stride must be smaller than the $keep tokens of text that fit into a chunk. Received: stride=$stride, max_length=$limit")
    }
    val starts = generateSequence(0) { start -> (start + keep - stride).takeIf { start + keep < count } }
    return starts.map { start ->
        val end = minOf(start + keep, count)
        if (isLeft) count - end until count - start else start until end
    }.toList()
}
