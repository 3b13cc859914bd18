// LiteRT 2's Kotlin interface as its sources declare it (litert/kotlin/src/main/kotlin), with a mock model: each slot of a
// cache holds the token that was written to it, and the next token is the sum of all cached tokens, weighted by position. A
// slot that was never written, or a token at a wrong position, changes all later tokens. An encoder-decoder also adds the
// weighted sum of the text's tokens, which its encoder writes to the keys and values of all layers.
package com.google.ai.edge.litert

import android.content.AssetManager

enum class Accelerator { NONE, CPU, GPU, NPU }

class TensorBuffer internal constructor(val name: String, size: Int) : AutoCloseable {
    internal var ints = IntArray(0)
    internal var floats = FloatArray(size) { Float.NaN }

    fun writeInt(data: IntArray) {
        ints = data.copyOf()
    }

    fun writeFloat(data: FloatArray) {
        require(data.size == floats.size) { "$name holds ${floats.size} floats. Received: ${data.size}" }
        floats = data.copyOf()
    }

    fun readFloat(): FloatArray = floats.copyOf()

    override fun close() {}
}

class CompiledModel private constructor(private val shape: Shape) : AutoCloseable {
    class Options(vararg val accelerators: Accelerator)

    class Shape(
        val caches: Set<String>,
        val capacity: Int,
        val row: Int,
        val vocabulary: Int,
        val prefills: Set<Int>,
        val crosses: Set<String> = setOf(),
        val encoders: Set<Int> = setOf(),
    )

    fun createInputBuffer(inputName: String, signature: String = ""): TensorBuffer {
        return when (inputName) {
            "tokens", "input_pos" -> TensorBuffer(inputName, count(signature))
            "input_ids", "attention_mask", "token_type_ids" -> TensorBuffer(inputName, length(signature))
            "encoder_mask" -> TensorBuffer(inputName, shape.encoders.max())
            in shape.caches -> TensorBuffer(inputName, shape.capacity * shape.row)
            in shape.crosses -> TensorBuffer(inputName, shape.encoders.max() * shape.row)
            else -> error("$signature has no input $inputName")
        }
    }

    fun createOutputBuffer(outputName: String, signature: String = ""): TensorBuffer {
        check(outputName == "logits" && !signature.startsWith("prefill")) { "$signature has no output $outputName" }
        return TensorBuffer(outputName, shape.vocabulary)
    }

    fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String = "") {
        if (signature.startsWith("encode_")) return encode(inputs, outputs, signature)
        if (signature.startsWith("forward_")) return forward(inputs, outputs, signature)
        val count = count(signature)
        val masks = if (shape.crosses.isEmpty()) setOf() else setOf("encoder_mask")
        check(inputs.keys == shape.caches + shape.crosses + masks + setOf("tokens", "input_pos")) {
            "inputs of $signature: ${inputs.keys}"
        }
        val expected = if (signature == "decode") shape.caches + "logits" else shape.caches
        check(outputs.keys == expected) { "outputs of $signature: ${outputs.keys}" }
        check(shape.caches.all { inputs[it] === outputs[it] && inputs.getValue(it).name == it }) { "a cache needs one buffer for input and output" }
        val tokens = inputs.getValue("tokens").ints
        val positions = inputs.getValue("input_pos").ints
        check(tokens.size == count && positions.size == count) { "$signature reads $count tokens" }
        check(positions.last() < shape.capacity) { "beyond the cache: ${positions.last()}" }
        check(positions.toList() == (positions[0] until positions[0] + count).toList()) { "positions are not consecutive: ${positions.toList()}" }
        val sums = shape.caches.map { name ->
            val cache = inputs.getValue(name).floats
            tokens.forEachIndexed { index, token -> cache[positions[index] * shape.row] = token.toFloat() }
            (0..positions.last()).sumOf { (it + 1) * cache[it * shape.row].toDouble() }
        }
        check(sums.none { it.isNaN() } && sums.distinct().size == 1) { "a cache was not initialized: $sums" }
        val encoded = shape.crosses.map { inputs.getValue(it).floats }
        check(encoded.all { it[0] == encoded[0][0] && it[1] == encoded[0][1] }) { "keys and values differ" }
        inputs["encoder_mask"]?.let { check(it.ints.sum() == encoded[0][1].toInt()) { "mask of ${it.ints.sum()} tokens" } }
        val text = encoded.firstOrNull()?.get(0)?.toLong() ?: 0L
        outputs["logits"]?.floats?.let { logits ->
            logits.fill(0f)
            logits[((sums[0].toLong() + text) % shape.vocabulary).toInt()] = 1f
        }
    }

    private fun encode(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String) {
        val length = length(signature)
        check(inputs.keys == setOf("input_ids", "attention_mask") && outputs.keys == shape.crosses) { "tensors of $signature" }
        val (ids, mask) = listOf("input_ids", "attention_mask").map { inputs.getValue(it).ints }
        check(ids.size == length && mask.size == length) { "$signature reads $length tokens" }
        val sum = ids.indices.sumOf { (it + 1) * ids[it] * mask[it] }
        outputs.values.forEach { cross ->
            cross.floats[0] = sum.toFloat()
            cross.floats[1] = mask.sum().toFloat()
        }
    }

    /** The scores are the weighted sums of the values of each input, and the length of the signature. */
    private fun forward(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String) {
        val values = listOf("input_ids", "attention_mask", "token_type_ids").map { inputs.getValue(it).ints }
        check(inputs.size == 3 && values.all { it.size == length(signature) }) { "tensors of $signature" }
        val scores = values.map { row -> row.indices.sumOf { (it + 1) * row[it] } } + length(signature)
        outputs.getValue("logits").floats = FloatArray(scores.size) { scores[it].toFloat() }
    }

    override fun close() {}

    private fun length(signature: String): Int = shape.encoders.single { signature == "encode_$it" || signature == "forward_$it" }

    private fun count(signature: String): Int {
        if (signature == "decode") return 1
        return shape.prefills.single { signature == "prefill_$it" }
    }

    companion object {
        lateinit var shape: Shape

        fun create(assetManager: AssetManager, assetName: String, options: Options = Options(Accelerator.CPU)) =
            CompiledModel(shape)
    }
}
