package kerasformer.tokenization

/**
 * A text in which each character knows its place in the original text, which every step of a tokenizer preserves. As in
 * Python, a character is a code point.
 *
 * @property chars Code points, of which the first [size] are used; likewise the following arrays.
 * @property starts Start of each character's part of the original text.
 * @property ends Its end.
 */
internal class Aligned(val chars: IntArray, val starts: IntArray, val ends: IntArray, val size: Int) {
    fun string(from: Int = 0, to: Int = size): String = String(chars, from, to - from)

    fun slice(from: Int, to: Int): Aligned = when {
        from == 0 && to == size -> this
        else -> Aligned(chars.copyOfRange(from, to), starts.copyOfRange(from, to), ends.copyOfRange(from, to), to - from)
    }

    /** Puts a text before this one, with the place of the first character; an empty text remains empty. */
    fun prepend(prefix: IntArray, from: Int = 0, to: Int = size): Aligned {
        if (from == to) return slice(from, to)
        val result = Builder(this, to - from + prefix.size)
        for (char in prefix) result.copy(char, from)
        for (index in from until to) result.copy(chars[index], index)
        return result.build()
    }

    inline fun any(condition: (Int) -> Boolean): Boolean {
        for (index in 0 until size) if (condition(chars[index])) return true
        return false
    }

    /** The text without the characters that do not fulfil a condition. */
    inline fun filter(keep: (Int) -> Boolean): Aligned {
        if (!any { !keep(it) }) return this
        val result = Builder(this, size)
        for (index in 0 until size) if (keep(chars[index])) result.copy(chars[index], index)
        return result.build()
    }

    companion object {
        fun of(text: String): Aligned {
            val chars = text.toCodePoints()
            return Aligned(chars, IntArray(chars.size) { it }, IntArray(chars.size) { it + 1 }, chars.size)
        }
    }

    /** Builds a text from the characters of another one. */
    class Builder(private val source: Aligned, capacity: Int) {
        private var chars = IntArray(capacity)
        private var starts = IntArray(capacity)
        private var ends = IntArray(capacity)
        private var size = 0

        /** Index of the next character of the source, for [change]. */
        private var next = 0

        /** Adds a character with the place of one of the source. */
        fun copy(char: Int, index: Int) {
            if (size == chars.size) grow()
            chars[size] = char
            starts[size] = if (index < 0) 0 else source.starts[index]
            ends[size++] = if (index < 0) 0 else source.ends[index]
        }

        /**
         * Adds a character that replaces the next one of the source (`change` is 0), that is new (above 0), or that replaces
         * the next one and as many others as `-change`. New characters get the place of the one before them.
         */
        fun change(char: Int, change: Int) {
            if (change > 0) return copy(char, next - 1)
            copy(char, minOf(next, source.size - 1))
            next += 1 - change
        }

        fun build(): Aligned = Aligned(chars, starts, ends, size)

        private fun grow() {
            val capacity = chars.size * 2 + 16
            chars = chars.copyOf(capacity)
            starts = starts.copyOf(capacity)
            ends = ends.copyOf(capacity)
        }
    }
}
