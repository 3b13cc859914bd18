package kerasformer.tasks

import kerasformer.CapacityError
import kerasformer.InputError
import kerasformer.JsonObject
import kerasformer.child
import kerasformer.engine.Slots
import kerasformer.int
import kerasformer.repr
import kerasformer.text
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.Unicode
import kerasformer.tokenization.span
import kerasformer.tokenization.toCodePoints

/** A word of a text, with its offsets in code points. */
private class TextWord(val text: String, val start: Int, val end: Int)

/** A span of words with its type. Its probability is a float as in Python, where those of very certain spans are equal. */
private class Span(val first: Int, val last: Int, val label: Int, val score: Float) {
    val place: Pair<Int, Int> = first to last

    fun overlaps(other: Span): Boolean = first <= other.last && other.first <= last

    fun contains(other: Span): Boolean = first <= other.first && other.last <= last
}

/**
 * Entities of types that are named in the call, with a model of GLiNER, as `kerasformer.pipelines.span_extraction` finds them. The
 * model reads the names of the types, each after a mark, a separator, and the words of the text. It scores the spans of up to
 * `max_width` words for each type.
 */
internal suspend fun Runtime.namedEntities(
    text: String, types: List<String>, threshold: Double, flat: Boolean, several: Boolean, truncation: Boolean,
): List<Entity> {
    require("zero-shot-token-classification")
    val spans = info.child("spans").orEmpty()
    checkTypes(types, spans)
    if (threshold !in 0.0..1.0) throw InputError("threshold must be a number from 0 to 1. Received: threshold=${repr(threshold)}")
    // Without words that the tokenizer removes, such as control characters.
    val all = wordsOf(text)
    val present = tokenizer.encodeWords(all.map { it.text }, special = false).wordIds.toSet()
    val words = all.filterIndexed { index, _ -> index in present }
    if (words.isEmpty()) return listOf()
    val prompt = types.flatMap { listOf(spans.text("label_token")!!, it) } + spans.text("separator")!!
    val whole = encodeWords(prompt + words.map { it.text })
    val most = spans.int("max_words")!!
    val count = fitting(whole, types.size, maxLength, most)
    val kept = words.take(count)
    if (kept.size < words.size && !truncation) {
        throw CapacityError(
            "A text is too long. Expected: at most $most words and, with the labels, ${maxLength ?: "any number of"} tokens. Received: " +
                "${words.size} words, of which $count can be read with these labels. Split the text, or pass truncation=True to omit its " +
                "last words",
            maxLength ?: 0, whole.size,
        )
    }
    val tokens = if (kept.size < words.size) encodeWords(prompt + kept.map { it.text }) else whole
    val logits = outputs(tokens, slotsOf(tokens, types.size, kept.size)).getValue("span_logits")
    return withoutConflicts(candidates(logits, kept.size, types.size, threshold.toFloat()), flat, several).map { span ->
        val (start, end) = kept[span.first].start to kept[span.last].end
        Entity(types[span.label], span.score.toDouble(), null, text.span(start, end), start, end)
    }
}

private fun checkTypes(labels: List<String>, spans: JsonObject) {
    if (labels.isEmpty() || labels.any { label -> label.toCodePoints().all(::isSpace) }) {
        throw InputError("labels must be names of types, such as ['person', 'city'], none of them empty. Received: ${repr(labels)}")
    }
    val several = labels.filter { label -> labels.count { it == label } > 1 }.toSortedSet()
    if (several.isNotEmpty()) throw InputError("labels must differ. Received several times: ${several.joinToString { repr(it) }}")
    val marks = listOf("label_token", "separator").map { spans.text(it)!! }
    labels.find { label -> marks.any { it in label } }?.let {
        throw InputError("labels must not contain ${marks.joinToString(" or ")}. Received: ${repr(it)}")
    }
    val most = spans.int("max_labels") ?: return
    if (labels.size <= most) return
    throw CapacityError(
        "The bundle reads at most $most labels in one call. Received: ${labels.size}. Call it several times, or export the model with a " +
            "larger num_labels",
        most, labels.size,
    )
}

/** A letter, a digit or an underscore, `\w` of Python's patterns. */
private fun isOfWord(char: Int): Boolean = Character.isLetter(char) || char == '_'.code || Character.getType(char).toByte() in NUMBERS

private val NUMBERS = listOf(Character.DECIMAL_DIGIT_NUMBER, Character.LETTER_NUMBER, Character.OTHER_NUMBER)

/** A space of Python's patterns. */
private fun isSpace(char: Int): Boolean = Unicode.isSpace(char) || char in 0x1C..0x1F

/** The words of a text, perhaps with hyphens, and other characters that are no spaces: `\w+(?:[-_]\w+)*|\S` in Python. */
private fun wordsOf(text: String): List<TextWord> {
    val chars = text.toCodePoints()
    val words = ArrayList<TextWord>()
    var index = 0
    while (index < chars.size) {
        val start = index++
        if (isSpace(chars[start])) continue
        if (isOfWord(chars[start])) {
            while (index < chars.size && (isOfWord(chars[index]) || chars[index] == '-'.code && index + 1 < chars.size && isOfWord(chars[index + 1]))) index++
        }
        words += TextWord(String(chars, start, index - start), start, index)
    }
    return words
}

/** The index of the first word of a text after so many labels, their marks and the separator. */
private fun firstWord(labels: Int): Int = 2 * labels + 1

/** The number of words of a text that the model can read: a word counts if all of its tokens fit. */
private fun fitting(tokens: Encoding, labels: Int, limit: Int?, most: Int): Int {
    val last = tokens.wordIds.indexOfLast { it >= 0 }
    val space = if (limit == null) last + 1 else limit - (tokens.size - 1 - last) // without special tokens at the end
    val cut = if (space <= last) tokens.wordIds[maxOf(space, 0)] else tokens.wordIds[last] + 1
    val count = minOf(cut - firstWord(labels), most)
    if (count >= 1) return count
    val needed = tokens.wordIds.count { it in 0 until firstWord(labels) }
    throw CapacityError(
        "The labels leave no space for a text. Expected: fewer than $limit tokens with special tokens. Received: $needed tokens of $labels " +
            "labels. Pass fewer labels, or shorter ones",
        limit ?: 0, needed,
    )
}

/** The slots of the first tokens of words, and of the marks of labels. */
private fun slotsOf(tokens: Encoding, labels: Int, words: Int): Slots =
    Slots(IntArray(words) { tokens.wordIds.indexOf(firstWord(labels) + it) }, IntArray(labels) { tokens.wordIds.indexOf(2 * it) })

/**
 * The spans whose probability exceeds a threshold, the most probable first.
 *
 * @param logits Of the spans of `k + 1` words from each word, for each label: `(W, K, C)`.
 */
private fun candidates(logits: FloatArray, words: Int, labels: Int, threshold: Float): List<Span> {
    val widths = logits.size / words / labels
    val scores = sigmoid(logits.toDoubles())
    return scores.indices.mapNotNull { index ->
        val first = index / labels / widths
        val last = first + index / labels % widths
        val score = scores[index].toFloat()
        if (score > threshold && last < words) Span(first, last, index % labels, score) else null
    }.sortedByDescending { it.score }
}

/**
 * The spans that do not conflict with a more probable one, in the order of the text.
 *
 * @param flat Whether spans that overlap conflict even if one of them lies within the other.
 * @param several Whether a span may have several labels.
 */
private fun withoutConflicts(spans: List<Span>, flat: Boolean, several: Boolean): List<Span> {
    val known = HashMap<Pair<Int, Int>, Span>()
    return spans.filter { span ->
        val fits = if (span.place in known) several else known.values.none { it.overlaps(span) && (flat || !it.contains(span) && !span.contains(it)) }
        if (fits) known.putIfAbsent(span.place, span)
        fits
    }.sortedBy { it.first }
}
