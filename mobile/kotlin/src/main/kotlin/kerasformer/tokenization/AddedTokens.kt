package kerasformer.tokenization

import kerasformer.JsonObject
import kerasformer.flag
import kerasformer.int
import kerasformer.text

/** A token that is found in a text before any other step of the tokenizer, such as `[MASK]`. */
internal class AddedToken(config: JsonObject) {
    val id: Int = config.int("id") ?: 0
    val content: String = config.text("content").orEmpty()
    val isSpecial = config.flag("special")
    val isNormalized = config.flag("normalized", !isSpecial)
    val isSingleWord = config.flag("single_word")
    val takesSpacesBefore = config.flag("lstrip")
    val takesSpacesAfter = config.flag("rstrip")
}

/** Finds added tokens in texts. [contents] are the tokens as they appear in a text. */
internal class AddedTokens(private val tokens: List<AddedToken>, contents: List<String>) {
    private val trie = Trie(contents.sumOf { it.length })

    init {
        contents.forEachIndexed { index, content -> if (content.isNotEmpty()) trie.add(content, index) }
    }

    /**
     * Calls [use] with the sections of a text, and the token that a section is, or `null`. As in the Rust library, a token may
     * be found again in the spaces that the one before it took.
     */
    fun split(text: Aligned, use: (section: Aligned, token: AddedToken?) -> Unit) {
        if (tokens.isEmpty()) return use(text, null)
        val chars = text.chars
        var done = 0
        var index = 0
        while (index < text.size) {
            var (found, end) = -1 to index
            trie.search(chars, index, text.size) { value, stop -> // the longest of several tokens counts
                found = value
                end = stop
            }
            if (found < 0) {
                index++
                continue
            }
            var start = index
            index = end
            val token = tokens[found]
            val inWord = start > 0 && Unicode.isWord(chars[start - 1]) || end < text.size && Unicode.isWord(chars[end])
            if (token.isSingleWord && inWord) continue
            if (token.takesSpacesBefore) {
                while (start > 0 && Unicode.isSpace(chars[start - 1])) start--
                start = maxOf(start, done)
            }
            if (token.takesSpacesAfter) while (end < text.size && Unicode.isSpace(chars[end])) end++
            if (start > done) use(text.slice(done, start), null)
            use(text.slice(start, end), token)
            done = end
        }
        if (done < text.size) use(text.slice(done, text.size), null)
    }
}
