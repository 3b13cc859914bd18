package kerasformer.tasks

import kerasformer.InputError
import kerasformer.TokenizerError
import kerasformer.repr

/**
 * A word for a masked token.
 *
 * @property token Its id.
 * @property text Its text.
 * @property sequence The whole text with it.
 */
data class Filling(val text: String, val score: Double, val token: Int, val sequence: String)

/** The best words for each gap of a text. */
internal suspend fun Runtime.fillings(text: String, topK: Int, truncation: Boolean): List<List<Filling>> {
    require("fill-mask")
    checkTopK(topK, optional = false)
    val mask = tokenizer.specialTokens["mask_token"] ?: throw TokenizerError("fill-mask needs a tokenizer with a mask token. Received: a tokenizer without one")
    val tokens = whole(text, truncation)
    val gaps = tokens.ids.indices.filter { tokens.ids[it] == tokenizer.idOf(mask) }
    if (gaps.isEmpty()) throw InputError("The text has no $mask to fill. Received: ${repr(text)}")
    val logits = rows(outputs(listOf(tokens))[0].getValue("logits"), tokens.size)
    return gaps.map { gap ->
        val scores = softmax(logits[gap])
        ranked(scores, topK).map { token ->
            val filled = tokens.ids.copyOf().also { it[gap] = token }
            Filling(tokenizer.decode(intArrayOf(token)), scores[token], token, tokenizer.decode(filled, skipSpecial = gaps.size == 1))
        }
    }
}
