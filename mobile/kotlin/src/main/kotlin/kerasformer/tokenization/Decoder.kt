package kerasformer.tokenization

import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException
import java.util.regex.Matcher
import java.util.regex.Pattern
import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.objects
import kerasformer.text

/** Converts tokens to parts of a text; one rule of the field `decoder`. */
internal fun interface Decoder {
    fun decode(tokens: List<String>): List<String>
}

/** @throws TokenizerError An unsupported kind of rule. */
internal fun decoderOf(config: JsonObject?): Decoder? = when (val type = config?.text("type")) {
    null -> null
    "Sequence" -> {
        val steps = config.objects("decoders").mapNotNull(::decoderOf)
        Decoder { steps.fold(it) { tokens, step -> step.decode(tokens) } }
    }
    "ByteLevel" -> Decoder { tokens -> listOf(ByteTokens.text(tokens)) }
    "ByteFallback" -> Decoder(ByteTokens::joined)
    "Fuse" -> Decoder { listOf(it.joinToString("")) }
    "WordPiece" -> {
        val (prefix, cleans) = (config.text("prefix") ?: "##") to config.flag("cleanup", true)
        Decoder { tokens ->
            tokens.mapIndexed { index, token ->
                val part = if (index == 0) token else if (token.startsWith(prefix)) token.removePrefix(prefix) else " $token"
                if (cleans) cleaned(part, WORDPIECE_SPACES) else part
            }
        }
    }
    "Metaspace" -> {
        val replacement = config.text("replacement") ?: "▁"
        val scheme = config.text("prepend_scheme") ?: if (config.flag("add_prefix_space", true)) "always" else "never"
        Decoder { tokens -> tokens.mapIndexed { index, token -> token.replace(replacement, if (index == 0 && scheme != "never") "" else " ") } }
    }
    "BPEDecoder" -> {
        val suffix = config.text("suffix") ?: "</w>"
        Decoder { tokens -> tokens.mapIndexed { index, token -> token.replace(suffix, if (index == tokens.lastIndex) "" else " ") } }
    }
    "Replace" -> {
        val content = config.text("content").orEmpty()
        val regex = config.child("pattern")?.text("Regex")?.let(Pattern::compile)
        val string = config.child("pattern")?.text("String").orEmpty()
        Decoder { tokens -> tokens.map { regex?.matcher(it)?.replaceAll(Matcher.quoteReplacement(content)) ?: it.replace(string, content) } }
    }
    "Strip" -> {
        val (char, first, last) = Triple(config.text("content").orEmpty(), config.int("start") ?: 0, config.int("stop") ?: 0)
        Decoder { tokens ->
            tokens.map { token ->
                var part = token
                repeat(first) { part = part.removePrefix(char) }
                repeat(last) { part = part.removeSuffix(char) }
                part
            }
        }
    }
    else -> throw TokenizerError("unsupported decoder in tokenizer.json. Received: $type")
}

private val WORDPIECE_SPACES = listOf(
    " ." to ".", " ?" to "?", " !" to "!", " ," to ",", " ' " to "'", " n't" to "n't", " 'm" to "'m", " do not" to " don't",
    " 's" to "'s", " 've" to "'ve", " 're" to "'re",
)

/** The patterns whose space is removed after decoding if `clean_up_tokenization_spaces` is set. */
internal val CLEANED_SPACES = listOf(" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're").map { it to it.trim() }

internal fun cleaned(text: String, patterns: List<Pair<String, String>>): String =
    patterns.fold(text) { result, (pattern, replacement) -> result.replace(pattern, replacement) }

/** Tokens that stand for bytes. */
internal object ByteTokens {
    private val NAME = Regex("<0x[0-9A-Fa-f]{2}>")

    fun isByte(token: String): Boolean = token.length == 6 && NAME.matches(token)

    /** The text of tokens whose characters are bytes; other tokens are read as they are. */
    fun text(tokens: List<String>): String {
        val bytes = java.io.ByteArrayOutputStream()
        for (token in tokens) bytes.write(bytesOf(token))
        return utf8(bytes.toByteArray())
    }

    fun bytesOf(token: String): ByteArray {
        val bytes = ByteArray(token.length)
        token.forEachIndexed { index, char ->
            val byte = ByteCharacters.byteOf(char.code)
            if (byte < 0) return token.toByteArray()
            bytes[index] = byte.toByte()
        }
        return bytes
    }

    /** Joins tokens such as `<0xE2>` to characters; each byte of a run that is not valid becomes U+FFFD. */
    fun joined(tokens: List<String>): List<String> {
        val result = ArrayList<String>()
        val run = ArrayList<Byte>()
        fun flush() {
            if (run.isEmpty()) return
            val bytes = ByteBuffer.wrap(run.toByteArray())
            try {
                result += Charsets.UTF_8.newDecoder().decode(bytes).toString()
            } catch (_: CharacterCodingException) {
                repeat(run.size) { result += "\uFFFD" }
            }
            run.clear()
        }
        for (token in tokens) {
            if (isByte(token)) {
                run += token.substring(3, 5).toInt(16).toByte()
            } else {
                flush()
                result += token
            }
        }
        flush()
        return result
    }

    /**
     * Decodes UTF-8. Each longest part that begins a character but does not complete it becomes [invalid], as in Rust; the
     * decoders of Java and Android differ.
     */
    fun utf8(bytes: ByteArray, invalid: String = "\uFFFD"): String {
        val out = StringBuilder(bytes.size)
        var index = 0
        while (index < bytes.size) {
            val first = bytes[index].toInt() and 0xFF
            val length = if (first < 0x80) 1 else if (first in 0xC2..0xDF) 2 else if (first in 0xE0..0xEF) 3 else if (first in 0xF0..0xF4) 4 else 0
            var read = 1
            while (read < length && index + read < bytes.size && continues(first, read, bytes[index + read].toInt() and 0xFF)) read++
            if (read == length) out.append(String(bytes, index, length, Charsets.UTF_8)) else out.append(invalid)
            index += read
        }
        return out.toString()
    }

    /** Whether a byte may follow others of a character; the second byte excludes overlong forms and surrogates. */
    private fun continues(first: Int, position: Int, byte: Int): Boolean {
        val low = if (position > 1) 0x80 else when (first) { 0xE0 -> 0xA0; 0xF0 -> 0x90; else -> 0x80 }
        val high = if (position > 1) 0xBF else when (first) { 0xED -> 0x9F; 0xF4 -> 0x8F; else -> 0xBF }
        return byte in low..high
    }
}
