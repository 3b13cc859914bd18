package kerasformer.engine

import ai.onnxruntime.OnnxJavaType
import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtSession
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.IntBuffer
import java.nio.LongBuffer
import kerasformer.Bundle
import kerasformer.EngineError
import kerasformer.Signature

/**
 * Runs bundles in ONNX with ONNX Runtime, the package `com.microsoft.onnxruntime:onnxruntime-android` (on the JVM `onnxruntime`).
 *
 * @param threads Number of threads.
 */
class OnnxRuntime(private val threads: Int = 2) : EngineFactory {
    override fun open(bundle: Bundle): Engine {
        if (bundle.format != "onnx") throw EngineError("ONNX Runtime runs bundles of the format onnx. Received: ${bundle.format}. Use ${factoryOf(bundle.format)}")
        val environment = silentEnvironment()
        val sessions = HashMap<String, OrtSession>()
        for (file in bundle.signatures.values.map { it.file }.distinct()) {
            try {
                val options = OrtSession.SessionOptions().apply { setIntraOpNumThreads(threads) }
                sessions[file] = environment.createSession(File(bundle.folder, file).path, options)
            } catch (error: OrtException) {
                sessions.values.forEach { it.close() }
                throw EngineError("ONNX Runtime cannot load $file: ${error.message}", error)
            }
        }
        return OnnxEngine(environment, sessions, bundle.signatures)
    }
}

private const val TELEMETRY = "ORT_DISABLE_TELEMETRY"

/**
 * Returns ONNX Runtime's environment, without the usage data that it sends from 1.29 on, unless the variable is set already.
 *
 * The runtime reads the variable once, when it starts. On the JVM, a program cannot set it for itself, and the call of the
 * interface comes after a first event.
 */
private fun silentEnvironment(): OrtEnvironment {
    if (System.getenv(TELEMETRY) != null) return OrtEnvironment.getEnvironment()
    try {
        val system = Class.forName("android.system.Os")
        system.getMethod("setenv", String::class.java, String::class.java, java.lang.Boolean.TYPE).invoke(null, TELEMETRY, "1", false)
    } catch (error: ClassNotFoundException) {
        return OrtEnvironment.getEnvironment().apply { setTelemetry(false) }
    }
    return OrtEnvironment.getEnvironment()
}

private class OnnxEngine(
    private val environment: OrtEnvironment,
    private val sessions: Map<String, OrtSession>,
    private val signatures: Map<String, Signature>,
) : Engine {
    private class Value(val tensor: OnnxTensor) : Tensor {
        override val shape: IntArray get() = tensor.info.shape.map { it.toInt() }.toIntArray()

        override fun floats(): FloatArray = tensor.floatBuffer.let { buffer -> FloatArray(buffer.remaining()).also { buffer.get(it) } }

        override fun close() = tensor.close()
    }

    override fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String>): Map<String, Tensor> {
        val described = signatures.getValue(signature)
        val temporary = ArrayList<OnnxTensor>()
        try {
            val given = inputs.mapValues { (name, tensor) -> if (tensor is Value) tensor.tensor else created(described.inputs.getValue(name).dtype, tensor).also(temporary::add) }
            // The values of the result are closed one by one, and not the result itself.
            val result = sessions.getValue(described.file).run(given, outputs)
            return outputs.associateWith { Value(result.get(it).get() as OnnxTensor) }
        } catch (error: OrtException) {
            throw EngineError("ONNX Runtime cannot run $signature: ${error.message}", error)
        } finally {
            temporary.forEach { it.close() }
        }
    }

    private fun created(dtype: String, tensor: Tensor): OnnxTensor {
        val shape = LongArray(tensor.shape.size) { tensor.shape[it].toLong() }
        return when {
            dtype == "int64" && tensor is IntTensor -> OnnxTensor.createTensor(environment, LongBuffer.wrap(LongArray(tensor.values.size) { tensor.values[it].toLong() }), shape)
            tensor is IntTensor -> OnnxTensor.createTensor(environment, IntBuffer.wrap(tensor.values), shape)
            dtype == "int8" -> {
                val bytes = ByteBuffer.allocateDirect(tensor.shape.fold(1, Int::times)).order(ByteOrder.nativeOrder())
                OnnxTensor.createTensor(environment, bytes, shape, OnnxJavaType.INT8)
            }
            else -> OnnxTensor.createTensor(environment, FloatBuffer.wrap(tensor.floats()), shape)
        }
    }

    override fun close() = sessions.values.forEach { it.close() }
}
