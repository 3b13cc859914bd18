package kerasformer.template

import java.text.SimpleDateFormat
import java.util.Date
import java.util.Locale
import kerasformer.Json
import kerasformer.repr

/** Whether a value counts as true. */
internal fun isTrue(value: Any?): Boolean = when (value) {
    null, is Undefined -> false
    is Boolean -> value
    is Number -> value.toDouble() != 0.0
    is String -> value.isNotEmpty()
    is Collection<*> -> value.isNotEmpty()
    is Map<*, *> -> value.isNotEmpty()
    else -> true
}

/** A value as a template writes it. */
internal fun text(value: Any?): String = when (value) {
    is Undefined -> ""
    is String -> value
    else -> repr(value)
}

internal fun typeName(value: Any?): String = when (value) {
    null -> "None"
    is String -> "str"
    is Boolean -> "bool"
    is Long -> "int"
    is Double -> "float"
    is List<*> -> "list"
    is Map<*, *> -> "dict"
    else -> "function"
}

internal fun items(value: Any?): List<Any?> = when (value) {
    is List<*> -> value
    is Map<*, *> -> value.keys.toList()
    is String -> value.codePoints().toArray().map { String(Character.toChars(it)) }
    is Undefined -> listOf()
    else -> throw TemplateFailure("'${typeName(value)}' object is not iterable")
}

internal fun compare(operator: String, left: Any?, right: Any?): Boolean = when (operator) {
    "==" -> isEqual(left, right)
    "!=" -> !isEqual(left, right)
    "in" -> contains(right, left)
    "not in" -> !contains(right, left)
    else -> {
        val order = when {
            left is Number && right is Number -> left.toDouble().compareTo(right.toDouble())
            left is String && right is String -> left.compareTo(right)
            else -> throw TemplateFailure("'$operator' not supported between instances of '${typeName(left)}' and '${typeName(right)}'")
        }
        when (operator) { "<" -> order < 0; "<=" -> order <= 0; ">" -> order > 0; else -> order >= 0 }
    }
}

private fun isEqual(left: Any?, right: Any?): Boolean = if (left is Number && right is Number) left.toDouble() == right.toDouble() else left == right

private fun contains(container: Any?, value: Any?): Boolean =
    if (container is String) container.contains(value as? String ?: throw TemplateFailure("'in <string>' requires string as left operand, not ${typeName(value)}"))
    else items(container).any { isEqual(it, value) }

internal fun calculate(operator: String, left: Any?, right: Any?): Any? = when {
    operator == "~" -> text(left) + text(right)
    left is Long && right is Long && operator != "/" -> when (operator) {
        "+" -> left + right
        "-" -> left - right
        "*" -> left * right
        "//" -> Math.floorDiv(left, right.nonZero())
        "%" -> Math.floorMod(left, right.nonZero())
        else -> Math.pow(left.toDouble(), right.toDouble()).let { if (right < 0) it else it.toLong() }
    }
    left is Number && right is Number -> {
        val (first, second) = left.toDouble() to right.toDouble()
        when (operator) {
            "+" -> first + second
            "-" -> first - second
            "*" -> first * second
            "/" -> if (second == 0.0) throw TemplateFailure("division by zero") else first / second
            "//" -> Math.floor(first / second)
            "%" -> first - second * Math.floor(first / second)
            else -> Math.pow(first, second)
        }
    }
    operator == "+" && left is String && right is String -> left + right
    operator == "+" && left is List<*> && right is List<*> -> left + right
    operator == "*" && left is String && right is Long && left.length * maxOf(right, 0) <= Run.MAX_CHARACTERS -> left.repeat(maxOf(right, 0).toInt())
    left is Undefined || right is Undefined -> throw TemplateFailure("'${((left as? Undefined) ?: right as Undefined).name}' is undefined")
    else -> throw TemplateFailure("unsupported operand type(s) for $operator: '${typeName(left)}' and '${typeName(right)}'")
}

private fun Long.nonZero(): Long = if (this == 0L) throw TemplateFailure("integer division or modulo by zero") else this

/** `value.name` */
internal fun attribute(value: Any?, name: Any?): Any? = when (value) {
    is Undefined -> throw TemplateFailure("'${value.name}' is undefined")
    is Namespace -> name.toString().let { if (it in value.values) value.values[it] else Undefined(it) }
    is String, is Map<*, *>, is List<*> -> method(value, name.toString()) ?: item(value, name)
    else -> Undefined("${typeName(value)} object' has no attribute '$name")
}

/** `value[key]` */
internal fun item(value: Any?, key: Any?): Any? = when (value) {
    is Undefined -> throw TemplateFailure("'${value.name}' is undefined")
    is Map<*, *> -> if (key in value) value[key] else (key as? String)?.let { method(value, it) } ?: Undefined(key.toString())
    is List<*>, is String -> {
        val items = items(value)
        val index = (key as? Long)?.toInt()?.let { if (it < 0) it + items.size else it }
        if (index != null && index in items.indices) items[index] else Undefined("the item ${repr(key)}")
    }
    else -> attribute(value, key)
}

/** `value[start:stop:step]` */
internal fun slice(value: Any?, bounds: List<Any?>): Any? {
    val items = items(value)
    val step = (bounds.getOrNull(2) as? Long)?.toInt() ?: 1
    if (step == 0) throw TemplateFailure("slice step cannot be zero")
    val limits = if (step > 0) 0..items.size else -1..items.size - 1
    fun bound(index: Int, default: Int): Int {
        val given = (bounds.getOrNull(index) as? Long)?.toInt() ?: return default
        return (if (given < 0) given + items.size else given).coerceIn(limits)
    }
    val (start, stop) = bound(0, if (step > 0) 0 else items.size - 1) to bound(1, if (step > 0) items.size else -1)
    val indices = if (step > 0) start until stop step step else start downTo stop + 1 step -step
    val selected = indices.map { items[it] }
    return if (value is String) selected.joinToString("") else selected
}

private val WHITE_SPACE = ("\t\n\u000B\u000C\r\u001C\u001D\u001E\u001F \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008" +
    "\u2009\u200A\u2028\u2029\u202F\u205F\u3000").toSet()

/** A method of Python; `null` if there is none of this name. Methods that change their object are not allowed. */
private fun method(value: Any, name: String): Function? = when (value) {
    is String -> textMethod(value, name)
    is Map<*, *> -> when (name) {
        "items" -> Function { _, _ -> value.entries.map { listOf(it.key, it.value) } }
        "keys" -> Function { _, _ -> value.keys.toList() }
        "values" -> Function { _, _ -> value.values.toList() }
        "get" -> Function { arguments, _ -> if (arguments[0] in value) value[arguments[0]] else arguments.getOrNull(1) }
        else -> null
    }
    is List<*> -> when (name) {
        "index" -> Function { arguments, _ -> value.indexOf(arguments[0]).toLong() }
        "count" -> Function { arguments, _ -> value.count { isEqual(it, arguments[0]) }.toLong() }
        else -> null
    }
    else -> null
}

private fun textMethod(text: String, name: String): Function? {
    fun of(compute: (List<Any?>) -> Any?) = Function { arguments, _ -> compute(arguments) }
    fun characters(arguments: List<Any?>) = (arguments.firstOrNull() as? String)?.toSet() ?: WHITE_SPACE
    fun affixes(value: Any?) = if (value is List<*>) value.map { it.toString() } else listOf(value.toString())
    return when (name) {
        "strip" -> of { given -> characters(given).let { set -> text.trim { it in set } } }
        "lstrip" -> of { given -> characters(given).let { set -> text.trimStart { it in set } } }
        "rstrip" -> of { given -> characters(given).let { set -> text.trimEnd { it in set } } }
        "split", "rsplit" -> of { given -> split(text, given.getOrNull(0) as? String, (given.getOrNull(1) as? Long)?.toInt() ?: -1, name == "rsplit") }
        "splitlines" -> of { text.lines().let { if (it.last().isEmpty()) it.dropLast(1) else it } }
        "startswith" -> of { given -> affixes(given[0]).any(text::startsWith) }
        "endswith" -> of { given -> affixes(given[0]).any(text::endsWith) }
        "replace" -> of { given -> replaced(text, text(given[0]), text(given[1]), (given.getOrNull(2) as? Long)?.toInt() ?: Int.MAX_VALUE) }
        "upper" -> of { text.uppercase(Locale.ROOT) }
        "lower" -> of { text.lowercase(Locale.ROOT) }
        "capitalize" -> of { capitalized(text) }
        "title" -> of { titled(text) }
        "join" -> of { given -> items(given[0]).joinToString(text) { it as? String ?: throw TemplateFailure("join() needs texts") } }
        "find" -> of { given -> text.indexOf(given[0].toString()).toLong() }
        "count" -> of { given -> text.windowed(given[0].toString().length).count { it == given[0] }.toLong() }
        "removeprefix" -> of { given -> text.removePrefix(given[0].toString()) }
        "removesuffix" -> of { given -> text.removeSuffix(given[0].toString()) }
        "isdigit" -> of { text.isNotEmpty() && text.all { it.isDigit() } }
        else -> null
    }
}

private fun split(text: String, separator: String?, most: Int, fromRight: Boolean): List<String> {
    if (separator == null) return text.trim { it in WHITE_SPACE }.split(Regex("\\s+"), if (most < 0) 0 else most + 1).filter { it.isNotEmpty() }
    val parts = text.split(separator)
    if (most < 0 || parts.size <= most + 1) return parts
    val rest = parts.size - most
    return if (fromRight) listOf(parts.take(rest).joinToString(separator)) + parts.drop(rest)
    else parts.take(most) + parts.drop(most).joinToString(separator)
}

private fun replaced(text: String, old: String, new: String, most: Int): String {
    val parts = text.split(old, limit = if (most == Int.MAX_VALUE) 0 else most + 1)
    if (text.length + parts.size.toLong() * new.length > Run.MAX_CHARACTERS) throw TemplateFailure("it creates a value of more than 2,000,000 characters, the limit")
    return parts.joinToString(new)
}

private fun capitalized(text: String): String = text.take(1).uppercase(Locale.ROOT) + text.drop(1).lowercase(Locale.ROOT)

private fun titled(text: String): String = Regex("\\p{L}+").replace(text) { capitalized(it.value) }

internal val TESTS = setOf(
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "true", "false", "number", "integer", "float",
    "even", "odd", "in", "equalto", "eq", "ne", "lt", "le", "gt", "ge", "callable",
)

internal fun test(name: String, value: Any?, argument: Any?): Boolean = when (name) {
    "defined" -> value !is Undefined
    "undefined" -> value is Undefined
    "none" -> value == null
    "string" -> value is String
    "mapping" -> value is Map<*, *>
    "iterable" -> value is String || value is List<*> || value is Map<*, *> || value is Undefined
    "sequence" -> value is String || value is List<*> || value is Map<*, *> || value is Undefined
    "boolean" -> value is Boolean
    "true", "false" -> value == (name == "true")
    "number" -> value is Number || value is Boolean
    "integer" -> value is Long
    "float" -> value is Double
    "even" -> (value as Long) % 2 == 0L
    "odd" -> (value as Long) % 2 != 0L
    "in" -> contains(argument, value)
    "callable" -> value is Function
    else -> compare(mapOf("equalto" to "==", "eq" to "==", "ne" to "!=", "lt" to "<", "le" to "<=", "gt" to ">", "ge" to ">=").getValue(name), value, argument)
}

internal val FILTERS = setOf(
    "trim", "length", "count", "upper", "lower", "title", "capitalize", "tojson", "join", "first", "last", "list", "map", "select", "reject",
    "selectattr", "rejectattr", "items", "dictsort", "replace", "string", "int", "float", "default", "d", "safe", "indent", "unique", "sort",
    "reverse", "round", "abs", "sum", "min", "max",
)

/** Applies a filter of Jinja. */
internal fun filter(name: String, value: Any?, given: List<Any?>, named: Map<String, Any?>): Any? {
    fun argument(index: Int, key: String): Any? = given.getOrNull(index) ?: named[key]
    return when (name) {
        "default", "d" -> if (value is Undefined || argument(1, "boolean") == true && !isTrue(value)) argument(0, "default_value") ?: "".takeIf { given.isEmpty() } else value
        "trim" -> (argument(0, "chars") as? String)?.toSet().let { set -> text(value).trim { it in (set ?: WHITE_SPACE) } }
        "length", "count" -> items(value).size.toLong()
        "upper" -> text(value).uppercase(Locale.ROOT)
        "lower" -> text(value).lowercase(Locale.ROOT)
        "title" -> titled(text(value))
        "capitalize" -> capitalized(text(value))
        "string", "safe" -> text(value)
        "tojson" -> json(value, named + listOf("ensure_ascii", "indent").zip(given))
        "join" -> items(mapped(value, named["attribute"])).joinToString(text(argument(0, "d") ?: "")) { text(it) }
        "first" -> items(value).let { if (it.isEmpty()) Undefined("No first item, sequence was empty.") else it.first() }
        "last" -> items(value).let { if (it.isEmpty()) Undefined("No last item, sequence was empty.") else it.last() }
        "list" -> items(value)
        "map" -> if ("attribute" in named) mapped(value, named["attribute"]) else items(value).map { filter(known(given[0].toString(), FILTERS), it, given.drop(1), mapOf()) }
        "select", "reject" -> items(value).filter { passes(it, given, 0) == (name == "select") }
        "selectattr", "rejectattr" -> items(value).filter { passes(path(it, given[0]), given, 1) == (name == "selectattr") }
        "items" -> if (value is Undefined) listOf() else (value as? Map<*, *> ?: throw TemplateFailure("Can only get item pairs from a mapping.")).entries.map { listOf(it.key, it.value) }
        "dictsort" -> (value as? Map<*, *> ?: throw TemplateFailure("dictsort needs a dict")).entries.sortedBy { it.key.toString().lowercase(Locale.ROOT) }.map { listOf(it.key, it.value) }
        "replace" -> replaced(text(value), text(given[0]), text(given[1]), (given.getOrNull(2) as? Long)?.toInt() ?: Int.MAX_VALUE)
        "int" -> (value as? Number)?.toLong() ?: text(value).trim().toLongOrNull() ?: text(value).trim().toDoubleOrNull()?.toLong() ?: argument(0, "default") ?: 0L
        "float" -> (value as? Number)?.toDouble() ?: text(value).trim().toDoubleOrNull() ?: argument(0, "default") ?: 0.0
        "indent" -> indented(text(value), argument(0, "width") ?: 4L, argument(1, "first") == true, argument(2, "blank") == true)
        "unique" -> items(value).distinctBy { (it as? String)?.lowercase(Locale.ROOT) ?: it }
        "sort" -> items(value).sortedWith(order(named)).let { if (argument(0, "reverse") == true) it.reversed() else it }
        "reverse" -> if (value is String) value.reversed() else items(value).reversed()
        "round" -> Math.pow(10.0, ((argument(0, "precision") as? Long) ?: 0L).toDouble()).let { Math.rint((value as Number).toDouble() * it) / it }
        "abs" -> if (value is Long) Math.abs(value) else Math.abs((value as Number).toDouble())
        "sum" -> items(mapped(value, named["attribute"])).fold(0L as Any?) { sum, each -> calculate("+", sum, each) }
        "min" -> items(value).minWithOrNull(order(named))
        else -> items(value).maxWithOrNull(order(named))
    }
}

private fun known(name: String, names: Set<String>): String = if (name in names) name else throw TemplateFailure("No filter or test named '$name'.")

/** An attribute, or several with dots between them. */
private fun path(value: Any?, name: Any?): Any? = name.toString().split('.').fold(value) { part, key -> item(part, key.toLongOrNull() ?: key) }

private fun mapped(value: Any?, attribute: Any?): Any? = if (attribute == null) value else items(value).map { path(it, attribute) }

private fun passes(value: Any?, given: List<Any?>, from: Int): Boolean =
    if (given.size <= from) isTrue(value)
    else given[from].toString().let { if (it in COMPARED) compare(it, value, given[from + 1]) else test(known(it, TESTS), value, given.getOrNull(from + 1)) }

private val COMPARED = setOf("==", "!=", "<", "<=", ">", ">=")

private fun order(named: Map<String, Any?>): Comparator<Any?> = Comparator { first, second ->
    val (left, right) = listOf(first, second).map { value -> (if ("attribute" in named) path(value, named["attribute"]) else value).let { if (it is String && named["case_sensitive"] != true) it.lowercase(Locale.ROOT) else it } }
    if (compare("<", left, right)) -1 else if (compare(">", left, right)) 1 else 0
}

private fun json(value: Any?, options: Map<String, Any?>): String {
    fun check(part: Any?) {
        if (part is Undefined || part is Function) throw TemplateFailure("Object of type ${if (part is Undefined) "Undefined" else "function"} is not JSON serializable")
        if (part is Map<*, *>) part.values.forEach(::check)
        if (part is List<*>) part.forEach(::check)
    }
    check(value)
    fun sorted(part: Any?): Any? = when (part) {
        is Map<*, *> -> part.entries.sortedBy { it.key.toString() }.associate { it.key to sorted(it.value) }
        is List<*> -> part.map(::sorted)
        else -> part
    }
    val (comma, colon) = (options["separators"] as? List<*>)?.map { it.toString() } ?: listOf(", ", ": ")
    val ordered = if (options["sort_keys"] == true) sorted(value) else value
    return Json.write(ordered, options["ensure_ascii"] == true, (options["indent"] as? Long)?.toInt(), comma, colon)
}

private fun indented(text: String, width: Any?, first: Boolean, blank: Boolean): String {
    val prefix = width as? String ?: " ".repeat((width as Long).toInt())
    return text.split("\n").mapIndexed { index, line -> if (if (index == 0) first else blank || line.isNotEmpty()) prefix + line else line }.joinToString("\n")
}

/** The functions that every template may call. */
internal fun globals(): Map<String, Any?> = mapOf(
    "namespace" to Function { given, named ->
        val start = given.firstOrNull() as? Map<*, *> ?: mapOf<Any?, Any?>()
        Namespace(start.entries.associateTo(LinkedHashMap<String, Any?>()) { it.key.toString() to it.value }.also { it += named })
    },
    "dict" to Function { _, named -> named },
    "range" to Function { given, _ ->
        val limits = given.map { it as? Long ?: throw TemplateFailure("range() needs integers") }
        val (start, stop, step) = if (limits.size == 1) listOf(0L, limits[0], 1L) else limits + listOf(1L).take(3 - limits.size)
        if (step == 0L) throw TemplateFailure("range() arg 3 must not be zero")
        if ((stop - start) / step > MAX_RANGE) throw TemplateFailure("Range too big. The sandbox blocks ranges larger than MAX_RANGE ($MAX_RANGE).")
        (if (step > 0) start until stop step step else start downTo stop + 1 step -step).toList()
    },
    "raise_exception" to Function { given, _ -> throw TemplateFailure(text(given.firstOrNull()), refuses = true) },
    "strftime_now" to Function { given, _ -> now(given.first().toString()) },
)

private const val MAX_RANGE = 100_000

private fun now(format: String): String {
    val patterns = mapOf(
        'Y' to "yyyy", 'm' to "MM", 'd' to "dd", 'B' to "MMMM", 'b' to "MMM", 'A' to "EEEE", 'a' to "EEE", 'H' to "HH", 'M' to "mm",
        'S' to "ss", 'y' to "yy", 'I' to "hh", 'p' to "a", 'j' to "DDD", 'Z' to "z", 'z' to "Z",
    )
    return Regex("%-?(.)").replace(format) { match ->
        val code = match.groupValues[1].single()
        val pattern = patterns[code] ?: if (code == '%') return@replace "%" else throw TemplateFailure("the date format %$code is unsupported")
        SimpleDateFormat(if (match.value[1] == '-') pattern.take(1) else pattern, Locale.US).format(Date())
    }
}
