// Runs a bundle on token ids with LiteRT's `CompiledModel` on Android: a TextEncoder, a TextGenerator (a decoder) or a
// TextToTextGenerator (an encoder-decoder). All names, sizes and ids are read from kerasformer.json, which is in the
// assets beside the model file. An app with several bundles has a folder of the assets for each.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.TensorBuffer
import org.json.JSONArray
import org.json.JSONObject

/** Returns the outputs of an encoder. */
class TextEncoder(context: Context, folder: String = "") : AutoCloseable {
    private val bundle = Bundle(context, folder)

    /** Names of the classes, in the order of their scores. */
    val labels: List<String> = bundle.labels

    /** Returns the outputs for the token ids of a text, by name; padding has the last entries. */
    fun run(ids: IntArray, segments: IntArray = IntArray(ids.size)): Map<String, FloatArray> {
        val outputs = bundle.read("forward", ids, segments) { name, signature ->
            bundle.model.createOutputBuffer(name, signature)
        }
        val answer = outputs.mapValues { (_, buffer) -> buffer.readFloat() }
        outputs.values.forEach { it.close() }
        return answer
    }

    override fun close() = bundle.close()
}

/** Continues texts with a decoder. */
class TextGenerator(context: Context, folder: String = "") : AutoCloseable {
    private val bundle = Bundle(context, folder)
    private val signatures = bundle.ofRole("prefill").reversed() + bundle.decode
    private val inputs = signatures.associateWith { bundle.inputs(it, "ids", "slots") }
    private val logits = bundle.logits()

    // Each cache is one buffer, both input and output of every signature: it is updated in place.
    private val caches = bundle.inputs(bundle.decode, "key", "value", "state")

    /** Continues the token ids of a prompt by greedy search; returns at most [count] new ids. */
    fun generate(prompt: IntArray, count: Int = 40): List<Int> {
        checkLength("prompt", prompt.size, bundle.capacity)
        caches.values.forEach { it.writeFloat(FloatArray(it.readFloat().size)) }
        var position = 0
        for (signature in signatures) {
            while (prompt.size - 1 - position >= signature.tokens) {
                step(signature, prompt.copyOfRange(position, position + signature.tokens), position)
                position += signature.tokens
            }
        }
        val generated = mutableListOf<Int>()
        var token = prompt.last()
        while (generated.size < count && position < bundle.capacity) {
            step(bundle.decode, intArrayOf(token), position++)
            token = bundle.best(logits)
            if (token in bundle.ends) break
            generated += token
        }
        return generated
    }

    private fun step(signature: Signature, tokens: IntArray, position: Int) {
        val buffers = inputs.getValue(signature)
        buffers.getValue(signature.input("ids")).writeInt(tokens)
        buffers.getValue(signature.input("slots")).writeInt(IntArray(tokens.size) { position + it })
        val outputs = if (signature == bundle.decode) caches + logits else caches
        bundle.model.run(buffers + caches, outputs, signature.name)
    }

    override fun close() = bundle.close()
}

/** Translates, summarizes or rewrites texts with an encoder-decoder. */
class TextToTextGenerator(context: Context, folder: String = "") : AutoCloseable {
    private val bundle = Bundle(context, folder)
    private val decode = bundle.decode
    private val steps = bundle.inputs(decode, "ids", "slots", "memory_mask")
    private val logits = bundle.logits()
    private val crossCaches = bundle.inputs(decode, "cross_key", "cross_value")

    // Each cache is one buffer, both input and output: it is updated in place.
    private val caches = bundle.inputs(decode, "key", "value", "state")

    /** What precedes every text of the task, such as "summarize: "; empty for most models. */
    val prefix: String = bundle.prefix

    /**
     * Generates at most [count] token ids from those of a text with [prefix] before it and the end token after it.
     *
     * [language] is the code of the language of a translation, such as "deu_Latn"; by default, that of the settings.
     */
    fun generate(ids: IntArray, count: Int = 40, language: String? = null): List<Int> {
        val (start, first) = bundle.firstTokens(language)
        bundle.read("encode", ids, IntArray(ids.size)) { name, _ -> crossCaches.getValue(name) }
        caches.values.forEach { it.writeFloat(FloatArray(it.readFloat().size)) }
        steps.getValue(decode.input("memory_mask"))
            .writeInt(IntArray(bundle.encoderCapacity) { if (it < ids.size) 1 else 0 })
        val generated = mutableListOf<Int>()
        var token = start
        while (generated.size < minOf(count, bundle.capacity)) {
            steps.getValue(decode.input("ids")).writeInt(intArrayOf(token))
            steps.getValue(decode.input("slots")).writeInt(intArrayOf(generated.size))
            bundle.model.run(steps + crossCaches + caches, caches + logits, decode.name)
            token = bundle.best(logits)
            if (generated.isEmpty() && first != null) token = first
            if (token in bundle.ends) break
            generated += token
        }
        return generated
    }

    override fun close() = bundle.close()
}

/** A signature of the model, with the descriptions of its inputs and outputs by name. */
private class Signature(val name: String, json: JSONObject) {
    val file: String = json.getString("file")
    val role: String = json.getString("role")
    val tokens: Int = json.optInt("tokens")
    val inputs = json.getJSONObject("inputs").objects()
    val outputs = json.getJSONObject("outputs").objects()

    /** Returns the name of the input of a kind. */
    fun input(kind: String): String = inputs.keys.first { inputs.getValue(it).optString("kind") == kind }
}

/** The model of a bundle, and what its manifest says about it. */
private class Bundle(context: Context, folder: String) : AutoCloseable {
    private val path = if (folder.isEmpty()) "" else "$folder/"
    private val manifest =
        JSONObject(context.assets.open("${path}kerasformer.json").bufferedReader().use { it.readText() })
    private val info: JSONObject = manifest.getJSONObject("info")
    private val generation: JSONObject = info.getJSONObject("generation")
    private val signatures =
        manifest.getJSONObject("signatures").objects().map { (name, signature) -> Signature(name, signature) }
    private val file = signatures.first { it.role != "tokenize" }.file
    val model = CompiledModel.create(context.assets, path + file, CompiledModel.Options(Accelerator.CPU))
    val capacity: Int = manifest.optInt("capacity")
    val encoderCapacity: Int = manifest.optInt("encoder_capacity")
    val labels: List<String> = info.getJSONArray("labels").let { names -> List(names.length()) { names.getString(it) } }
    val ends: List<Int> = info.getJSONArray("eos_token_id").ints()
    val decode by lazy { signatures.first { it.name == "decode" } }

    /** The prefix for the task, or the first one of the model. */
    val prefix: String
        get() {
            val prefixes: JSONObject = info.getJSONObject("task_prefixes")
            val tasks = prefixes.keys().asSequence().toList()
            val task = tasks.firstOrNull { it.startsWith(info.getString("task")) } ?: tasks.firstOrNull()
            return if (task == null) "" else prefixes.getString(task)
        }

    /** Tokens that are never chosen. */
    private val forbidden: List<Int> by lazy {
        val words = generation.optJSONArray("bad_words_ids")
        val single = List(words?.length() ?: 0) { words!!.getJSONArray(it).ints() }.filter { it.size == 1 }.flatten()
        (generation.optJSONArray("suppress_tokens")?.ints() ?: listOf()) + single
    }

    /** Fills the rest of a text. A token of only the vocabulary that the model writes is no id of a text. */
    private val padding: Int = info.optInt("pad_token_id").let { id ->
        if (info.optInt("vocab_size") in 1..id) 0 else id
    }

    /** Returns the signatures of a role, the shortest first. */
    fun ofRole(role: String): List<Signature> = signatures.filter { it.role == role }.sortedBy { it.tokens }

    /** Creates buffers for the inputs of some kinds. */
    fun inputs(signature: Signature, vararg kinds: String): Map<String, TensorBuffer> =
        signature.inputs.filterValues { it.optString("kind") in kinds }
            .mapValues { (name, _) -> model.createInputBuffer(name, signature.name) }

    /** Creates the buffer for the score of each token as the next one. */
    fun logits(): Pair<String, TensorBuffer> {
        val name = decode.outputs.keys.first { decode.outputs.getValue(it).optString("kind") == "logits" }
        return name to model.createOutputBuffer(name, decode.name)
    }

    /** Runs the shortest signature of a role that has room for a text; returns its outputs, in buffers of `output`. */
    fun read(
        role: String,
        ids: IntArray,
        segments: IntArray,
        output: (String, String) -> TensorBuffer,
    ): Map<String, TensorBuffer> {
        val lengths = ofRole(role)
        checkLength("text", ids.size, lengths.last().tokens)
        val signature = lengths.first { it.tokens >= ids.size }
        val inputs = signature.inputs.mapValues { (name, tensor) ->
            val values = IntArray(signature.tokens) {
                when (tensor.optString("kind")) {
                    "ids" -> ids.getOrElse(it) { padding }
                    "mask" -> if (it < ids.size) 1 else 0
                    "segments" -> segments.getOrElse(it) { 0 }
                    else -> tensor.optInt("default")
                }
            }
            model.createInputBuffer(name, signature.name).apply { writeInt(values) }
        }
        val outputs = signature.outputs.mapValues { (name, _) -> output(name, signature.name) }
        model.run(inputs, outputs, signature.name)
        inputs.values.forEach { it.close() }
        return outputs
    }

    /** Returns the most probable token of those that are not forbidden. */
    fun best(logits: Pair<String, TensorBuffer>): Int {
        val scores = logits.second.readFloat()
        for (never in forbidden) scores[never] = Float.NEGATIVE_INFINITY
        return scores.indices.maxBy { scores[it] }
    }

    /** Returns the first token that the decoder reads, and the first one of every answer, or null for any. */
    fun firstTokens(language: String?): Pair<Int, Int?> {
        val known = listOf("decoder_start_token_id", "bos_token_id", "pad_token_id").firstOrNull { !info.isNull(it) }
        val tokens = mutableMapOf("decoder_start_token_id" to if (known == null) 0 else info.getInt(known))
        if (!generation.isNull("forced_bos_token_id")) {
            tokens["forced_bos_token_id"] = generation.getInt("forced_bos_token_id")
        }
        val languages = info.optJSONObject("languages")
        if (languages != null) {
            val ids: JSONObject = languages.getJSONObject("ids")
            val codes = ids.keys().asSequence().associateWith { ids.getInt(it) }
            val chosen = listOf("decoder_start_token_id", "forced_bos_token_id")
                .any { !generation.isNull(it) && generation.getInt(it) in codes.values }
            require(if (language == null) chosen else language in codes) {
                "Pass the language of the output, one of ${codes.keys.joinToString()}. Received: $language"
            }
            if (language != null) tokens[languages.getString("setting")] = codes.getValue(language)
        }
        return tokens.getValue("decoder_start_token_id") to tokens["forced_bos_token_id"]
    }

    override fun close() = model.close()
}

private fun checkLength(what: String, count: Int, limit: Int) =
    require(count in 1..limit) { "A $what can have 1 to $limit tokens. Received: $count" }

private fun JSONObject.objects(): Map<String, JSONObject> = keys().asSequence().associateWith { getJSONObject(it) }

private fun JSONArray.ints(): List<Int> = List(length()) { getInt(it) }
