package kerasformer.tokenization

import java.io.File
import kerasformer.Bundle
import kerasformer.InputError
import kerasformer.Json
import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.asObject
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.objects
import kerasformer.repr
import kerasformer.text

/**
 * Converts text to token ids and back, as `tokenizer.json` describes it. Several threads may use a tokenizer.
 *
 * @param content Content of `tokenizer.json`.
 * @param settings Content of `tokenizer_config.json`.
 * @throws TokenizerError A file is damaged, or has an unsupported rule.
 */
class Tokenizer internal constructor(content: Map<String, Any?>, internal val settings: Map<String, Any?>) {
    private val normalizer = normalizerOf(content.child("normalizer"))
    private val preTokenizer = preTokenizerOf(content.child("pre_tokenizer"))
    private val wordRule = WordRule(normalizer, preTokenizer)
    private val model = Model.of(content.child("model") ?: throw TokenizerError("tokenizer.json has no model. Is it damaged?"))
    private val postProcessor = PostProcessor.of(content.child("post_processor"))
    private val decoder = decoderOf(content.child("decoder"))
    private val added = content.objects("added_tokens").map(::AddedToken)
    private val addedById = added.associateBy { it.id }
    private val addedByContent = added.associate { it.content to it.id }
    private val splitsSpecialTokens = settings.flag("split_special_tokens")
    private val found = added.filter { !(it.isSpecial && splitsSpecialTokens) }
    private val plain = found.filter { !it.isNormalized }.let { tokens -> AddedTokens(tokens, tokens.map { it.content }) }
    private val normalized = found.filter { it.isNormalized }.let { tokens ->
        AddedTokens(tokens, tokens.map { token -> Aligned.of(token.content).let { normalizer?.normalize(it) ?: it }.string() })
    }

    /** The content of each special token that is written in `tokenizer_config.json`, by names such as `"mask_token"`. */
    val specialTokens: Map<String, String> = SPECIAL_TOKENS.mapNotNull { name ->
        val value = settings[name]
        (value as? String ?: value.asObject()?.text("content"))?.let { name to it }
    }.toMap()

    /** Number of tokens, including added tokens. */
    val vocabSize: Int = model.vocabulary.size + addedByContent.keys.count { it !in model.vocabulary }

    internal val hasByteTokens = idOf("<0x0A>") != null

    // In vocabularies of byte-pair encoding, spaces are part of the text, and the clean-up would remove them.
    internal val cleansSpaces = settings.flag("clean_up_tokenization_spaces") && content.child("model")?.text("type") != "BPE"
    private val skipsIncomplete = settings.text("errors") == "ignore"
    private val dropped = settings.text("dropped_characters").orEmpty().toCodePoints().toSet()
    private val unknown = specialTokens["unk_token"]?.let(::idOf)

    /** The tokenizer of the texts that the model writes, which may be another one (Marian). */
    internal var writer: Tokenizer = this

    /** The id of a token as it appears in the vocabulary, or `null`. */
    fun idOf(token: String): Int? = addedByContent[token] ?: model.vocabulary[token]

    /** The token of an id as it appears in the vocabulary, or `null`. */
    fun token(id: Int): String? = addedById[id]?.content ?: model.token(id)

    internal fun isSpecial(id: Int): Boolean = addedById[id]?.isSpecial == true

    internal fun isAdded(id: Int): Boolean = id in addedById

    internal fun tokens(): Sequence<Pair<String, Int>> = (model.vocabulary.asSequence() + addedByContent.asSequence()).map { it.key to it.value }

    /**
     * The tokens of a text, or of a pair of texts.
     *
     * @param special Whether special tokens are added.
     * @throws InputError The text is not valid Unicode, or contains characters that were removed from the vocabulary.
     */
    fun encode(text: String, pair: String? = null, special: Boolean = true): Encoding = joined(listOfNotNull(text, pair).map(::tokensOf), special)

    /**
     * The tokens of the words of a text, of which each is tokenized by itself (`is_split_into_words` in Python).
     *
     * @param special Whether special tokens are added.
     * @return Tokens whose [Encoding.wordIds] are the indices of these words, and whose offsets count from the start of a word.
     * @throws InputError As for [encode].
     */
    fun encodeWords(words: List<String>, special: Boolean = true): Encoding {
        val tokens = TextTokens(words.size * 2 + 8)
        words.forEachIndexed { word, text ->
            val found = tokensOf(text)
            for (index in 0 until found.size) tokens.add(found.ids[index], found.starts[index], found.ends[index], word)
        }
        return joined(listOf(tokens), special)
    }

    /** The tokens of one or two texts, with special tokens around them. */
    private fun joined(texts: List<TextTokens>, special: Boolean): Encoding {
        val template = postProcessor.template(texts.size > 1, special)
        val encoding = Encoding(template.sumOf { if (it.sequence < 0) 1 else texts[it.sequence].size })
        var position = 0
        for (part in template) {
            if (part.sequence < 0) encoding.putSpecial(position++, part.id, part.type)
            else position = texts[part.sequence].copyTo(encoding, position, part.sequence, part.type)
        }
        return encoding
    }

    /** The text of ids; ids that the vocabulary lacks are left out. */
    fun decode(ids: IntArray, skipSpecial: Boolean = false): String {
        val known = ids.filter { token(it) != null && !(skipSpecial && isSpecial(it)) }
        if (skipsIncomplete) {
            val bytes = known.map { if (isAdded(it)) token(it)!!.toByteArray() else ByteTokens.bytesOf(token(it)!!) }
            return ByteTokens.utf8(bytes.fold(byteArrayOf(), ByteArray::plus), invalid = "")
        }
        val tokens = known.map { token(it)!! }
        val text = decoder?.decode(tokens)?.joinToString("") ?: tokens.joinToString(" ")
        return if (cleansSpaces) cleaned(text, CLEANED_SPACES) else text
    }

    /** A decoder of ids that arrive one after another. */
    fun stream(skipSpecial: Boolean = true): TextStream = TextStream(this, skipSpecial)

    private fun tokensOf(text: String): TextTokens {
        checkUnicode(text)
        val tokens = TextTokens(text.length / 3 + 8)
        val pieces = ArrayList<Piece>()
        var word = 0
        plain.split(Aligned.of(text)) { section, found ->
            if (found != null) {
                add(tokens, section, 0, section.size, found.id, word++)
            } else {
                normalized.split(normalizer?.normalize(section) ?: section) { part, inside ->
                    if (inside != null) {
                        add(tokens, part, 0, part.size, inside.id, word++)
                    } else if (part.size > 0) {
                        pieces.clear()
                        val whole = Piece(part, 0, part.size)
                        if (preTokenizer == null) pieces += whole else preTokenizer.split(whole, pieces)
                        for (piece in pieces) addWord(tokens, piece, word++)
                    }
                }
            }
        }
        if (wordRule.needsSpaces) wordRule.apply(text.toCodePoints(), tokens) { addedById[it]?.content }
        if (dropped.isNotEmpty()) checkCharacters(text, tokens)
        return tokens
    }

    private fun addWord(tokens: TextTokens, piece: Piece, word: Int) {
        val found = model.tokens(piece)
        for (index in 0 until found.size) {
            add(tokens, piece.text, piece.from + found.starts[index], piece.from + found.ends[index], found.ids[index], word)
        }
    }

    /** Adds the token of the characters from [from] to [to]. */
    private fun add(tokens: TextTokens, text: Aligned, from: Int, to: Int, id: Int, word: Int) {
        var start = if (from < text.size) text.starts[from] else 0
        var end = if (to > 0) text.ends[to - 1] else 0
        if (postProcessor.trims) {
            var leading = from
            while (leading < to && isSpace(text.chars[leading])) leading++
            var trailing = to
            while (trailing > from && isSpace(text.chars[trailing - 1])) trailing--
            var spaces = leading - from
            // A single space may be the one that was added before the text, which is not a part of it.
            if (spaces == 1 && postProcessor.keepsAddedSpace && (tokens.size == 0 || start == 0)) spaces = 0
            start = minOf(start + spaces, end)
            if (end >= to - trailing) end = maxOf(end - (to - trailing), start)
        }
        tokens.add(id, start, end, word)
    }

    private fun isSpace(char: Int): Boolean = char == BYTE_SPACE || Unicode.isSpace(char)

    private fun checkUnicode(text: String) {
        var index = 0
        while (index < text.length) {
            val char = text.codePointAt(index)
            if (char in 0xD800..0xDFFF) {
                throw InputError("a text contains a lone surrogate, which is not valid Unicode. Decode its bytes with errors='replace' first")
            }
            index += Character.charCount(char)
        }
    }

    /** Checks that no unknown token contains characters that were removed from the vocabulary. */
    private fun checkCharacters(text: String, tokens: TextTokens) {
        val chars = text.toCodePoints()
        val parts = (0 until tokens.size).filter { tokens.ids[it] == unknown }.map { String(chars, tokens.starts[it], tokens.ends[it] - tokens.starts[it]) }
        val found = parts.flatMap { part -> Aligned.of(part).let { normalizer?.normalize(it) ?: it }.let { it.chars.take(it.size) } }
        val removed = found.filter { it in dropped }.toSortedSet().map { String(Character.toChars(it)) }
        if (removed.isEmpty()) return
        val more = if (removed.size > SHOWN) " and ${removed.size - SHOWN} more" else ""
        throw InputError(
            "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the languages for " +
                "which it was pruned. Received: ${removed.take(SHOWN).joinToString { "'$it'" }}$more. Prune the original model with " +
                "texts that contain them, or use that model",
        )
    }

    companion object {
        private val SPECIAL_TOKENS = listOf("bos", "eos", "unk", "sep", "pad", "cls", "mask").map { "${it}_token" }
        private const val BYTE_SPACE = 0x120
        private const val SHOWN = 10
        private const val HARD_TEXTS = "tokenizer_texts.json"

        /**
         * Reads `tokenizer.json` and, if it exists, `tokenizer_config.json` of a folder.
         *
         * @throws TokenizerError A file is missing or damaged, or has an unsupported rule.
         */
        fun open(folder: File): Tokenizer {
            return of { name -> File(folder, name).takeIf { it.exists() }?.readText() }
        }

        /** Reads the tokenizer of a bundle, and compares its ids of texts that tokenizers may read differently. */
        internal fun of(bundle: Bundle): Tokenizer {
            val tokenizer = of { name -> if (name in bundle.files) bundle.read(name) else null }
            if (HARD_TEXTS in bundle.files) checkTexts(tokenizer, bundle.read(HARD_TEXTS))
            return tokenizer
        }

        private fun of(read: (String) -> String?): Tokenizer {
            val settings = parsed(read("tokenizer_config.json") ?: "{}")
            val content = read("tokenizer.json") ?: throw TokenizerError(
                settings.text("tokenizer_class")?.let { "the rules of $it cannot be written as tokenizer.json, which is missing. Run this bundle in Python" }
                    ?: "tokenizer.json is missing. Expected: the folder of a tokenizer or a bundle",
            )
            val tokenizer = Tokenizer(parsed(content), settings)
            read("target_tokenizer.json")?.let { tokenizer.writer = Tokenizer(parsed(it), settings) }
            return tokenizer
        }

        private fun checkTexts(tokenizer: Tokenizer, texts: String) {
            for (row in (Json.parse(texts) as List<*>).mapNotNull { it.asObject() }) {
                val expected = (row["ids"] as List<*>).joinToString()
                val received = tokenizer.encode(row.text("text").orEmpty()).ids.joinToString()
                if (received == expected) continue
                throw TokenizerError(
                    "this tokenizer reads a text differently from the model's own, so the model would answer a different text. Text: " +
                        "${repr(row["text"])}. Expected ids: $expected. Received: $received. Run this bundle with kerasformer in Python, or " +
                        "train the model with a tokenizer like that of BERT, GPT-2 or T5",
                )
            }
        }

        internal fun parse(content: String, settings: String): Tokenizer = Tokenizer(parsed(content), parsed(settings))

        private fun parsed(text: String): JsonObject = try {
            Json.parse(text).asObject()
        } catch (error: IllegalArgumentException) {
            throw TokenizerError("tokenizer.json is damaged: ${error.message}", error)
        } ?: throw TokenizerError("tokenizer.json must be an object. Received: ${text.take(40)}")
    }
}

/** The tokens of one text, without special tokens around it. */
internal class TextTokens(capacity: Int) {
    var ids = IntArray(capacity)
    var starts = IntArray(capacity)
    var ends = IntArray(capacity)
    var words = IntArray(capacity)
    var size = 0

    fun add(id: Int, start: Int, end: Int, word: Int) {
        if (size == ids.size) {
            ids = ids.copyOf(size * 2)
            starts = starts.copyOf(size * 2)
            ends = ends.copyOf(size * 2)
            words = words.copyOf(size * 2)
        }
        ids[size] = id
        starts[size] = start
        ends[size] = end
        words[size++] = word
    }

    /** Writes the tokens to an encoding; returns the position after them. */
    fun copyTo(encoding: Encoding, position: Int, sequence: Int, type: Int): Int {
        ids.copyInto(encoding.ids, position, 0, size)
        words.copyInto(encoding.wordIds, position, 0, size)
        for (index in 0 until size) {
            encoding.offsets[2 * (position + index)] = starts[index]
            encoding.offsets[2 * (position + index) + 1] = ends[index]
        }
        encoding.sequenceIds.fill(sequence, position, position + size)
        encoding.typeIds.fill(type, position, position + size)
        return position + size
    }
}

/**
 * The tokens of a text, or of a pair of texts.
 *
 * @property ids Ids of the tokens.
 * @property offsets Start and end of each token in its text, one after another: two numbers for each token. They count Unicode
 *   code points as Python does, see [span]; special tokens have 0 and 0.
 * @property typeIds Segment of each token, 1 for the second text if the model distinguishes the two.
 * @property specialTokensMask 1 for special tokens, otherwise 0.
 * @property wordIds Index of each token's word in its text; -1 for special tokens.
 * @property sequenceIds 0 and 1 for tokens of the first and the second text; -1 for special tokens.
 * @property positions Index of each token in the whole text, if these are only a part of its tokens.
 */
class Encoding internal constructor(size: Int) {
    val ids = IntArray(size)
    val offsets = IntArray(2 * size)
    val typeIds = IntArray(size)
    val specialTokensMask = IntArray(size)
    val wordIds = IntArray(size) { -1 }
    val sequenceIds = IntArray(size) { -1 }
    val positions = IntArray(size) { it }

    /** Number of tokens. */
    val size: Int get() = ids.size

    internal fun start(index: Int): Int = offsets[2 * index]

    internal fun end(index: Int): Int = offsets[2 * index + 1]

    internal fun putSpecial(position: Int, id: Int, type: Int) {
        ids[position] = id
        typeIds[position] = type
        specialTokensMask[position] = 1
    }

    /** Some of the tokens. */
    internal fun select(indices: List<Int>): Encoding = Encoding(indices.size).also { part ->
        indices.forEachIndexed { to, from ->
            part.ids[to] = ids[from]
            part.offsets[2 * to] = start(from)
            part.offsets[2 * to + 1] = end(from)
            part.typeIds[to] = typeIds[from]
            part.specialTokensMask[to] = specialTokensMask[from]
            part.wordIds[to] = wordIds[from]
            part.sequenceIds[to] = sequenceIds[from]
            part.positions[to] = positions[from]
        }
    }
}

/** The part of a text from a start to an end in code points, as offsets count. */
fun String.span(start: Int, end: Int): String {
    val from = offsetByCodePoints(0, start)
    return substring(from, offsetByCodePoints(from, end - start))
}
