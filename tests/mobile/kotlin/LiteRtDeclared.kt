// LiteRT 2's Kotlin interface as its sources declare it (litert/kotlin/src/main/kotlin), as far as the library uses it; the model
// runs in LiteRT's Python package.
package com.google.ai.edge.litert

import java.nio.ByteBuffer
import java.nio.ByteOrder
import remote.Model
import remote.Values

enum class Accelerator { NONE, CPU, GPU, NPU }

class TensorBuffer internal constructor() : AutoCloseable {
    internal var dtype = ""
    internal var bytes: ByteArray? = null

    fun writeInt(data: IntArray) = write("int32", data.size) { buffer -> data.forEach { buffer.putInt(it) } }

    fun writeFloat(data: FloatArray) = write("float32", data.size) { buffer -> data.forEach { buffer.putFloat(it) } }

    fun writeInt8(data: ByteArray) {
        dtype = "int8"
        bytes = data.copyOf()
    }

    private fun write(name: String, count: Int, fill: (ByteBuffer) -> Unit) {
        dtype = name
        bytes = ByteBuffer.allocate(4 * count).order(ByteOrder.LITTLE_ENDIAN).also(fill).array()
    }

    fun readFloat(): FloatArray = ByteBuffer.wrap(content()).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().let { FloatArray(it.remaining()).also(it::get) }

    fun readInt8(): ByteArray = content().copyOf()

    internal fun content(): ByteArray = bytes ?: error("this buffer was closed, or never written")

    override fun close() {
        bytes = null
    }
}

class CompiledModel private constructor(private val model: Model) : AutoCloseable {
    data class CpuOptions(val numThreads: Int? = null, val xnnPackFlags: Int? = null, val xnnPackWeightCachePath: String? = null)

    class Options(vararg val accelerators: Accelerator) {
        var cpuOptions: CpuOptions? = null
    }

    @Suppress("UNUSED_PARAMETER")
    fun createInputBuffer(inputName: String, signature: String? = null): TensorBuffer = TensorBuffer()

    @Suppress("UNUSED_PARAMETER")
    fun createOutputBuffer(outputName: String, signature: String? = null): TensorBuffer = TensorBuffer()

    fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String? = null) {
        val given = inputs.mapValues { Values(it.value.dtype, intArrayOf(), it.value.content()) }
        for ((name, values) in model.run(signature!!, given, outputs.keys)) {
            outputs.getValue(name).dtype = values.dtype
            outputs.getValue(name).bytes = values.bytes
        }
    }

    override fun close() = model.close()

    companion object {
        @Suppress("UNUSED_PARAMETER")
        fun create(filePath: String, options: Options = Options(Accelerator.CPU)): CompiledModel = CompiledModel(Model(filePath))
    }
}
