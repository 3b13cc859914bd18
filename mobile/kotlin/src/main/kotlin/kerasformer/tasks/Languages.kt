package kerasformer.tasks

import kerasformer.InputError
import kerasformer.JsonObject
import kerasformer.child
import kerasformer.closest
import kerasformer.flag
import kerasformer.repr
import kerasformer.text

/**
 * What the languages of a translation change: tokens of languages (NLLB, mBART), tokens such as `>>fra<<` at the start of a text
 * (OPUS-MT), or prefixes (T5).
 *
 * @property prefix Text put before the input.
 * @property settings Generation settings that take precedence over those of the bundle.
 * @property mark Puts the token of the input's language into the ids of a text.
 */
internal class Spoken(val prefix: String, val settings: JsonObject = mapOf(), val mark: (IntArray) -> IntArray = { it })

private val SETTINGS = listOf("forced_bos_token_id", "decoder_start_token_id")
private val MARK = Regex(">>(\\S+)<<")

/** @param given The generation settings of the bundle and of the call. */
internal fun Runtime.spoken(task: String, source: String?, target: String?, prefix: String?, given: JsonObject): Spoken {
    val prefixes = prefixes(task)
    val marks = if (task == "translation") languageMarks() else mapOf()
    if (marks.isNotEmpty()) {
        if (prefix != null) refuse(source, target)
        return Spoken(prefix ?: markOf(source, target, marks.keys)) { ids ->
            if (marks.size > 1 && ids.firstOrNull() !in marks.values) throw missing("tgt_lang", "output", marks.keys)
            ids
        }
    }
    info.child("languages")?.let { return withTokens(it, source, target, prefix ?: defaultPrefix(task), given) }
    if (task == "translation" && prefix == null && (source != null || target != null) && prefixes.isNotEmpty()) {
        val chosen = taskBetween(source, target, prefixes.keys.toList())
        return Spoken(prefixes.getValue(chosen), info.child("task_settings")?.child(chosen).orEmpty())
    }
    refuse(source, target)
    return Spoken(prefix ?: defaultPrefix(task))
}

/** The prefixes of a task by its variants, such as `translation_en_to_de`. */
private fun Runtime.prefixes(task: String): Map<String, String> =
    info.child("task_prefixes").orEmpty().filterKeys { it != "" && it.startsWith(task) }.mapValues { it.value.toString() }

/** The codes of the languages that a model translates between. */
internal fun Runtime.languageCodes(): List<String> {
    val ids = info.child("languages")?.child("ids") ?: return languageMarks().keys.toList()
    return ids.keys.sortedBy { (ids[it] as Number).toInt() }
}

private fun Runtime.languageMarks(): Map<String, Int> =
    tokenizer.tokens().mapNotNull { (token, id) -> MARK.matchEntire(token)?.let { it.groupValues[1] to id } }.toMap().toSortedMap()

/** The text before an input: that of the task, of all tasks, or of the only variant of the task. */
internal fun Runtime.defaultPrefix(task: String): String {
    val known = info.child("task_prefixes").orEmpty()
    (known[task] ?: known[""])?.let { return it.toString() }
    val prefixes = prefixes(task)
    if (prefixes.size <= 1) return prefixes.values.firstOrNull().orEmpty()
    throw InputError("This model has several prefixes for $task. Expected prefix=… to be one of ${prefixes.values.joinToString { repr(it) }}. Received: none")
}

/** The text that marks the language of the output. */
private fun markOf(source: String?, target: String?, codes: Set<String>): String {
    if (source != null) {
        throw InputError("This model marks the language of the output alone. Expected: no src_lang. Received: src_lang=${repr(source)}")
    }
    if (target == null) return ""
    return if (target in codes) ">>$target<< " else throw unknown("tgt_lang", target, codes, closest(target, codes, 1))
}

private fun withTokens(known: JsonObject, source: String?, target: String?, prefix: String, given: JsonObject): Spoken {
    val ids = known.child("ids").orEmpty().mapValues { (it.value as Number).toInt() }
    val codes = ids.keys.sortedBy { ids[it] }
    fun chosen(name: String, code: String?): String? {
        if (code == null) return known.text(name)
        if (code in ids) return code
        val alike = codes.associateBy { it.lowercase() }
        throw unknown(name, code, codes, closest(code.lowercase(), alike.keys, 3).map { alike.getValue(it) })
    }
    val (from, to) = chosen("src_lang", source) to chosen("tgt_lang", target)
    if (to == null && SETTINGS.none { (given[it] as? Number)?.toInt() in ids.values }) throw missing("tgt_lang", "output", codes)
    if (from == null) throw missing("src_lang", "input", codes)
    val settings = if (to == null) mapOf() else mapOf(known.text("setting").orEmpty() to ids.getValue(to))
    return Spoken(prefix, settings) { text ->
        text.copyOf().also { it[if (known.flag("after")) it.lastIndex else 0] = ids.getValue(from) }
    }
}

/** The task that translates between two languages, one of which may be missing. */
private fun taskBetween(source: String?, target: String?, tasks: List<String>): String {
    val pairs = tasks.map { it.removePrefix("translation_").split("_to_") }
    val found = tasks.indices.filter { (source == null || source == pairs[it][0]) && (target == null || target == pairs[it].getOrNull(1)) }
    if (found.size == 1) return tasks[found[0]]
    if (found.size > 1) {
        val side = if (source == null) 0 else 1
        throw missing(listOf("src_lang", "tgt_lang")[side], listOf("input", "output")[side], found.map { pairs[it][side] })
    }
    val listed = pairs.map { it.joinToString(" to ") }
    val received = listOf("src_lang" to source, "tgt_lang" to target).filter { it.second != null }.joinToString { "${it.first}=${repr(it.second)}" }
    throw InputError(
        "The model does not translate between these languages. Expected: one of ${listed.joinToString()}. Received: $received" +
            hint(closest("${source.orEmpty()} to ${target.orEmpty()}", listed, 1)),
    )
}

/** Throws if languages are passed to a model that does not distinguish them. */
private fun refuse(source: String?, target: String?) {
    if (source == null && target == null) return
    throw InputError(
        "The texts of this model are not marked with a language. Expected: neither src_lang nor tgt_lang. Received: src_lang=${repr(source)}, " +
            "tgt_lang=${repr(target)}",
    )
}

private fun missing(name: String, texts: String, codes: Collection<String>) =
    InputError("The language of the $texts is missing. Expected $name=… to be one of ${codes.joinToString()}. Received: none")

private fun unknown(name: String, code: String, codes: Collection<String>, close: List<String>) = InputError(
    "$name must be a language of the model. Expected: one of ${codes.joinToString()}. Received: ${repr(code)}${hint(close.map { repr(it) })}",
)

private fun hint(close: List<String>): String = if (close.isEmpty()) "" else ". Did you mean ${close.joinToString(" or ")}?"
