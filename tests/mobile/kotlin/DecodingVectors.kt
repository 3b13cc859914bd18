import java.io.File
import kerasformer.Json
import kerasformer.JsonObject
import kerasformer.KerasformerException
import kerasformer.asObject
import kerasformer.child
import kerasformer.decoding.Config
import kerasformer.decoding.FinishReason
import kerasformer.decoding.History
import kerasformer.decoding.Plan
import kerasformer.decoding.Random
import kerasformer.decoding.applyRules
import kerasformer.decoding.beamSearch
import kerasformer.decoding.choose
import kerasformer.decoding.generate
import kerasformer.engine.prefillPlan
import kerasformer.int
import kerasformer.text
import kerasformer.tokenization.Tokenizer

/** Compares the files of `mobile/vectors/decoding` with this library. */
class DecodingVectors(private val folder: File, private val report: (String) -> Unit) {
    fun run(): Int {
        val checks = mapOf(
            "mock.json" to ::mock, "random.json" to ::random, "samplers.json" to ::samplers, "rules.json" to ::rules,
            "settings.json" to ::settings, "generations.json" to ::generation, "prefill.json" to ::prefill,
        )
        return checks.entries.sumOf { (name, check) ->
            val rows = (Json.parse(File(folder, "decoding/$name").readText()) as List<*>).map { it.asObject()!! }
            rows.forEach { check(it) }
            rows.size
        }
    }

    private fun mock(row: JsonObject) =
        same("mock", floats(row["logits"]), MockModel(row.child("model")!!).logits(row["encoder"]?.let(::ints), ints(row["history"])).toList(), row)

    private fun random(row: JsonObject) {
        val values = row["values"] as List<*>
        same("random", values, Random(row["seed"] as Long).let { random -> values.map { random.next() } }, row)
    }

    private fun samplers(row: JsonObject) {
        val config = Config.of(mapOf(), row.child("settings")!!)
        val logits = floats(row["logits"]).toFloatArray()
        val tokens = (row["uniform"] as List<*>).map { uniform -> choose(logits, config) { (uniform as Number).toDouble() } }
        same("samplers", ints(row["tokens"]).toList(), tokens, row)
    }

    private fun rules(row: JsonObject) {
        val (width, ids) = row.int("width")!! to ints(row["ids"])
        val history = History(ids.copyOf(width), width, ints(row["prompt"]))
        ids.drop(width).forEach(history::add)
        val logits = floats(row["logits"])
        val changed = row.child("changed")!!
        val expected = logits.mapIndexed { token, logit -> changed[token.toString()]?.let(::float) ?: logit }
        val config = Config.of(mapOf(), row.child("settings")!!)
        same("rules", expected, applyRules(history, logits.toFloatArray(), config.withLengths(config.maxNewTokens!!, config.minNewTokens ?: 0)).toList(), row)
    }

    private fun prefill(row: JsonObject) {
        val sizes = prefillPlan(row.int("count")!!, row.int("capacity")!!, ints(row["lengths"]).toList(), row.int("start")!!)
        same("prefill", ints(row["sizes"]).toList(), sizes, row)
    }

    private fun settings(row: JsonObject) = expecting(row) {
        val config = Config.changed(Config.of(row.child("stored")!!, row.child("settings")!!))
        same("settings", normal(row["config"]), normal(config), row)
    }

    private fun generation(row: JsonObject) = expecting(row) {
        val model = MockModel(row.child("model")!!)
        val tokenizer = row.text("tokenizer")?.let { Tokenizer.open(File(folder, "tokenizers/$it")) }
        val config = Config.of(row.child("stored")!!, row.child("settings")!!)
        val plan = Plan.of(MockStep(model), ints(row["prompt"]), config, null) { tokenizer!!.decode(it) }
        val tokens = ArrayList<Int>()
        val reason: FinishReason
        if (config.numBeams > 1) {
            val (best, why) = beamSearch(plan) {}
            tokens += best.toList()
            reason = why
        } else {
            reason = generate(plan) { tokens += it }
        }
        same("tokens of ${row["name"]}", ints(row["tokens"]).toList(), tokens, row)
        same("reason of ${row["name"]}", row["reason"], reason.name.lowercase(), row)
    }

    /** Runs a check, and compares the error that it throws with the expected one. */
    private fun expecting(row: JsonObject, check: () -> Unit) {
        val error = row.child("error")
        try {
            check()
            if (error != null) report("an error was expected: ${error["message"]}. Row: ${Json.write(row)}")
        } catch (received: KerasformerException) {
            same("error", error?.get("name"), received.javaClass.simpleName, row)
            same("message", error?.get("message"), received.message, row)
        }
    }

    /** Numbers as doubles, so that 1 equals 1.0. */
    private fun normal(value: Any?): Any? = when (value) {
        is Number -> value.toDouble()
        is List<*> -> value.map(::normal)
        is Map<*, *> -> value.mapValues { normal(it.value) }
        else -> value
    }

    private fun same(what: String, expected: Any?, received: Any?, row: JsonObject) {
        if (expected != received) report("$what: ${Json.write(row).take(400)}\n  expected $expected\n  received $received")
    }

    private fun ints(value: Any?): IntArray = (value as List<*>).map { (it as Number).toInt() }.toIntArray()

    private fun float(value: Any?): Float = if (value == "-inf") Float.NEGATIVE_INFINITY else (value as Number).toFloat()

    private fun floats(value: Any?): List<Float> = (value as List<*>).map(::float)
}
