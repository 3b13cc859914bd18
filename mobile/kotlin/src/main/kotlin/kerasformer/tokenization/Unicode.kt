package kerasformer.tokenization

/** The properties of code points as the Rust library `tokenizers` reads them. */
internal object Unicode {
    /** Content of a class of characters for white space, which `\s` of Java's regular expressions is not. */
    const val SPACES = "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

    /** Content of a class of characters for words. */
    val WORDS: String get() = KNOWN_WORDS + lateWords

    private const val KNOWN_WORDS = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

    // The tables of the Rust library are older than these marks, punctuation characters, and characters with a normal form.
    private val unknownMarks = ranges(
        "7FD 897-89F 8CA-8D3 9FE AFA-AFF B55 C04 C3C CF3 D00 D3B-D3C D81 EBA ECE 1715 180F 1ABF-1ADD 1AE0-1AEB 1CF7 " +
            "1DF6-1DFA A82C A8FF 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074 " +
            "110C2 11145-11146 111C9 111CE-111CF 11241 1133B 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 113D2 " +
            "113E1-113E2 1145E 1182C-1183A 11930-11935 11937-11938 1193B-1193E 11940 11942-11943 119D1-119D7 119DA-119E0 " +
            "119E4 11A01-11A0A 11A33-11A39 11A3B-11A3E 11A47 11A51-11A5B 11A8A-11A99 11B60-11B67 11D31-11D36 11D3A " +
            "11D3C-11D3D 11D3F-11D45 11D47 11D8A-11D8E 11D90-11D91 11D93-11D97 11EF3-11EF6 11F00-11F01 11F03 11F34-11F3A " +
            "11F3E-11F42 11F5A 13440 13447-13455 1611E-1612F 16F4F 16F7F-16F87 16FE4 16FF0-16FF1 1CF00-1CF2D 1CF30-1CF46 " +
            "1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5",
    )
    private val unknownNonSpacingMarks = ranges(
        "7FD 897-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1ADD 1AE0-1AEB 1DF6-1DFB " +
            "A82C A8C5 A8FF A9BD 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074 " +
            "110C2 111C9 111CF 1123E 11241 1133B 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11438-1143F 11442-11444 11446 " +
            "1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB 119E0 11A01-11A0A 11A33-11A38 " +
            "11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11B60 11B62-11B64 11B66 11C30-11C36 " +
            "11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 " +
            "11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 11F00-11F01 11F36-11F3A 11F40 11F42 11F5A 13440 13447-13455 " +
            "1611E-16129 1612D-1612F 16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 " +
            "1E026-1E02A 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5 " +
            "1E944-1E94A",
    )
    private val unknownPunctuation = ranges(
        "61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 10D6E 10EAD 10ED0 10F55-10F59 10F86-10F89 " +
            "113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 " +
            "11A9A-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2 " +
            "16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F",
    )
    private val unnormalized = ranges(
        "7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ADD 1AE0-1AEB 1DF6-1DFA 32FF A7F1-A7F4 A82C AB69 105C9 105E4 " +
            "10781-10785 10787-107B0 107B2-107BA 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFB 10EFD-10EFF 10F46-10F50 " +
            "10F82-10F85 11070 1133B 11383 11385 1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A 11938 " +
            "1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 16121-16128 1612F 16D68-16D6A " +
            "16FF0-16FF1 1CCD6-1CCF9 1E030-1E06D 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 " +
            "1E6EE-1E6EF 1E6F5 1F16C 1FBF0-1FBF9",
    )

    /** Characters of words that the patterns of the Rust library know, but not those of all versions of Java. */
    private const val LATE_WORDS =
        "870-887 889-88E 897-89F 8B5 8C8-8D2 C3C C5D CDD CF3 ECE 170D 1715 171F 180F 1AC1-1ACE 1B4C 1C89-1C8A 1DFA 2C2F " +
            "2C5F 9FFD-9FFF A7C0-A7C1 A7CB-A7CD A7D0-A7D1 A7D3 A7D5-A7DC A7F2-A7F4 10570-1057A 1057C-1058A 1058C-10592 " +
            "10594-10595 10597-105A1 105A3-105B1 105B3-105B9 105BB-105BC 105C0-105F3 10780-10785 10787-107B0 107B2-107BA " +
            "10D40-10D65 10D69-10D6D 10D6F-10D85 10EC2-10EC4 10EFC-10EFF 10F70-10F85 11070-11075 110C2 1123F-11241 " +
            "11380-11389 1138B 1138E 11390-113B5 113B7-113C0 113C2 113C5 113C7-113CA 113CC-113D3 113E1-113E2 116D0-116E3 " +
            "11740-11746 11AB0-11ABF 11BC0-11BE0 11BF0-11BF9 11F00-11F10 11F12-11F3A 11F3E-11F42 11F50-11F5A 12F90-12FF0 " +
            "1342F 13440-13455 13460-143FA 16100-16139 16A70-16ABE 16AC0-16AC9 16D40-16D6C 16D70-16D79 18CFF 1AFF0-1AFF3 " +
            "1AFF5-1AFFB 1AFFD-1AFFE 1B11F-1B122 1B132 1B155 1CCF0-1CCF9 1CF00-1CF2D 1CF30-1CF46 1DF00-1DF1E 1DF25-1DF2A " +
            "1E030-1E06D 1E08F 1E290-1E2AE 1E4D0-1E4F9 1E5D0-1E5FA 1E7E0-1E7E6 1E7E8-1E7EB 1E7ED-1E7EE 1E7F0-1E7FE " +
            "2A6DE-2A6DF 2B735-2B739 2EBF0-2EE5D"

    private const val MARKS = (1 shl Character.NON_SPACING_MARK.toInt()) or (1 shl Character.ENCLOSING_MARK.toInt()) or
        (1 shl Character.COMBINING_SPACING_MARK.toInt())
    private const val LETTERS = (1 shl Character.UPPERCASE_LETTER.toInt()) or (1 shl Character.LOWERCASE_LETTER.toInt()) or
        (1 shl Character.TITLECASE_LETTER.toInt()) or (1 shl Character.MODIFIER_LETTER.toInt()) or (1 shl Character.OTHER_LETTER.toInt())
    private const val NUMBERS = (1 shl Character.DECIMAL_DIGIT_NUMBER.toInt()) or (1 shl Character.LETTER_NUMBER.toInt()) or
        (1 shl Character.OTHER_NUMBER.toInt())
    private const val PUNCTUATION = (1 shl Character.CONNECTOR_PUNCTUATION.toInt()) or (1 shl Character.DASH_PUNCTUATION.toInt()) or
        (1 shl Character.START_PUNCTUATION.toInt()) or (1 shl Character.END_PUNCTUATION.toInt()) or
        (1 shl Character.INITIAL_QUOTE_PUNCTUATION.toInt()) or (1 shl Character.FINAL_QUOTE_PUNCTUATION.toInt()) or
        (1 shl Character.OTHER_PUNCTUATION.toInt())
    private const val OTHERS = (1 shl Character.CONTROL.toInt()) or (1 shl Character.FORMAT.toInt()) or
        (1 shl Character.PRIVATE_USE.toInt()) or (1 shl Character.SURROGATE.toInt())

    /** Ranges of code points, written in hexadecimal numbers. */
    private class Ranges(private val starts: IntArray, private val ends: IntArray) {
        operator fun contains(char: Int): Boolean {
            val found = starts.binarySearch(char)
            val index = if (found < 0) -found - 2 else found
            return index >= 0 && char <= ends[index]
        }
    }

    private val lateWords = Regex("[0-9A-F]+").replace(LATE_WORDS) { "\\x{${it.value}}" }.replace(" ", "")

    private fun ranges(text: String): Ranges {
        val parts = text.split(' ').map { part -> part.split('-').map { it.toInt(16) } }
        return Ranges(parts.map { it.first() }.toIntArray(), parts.map { it.last() }.toIntArray())
    }

    private fun isOf(char: Int, types: Int): Boolean = (1 shl Character.getType(char)) and types != 0

    fun isSpace(char: Int): Boolean = when {
        char < 0x80 -> char in 9..13 || char == 32
        char < 0x2000 -> char == 0x85 || char == 0xA0 || char == 0x1680
        else -> char <= 0x200A || char in 0x2028..0x2029 || char == 0x202F || char == 0x205F || char == 0x3000
    }

    fun isMark(char: Int): Boolean = char >= 0x300 && (isOf(char, MARKS) && char !in unknownMarks || char in 0x1CF2..0x1CF3)

    /** Also marks that the Rust library does not remove, since its tables are older. */
    fun isAnyMark(char: Int): Boolean = char >= 0x300 && isOf(char, MARKS)

    fun isNonSpacingMark(char: Int): Boolean =
        char >= 0x300 && Character.getType(char) == Character.NON_SPACING_MARK.toInt() && char !in unknownNonSpacingMarks

    /** Whether a character is a mark that this version of Java does not know. */
    fun isLateMark(char: Int): Boolean =
        char >= 0x300 && Character.getType(char) == 0 && (char in unknownMarks || char in unknownNonSpacingMarks)

    /** Whether a normal form leaves a character where it is. */
    fun isUnnormalized(char: Int): Boolean = char >= 0x300 && char in unnormalized

    fun isLetter(char: Int): Boolean = if (char < 0x80) char or 32 in 'a'.code..'z'.code else isOf(char, LETTERS)

    fun isNumber(char: Int): Boolean = if (char < 0x80) char in 48..57 else isOf(char, NUMBERS)

    fun isPunctuation(char: Int): Boolean = when {
        char < 0x80 -> char in 33..47 || char in 58..64 || char in 91..96 || char in 123..126
        else -> isOf(char, PUNCTUATION) && char !in unknownPunctuation || char == 0x166D || char == 0x111C9
    }

    /** Whether a character of a word ends or begins a text: letters, marks, digits, connectors. */
    fun isWord(char: Int): Boolean = isLetter(char) || isMark(char) || Character.isAlphabetic(char) || char in 0x200C..0x200D ||
        isOf(char, (1 shl Character.DECIMAL_DIGIT_NUMBER.toInt()) or (1 shl Character.CONNECTOR_PUNCTUATION.toInt()))

    /** Whether BERT's normalizer removes a character. */
    fun isControl(char: Int): Boolean = when {
        char in 32..126 || char == 9 || char == 10 || char == 13 -> false
        char == 0x8E2 || char == 0x110CD || char in 0x13430..0x13438 -> false
        else -> isOf(char, OTHERS)
    }

    /** Whether BERT's normalizer puts spaces around a character: the blocks of Chinese characters. */
    fun isChinese(char: Int): Boolean = char >= 0x3400 && (
        char in 0x4E00..0x9FFF || char in 0x3400..0x4DBF || char in 0x20000..0x2A6DF || char in 0x2A700..0x2B73F ||
            char in 0x2B740..0x2B81F || char in 0x2B920..0x2CEAF || char in 0xF900..0xFAFF || char in 0x2F800..0x2FA1F
        )

    /** The number of bytes of a character in UTF-8. */
    fun utf8Length(char: Int): Int = if (char < 0x80) 1 else if (char < 0x800) 2 else if (char < 0x10000) 3 else 4

    /** Calls [use] with each byte of a character in UTF-8. */
    inline fun utf8(char: Int, use: (Int) -> Unit) {
        val length = utf8Length(char)
        if (length == 1) return use(char)
        use((0xF00 shr length and 0xFF) or (char shr 6 * (length - 1)))
        for (rest in length - 2 downTo 0) use(0x80 or (char shr 6 * rest and 0x3F))
    }
}

/** The code points of a text. */
internal fun String.toCodePoints(): IntArray {
    val result = IntArray(length)
    var count = 0
    var index = 0
    while (index < length) {
        val char = codePointAt(index)
        result[count++] = char
        index += Character.charCount(char)
    }
    return if (count == length) result else result.copyOf(count)
}
