package kerasformer.tokenization

import java.text.Normalizer.Form
import kerasformer.JsonObject
import kerasformer.TokenizerError
import kerasformer.flag
import kerasformer.objects
import kerasformer.text

/** Changes a text before it is split; one rule of the field `normalizer`. */
internal fun interface Normalizer {
    fun normalize(text: Aligned): Aligned
}

/** @throws TokenizerError An unsupported kind of rule. */
internal fun normalizerOf(config: JsonObject?): Normalizer? = when (val type = config?.text("type")) {
    null -> null
    "Sequence" -> {
        val steps = config.objects("normalizers").mapNotNull(::normalizerOf)
        Normalizer { steps.fold(it) { text, step -> step.normalize(text) } }
    }
    "BertNormalizer" -> bert(config)
    "NFC", "NFD", "NFKC", "NFKD" -> UnicodeForm(Form.valueOf(type))
    "Lowercase" -> Normalizer(::lowercase)
    "StripAccents" -> Normalizer { text -> text.filter { !Unicode.isMark(it) } }
    "Precompiled" -> Charsmap(config.text("precompiled_charsmap").orEmpty())
    "Replace" -> Occurrences.of(config).let { pattern ->
        val content = config.text("content").orEmpty().toCodePoints()
        Normalizer { replaced(it, pattern, content) }
    }
    "Strip" -> Normalizer { stripped(it, config.flag("strip_left"), config.flag("strip_right")) }
    "Prepend" -> config.text("prepend").orEmpty().toCodePoints().let { prefix -> Normalizer { it.prepend(prefix) } }
    "ByteLevel" -> Normalizer { byteLevel(it, 0, it.size) }
    "Nmt" -> Normalizer(::nmt)
    else -> throw TokenizerError("unsupported normalizer in tokenizer.json. Received: $type")
}

/** The rules of BERT: control characters, Chinese characters as words, accents, upper case. */
private fun bert(config: JsonObject): Normalizer {
    val lower = config.flag("lowercase", true)
    val strip = config["strip_accents"] as? Boolean ?: lower
    val (clean, chinese) = config.flag("clean_text", true) to config.flag("handle_chinese_chars", true)
    val decompose = UnicodeForm(Form.NFD)
    return Normalizer { given ->
        var text = given
        if (clean) text = spaced(text.filter { it != 0 && it != 0xFFFD && !Unicode.isControl(it) })
        if (chinese) text = separated(text)
        if (strip) text = decompose.normalize(text).filter { !Unicode.isNonSpacingMark(it) }
        if (lower) lowercase(text) else text
    }
}

/** All white space as plain spaces. */
private fun spaced(text: Aligned): Aligned {
    if (!text.any { it != 32 && Unicode.isSpace(it) }) return text
    val chars = IntArray(text.size) { if (Unicode.isSpace(text.chars[it])) 32 else text.chars[it] }
    return Aligned(chars, text.starts, text.ends, text.size)
}

/** Spaces around Chinese characters. The first one gets the place of the character, as in the Rust library. */
private fun separated(text: Aligned): Aligned {
    if (!text.any(Unicode::isChinese)) return text
    val result = Aligned.Builder(text, text.size * 2)
    for (index in 0 until text.size) {
        val char = text.chars[index]
        if (!Unicode.isChinese(char)) {
            result.change(char, 0)
        } else {
            result.change(32, 0)
            result.change(char, 1)
            result.change(32, 1)
        }
    }
    return result.build()
}

private fun lowercase(text: Aligned): Aligned {
    if (!text.any { if (it < 0x80) it in 65..90 else it == 0x130 || Character.toLowerCase(it) != it }) return text
    val result = Aligned.Builder(text, text.size)
    for (index in 0 until text.size) {
        val char = text.chars[index]
        result.change(if (char == 0x130) 'i'.code else Character.toLowerCase(char), 0)
        if (char == 0x130) result.change(0x307, 1) // the only character with two in lower case
    }
    return result.build()
}

private fun stripped(text: Aligned, left: Boolean, right: Boolean): Aligned {
    var (start, end) = 0 to text.size
    while (left && start < end && Unicode.isSpace(text.chars[start])) start++
    while (right && start < end && Unicode.isSpace(text.chars[end - 1])) end--
    return text.slice(start, end)
}

/** Replaces the matches of a pattern; all characters of a replacement get the place of the match's last one. */
private fun replaced(text: Aligned, pattern: Occurrences, content: IntArray): Aligned {
    val result = Aligned.Builder(text, text.size)
    var end = 0
    var found = false
    pattern.forEach(text, 0, text.size) { start, stop ->
        found = true
        for (index in end until start) result.copy(text.chars[index], index)
        for (char in content) result.copy(char, stop - 1)
        end = stop
    }
    if (!found) return text
    for (index in end until text.size) result.copy(text.chars[index], index)
    return result.build()
}

/** The rules of SentencePiece's `nmt`: control characters, and other spaces as plain ones. */
private fun nmt(text: Aligned): Aligned {
    val kept = text.filter { it !in 1..8 && it != 11 && it !in 14..31 && it != 127 && it != 0x8F && it != 0x9F }
    val spaces = setOf(9, 10, 12, 13, 0x1680, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD)
    val chars = IntArray(kept.size) { if (kept.chars[it] in spaces) 32 else kept.chars[it] }
    return Aligned(chars, kept.starts, kept.ends, kept.size)
}

/** A normal form of Unicode. Java normalizes; the places are found again, since a form only orders, joins and splits. */
private class UnicodeForm(private val form: Form) : Normalizer {
    private val decomposed = if (form == Form.NFC || form == Form.NFD) Form.NFD else Form.NFKD

    override fun normalize(text: Aligned): Aligned {
        if (!text.any { it >= 0xA0 }) return text
        val string = text.string()
        if (java.text.Normalizer.isNormalized(string, form)) return text
        val result = Aligned.Builder(text, text.size + 16)
        var start = 0
        for (end in 1..text.size) {
            if (end < text.size && continues(text.chars[end]) && !Unicode.isUnnormalized(text.chars[end - 1])) continue
            if (Unicode.isUnnormalized(text.chars[start])) result.change(text.chars[start], 0) else cluster(text, start, end, result)
            start = end
        }
        return result.build()
    }

    /** Whether a character may be joined to, or ordered before, characters before it: marks and parts of Korean syllables. */
    private fun continues(char: Int): Boolean = char >= 0x300 && !Unicode.isUnnormalized(char) && (
        Unicode.isMark(char) || char in 0x1100..0x11FF || char in 0x3130..0x318F || char in 0xD7B0..0xD7FF ||
            char in 0xFF9E..0xFFDC
        )

    private fun cluster(text: Aligned, start: Int, end: Int, result: Aligned.Builder) {
        // The parts of each character; all but the first are new characters to the Rust library.
        val parts = ArrayList<Int>()
        val changes = ArrayList<Int>()
        for (index in start until end) {
            java.text.Normalizer.normalize(text.string(index, index + 1), decomposed).toCodePoints().forEachIndexed { part, char ->
                parts.add(char)
                changes.add(if (part == 0) 0 else 1)
            }
        }
        val used = BooleanArray(parts.size)
        for (char in java.text.Normalizer.normalize(text.string(start, end), form).toCodePoints()) {
            var change = 1
            // A joined character replaces all of its parts. Equal parts keep their order.
            for (part in java.text.Normalizer.normalize(String(Character.toChars(char)), decomposed).toCodePoints()) {
                val source = parts.indices.first { !used[it] && parts[it] == part }
                used[source] = true
                change += changes[source] - 1
            }
            result.change(char, change)
        }
    }
}
