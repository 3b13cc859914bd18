// A process of Python that runs model files; the declarations of the runtimes use it. See engine.py.
package remote

import java.io.DataInputStream
import java.io.DataOutputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Values with their type and shape, in the byte order of the machine. */
class Values(val dtype: String, val shape: IntArray, val bytes: ByteArray) {
    val buffer: ByteBuffer get() = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
}

/** A model file, opened in its own process. */
class Model(path: String) : AutoCloseable {
    private val process = ProcessBuilder(System.getProperty("python"), System.getProperty("engine"), path)
        .redirectError(ProcessBuilder.Redirect.INHERIT).start()
    private val output = DataOutputStream(process.outputStream.buffered())
    private val input = DataInputStream(process.inputStream.buffered())

    fun run(signature: String, inputs: Map<String, Values>, outputs: Collection<String>): Map<String, Values> {
        output.writeUTF(signature)
        output.writeInt(inputs.size)
        for ((name, values) in inputs) {
            output.writeUTF(name)
            write(values)
        }
        output.writeInt(outputs.size)
        outputs.forEach(output::writeUTF)
        output.flush()
        return outputs.associateWith { read() }
    }

    private fun write(values: Values) {
        output.writeUTF(values.dtype)
        output.writeInt(values.shape.size)
        values.shape.forEach(output::writeInt)
        output.writeInt(values.bytes.size)
        output.write(values.bytes)
    }

    private fun read(): Values {
        val dtype = input.readUTF()
        val shape = IntArray(input.readInt()) { input.readInt() }
        return Values(dtype, shape, ByteArray(input.readInt()).also { input.readFully(it) })
    }

    override fun close() {
        output.close()
        process.waitFor()
    }
}
