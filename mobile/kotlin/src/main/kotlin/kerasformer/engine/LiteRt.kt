package kerasformer.engine

import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.TensorBuffer
import java.io.File
import kerasformer.Bundle
import kerasformer.EngineError
import kerasformer.Signature
import kerasformer.TensorInfo
import kerasformer.objects
import kerasformer.text

/**
 * Runs bundles in TFLite with LiteRT, the package `com.google.ai.edge.litert:litert`.
 *
 * @param threads Number of threads on the CPU.
 * @param accelerator Another one than the CPU needs a bundle that was exported for it, and its package.
 */
class LiteRt(private val threads: Int = 2, private val accelerator: Accelerator = Accelerator.CPU) : EngineFactory {
    override fun open(bundle: Bundle): Engine {
        if (bundle.format != "tflite") throw EngineError("LiteRT runs bundles of the format tflite. Received: ${bundle.format}. Use ${factoryOf(bundle.format)}")
        if (accelerator == Accelerator.GPU) refuseFatal(bundle)
        // Only signatures with tensors of numbers: the tokenizer in a graph has its own file.
        val files = bundle.signatures.values.filter { signature -> signature.inputs.values.none { it.dtype == "string" } }.map { it.file }.distinct()
        if (files.size != 1) throw EngineError("A bundle in TFLite has one model file. Received: ${files.joinToString()}")
        val options = CompiledModel.Options(accelerator).apply { if (accelerator == Accelerator.CPU) cpuOptions = CompiledModel.CpuOptions(threads) }
        try {
            return LiteRtEngine(CompiledModel.create(File(bundle.folder, files[0]).path, options), bundle.signatures)
        } catch (error: Exception) {
            throw EngineError("LiteRT cannot load ${files[0]}: ${error.message}", error)
        }
    }
}

/** Refuses a file that ends the process in LiteRT's GPU delegate, which no app can catch. */
private fun refuseFatal(bundle: Bundle) {
    val fatal = bundle.content.objects("gpu_findings").firstOrNull { it.text("effect") == "aborts" } ?: return
    throw EngineError(
        "Accelerator.GPU needs a file without operators that end the process in LiteRT's GPU delegate. Received: ${bundle.folder}: " +
            "${fatal.text("what")} (${fatal.text("example")}). Export the model again with accelerator=\"gpu\", or use Accelerator.CPU",
    )
}

private class LiteRtEngine(private val model: CompiledModel, private val signatures: Map<String, Signature>) : Engine {
    /** A buffer that is the input of a call, its output, or both. */
    private class Buffer(val buffer: TensorBuffer, val info: TensorInfo) : Tensor {
        private var users = 1
        override val shape: IntArray get() = info.shape

        fun keep(): Buffer = also { users++ }

        override fun floats(): FloatArray = buffer.readFloat()

        override fun close() {
            if (--users == 0) buffer.close()
        }
    }

    override fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String>): Map<String, Tensor> {
        val described = signatures.getValue(signature)
        val continued = described.outputs.values.mapNotNull { it.continues }.toSet()
        try {
            val given = inputs.mapValues { (name, tensor) ->
                // The graph writes a cache into its input, which others may still read.
                if (tensor is Buffer && (name !in continued || name in replaced)) tensor.keep() else created(signature, name, described.inputs.getValue(name), tensor)
            }
            val results = described.outputs.mapValues { (name, info) ->
                given[info.continues]?.keep() ?: Buffer(model.createOutputBuffer(name, signature), info)
            }
            model.run(given.mapValues { it.value.buffer }, results.mapValues { it.value.buffer }, signature)
            closeAll(given.values)
            closeAll(results.filterKeys { it !in outputs }.values)
            return results.filterKeys { it in outputs }
        } catch (error: Exception) {
            throw EngineError("LiteRT cannot run $signature: ${error.message}", error)
        }
    }

    private fun created(signature: String, name: String, info: TensorInfo, tensor: Tensor): Buffer {
        val buffer = model.createInputBuffer(name, signature)
        when {
            tensor is IntTensor -> buffer.writeInt(tensor.values)
            info.dtype == "int8" -> buffer.writeInt8(if (tensor is Buffer) tensor.buffer.readInt8() else ByteArray(info.shape.fold(1, Int::times)))
            else -> buffer.writeFloat(tensor.floats())
        }
        return Buffer(buffer, info)
    }

    override fun close() = model.close()
}
