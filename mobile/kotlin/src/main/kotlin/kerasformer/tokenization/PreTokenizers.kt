package kerasformer.tokenization

import java.util.regex.Pattern
import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.child
import kerasformer.flag
import kerasformer.objects
import kerasformer.text

/** A part of a text, which a model splits into tokens by itself. */
internal class Piece(val text: Aligned, val from: Int, val to: Int)

/** Splits a text into words; one rule of the field `pre_tokenizer`. */
internal fun interface PreTokenizer {
    fun split(piece: Piece, out: MutableList<Piece>)
}

/** @throws TokenizerError An unsupported kind of rule. */
internal fun preTokenizerOf(config: JsonObject?): PreTokenizer? = when (val type = config?.text("type")) {
    null -> null
    "Sequence" -> {
        val steps = config.objects("pretokenizers").mapNotNull(::preTokenizerOf)
        PreTokenizer { piece, out -> out += steps.fold(listOf(piece)) { pieces, step -> step.applied(pieces) } }
    }
    "BertPreTokenizer" -> {
        val (spaces, punctuation) = Runs(Behavior.REMOVED, Unicode::isSpace) to Runs(Behavior.ISOLATED, Unicode::isPunctuation)
        PreTokenizer { piece, out -> spaces.applied(listOf(piece)).forEach { punctuation.split(it, out) } }
    }
    "WhitespaceSplit" -> Runs(Behavior.REMOVED, Unicode::isSpace)
    "CharDelimiterSplit" -> config.text("delimiter").orEmpty().codePointAt(0).let { char -> Runs(Behavior.REMOVED) { it == char } }
    "Punctuation" -> Runs(Behavior.of(config, "Isolated"), Unicode::isPunctuation)
    "Digits" -> Runs(if (config.flag("individual_digits")) Behavior.ISOLATED else Behavior.CONTIGUOUS, Unicode::isNumber)
    "Whitespace" -> Splitter(Occurrences.Matches("[$WORDS]+|[^$WORDS${Unicode.SPACES}]+"), Behavior.REMOVED, true)
    "Split" -> Splitter(Occurrences.of(config), Behavior.of(config, "Removed"), config.flag("invert"))
    "ByteLevel" -> ByteLevelSplitter(config.flag("add_prefix_space", true), config.flag("use_regex", true))
    "Metaspace" -> MetaspaceSplitter(config)
    else -> throw TokenizerError("unsupported pre_tokenizer in tokenizer.json. Received: $type")
}

/** The words of the rule `Whitespace`, which is written in another dialect than patterns. */
private val WORDS = "${Unicode.WORDS}\\x{200C}\\x{200D}"

private fun PreTokenizer.applied(pieces: List<Piece>): List<Piece> = ArrayList<Piece>(pieces.size + 16).also { out ->
    for (piece in pieces) split(piece, out)
}

/** What becomes of the parts of a text that separate words. */
internal enum class Behavior {
    REMOVED, ISOLATED, CONTIGUOUS, MERGEDWITHPREVIOUS, MERGEDWITHNEXT;

    companion object {
        fun of(config: JsonObject, default: String): Behavior {
            val name = config.text("behavior") ?: default
            return values().find { it.name == name.uppercase() }
                ?: throw TokenizerError("unsupported behavior of a pre_tokenizer in tokenizer.json. Received: $name")
        }
    }
}

/** The places of a string or of the matches of a regular expression in a text. */
internal sealed interface Occurrences {
    fun forEach(text: Aligned, from: Int, to: Int, found: (start: Int, end: Int) -> Unit)

    class Literal(string: String) : Occurrences {
        private val chars = string.toCodePoints()

        override fun forEach(text: Aligned, from: Int, to: Int, found: (start: Int, end: Int) -> Unit) {
            var index = from
            while (chars.isNotEmpty() && index <= to - chars.size) {
                if (chars.indices.all { text.chars[index + it] == chars[it] }) {
                    found(index, index + chars.size)
                    index += chars.size
                } else {
                    index++
                }
            }
        }
    }

    class Matches(regex: String) : Occurrences {
        private val pattern = try {
            Pattern.compile(translated(regex), Pattern.UNICODE_CASE)
        } catch (error: IllegalArgumentException) {
            throw TokenizerError("unsupported regular expression in tokenizer.json. Received: $regex", error)
        }

        override fun forEach(text: Aligned, from: Int, to: Int, found: (start: Int, end: Int) -> Unit) {
            val string = text.string(from, to)
            val plain = string.length == to - from
            val matcher = pattern.matcher(string)
            var (unit, position) = 0 to from
            // Converts indices of code units, which ascend.
            fun at(index: Int): Int {
                position += if (plain) index - unit else string.codePointCount(unit, index)
                unit = index
                return position
            }
            while (matcher.find()) if (matcher.end() > matcher.start()) found(at(matcher.start()), at(matcher.end()))
        }
    }

    companion object {
        fun of(config: JsonObject): Occurrences {
            val pattern = config.child("pattern")
            return pattern?.text("Regex")?.let(::Matches) ?: Literal(pattern?.text("String") ?: config.text("pattern").orEmpty())
        }

        private val PATTERN_WORDS = "${Unicode.WORDS}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

        /** Writes classes out that are limited to ASCII in Java, or of other characters on Android. */
        private fun translated(regex: String): String {
            val out = StringBuilder()
            var depth = 0
            var index = 0
            while (index < regex.length) {
                val char = regex[index++]
                if (char == '[') depth++
                if (char == ']' && depth > 0) depth--
                if (char != '\\' || index == regex.length) {
                    out.append(char)
                    continue
                }
                val kind = regex[index++]
                val content = mapOf('s' to Unicode.SPACES, 'w' to PATTERN_WORDS, 'd' to "\\p{Nd}")[kind.lowercaseChar()]
                when {
                    content == null -> out.append(char).append(kind)
                    kind.isUpperCase() -> out.append("[^").append(content).append(']')
                    depth > 0 -> out.append(content)
                    else -> out.append('[').append(content).append(']')
                }
            }
            return out.toString()
        }
    }
}

/** Splits at the matches of a pattern. */
private class Splitter(val pattern: Occurrences, val behavior: Behavior, val invert: Boolean) : PreTokenizer {
    override fun split(piece: Piece, out: MutableList<Piece>) {
        val parts = Parts(piece, behavior, out)
        var end = piece.from
        pattern.forEach(piece.text, piece.from, piece.to) { start, stop ->
            parts.add(end, start, invert)
            parts.add(start, stop, !invert)
            end = stop
        }
        parts.add(end, piece.to, invert)
        parts.finish()
    }
}

/** Splits at each character that fulfils a condition. */
private class Runs(val behavior: Behavior, val separates: (Int) -> Boolean) : PreTokenizer {
    override fun split(piece: Piece, out: MutableList<Piece>) {
        val parts = Parts(piece, behavior, out)
        var start = piece.from
        for (index in piece.from until piece.to) {
            if (!separates(piece.text.chars[index])) continue
            parts.add(start, index, false)
            parts.add(index, index + 1, true)
            start = index + 1
        }
        parts.add(start, piece.to, false)
        parts.finish()
    }
}

/** Joins parts of a text according to a behavior. */
private class Parts(private val piece: Piece, private val behavior: Behavior, private val out: MutableList<Piece>) {
    private var start = -1
    private var end = -1
    private var separated = false

    fun add(from: Int, to: Int, separates: Boolean) {
        if (from == to || separates && behavior == Behavior.REMOVED) return
        val joins = start >= 0 && when (behavior) {
            Behavior.CONTIGUOUS -> separates == separated
            Behavior.MERGEDWITHPREVIOUS -> separates && !separated
            Behavior.MERGEDWITHNEXT -> !separates && separated
            else -> false
        }
        if (!joins) {
            finish()
            start = from
        }
        end = to
        separated = separates
    }

    fun finish() {
        if (start >= 0) out += Piece(piece.text, start, end)
        start = -1
    }
}

/** Words with their spaces, whose bytes are characters, as in GPT-2. */
private class ByteLevelSplitter(val addPrefixSpace: Boolean, val usesRegex: Boolean) : PreTokenizer {
    override fun split(piece: Piece, out: MutableList<Piece>) {
        var (text, from, to) = Triple(piece.text, piece.from, piece.to)
        if (addPrefixSpace && text.chars[from] != 32) {
            text = text.prepend(SPACE, from, to)
            to = text.size
            from = 0
        }
        while (from < to) {
            val end = if (usesRegex) wordEnd(text.chars, from, to) else to
            val word = byteLevel(text, from, end)
            out += Piece(word, 0, word.size)
            from = end
        }
    }

    /** `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+` */
    private fun wordEnd(chars: IntArray, from: Int, to: Int): Int {
        val next = if (from + 1 < to) chars[from + 1] else -1
        if (chars[from] == '\''.code) {
            if (next == 's'.code || next == 't'.code || next == 'm'.code || next == 'd'.code) return from + 2
            val after = if (from + 2 < to) chars[from + 2] else -1
            if ((next == 'r'.code || next == 'v'.code) && after == 'e'.code || next == 'l'.code && after == 'l'.code) return from + 3
        }
        val first = if (chars[from] == 32 && next >= 0 && !Unicode.isSpace(next)) from + 1 else from
        val kind = kindOf(chars[first])
        var end = first + 1
        while (end < to && kindOf(chars[end]) == kind) end++
        // The last of several spaces belongs to the next word.
        return if (kind == SPACES && end < to && end - first > 1) end - 1 else end
    }

    private fun kindOf(char: Int): Int = if (Unicode.isSpace(char)) SPACES else if (Unicode.isLetter(char)) 1 else if (Unicode.isNumber(char)) 2 else 3

    private companion object {
        val SPACE = intArrayOf(32)
        const val SPACES = 0
    }
}

/** Each byte of a part of a text as a character. */
internal fun byteLevel(text: Aligned, from: Int, to: Int): Aligned {
    val result = Aligned.Builder(text, to - from + 8)
    for (index in from until to) Unicode.utf8(text.chars[index]) { result.copy(ByteCharacters.chars[it], index) }
    return result.build()
}

/** The characters that stand for bytes in vocabularies of bytes. */
internal object ByteCharacters {
    /** A character for each byte. */
    val chars = IntArray(256)

    /** A byte for each character, or -1. */
    private val bytes = IntArray(0x200) { -1 }

    init {
        var others = 0
        for (byte in 0..255) {
            val isPrinted = byte in 0x21..0x7E || byte in 0xA1..0xFF && byte != 0xAD
            chars[byte] = if (isPrinted) byte else 0x100 + others++
            bytes[chars[byte]] = byte
        }
    }

    fun byteOf(char: Int): Int = if (char < bytes.size) bytes[char] else -1
}

/** Words that start with a character for the space before them, as in SentencePiece. */
private class MetaspaceSplitter(config: JsonObject) : PreTokenizer {
    private val replacement = (config.text("replacement") ?: "▁").toCodePoints()
    private val scheme = config.text("prepend_scheme") ?: if (config.flag("add_prefix_space", true)) "always" else "never"
    private val splits = config.flag("split", true)

    override fun split(piece: Piece, out: MutableList<Piece>) {
        var text = piece.text.slice(piece.from, piece.to)
        if (text.size == 0) return
        if (text.any { it == 32 }) {
            val chars = IntArray(text.size) { if (text.chars[it] == 32) replacement[0] else text.chars[it] }
            text = Aligned(chars, text.starts, text.ends, text.size)
        }
        val prepends = scheme == "always" || scheme == "first" && text.starts[0] == 0
        if (prepends && text.chars[0] != replacement[0]) text = text.prepend(replacement)
        var start = 0
        for (end in 1 until text.size) {
            if (!splits || text.chars[end] != replacement[0]) continue
            out += Piece(text, start, end)
            start = end
        }
        out += Piece(text, start, text.size)
    }
}
