import kerasformer.Bundle
import kerasformer.JsonObject
import kerasformer.Signature
import kerasformer.child
import kerasformer.decoding.State
import kerasformer.decoding.Step
import kerasformer.engine.Engine
import kerasformer.engine.FloatTensor
import kerasformer.engine.IntTensor
import kerasformer.engine.Tensor
import kerasformer.engine.Zeros
import kerasformer.int
import kerasformer.objects

/** The mock model of the vectors: its logits are a hash of the tokens so far. */
class MockModel(config: JsonObject) {
    private val seed = config.int("seed")!!
    private val order = config.int("order")!!
    val vocabSize = config.int("vocab_size")!!
    val capacity = config.int("capacity")!!
    val isEncoderDecoder = "encoder_capacity" in config

    fun logits(encoder: IntArray?, history: IntArray): FloatArray {
        var hash = seed
        if (encoder != null) {
            for (id in encoder) hash = mix(hash, id)
            hash = mix(hash, -1)
        }
        for (id in history.takeLast(order)) hash = mix(hash, id)
        return FloatArray(vocabSize) { (mix(hash, it) ushr 8) / 1048576f - 8f }
    }

    private fun mix(hash: Int, value: Int): Int {
        var result = (hash xor value) * 0x9E3779B1.toInt()
        result = (result xor (result ushr 15)) * 0x85EBCA77.toInt()
        return result xor (result ushr 13)
    }
}

/** The mock model without an engine. */
internal class MockStep(private val model: MockModel) : Step {
    private class Text(val encoder: IntArray?, val ids: IntArray) : State {
        override fun release() {}
    }

    override val isEncoderDecoder get() = model.isEncoderDecoder
    override val capacity get() = model.capacity
    override val vocabSize get() = model.vocabSize

    override fun start(ids: IntArray): State = if (isEncoderDecoder) Text(ids, intArrayOf()) else Text(null, ids.copyOf(ids.size - 1))

    override fun resume(state: State, length: Int, ids: IntArray): State = (state as Text).run { Text(encoder, this.ids.copyOf(length) + ids) }

    override fun step(token: Int, state: State, last: Boolean): Pair<FloatArray, State> {
        state as Text
        val ids = state.ids + token
        return model.logits(state.encoder, ids) to Text(state.encoder, ids)
    }
}

/** The mock model behind the interface of engines: its caches hold the ids of the tokens, each plus 1, in their first numbers. */
class MockEngine(private val bundle: Bundle, config: JsonObject) : Engine {
    private val model = MockModel(config)
    private val isStatic = bundle.format == "tflite"

    override fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String>): Map<String, Tensor> {
        val described = bundle.signatures.getValue(signature)
        check(inputs.keys == described.inputs.keys - optional(described)) { "inputs of $signature: ${inputs.keys}" }
        return if (described.role == "encode") encode(described, inputs, outputs) else read(described, inputs, outputs)
    }

    private fun optional(described: Signature) = described.inputs.keys.filter { described.inputs.getValue(it).kind == "other" }.toSet()

    private fun encode(described: Signature, inputs: Map<String, Tensor>, outputs: Set<String>): Map<String, Tensor> {
        val (ids, mask) = listOf("ids", "mask").map { ints(described, inputs, it) }
        val real = ids.filterIndexed { index, _ -> mask[index] == 1 }
        return outputs.associateWith { name ->
            val shape = described.outputs.getValue(name).shape
            if (shape.size == 3) rows(intArrayOf(1, real.size, shape[2]), real) else rows(intArrayOf(1, shape[1], shape[2], shape[3]), real)
        }
    }

    private fun read(described: Signature, inputs: Map<String, Tensor>, outputs: Set<String>): Map<String, Tensor> {
        val ids = ints(described, inputs, "ids").toList()
        val cache = inputs.getValue(described.inputsOf("key").first())
        val filled = stored(cache)
        val start = if (isStatic) ints(described, inputs, "slots")[0] else filled.size
        check(!isStatic || start + ids.size <= cache.shape[2]) { "$start and ${ids.size} tokens exceed the cache" }
        check(filled.size >= start) { "slots before $start were never written" }
        val history = filled.take(start) + ids
        val encoder = encoder(described, inputs)
        return outputs.associateWith { name ->
            val info = described.outputs.getValue(name)
            when (info.kind) {
                "logits" -> FloatTensor(intArrayOf(1, 1, model.vocabSize), model.logits(encoder, history.toIntArray()))
                "cross_key", "cross_value" -> rows(intArrayOf(1, info.shape[1], encoder!!.size, info.shape[3]), encoder.toList())
                else -> {
                    val slots = if (isStatic) cache.shape[2] else history.size
                    rows(intArrayOf(1, info.shape[1], slots, info.shape[3]), if (isStatic) history + filled.drop(history.size) else history)
                }
            }
        }
    }

    private fun encoder(described: Signature, inputs: Map<String, Tensor>): IntArray? {
        val crosses = described.inputsOf("cross_key", "cross_value").map { stored(inputs.getValue(it)) }
        if (crosses.isEmpty()) return null
        check(crosses.distinct().size == 1) { "keys and values of the text differ" }
        val ids = crosses[0].ifEmpty { described.inputsOf("memory").flatMap { stored(inputs.getValue(it)) } }
        check(ints(described, inputs, "memory_mask").sum() == ids.size) { "the mask of the text has another length" }
        return ids.toIntArray()
    }

    private fun ints(described: Signature, inputs: Map<String, Tensor>, kind: String) = (inputs.getValue(described.inputsOf(kind).single()) as IntTensor).values

    /** The ids in a tensor; those of unused slots are missing. */
    private fun stored(tensor: Tensor): List<Int> {
        if (tensor is Zeros) return listOf()
        val (count, size) = tensor.shape.takeLast(2)
        val values = tensor.floats()
        return (0 until count).map { values[it * size].toInt() - 1 }.takeWhile { it >= 0 }
    }

    private fun rows(shape: IntArray, ids: List<Int>): FloatTensor {
        val values = FloatArray(shape.fold(1, Int::times))
        ids.forEachIndexed { index, id -> values[index * shape.last()] = id + 1f }
        return FloatTensor(shape, values)
    }

    override fun close() {}
}

/** Recorded outputs of an encoder for each text. */
class RecordedEngine(private val bundle: Bundle, private val rows: List<JsonObject>) : Engine {
    override fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String>): Map<String, Tensor> {
        val described = bundle.signatures.getValue(signature)
        fun ints(kind: String) = described.inputsOf(kind).map { (inputs.getValue(it) as IntTensor).values }.firstOrNull()
        val (ids, mask) = ints("ids")!! to ints("mask")!!
        val real = ids.indices.filter { mask[it] == 1 }
        val types = ints("segments")?.let { all -> real.map { all[it] } }?.takeIf { all -> all.any { it != 0 } }
        val (words, labels) = listOf("word_slots", "label_slots").map { kind -> ints(kind)?.filter { it >= 0 } }
        val row = rows.find {
            numbers(it["ids"]) == real.map { id -> ids[id] } && (it["types"]?.let(::numbers) ?: types) == types &&
                it["word_slots"]?.let(::numbers) == words && it["label_slots"]?.let(::numbers) == labels
        }
            ?: error("no recorded outputs for the ids ${real.map { ids[it] }} and types $types")
        return row.child("outputs")!!.mapValues { (name, output) ->
            @Suppress("UNCHECKED_CAST")
            val fields = output as JsonObject
            val shape = numbers(fields["shape"])
            val values = (fields["values"] as List<*>).map { (it as Number).toFloat() }
            if (words != null) return@mapValues spans(described.outputs.getValue(name).shape, shape, values)
            val perToken = shape.size > 2 || name == "start_logits" || name == "end_logits"
            if (!perToken) FloatTensor(shape.toIntArray(), values.toFloatArray())
            else FloatTensor((listOf(1, ids.size) + shape.drop(2)).toIntArray(), values.toFloatArray().copyOf(values.size / real.size * ids.size))
        }
    }

    /** Scores of spans with zeros for padding, up to the fixed numbers of words and labels. */
    private fun spans(fixed: IntArray, shape: List<Int>, values: List<Float>): FloatTensor {
        val (words, widths, labels) = (1..3).map { if (fixed[it] < 0) shape[it] else fixed[it] }
        val padded = FloatArray(words * widths * labels)
        values.forEachIndexed { index, value -> padded[index / shape[3] * labels + index % shape[3]] = value }
        return FloatTensor(intArrayOf(1, words, widths, labels), padded)
    }

    private fun numbers(value: Any?): List<Int> = (value as List<*>).map { (it as Number).toInt() }

    override fun close() {}
}

fun engineOf(config: JsonObject, bundle: Bundle): Engine =
    config.child("mock")?.let { MockEngine(bundle, it) } ?: RecordedEngine(bundle, config.objects("recorded"))
