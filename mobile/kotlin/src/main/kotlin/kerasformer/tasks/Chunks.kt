package kerasformer.tasks

import kerasformer.CapacityError
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.Strategy
import kerasformer.tokenization.chunks

/**
 * How texts that are longer than the model are read: in overlapping chunks, whose results are combined.
 *
 * @property truncation Whether only the start of a text is read.
 * @property chunkLength Number of tokens that are read at once; by default as many as the model reads.
 * @property stride Number of tokens that neighbouring chunks share; by default a quarter of a chunk.
 */
data class LongText(val truncation: Boolean = false, val chunkLength: Int? = null, val stride: Int? = null)

/** The chunks of a text; the start of the text if it is truncated. */
internal fun Runtime.chunksOf(text: String, length: LongText): List<Encoding> {
    val special = tokenizer.encode("").size
    val limit = length.chunkLength?.let { checkRange("chunk_length", it, special + 1, maxLength) } ?: maxLength
    val tokens = encode(text)
    if (limit == null) return listOf(tokens)
    if (length.truncation) return tokenizer.chunks(tokens, limit, Strategy.ONLY_FIRST).take(1)
    val room = limit - special
    return tokenizer.chunks(tokens, limit, Strategy.ONLY_FIRST, length.stride?.let { checkRange("stride", it, 0, room - 1) } ?: (room / 4))
}

/** A text, or a pair of texts, in one piece. */
internal fun Runtime.whole(text: String, truncation: Boolean, pair: String? = null, advice: String = ""): Encoding {
    val tokens = encode(text, pair)
    val limit = maxLength
    if (limit == null || tokens.size <= limit) return tokens
    if (truncation) return tokenizer.chunks(tokens, limit, Strategy.LONGEST_FIRST).first()
    throw CapacityError(
        "A text exceeds the model's maximum length. Expected at most $limit tokens. Received: ${tokens.size}. Shorten it, or pass " +
            "truncation=True to truncate it.$advice",
        limit, tokens.size,
    )
}

/**
 * Pairs of one text and each of several others, in chunks: the long text is split, and each of its chunks contains the whole other
 * text. Overlaps are those that fit the longest of the other texts.
 *
 * @param isFirst Whether the long text is the first of each pair.
 * @param cut Which text is truncated.
 */
internal fun Runtime.chunksOfPairs(long: String, others: List<String>, length: LongText, isFirst: Boolean, cut: Strategy): List<List<Encoding>> {
    val longest = if (length.truncation) 0 else others.maxOfOrNull { tokenizer.encode(it, special = false).size } ?: 0
    val kept = tokenizer.encode("", "").size + longest
    val limit = length.chunkLength?.let { checkRange("chunk_length", it, kept + 1, maxLength) } ?: maxLength
    val pairs = others.map { if (isFirst) encode(long, it) else encode(it, long) }
    if (limit == null) return pairs.map { listOf(it) }
    if (length.truncation) return pairs.map { tokenizer.chunks(it, limit, cut).take(1) }
    if (kept >= limit) {
        throw CapacityError(
            "Special tokens and the other text of a pair leave no space for a text. Expected: fewer than $limit tokens. Received: $kept. " +
                "Shorten the other text.",
            limit - 1, kept,
        )
    }
    val stride = length.stride?.let { checkRange("stride", it, 0, limit - kept - 1) } ?: ((limit - kept) / 4)
    return pairs.map { tokenizer.chunks(it, limit, if (isFirst) Strategy.ONLY_FIRST else Strategy.ONLY_SECOND, stride) }
}

/**
 * The values of a text from those of its chunks.
 *
 * @param text Which text of a pair was split: 0 or 1.
 */
internal fun combined(values: List<DoubleArray>, chunks: List<Encoding>, combine: Combine = Combine.MEAN, text: Int = 0): DoubleArray {
    if (values.size == 1) return values[0]
    if (combine == Combine.MAX) return DoubleArray(values[0].size) { column -> values.maxOf { it[column] } }
    val weights = chunks.map { chunk -> maxOf(1, chunk.sequenceIds.count { it == text }) }
    return DoubleArray(values[0].size) { column -> values.indices.sumOf { weights[it] * values[it][column] } / weights.sum() }
}

/** A token of a text: its chunk, and its index there. */
internal class Location(val chunk: Int, val index: Int)

/** For each token of a text, in order, the chunk with the most context around it. */
internal fun bestLocations(chunks: List<Encoding>): List<Location> {
    val texts = chunks.map { chunk -> chunk.positions.filterIndexed { index, _ -> chunk.sequenceIds[index] >= 0 } }
    val (starts, ends) = texts.map { it.firstOrNull() ?: 0 } to texts.map { it.lastOrNull() ?: 0 }
    val best = java.util.TreeMap<Int, Pair<Int, Location>>()
    for ((chunk, tokens) in chunks.withIndex()) {
        for ((index, position) in tokens.positions.withIndex()) {
            // At the start and the end of the whole text, no context is missing.
            val before = if (starts[chunk] == starts.min()) Int.MAX_VALUE else position - starts[chunk]
            val after = if (ends[chunk] == ends.max()) Int.MAX_VALUE else ends[chunk] - position
            val margin = minOf(before, after)
            if (margin > (best[position]?.first ?: Int.MIN_VALUE)) best[position] = margin to Location(chunk, index)
        }
    }
    return best.values.map { it.second }
}
