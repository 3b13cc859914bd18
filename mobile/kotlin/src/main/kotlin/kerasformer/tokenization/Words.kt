package kerasformer.tokenization

/**
 * How the tokens of a text belong to words. Most pre-tokenizers find words; where one leaves a text whole (LLaMA 2, Gemma, ByT5)
 * or splits words into characters, white space separates words.
 */
internal class WordRule(private val normalizer: Normalizer?, private val preTokenizer: PreTokenizer?) {
    private val joinsWords = parts("a a") == 1
    private val splitsWords = parts("aa") > 1

    /** Whether words are not those of the pre-tokenizer. */
    val needsSpaces: Boolean = joinsWords || splitsWords

    /** Changes the words of tokens, in place. */
    fun apply(chars: IntArray, tokens: TextTokens, addedContent: (Int) -> String?) {
        val spaced = spacedWords(chars)
        var (lastWord, lastSpaced, number) = Triple(-2, -2, -1)
        for (index in 0 until tokens.size) {
            val (start, end) = tokens.starts[index] to tokens.ends[index]
            var first = start
            while (first < end && Unicode.isSpace(chars[first])) first++
            if (first == end) first = start
            val isWord = !splitsWords || addedContent(tokens.ids[index])?.let { it in String(chars, start, end - start) } == true
            val word = if (isWord) tokens.words[index] else -1
            if (word != lastWord || spaced[first] != lastSpaced) number++
            lastWord = word
            lastSpaced = spaced[first]
            tokens.words[index] = number
        }
    }

    private fun parts(text: String): Int {
        val normal = Aligned.of(text).let { normalizer?.normalize(it) ?: it }
        val pieces = ArrayList<Piece>()
        preTokenizer?.split(Piece(normal, 0, normal.size), pieces) ?: return 1
        return pieces.size
    }
}

/**
 * The index of the word of each character, and of the end of the text. A word includes one space before it; other white space
 * between words is a word of its own, as for GPT-2.
 */
private fun spacedWords(chars: IntArray): IntArray {
    fun separates(index: Int): Boolean {
        val beforeWord = chars[index] == 32 && index + 1 < chars.size && !Unicode.isSpace(chars[index + 1])
        return Unicode.isSpace(chars[index]) && !beforeWord
    }
    val words = IntArray(chars.size + 1)
    var (index, number) = 0 to -1
    while (index < chars.size) {
        number++
        val isSpace = separates(index)
        do words[index++] = number while (index < chars.size && if (isSpace) separates(index) else !Unicode.isSpace(chars[index]))
    }
    words[chars.size] = maxOf(number, 0)
    return words
}
