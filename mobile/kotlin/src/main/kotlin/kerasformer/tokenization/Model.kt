package kerasformer.tokenization

import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.text
import java.math.BigDecimal
import java.math.MathContext
import java.util.concurrent.ConcurrentHashMap
import kotlin.math.abs
import kotlin.math.pow

/** The tokens of a word: ids, and start and end of each in the word, in characters. */
internal class WordTokens(capacity: Int) {
    var ids = IntArray(capacity)
    var starts = IntArray(capacity)
    var ends = IntArray(capacity)
    var size = 0

    fun add(id: Int, start: Int, end: Int) {
        if (size == ids.size) {
            ids = ids.copyOf(size * 2 + 4)
            starts = starts.copyOf(ids.size)
            ends = ends.copyOf(ids.size)
        }
        ids[size] = id
        starts[size] = start
        ends[size++] = end
    }
}

/** The vocabulary, and the rule that splits a word into tokens; the field `model`. Several threads may use a model. */
internal abstract class Model(val vocabulary: Map<String, Int>, val unknown: Int?) {
    private val known = ConcurrentHashMap<String, WordTokens>()
    private val tokens = arrayOfNulls<String>((vocabulary.values.maxOrNull() ?: -1) + 1).also { tokens ->
        for ((token, id) in vocabulary) tokens[id] = token
    }
    private val byteIds = IntArray(256) { vocabulary["<0x%02X>".format(it)] ?: -1 }

    fun token(id: Int): String? = tokens.getOrNull(id)

    /** The tokens of a word; words that occurred before are looked up. */
    fun tokens(piece: Piece): WordTokens {
        val length = piece.to - piece.from
        if (length > LONGEST_KNOWN) return tokenized(piece.text.chars, piece.from, piece.to)
        val word = piece.text.string(piece.from, piece.to)
        known[word]?.let { return it }
        val tokens = tokenized(piece.text.chars, piece.from, piece.to)
        if (known.size >= MOST_KNOWN) known.clear()
        known[word] = tokens
        return tokens
    }

    protected abstract fun tokenized(chars: IntArray, from: Int, to: Int): WordTokens

    /** Adds the tokens of the bytes of characters, if the vocabulary has all of them. */
    protected fun addBytes(chars: IntArray, from: Int, to: Int, use: (id: Int, index: Int) -> Unit): Boolean {
        for (index in from until to) Unicode.utf8(chars[index]) { if (byteIds[it] < 0) return false }
        for (index in from until to) Unicode.utf8(chars[index]) { use(byteIds[it], index) }
        return true
    }

    protected fun needUnknown(): Int = unknown ?: throw TokenizerError(
        "this tokenizer cannot tokenize a text: a part of it is unknown, and there is no token for that. Is its vocabulary complete?",
    )

    companion object {
        private const val LONGEST_KNOWN = 48
        private const val MOST_KNOWN = 20_000

        /** @throws TokenizerError The field is damaged, or of an unsupported kind. */
        fun of(config: JsonObject): Model {
            val type = config.text("type") ?: if ("merges" in config) "BPE" else if (config["vocab"] is List<*>) "Unigram" else "WordPiece"
            return when (type) {
                "WordPiece" -> WordPiece(config)
                "WordLevel" -> WordLevel(config)
                "BPE" -> BytePairs(config)
                "Unigram" -> Unigram(config)
                else -> throw TokenizerError("unsupported model in tokenizer.json. Received: $type")
            }
        }
    }
}

private fun vocabularyOf(config: JsonObject): Map<String, Int> {
    val entries = config.child("vocab") ?: throw TokenizerError("the vocabulary of tokenizer.json is missing")
    val result = HashMap<String, Int>(entries.size * 2)
    for ((token, id) in entries) result[token] = (id as? Long)?.toInt() ?: throw TokenizerError("the id of the token $token is no number")
    return result
}

private fun unknownOf(config: JsonObject, vocabulary: Map<String, Int>): Int? = config.text("unk_token")?.let { vocabulary[it] }

/** The longest token that begins a word, then the longest that continues it, and so on. */
private class WordPiece(config: JsonObject, vocabulary: Map<String, Int> = vocabularyOf(config)) :
    Model(vocabulary, unknownOf(config, vocabulary)) {
    private val prefix = config.text("continuing_subword_prefix") ?: "##"
    private val longest = config.int("max_input_chars_per_word") ?: 100
    private val longestToken = vocabulary.keys.maxOfOrNull { it.length } ?: 0

    override fun tokenized(chars: IntArray, from: Int, to: Int): WordTokens {
        val tokens = WordTokens(4)
        var start = from
        while (start < to && to - from <= longest) {
            var end = minOf(to, start + longestToken)
            while (end > start) {
                val part = String(chars, start, end - start)
                val id = vocabulary[if (start == from) part else prefix + part]
                if (id != null) {
                    tokens.add(id, start - from, end - from)
                    break
                }
                end--
            }
            if (end == start) break
            start = end
        }
        return if (start == to) tokens else WordTokens(1).also { it.add(needUnknown(), 0, to - from) }
    }
}

/** Whole words. */
private class WordLevel(config: JsonObject, vocabulary: Map<String, Int> = vocabularyOf(config)) :
    Model(vocabulary, unknownOf(config, vocabulary)) {
    override fun tokenized(chars: IntArray, from: Int, to: Int): WordTokens = WordTokens(1).also {
        it.add(vocabulary[String(chars, from, to - from)] ?: needUnknown(), 0, to - from)
    }
}

/**
 * Byte-pair encoding: characters, whose most frequent pairs are merged. Reference: Sennrich et al. 2016, arXiv:1508.07909.
 */
private class BytePairs(config: JsonObject, vocabulary: Map<String, Int> = vocabularyOf(config)) :
    Model(vocabulary, unknownOf(config, vocabulary)) {
    private val prefix = config.text("continuing_subword_prefix").orEmpty()
    private val suffix = config.text("end_of_word_suffix").orEmpty()
    private val fusesUnknown = config.flag("fuse_unk")
    private val usesBytes = config.flag("byte_fallback")
    private val ignoresMerges = config.flag("ignore_merges")

    /** The rank of a merge in the upper 32 bits, and the merged token in the lower ones, for each pair of tokens. */
    private val merges: LongMap

    init {
        val pairs = config["merges"] as? List<*> ?: throw TokenizerError("the merges of tokenizer.json are missing")
        merges = LongMap(pairs.size)
        pairs.forEachIndexed { rank, pair ->
            val (first, second) = if (pair is String) pair.split(' ') else (pair as List<*>).map { it.toString() }
            val ids = listOf(first, second, first + second.drop(prefix.length)).map {
                vocabulary[it] ?: throw TokenizerError("a merge in tokenizer.json has a token that the vocabulary lacks: $it")
            }
            merges[key(ids[0], ids[1])] = rank.toLong() shl 32 or ids[2].toLong()
        }
    }

    private fun key(first: Int, second: Int): Long = first.toLong() shl 32 or second.toLong()

    override fun tokenized(chars: IntArray, from: Int, to: Int): WordTokens {
        if (ignoresMerges) {
            vocabulary[String(chars, from, to - from)]?.let { id -> return WordTokens(1).also { it.add(id, 0, to - from) } }
        }
        return merged(symbols(chars, from, to))
    }

    /** The tokens of the single characters. */
    private fun symbols(chars: IntArray, from: Int, to: Int): WordTokens {
        val tokens = WordTokens(to - from)
        var unknownStart = -1
        for (index in from until to) {
            var symbol = String(chars, index, 1)
            if (index > from && prefix.isNotEmpty()) symbol = prefix + symbol
            if (index == to - 1 && suffix.isNotEmpty()) symbol += suffix
            val id = vocabulary[symbol]
            val start = index - from
            if (id == null && usesBytes && addBytes(chars, index, index + 1) { byte, _ -> tokens.add(byte, start, start + 1) }) continue
            if (unknownStart >= 0 && (id != null || !fusesUnknown)) {
                tokens.add(needUnknown(), unknownStart, start)
                unknownStart = -1
            }
            if (id != null) tokens.add(id, start, start + 1) else if (unknown != null && unknownStart < 0) unknownStart = start
        }
        if (unknownStart >= 0) tokens.add(needUnknown(), unknownStart, to - from)
        return tokens
    }

    /** Merges pairs, that of the lowest rank first, and of equal ranks the first one. */
    private fun merged(tokens: WordTokens): WordTokens {
        val (ids, size) = tokens.ids to tokens.size
        val next = IntArray(size) { it + 1 }
        val previous = IntArray(size) { it - 1 }
        val queue = Queue(size)
        fun consider(first: Int) {
            val second = if (first < 0) size else next[first]
            if (second >= size) return
            val merge = merges[key(ids[first], ids[second])]
            if (merge >= 0) queue.add((merge ushr 32 shl 32) or first.toLong())
        }
        for (index in 0 until size - 1) consider(index)
        while (true) {
            val best = queue.poll()
            if (best < 0) break
            val first = best.toInt()
            val second = next[first]
            if (ids[first] < 0 || second >= size) continue
            val merge = merges[key(ids[first], ids[second])]
            if (merge < 0 || merge ushr 32 != best ushr 32) continue // one of the two was merged with another token
            ids[first] = merge.toInt()
            ids[second] = -1
            tokens.ends[first] = tokens.ends[second]
            next[first] = next[second]
            if (next[second] < size) previous[next[second]] = first
            consider(previous[first])
            consider(first)
        }
        val result = WordTokens(size)
        for (index in 0 until size) if (ids[index] >= 0) result.add(ids[index], tokens.starts[index], tokens.ends[index])
        return result
    }

    /** A heap of longs, the smallest first. */
    private class Queue(capacity: Int) {
        private var items = LongArray(capacity + 1)
        private var size = 0

        fun add(item: Long) {
            if (size == items.size) items = items.copyOf(size * 2)
            var index = size++
            while (index > 0 && items[(index - 1) / 2] > item) {
                items[index] = items[(index - 1) / 2]
                index = (index - 1) / 2
            }
            items[index] = item
        }

        /** Removes the smallest item; -1 if there is none. */
        fun poll(): Long {
            if (size == 0) return -1
            val first = items[0]
            val last = items[--size]
            var index = 0
            while (true) {
                var child = 2 * index + 1
                if (child >= size) break
                if (child + 1 < size && items[child + 1] < items[child]) child++
                if (items[child] >= last) break
                items[index] = items[child]
                index = child
            }
            items[index] = last
            return first
        }
    }
}

/** The most probable sequence of tokens. Reference: Kudo 2018, arXiv:1804.10959. */
private class Unigram(config: JsonObject, private val entries: List<Pair<String, Double>> = entriesOf(config)) :
    Model(entries.withIndex().associateTo(HashMap(entries.size * 2)) { (id, entry) -> entry.first to id }, config.int("unk_id")) {
    private val usesBytes = config.flag("byte_fallback")
    private val scores = DoubleArray(entries.size) { entries[it].second }
    private val unknownScore = (scores.minOrNull() ?: 0.0) - UNKNOWN_PENALTY
    private val trie = Trie(entries.sumOf { it.first.length } / 2)

    init {
        for ((token, id) in vocabulary) if (token.isNotEmpty()) trie.add(token, id)
    }

    override fun tokenized(chars: IntArray, from: Int, to: Int): WordTokens {
        val size = to - from
        val best = DoubleArray(size + 1)
        val starts = IntArray(size + 1) { -1 }
        val ids = IntArray(size + 1)
        fun reach(end: Int, id: Int, start: Int, score: Double) {
            if (starts[end] >= 0 && score <= best[end]) return
            best[end] = score
            starts[end] = start
            ids[end] = id
        }
        for (start in 0 until size) {
            var hasSingle = false
            trie.search(chars, from + start, to) { id, end ->
                reach(end - from, id, start, scores[id] + best[start])
                hasSingle = hasSingle || end - from == start + 1
            }
            if (!hasSingle) reach(start + 1, needUnknown(), start, unknownScore + best[start])
        }
        val path = ArrayList<Int>() // ends of tokens, the last one first
        var end = size
        while (end > 0) {
            path.add(end)
            // Neighbouring unknown tokens are one.
            if (ids[end] == unknown) while (starts[end] > 0 && ids[starts[end]] == unknown) end = starts[end]
            end = starts[end]
        }
        val tokens = WordTokens(path.size)
        var start = 0
        for (stop in path.asReversed()) {
            add(tokens, chars, from, start, stop, ids[stop])
            start = stop
        }
        return tokens
    }

    private fun add(tokens: WordTokens, chars: IntArray, from: Int, start: Int, end: Int, id: Int) {
        val known = if (id == unknown) vocabulary[String(chars, from + start, end - start)] else id
        if (known != null) return tokens.add(known, start, end)
        if (usesBytes && addBytes(chars, from + start, from + end) { byte, _ -> tokens.add(byte, start, end) }) return
        tokens.add(needUnknown(), start, end)
    }

    private companion object {
        const val UNKNOWN_PENALTY = 10.0

        /**
         * A score as the Rust library reads it from the file: its digits as a number, divided by a power of ten. Both steps round,
         * and a difference of the last bit decides between paths with the same scores in another order.
         */
        fun asRead(exact: Double): Double {
            var digits = BigDecimal(exact.toString()) // which may have a digit too many
            val shorter = digits.round(MathContext(16))
            if (shorter.toDouble() == exact) digits = shorter
            digits = digits.stripTrailingZeros()
            val (number, power) = digits.unscaledValue().toDouble() to 10.0.pow(abs(digits.scale()))
            return if (digits.scale() > 0) number / power else number * power
        }

        fun entriesOf(config: JsonObject): List<Pair<String, Double>> {
            val vocab = config["vocab"] as? List<*> ?: throw TokenizerError("the vocabulary of tokenizer.json is missing")
            return vocab.map { entry ->
                val (token, score) = entry as List<*>
                token.toString() to asRead((score as Number).toDouble())
            }
        }
    }
}
