import java.io.File
import kotlin.math.abs
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import kerasformer.Json
import kerasformer.JsonObject
import kerasformer.KerasformerException
import kerasformer.TextModel
import kerasformer.asObject
import kerasformer.child
import kerasformer.engine.EngineFactory
import kerasformer.engine.Table
import kerasformer.flag
import kerasformer.int
import kerasformer.objects
import kerasformer.tasks.Aggregation
import kerasformer.tasks.Call
import kerasformer.tasks.Combine
import kerasformer.tasks.CombineEntities
import kerasformer.tasks.EmbeddingOptions
import kerasformer.tasks.Entity
import kerasformer.tasks.GeneratedText
import kerasformer.tasks.LongText
import kerasformer.tasks.Pooling
import kerasformer.tasks.Ranked
import kerasformer.tasks.Runtime
import kerasformer.tasks.answered
import kerasformer.tasks.continued
import kerasformer.tasks.transformed
import kerasformer.text

/** Values of options that are enumerations in Kotlin, so that a wrong one is an error of the compiler. */
private val IMPOSSIBLE = listOf("most", "sum")

/** Runs the calls of a folder of `mobile/vectors/tasks`, and compares their results. */
class TaskVectors(private val folder: File, private val report: (String) -> Unit) {
    private val content = Json.parse(File(folder, "calls.json").readText()).asObject()!!

    /** With an [engine], the folder has the files of a model. */
    fun run(engine: EngineFactory? = null): Int =
        TextModel.open(folder, engine ?: ofTests(), checkFiles = engine != null).use { model ->
            val calls = content.objects("calls").filter { call -> call.child("options")!!.values.none { it in IMPOSSIBLE } && call.child("options")!!["pooling"] != "max" }
            for (call in calls) check(model, call)
            calls.size
        }

    private fun ofTests(): EngineFactory = content.child("engine")?.let { config -> EngineFactory { engineOf(config, it) } } ?: Table()

    private fun check(model: TextModel, call: JsonObject) {
        val error = call.child("error")
        val pieces = ArrayList<String>()
        try {
            val (result, reason) = runBlocking { answer(model, call, pieces) }
            if (error != null) report("${folder.name}: an error was expected: ${error["message"]}")
            if (!alike(call["result"], result)) report("${folder.name}: ${Json.write(call).take(300)}\n  expected ${Json.write(call["result"])}\n  received ${Json.write(result)}")
            if (call["pieces"] != null && call["pieces"] != pieces) report("${folder.name}: pieces\n  expected ${call["pieces"]}\n  received $pieces")
            if (call["reason"] != null && call["reason"] != reason) report("${folder.name}: reason ${call["reason"]}. Received: $reason")
        } catch (received: KerasformerException) {
            val same = error != null && error["name"] == received.javaClass.simpleName && withoutOptions(error["message"]) == withoutOptions(received.message)
            if (!same) report("${folder.name}: ${Json.write(call).take(200)}\n  expected $error\n  received ${received.javaClass.simpleName}: ${received.message}")
        }
    }

    /** The message without advice about options that only Python has. */
    private fun withoutOptions(message: Any?): String = message.toString().replace(", pass drop_oldest_turns=True", "")
        .replace(" split='sentences' reads it in parts and joins the results.", "")

    private suspend fun answer(model: TextModel, call: JsonObject, pieces: MutableList<String>): Pair<Any?, String?> {
        val (inputs, options) = call["inputs"] to call.child("options")!!
        val length = LongText(options.flag("truncation"), options.int("chunk_length"), options.int("stride"))
        val combine = options.text("combine")
        val text = inputs as? String ?: inputs.asObject()?.text("text").orEmpty()
        val topK = options.int("top_k")
        val simple: Any? = when (call.text("task")) {
            "text-classification" -> model.classify(text, inputs.asObject()?.text("pair"), if ("top_k" in options) topK else 1, combining(combine, Combine.MEAN), length)
                .map { mapOf("label" to it.label, "score" to it.score) }
            "zero-shot-classification" -> {
                val labels = names(options["candidate_labels"])
                val template = options.text("hypothesis_template") ?: "This example is {}."
                val found = model.classifyZeroShot(text, labels, template, options.flag("multi_label"), combining(combine, Combine.MEAN), length)
                mapOf("sequence" to text, "labels" to found.map { it.label }, "scores" to found.map { it.score })
            }
            "text-ranking" -> {
                val documents = texts(inputs.asObject()!!["documents"])
                ranked(model.rank(inputs.asObject()!!.text("query")!!, documents, topK, options.text("label"), combining(combine, Combine.MAX), length), documents, options)
            }
            "token-classification" -> {
                val aggregation = Aggregation.valueOf((options.text("aggregation_strategy") ?: "none").uppercase())
                val ignored = options["ignore_labels"]?.let { texts(it).toSet() } ?: setOf("O")
                model.tokens(text, aggregation, ignored, CombineEntities.valueOf((combine ?: "tokens").uppercase()), length).map(::entity)
            }
            "zero-shot-token-classification" -> {
                val threshold = (options["threshold"] as Number?)?.toDouble() ?: 0.5
                model.entities(text, names(options["labels"]), threshold, options.flag("flat_ner", true), options.flag("multi_label"), length.truncation)
                    .map(::entity)
            }
            "question-answering" -> {
                val (question, context) = inputs.asObject()!!.run { text("question")!! to text("context")!! }
                val found = model.answer(
                    question, context, topK ?: 1, options.int("doc_stride") ?: 128, options.int("chunk_length"), options.int("max_answer_len") ?: 15,
                    options.flag("handle_impossible_answer"),
                ).map { mapOf("score" to it.score, "start" to it.start, "end" to it.end, "answer" to it.answer) }
                if ((topK ?: 1) == 1) found[0] else found
            }
            "fill-mask" -> model.fillMask(text, topK ?: 5, options.flag("truncation"))
                .map { gap -> gap.map { mapOf("score" to it.score, "token" to it.token, "token_str" to it.text, "sequence" to it.sequence) } }
                .let { if (it.size == 1) it[0] else it }
            "feature-extraction" -> {
                val pooling = options.text("pooling")?.let { Pooling.valueOf(it.uppercase()) }
                model.features(text, pooling, options.flag("normalize"), length).map { it.toList() }.let { if (pooling == null) it else it[0] }
            }
            "sentence-similarity" -> embeddings(model, inputs, options, length)
            else -> null
        }
        if (simple != null) return simple to null
        return generated(model, call, pieces)
    }

    private suspend fun embeddings(model: TextModel, inputs: Any?, options: JsonObject, length: LongText): Any {
        val given = EmbeddingOptions(options.text("prompt_name"), options.text("prompt"), options.int("truncate_dim"), options["normalize"] as Boolean?, length)
        val fields = inputs.asObject()
        if (fields == null) return if (inputs is List<*>) model.embed(texts(inputs), given).map { it.toList() } else model.embed(inputs as String, given).toList()
        if ("query" in fields) return texts(fields["documents"]).let { ranked(model.search(fields.text("query")!!, it, options.int("top_k"), given), it, options) }
        val others = model.embed(texts(fields["others"]), given)
        return model.embed(texts(fields["some"]), given).map { row -> others.map { model.similarity(row, it) } }
    }

    private suspend fun generated(model: TextModel, call: JsonObject, pieces: MutableList<String>): Pair<Any?, String?> {
        val (inputs, options, task) = Triple(call["inputs"], call.child("options")!!, call.text("task")!!)
        val settings = options - OPTIONS
        val run: suspend Runtime.(Call) -> GeneratedText = { named ->
            when (task) {
                "text-generation" -> continued(inputs as String, named)
                "conversation" -> answered((inputs as List<*>).map { it.asObject()!! }, options["tools"], options["documents"], options.child("chat_template_kwargs").orEmpty(), named)
                else -> transformed(task, inputs as String, options.text("prefix"), options.text("src_lang"), options.text("tgt_lang"), options.flag("truncation"), named)
            }
        }
        val result = model.generated(settings, pieces::add, run)
        val isFull = options.flag("return_full_text", true)
        val shown: Any = when {
            task == "conversation" && isFull -> inputs as List<*> + mapOf("role" to "assistant", "content" to result.text)
            task == "text-generation" && isFull -> inputs as String + result.text
            else -> result.text
        }
        val key = mapOf("summarization" to "summary_text", "translation" to "translation_text")[task] ?: "generated_text"
        return listOf(mapOf(key to shown)) to result.reason.name.lowercase()
    }

    private fun combining(name: String?, default: Combine): Combine = name?.let { Combine.valueOf(it.uppercase()) } ?: default

    /** Names as a list, or separated by commas. */
    private fun names(value: Any?): List<String> = if (value is String) value.split(",").map { it.trim() } else texts(value)

    private fun texts(value: Any?): List<String> = (value as List<*>).map { it.toString() }

    private fun ranked(rows: List<Ranked>, documents: List<String>, options: JsonObject): List<JsonObject> = rows.map { row ->
        mapOf("corpus_id" to row.index, "score" to row.score) + if (options.flag("return_documents")) mapOf("text" to documents[row.index]) else mapOf()
    }

    private fun entity(found: Entity): JsonObject {
        val rest = mapOf("score" to found.score, "word" to found.word, "start" to found.start, "end" to found.end)
        return if (found.index == null) mapOf("entity_group" to found.label) + rest else mapOf("entity" to found.label, "index" to found.index) + rest
    }

    /** Whether two results are equal; scores up to 1e-5. */
    private fun alike(expected: Any?, received: Any?): Boolean = when {
        expected is Number && received is Number -> abs(expected.toDouble() - received.toDouble()) <= 1e-5 * maxOf(1.0, abs(expected.toDouble()))
        expected is List<*> && received is List<*> -> expected.size == received.size && expected.indices.all { alike(expected[it], received[it]) }
        expected is Map<*, *> && received is Map<*, *> -> expected.keys == received.keys && expected.all { alike(it.value, received[it.key]) }
        else -> expected == received
    }

    private companion object {
        val OPTIONS = setOf("return_full_text", "tools", "documents", "chat_template_kwargs", "prefix", "src_lang", "tgt_lang", "truncation")
    }
}
