package kerasformer.tokenization

import java.util.regex.Pattern
import kerasformer.TokenizerError

/**
 * The normalization of SentencePiece: the table of replacements of a `Precompiled` normalizer.
 *
 * The table is a double array (a trie in units of 32 bits) over UTF-8, followed by the replacements, each ended by a 0.
 * References: `spm_precompiled`, which the Rust library `tokenizers` uses; google/sentencepiece, `normalizer.cc`.
 */
internal class Charsmap(base64: String) : Normalizer {
    private val units: IntArray
    private val replacements: ByteArray

    /** Replacements of single characters, once they were looked up; characters that are unchanged have none. */
    private val known = arrayOfNulls<IntArray>(CACHED)

    init {
        val bytes = decoded(base64)
        val size = if (bytes.size < 4) -1 else word(bytes, 0)
        if (size < 0 || size > bytes.size - 4) throw TokenizerError("the precompiled_charsmap of tokenizer.json is damaged")
        units = IntArray(size / 4) { word(bytes, 4 + 4 * it) }
        replacements = bytes.copyOfRange(4 + size, bytes.size)
    }

    override fun normalize(text: Aligned): Aligned {
        val changes = Changes(text.size)
        var changed = false
        var index = 0
        while (index < text.size) {
            val end = clusterEnd(text, index)
            val whole = if (end - index > 1 && length(text, index, end) < 6) find(text.string(index, end)) else null
            if (whole != null) {
                changes.replace(end - index, whole)
                changed = true
            } else {
                for (single in index until end) {
                    val replacement = single(text.chars[single])
                    if (replacement === UNCHANGED) changes.add(text.chars[single], 0) else changes.replace(1, replacement)
                    changed = changed || replacement !== UNCHANGED
                }
            }
            index = end
        }
        return if (changed) changes.applied(text) else text
    }

    /** The end of the visible character that begins at an index. */
    private fun clusterEnd(text: Aligned, start: Int): Int {
        val (char, next) = text.chars[start] to (if (start + 1 < text.size) text.chars[start + 1] else 0)
        // Only a line end joins two characters below U+0300, apart from rare marks that precede their character.
        if (next < 0x300 && char < 0x600 && !(char == 13 && next == 10)) return start + 1
        val part = text.string(start, minOf(text.size, start + LONGEST_CLUSTER))
        val matcher = CLUSTER.matcher(part)
        var end = if (matcher.lookingAt()) start + part.codePointCount(0, matcher.end()) else start + 1
        // Marks that are newer than this version of Java, and what follows them; a control character joins nothing.
        val last = text.chars[end - 1]
        if (last < 32 || !isJoiner(last) && Unicode.isControl(last)) return end
        while (end < text.size && (Unicode.isLateMark(text.chars[end]) || Unicode.isLateMark(text.chars[end - 1]) && extends(text.chars[end]))) end++
        return end
    }

    private fun extends(char: Int): Boolean = isJoiner(char) || Unicode.isAnyMark(char)

    /** Whether a character is one of the zero-width joiners, which clusters contain, unlike other format characters. */
    private fun isJoiner(char: Int): Boolean = char in 0x200C..0x200D

    private fun length(text: Aligned, start: Int, end: Int): Int = (start until end).sumOf { Unicode.utf8Length(text.chars[it]) }

    private fun single(char: Int): IntArray {
        if (char >= CACHED) return find(String(Character.toChars(char))) ?: UNCHANGED
        return known[char] ?: (find(String(Character.toChars(char))) ?: UNCHANGED).also { known[char] = it }
    }

    /** The replacement for the first key of the table with which a text starts, if any. */
    private fun find(text: String): IntArray? {
        var node = childrenOf(units[0])
        for (byte in text.toByteArray()) {
            val label = byte.toInt() and 0xFF
            if (label == 0) return null
            node = node xor label
            val unit = units.getOrElse(node) { return null }
            if (unit and VALUE_AND_LABEL != label) return null // values have the highest bit set
            node = node xor childrenOf(unit)
            if (unit ushr 8 and 1 == 1) return replacement(units[node] and Int.MAX_VALUE)
        }
        return null
    }

    private fun replacement(start: Int): IntArray {
        var end = start
        while (replacements[end] != 0.toByte()) end++
        return String(replacements, start, end - start, Charsets.UTF_8).toCodePoints()
    }

    private fun childrenOf(unit: Int): Int = unit ushr 10 shl (unit and 0x200 ushr 6)

    /** The new characters and their changes, see [Aligned.Builder.change]. */
    private class Changes(capacity: Int) {
        private var chars = IntArray(capacity + 8)
        private var changes = IntArray(capacity + 8)
        private var size = 0

        fun add(char: Int, change: Int) {
            if (size == chars.size) {
                chars = chars.copyOf(size * 2)
                changes = changes.copyOf(size * 2)
            }
            chars[size] = char
            changes[size++] = change
        }

        /** Replaces several characters. The last change has the difference of the numbers, as in the Rust library. */
        fun replace(count: Int, replacement: IntArray) {
            val more = replacement.size - count
            replacement.forEachIndexed { index, char -> add(char, if (index >= replacement.size - maxOf(more, 0)) 1 else 0) }
            if (more < 0 && size > 0) changes[size - 1] += more
        }

        fun applied(text: Aligned): Aligned {
            val result = Aligned.Builder(text, size)
            for (index in 0 until size) result.change(chars[index], changes[index])
            return result.build()
        }
    }

    private companion object {
        const val CACHED = 0x3000
        const val LONGEST_CLUSTER = 64
        const val VALUE_AND_LABEL = -0x7FFFFF01 // 0x800000FF
        val UNCHANGED = IntArray(0)
        val CLUSTER: Pattern = Pattern.compile("\\X")

        fun word(bytes: ByteArray, at: Int): Int = (0..3).sumOf { bytes[at + it].toInt() and 0xFF shl 8 * it }

        /** Decodes Base64, for which Android has no class of Java before version 8. */
        fun decoded(text: String): ByteArray {
            val out = java.io.ByteArrayOutputStream(text.length * 3 / 4)
            var (bits, count) = 0 to 0
            for (char in text) {
                val value = ALPHABET.indexOf(char)
                if (value < 0) continue
                bits = bits shl 6 or value
                count += 6
                if (count >= 8) {
                    count -= 8
                    out.write(bits ushr count)
                }
            }
            return out.toByteArray()
        }

        const val ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    }
}
