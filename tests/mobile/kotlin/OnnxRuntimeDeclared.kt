// ONNX Runtime's Java interface as its sources declare it (java/src/main/java/ai/onnxruntime), as far as the library uses it; the
// model runs in ONNX Runtime's Python package.
package ai.onnxruntime

import android.system.Os
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.IntBuffer
import java.nio.LongBuffer
import java.util.Optional
import remote.Model
import remote.Values

class OrtException(message: String) : Exception(message)

enum class OnnxJavaType { FLOAT, INT8, INT32, INT64 }

interface OnnxValue : AutoCloseable

class TensorInfo(val shape: LongArray)

class OnnxTensor internal constructor(private var values: Values?) : OnnxValue {
    internal val content: Values get() = values ?: error("this tensor was closed")
    val info: TensorInfo get() = TensorInfo(content.shape.map { it.toLong() }.toLongArray())
    val floatBuffer: FloatBuffer get() = content.buffer.asFloatBuffer()

    override fun close() {
        values = null
    }

    companion object {
        private fun created(dtype: String, size: Int, shape: LongArray, fill: (ByteBuffer) -> Unit): OnnxTensor {
            val bytes = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN).also(fill).array()
            return OnnxTensor(Values(dtype, shape.map { it.toInt() }.toIntArray(), bytes))
        }

        @Suppress("UNUSED_PARAMETER")
        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: FloatBuffer, shape: LongArray): OnnxTensor =
            created("float32", 4 * data.remaining(), shape) { it.asFloatBuffer().put(data) }

        @Suppress("UNUSED_PARAMETER")
        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: LongBuffer, shape: LongArray): OnnxTensor =
            created("int64", 8 * data.remaining(), shape) { it.asLongBuffer().put(data) }

        @Suppress("UNUSED_PARAMETER")
        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: IntBuffer, shape: LongArray): OnnxTensor =
            created("int32", 4 * data.remaining(), shape) { it.asIntBuffer().put(data) }

        @Suppress("UNUSED_PARAMETER")
        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: ByteBuffer, shape: LongArray, type: OnnxJavaType): OnnxTensor =
            created("int8", data.remaining(), shape) { it.put(data) }
    }
}

class OrtSession internal constructor(path: String) : AutoCloseable {
    private val model = Model(path)

    class SessionOptions {
        fun setIntraOpNumThreads(numThreads: Int) = check(numThreads > 0)
    }

    class Result internal constructor(private val values: Map<String, OnnxTensor>) {
        fun get(key: String): Optional<OnnxValue> = Optional.ofNullable(values[key])
    }

    fun run(inputs: Map<String, OnnxTensor>, requestedOutputs: Set<String>): Result =
        Result(model.run("", inputs.mapValues { it.value.content }, requestedOutputs).mapValues { OnnxTensor(it.value) })

    override fun close() = model.close()
}

class OrtEnvironment private constructor() {
    @Suppress("UNUSED_PARAMETER")
    fun setTelemetry(sendTelemetry: Boolean) = Unit

    @Suppress("UNUSED_PARAMETER")
    fun createSession(modelPath: String, options: OrtSession.SessionOptions): OrtSession = OrtSession(modelPath)

    companion object {
        @JvmStatic
        fun getEnvironment(): OrtEnvironment {
            check(System.getenv("ORT_DISABLE_TELEMETRY") != null || Os.set["ORT_DISABLE_TELEMETRY"] == "1") { "telemetry is on" }
            return OrtEnvironment()
        }
    }
}
