package kerasformer.tokenization

/**
 * Decodes tokens that arrive one after another, without incomplete characters. The pieces together are the text of all ids
 * decoded at once.
 *
 * A token is not always a complete text: a token of bytes may have two of the three bytes of `€`, and a space may depend on
 * the following token. Recent tokens are therefore decoded together, and only text that no later token can change is returned.
 */
class TextStream internal constructor(private val tokenizer: Tokenizer, private val skipSpecial: Boolean) {
    private var ids = ArrayList<Int>()
    private var returned = 0

    /** Adds tokens, and returns the text that has become certain; often an empty one. */
    fun put(vararg tokens: Int): String {
        tokens.filterTo(ids) { tokenizer.token(it) != null && !(skipSpecial && tokenizer.isSpecial(it)) }
        val text = decode(ids)
        val certain = minOf(certain(text), text.length)
        val piece = if (certain > returned) text.substring(returned, certain) else ""
        returned = maxOf(returned, certain)
        if (certain == text.length && ids.size > MAX_TOKENS) {
            // All text was returned, so that later text depends on the last tokens only.
            ids = ArrayList(ids.takeLast(CONTEXT))
            returned = decode(ids).length
        }
        return piece
    }

    /** Returns the rest of the text, after which the stream can be used for another one. */
    fun end(): String {
        val piece = decode(ids).drop(returned)
        ids.clear()
        returned = 0
        return piece
    }

    private fun decode(ids: List<Int>): String = tokenizer.decode(ids.toIntArray())

    /** The length of the text that later tokens cannot change. */
    private fun certain(text: String): Int {
        if (tokenizer.hasByteTokens) {
            val known = ids.dropLastWhile { ByteTokens.isByte(tokenizer.token(it).orEmpty()) }
            if (known.size < ids.size) return decode(known).length // a run of bytes can only be decoded as a whole
        }
        // U+FFFD at the end may be the first bytes of a character that later tokens complete.
        val certain = if (text.endsWith('\uFFFD')) text.length - 1 else text.length
        if (!tokenizer.cleansSpaces) return certain
        val space = text.indexOf(' ', maxOf(certain - CLEAN_UP_LENGTH, 0))
        return if (space in 0 until certain) space else certain
    }

    private companion object {
        /** Number of tokens that are kept for decoders that treat the first token of a text differently. */
        const val CONTEXT = 4
        const val MAX_TOKENS = 32

        /** The longest pattern of the clean-up has four characters; one more, as a replacement may complete a pattern. */
        const val CLEAN_UP_LENGTH = 5
    }
}
