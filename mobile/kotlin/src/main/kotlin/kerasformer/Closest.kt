package kerasformer

/** The texts that are similar to another one, the most similar first, as `difflib.get_close_matches` of Python finds them. */
internal fun closest(text: String, known: Collection<String>, count: Int, least: Double = 0.5): List<String> = known
    .map { it to similarity(it, text) }
    .filter { it.second >= least }
    .sortedWith(compareByDescending<Pair<String, Double>> { it.second }.thenByDescending { it.first })
    .take(count).map { it.first }

/** From 0 to 1: the share of characters in common blocks. */
private fun similarity(a: String, b: String): Double = 2.0 * common(a, b) / maxOf(a.length + b.length, 1)

/** The number of characters in the longest common block, and in those before and after it. */
private fun common(a: String, b: String): Int {
    var (longest, start, from) = Triple(0, 0, 0)
    for (i in a.indices) {
        for (j in b.indices) {
            var length = 0
            while (i + length < a.length && j + length < b.length && a[i + length] == b[j + length]) length++
            if (length > longest) {
                longest = length
                start = i
                from = j
            }
        }
    }
    if (longest == 0) return 0
    return longest + common(a.take(start), b.take(from)) + common(a.drop(start + longest), b.drop(from + longest))
}

/** A value as Python's `repr` writes it, for the errors. */
internal fun repr(value: Any?): String = when (value) {
    null -> "None"
    true -> "True"
    false -> "False"
    is String -> if ('\'' in value && '"' !in value) "\"$value\"" else "'${value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")}'"
    is List<*> -> value.joinToString(", ", "[", "]", transform = ::repr)
    is Map<*, *> -> value.entries.joinToString(", ", "{", "}") { "${repr(it.key)}: ${repr(it.value)}" }
    is Double -> if (value.isInfinite()) (if (value > 0) "inf" else "-inf") else if (value.isNaN()) "nan" else pythonNumber(value)
    is Float -> repr(value.toDouble())
    else -> value.toString()
}
