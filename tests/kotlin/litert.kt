// LiteRT 2's Kotlin interface as its sources declare it (litert/kotlin/src/main/kotlin), with a mock model: each slot of a
// cache holds the token that was written to it, and the next token is the sum of all cached tokens, weighted by position. A
// slot that was never written, or a token at a wrong position, changes all later tokens.
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

    class Shape(val caches: Set<String>, val capacity: Int, val row: Int, val vocabulary: Int, val prefills: Set<Int>)

    fun createInputBuffer(inputName: String, signature: String = ""): TensorBuffer {
        val count = count(signature)
        return when (inputName) {
            "tokens", "input_pos" -> TensorBuffer(inputName, count)
            in shape.caches -> TensorBuffer(inputName, shape.capacity * shape.row)
            else -> error("$signature has no input $inputName")
        }
    }

    fun createOutputBuffer(outputName: String, signature: String = ""): TensorBuffer {
        check(signature == "decode" && outputName == "logits") { "$signature has no output $outputName" }
        return TensorBuffer(outputName, shape.vocabulary)
    }

    fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String = "") {
        val count = count(signature)
        check(inputs.keys == shape.caches + setOf("tokens", "input_pos")) { "inputs of $signature: ${inputs.keys}" }
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
        outputs["logits"]?.floats?.let { logits ->
            logits.fill(0f)
            logits[(sums[0].toLong() % shape.vocabulary).toInt()] = 1f
        }
    }

    override fun close() {}

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
