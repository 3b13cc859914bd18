package kerasformer.template

import kerasformer.ChatTemplateError

/** A symbol of a tag: a name, a text, a number or an operator. */
internal class Token(val kind: Kind, val text: String, val value: Any? = null) {
    enum class Kind { NAME, STRING, NUMBER, OPERATOR, END }
}

/** A part of a template: text, an expression `{{ … }}` or a statement `{% … %}`. */
internal sealed interface Part {
    class Text(val text: String) : Part

    class Expression(val tokens: List<Token>) : Part

    class Statement(val tokens: List<Token>) : Part
}

/**
 * Splits a template into its parts. As in `transformers`, a line end after a statement and spaces before it are removed
 * (`trim_blocks`, `lstrip_blocks`).
 */
internal class Lexer(source: String) {
    private val source = source.replace("\r\n", "\n").removeSuffix("\n")
    private var next = 0
    private val parts = ArrayList<Part>()

    fun parts(): List<Part> {
        var trims = false // whether the tag before removes all space after it
        while (next < source.length) {
            val start = listOf("{{", "{%", "{#").map { source.indexOf(it, next) }.filter { it >= 0 }.minOrNull() ?: source.length
            var text = source.substring(next, start)
            if (trims) text = text.trimStart()
            val kind = source.getOrNull(start + 1)
            val mark = source.getOrNull(start + 2)
            if (mark == '-') {
                text = text.trimEnd()
            } else if (kind != '{' && mark != '+' && start < source.length) {
                val line = text.substringAfterLast('\n')
                val startsLine = line.length < text.length || next == 0 || source[next - 1] == '\n'
                if (startsLine && line.isBlank()) text = text.dropLast(line.length)
            }
            if (text.isNotEmpty()) parts += Part.Text(text)
            if (start == source.length) break
            next = start + if (mark == '-' || mark == '+') 3 else 2
            trims = when (kind) {
                '#' -> comment()
                '{' -> tag("}}").also { parts += Part.Expression(it.first) }.second
                else -> tag("%}").also { parts += Part.Statement(it.first) }.second
            }
        }
        return parts
    }

    private fun comment(): Boolean {
        val end = source.indexOf("#}", next)
        if (end < 0) fail("a comment is not closed")
        next = end + 2
        if (source[end - 1] == '-') return true
        skipLineEnd(source[end - 1])
        return false
    }

    /** The symbols up to the end of a tag, and whether it removes the space after it. */
    private fun tag(end: String): Pair<List<Token>, Boolean> {
        val tokens = ArrayList<Token>()
        var depth = 0
        while (true) {
            while (next < source.length && source[next].isWhitespace()) next++
            if (next == source.length) fail("a tag is not closed")
            if (depth == 0) {
                val mark = source[next].takeIf { it in "-+" && source.startsWith(end, next + 1) }
                if (mark != null || source.startsWith(end, next)) {
                    next += end.length + if (mark == null) 0 else 1
                    if (mark != '-' && end == "%}") skipLineEnd(mark)
                    return tokens + Token(Token.Kind.END, "the end of the tag") to (mark == '-')
                }
            }
            val token = token()
            if (token.kind == Token.Kind.OPERATOR && token.text in "([{") depth++
            if (token.kind == Token.Kind.OPERATOR && token.text in ")]}") depth--
            tokens += token
        }
    }

    private fun skipLineEnd(mark: Char?) {
        if (mark != '+' && source.getOrNull(next) == '\n') next++
    }

    private fun token(): Token {
        val start = next
        val char = source[next]
        if (char == '\'' || char == '"') return Token(Token.Kind.STRING, "a text", string(char))
        if (char.isDigit()) {
            while (next < source.length && (source[next].isDigit() || source[next] == '_')) next++
            if (source.getOrNull(next) == '.' && source.getOrNull(next + 1)?.isDigit() == true) {
                next++
                while (next < source.length && source[next].isDigit()) next++
            }
            val number = source.substring(start, next).replace("_", "")
            return Token(Token.Kind.NUMBER, number, number.toLongOrNull() ?: number.toDouble())
        }
        if (char.isLetter() || char == '_') {
            while (next < source.length && (source[next].isLetterOrDigit() || source[next] == '_')) next++
            return source.substring(start, next).let { Token(Token.Kind.NAME, it) }
        }
        val operator = listOf("**", "//", "==", "!=", "<=", ">=").find { source.startsWith(it, next) } ?: char.toString()
        if (operator.length == 1 && char !in "+-*/%~|.,:()[]{}=<>") fail("unexpected character '$char'")
        next += operator.length
        return Token(Token.Kind.OPERATOR, operator)
    }

    private fun string(quote: Char): String {
        val text = StringBuilder()
        next++
        while (true) {
            val char = source.getOrNull(next++) ?: fail("a text is not closed")
            if (char == quote) return text.toString()
            if (char != '\\') {
                text.append(char)
                continue
            }
            val kind = source.getOrNull(next++) ?: fail("a text is not closed")
            val digits = when (kind) { 'x' -> 2; 'u' -> 4; 'U' -> 8; else -> 0 }
            when {
                digits > 0 -> {
                    text.appendCodePoint(source.substring(next, minOf(next + digits, source.length)).toIntOrNull(16) ?: fail("a text has a damaged escape"))
                    next += digits
                }
                kind in "nrtbf\\'\"" -> text.append("\n\r\t\b\u000C\\'\""["nrtbf\\'\"".indexOf(kind)])
                else -> text.append('\\').append(kind)
            }
        }
    }

    private fun fail(problem: String): Nothing {
        val line = source.take(next).count { it == '\n' } + 1
        throw ChatTemplateError("The chat template is not valid Jinja in line $line: $problem")
    }
}
