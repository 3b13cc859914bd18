package kerasformer.tokenization

import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.asObject
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.objects
import kerasformer.text

/**
 * The template that surrounds texts with special tokens; the field `post_processor`.
 *
 * @property trims Whether offsets exclude the spaces at the ends of tokens.
 * @property keepsAddedSpace Whether the space that was put before a text is not counted as one of them.
 */
internal class PostProcessor private constructor(
    private val single: List<Part>,
    private val pair: List<Part>,
    private val plain: List<Part>,
    val trims: Boolean,
    val keepsAddedSpace: Boolean,
) {
    /** A special token if [sequence] is negative, otherwise the first or the second text. */
    class Part(val sequence: Int, val id: Int, val type: Int)

    /** @param special Whether special tokens are added. */
    fun template(isPair: Boolean, special: Boolean): List<Part> {
        val whole = if (isPair) pair else single
        if (special) return whole
        return plain.ifEmpty { whole.filter { it.sequence >= 0 } }.filter { it.sequence == 0 || isPair }
    }

    companion object {
        /** Two texts after another, each with its own type. */
        private val BARE = listOf(Part(0, 0, 0), Part(1, 0, 1))

        /** @throws TokenizerError An unsupported kind of template. */
        fun of(config: JsonObject?): PostProcessor = when (val type = config?.text("type")) {
            null -> PostProcessor(BARE.take(1), BARE, BARE, false, false)
            "ByteLevel" -> PostProcessor(BARE.take(1), BARE, BARE, config.flag("trim_offsets", true), config.flag("add_prefix_space", true))
            "Sequence" -> {
                val steps = config.objects("processors").map(::of)
                val trimming = steps.find { it.trims }
                val template = steps.lastOrNull { it.pair !== BARE } ?: of(null)
                PostProcessor(template.single, template.pair, template.plain, trimming != null, trimming?.keepsAddedSpace == true)
            }
            "BertProcessing" -> {
                val (cls, sep) = special(config, "cls") to special(config, "sep")
                val single = listOf(Part(-1, cls, 0), Part(0, 0, 0), Part(-1, sep, 0))
                PostProcessor(single, single + Part(1, 0, 1) + Part(-1, sep, 1), BARE, false, false)
            }
            "RobertaProcessing" -> {
                val (cls, sep) = special(config, "cls") to special(config, "sep")
                val single = listOf(Part(-1, cls, 0), Part(0, 0, 0), Part(-1, sep, 0))
                val pair = single + Part(-1, sep, 0) + Part(1, 0, 0) + Part(-1, sep, 0)
                PostProcessor(single, pair, listOf(), config.flag("trim_offsets", true), config.flag("add_prefix_space", true))
            }
            "TemplateProcessing" -> PostProcessor(parts(config, "single"), parts(config, "pair"), listOf(), false, false)
            else -> throw TokenizerError("unsupported post_processor in tokenizer.json. Received: $type")
        }

        private fun special(config: JsonObject, name: String): Int =
            ((config[name] as? List<*>)?.getOrNull(1) as? Long)?.toInt() ?: throw TokenizerError("post_processor of tokenizer.json lacks $name")

        private fun parts(config: JsonObject, name: String): List<Part> = config.objects(name).flatMap { item ->
            val (kind, content) = item.entries.first()
            val part = content.asObject() ?: throw TokenizerError("post_processor of tokenizer.json is damaged. Received: $item")
            val type = part.int("type_id") ?: 0
            if (kind == "Sequence") return@flatMap listOf(Part(if (part["id"] == "A") 0 else 1, 0, type))
            val token = config.child("special_tokens")?.child(part.text("id").orEmpty())
            (token?.get("ids") as? List<*>).orEmpty().map { Part(-1, (it as Long).toInt(), type) }
        }
    }
}
