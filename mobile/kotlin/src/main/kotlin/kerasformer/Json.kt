package kerasformer

internal typealias JsonObject = Map<String, Any?>

/**
 * Reads and writes JSON. Objects are maps in the order of their fields, arrays are lists, numbers are `Long` or `Double`.
 */
internal object Json {
    /** @throws IllegalArgumentException The text is not JSON. */
    fun parse(text: String): Any? = Reader(text).run { value().also { finish() } }

    /** Writes a value as Python's `json.dumps` does, by default with its separators `", "` and `": "`. */
    fun write(value: Any?, ascii: Boolean = false, indent: Int? = null, comma: String = ", ", colon: String = ": "): String =
        StringBuilder().also { Writer(it, ascii, indent, comma, colon).value(value, 0) }.toString()

    private class Reader(private val text: String) {
        private var next = 0

        fun value(): Any? {
            skipSpaces()
            return when (val first = peek()) {
                '{' -> members()
                '[' -> items()
                '"' -> string()
                else -> if (first == '-' || first in '0'..'9') number() else word()
            }
        }

        fun finish() {
            skipSpaces()
            if (next < text.length) fail()
        }

        private fun members(): JsonObject {
            val fields = LinkedHashMap<String, Any?>()
            next++
            while (!closes('}', fields.isEmpty())) {
                skipSpaces()
                val name = string()
                skipSpaces()
                if (peek() != ':') fail()
                next++
                fields[name] = value()
            }
            return fields
        }

        private fun items(): List<Any?> {
            val items = ArrayList<Any?>()
            next++
            while (!closes(']', items.isEmpty())) items.add(value())
            return items
        }

        /** Whether an object or array ends here; otherwise reads the comma before its next item. */
        private fun closes(end: Char, first: Boolean): Boolean {
            skipSpaces()
            if (peek() == end) return true.also { next++ }
            if (!first && peek() != ',') fail()
            if (!first) next++
            return false
        }

        private fun string(): String {
            if (peek() != '"') fail()
            var start = ++next
            var decoded: StringBuilder? = null
            while (true) {
                val char = peek()
                if (char == '"') break
                if (char == '\\') {
                    decoded = (decoded ?: StringBuilder()).append(text, start, next)
                    decoded.append(escaped())
                    start = next
                } else {
                    next++
                }
            }
            val end = next++
            return decoded?.append(text, start, end)?.toString() ?: text.substring(start, end)
        }

        private fun escaped(): Char {
            next++
            val char = peek()
            next++
            val position = "\"\\/bfnrt".indexOf(char)
            if (position >= 0) return "\"\\/\b\u000C\n\r\t"[position]
            if (char != 'u' || next + 4 > text.length) fail()
            next += 4
            return text.substring(next - 4, next).toInt(16).toChar()
        }

        private fun number(): Any {
            val start = next
            while (next < text.length && (text[next] in '0'..'9' || text[next] in "+-.eE")) next++
            val number = text.substring(start, next)
            return number.toLongOrNull() ?: number.toDoubleOrNull() ?: fail()
        }

        private fun word(): Any? {
            val word = listOf("null", "true", "false", "NaN", "Infinity").find { text.startsWith(it, next) } ?: fail()
            next += word.length
            return when (word) {
                "null" -> null
                "NaN" -> Double.NaN
                "Infinity" -> Double.POSITIVE_INFINITY
                else -> word == "true"
            }
        }

        private fun peek(): Char = if (next < text.length) text[next] else fail()

        private fun skipSpaces() {
            while (next < text.length && text[next] in " \t\n\r") next++
        }

        private fun fail(): Nothing = throw IllegalArgumentException("not JSON at character $next of ${text.length}")
    }

    private class Writer(
        private val out: StringBuilder,
        private val ascii: Boolean,
        private val indent: Int?,
        private val comma: String,
        private val colon: String,
    ) {
        fun value(value: Any?, depth: Int) {
            when (value) {
                is String -> string(value)
                is Map<*, *> -> items('{', '}', value.entries, depth) { (name, item) ->
                    string(name.toString())
                    out.append(colon)
                    value(item, depth + 1)
                }
                is Iterable<*> -> items('[', ']', value.toList(), depth) { value(it, depth + 1) }
                is Float, is Double -> out.append(pythonNumber((value as Number).toDouble()))
                else -> out.append(value)
            }
        }

        private fun <T> items(open: Char, close: Char, items: Collection<T>, depth: Int, write: (T) -> Unit) {
            out.append(open)
            items.forEachIndexed { index, item ->
                if (index > 0) out.append(if (indent == null) comma else comma.trimEnd())
                line(depth + 1)
                write(item)
            }
            if (items.isNotEmpty()) line(depth)
            out.append(close)
        }

        private fun line(depth: Int) {
            if (indent != null) out.append('\n').append(" ".repeat(indent * depth))
        }

        private fun string(text: String) {
            out.append('"')
            for (char in text) {
                val position = "\"\\\b\u000C\n\r\t".indexOf(char)
                when {
                    position >= 0 -> out.append('\\').append("\"\\bfnrt"[position])
                    char < ' ' || ascii && char > '~' -> out.append("\\u%04x".format(char.code))
                    else -> out.append(char)
                }
            }
            out.append('"')
        }
    }
}

/** A number as Python's `repr` writes it, such as `1e-05` and `1.0`. */
internal fun pythonNumber(value: Double): String {
    if (value.isNaN()) return "NaN"
    if (value.isInfinite()) return if (value > 0) "Infinity" else "-Infinity"
    val decimal = java.math.BigDecimal(value.toString()).stripTrailingZeros()
    val exponent = if (value == 0.0) 0 else decimal.precision() - decimal.scale() - 1
    if (exponent in -4..15) {
        val plain = decimal.toPlainString()
        return if ('.' in plain) plain else "$plain.0"
    }
    val digits = decimal.unscaledValue().toString().let { it.take(if (it[0] == '-') 2 else 1) to it.drop(if (it[0] == '-') 2 else 1) }
    val fraction = if (digits.second.isEmpty()) "" else ".${digits.second}"
    return "${digits.first}${fraction}e${if (exponent < 0) "-" else "+"}${kotlin.math.abs(exponent).toString().padStart(2, '0')}"
}

internal fun JsonObject.child(name: String): JsonObject? = this[name].asObject()

internal fun JsonObject.text(name: String): String? = this[name] as? String

internal fun JsonObject.flag(name: String, default: Boolean = false): Boolean = this[name] as? Boolean ?: default

internal fun JsonObject.int(name: String): Int? = (this[name] as? Number)?.toInt()

internal fun JsonObject.objects(name: String): List<JsonObject> = (this[name] as? List<*>).orEmpty().mapNotNull { it.asObject() }

@Suppress("UNCHECKED_CAST") // objects of JSON have no other keys
internal fun Any?.asObject(): JsonObject? = this as? Map<String, Any?>
