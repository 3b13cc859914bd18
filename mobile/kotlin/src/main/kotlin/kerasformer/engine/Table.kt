package kerasformer.engine

import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.channels.FileChannel
import kotlin.math.max
import kotlin.math.sqrt
import kerasformer.Bundle
import kerasformer.BundleError
import kerasformer.EngineError
import kerasformer.InputError
import kerasformer.Json
import kerasformer.JsonObject
import kerasformer.asObject
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.text

/** Runs bundles of static embeddings, a table of token vectors and their mean, without a runtime. */
class Table : EngineFactory {
    override fun open(bundle: Bundle): Engine {
        if (bundle.format != "table") throw EngineError("Table runs bundles of the format table. Received: ${bundle.format}. Use ${factoryOf(bundle.format)}")
        return TableEngine(bundle)
    }
}

/** The class that runs bundles of a format, for messages. */
internal fun factoryOf(format: String): String = mapOf("tflite" to "LiteRt()", "onnx" to "OnnxRuntime()", "table" to "Table()")[format] ?: "Python"

/** The file is mapped into memory: only the rows of a text's tokens are read. It is a safetensors file, in the order of bytes of the device. */
private class TableEngine(private val bundle: Bundle) : Engine {
    private val signature = bundle.ofRole("forward").values.firstOrNull()
        ?: throw BundleError("A signature of the role forward was expected. Received: ${bundle.signatures.keys}. Export the model again")
    private val output = signature.outputs.keys.single()
    private val size = signature.outputs.getValue(output).shape.last()
    private val count = bundle.info.int("vocab_size") ?: 0
    private val normalized = bundle.info.child("embedding").orEmpty().flag("normalized")
    private val file = mapped(File(bundle.folder, signature.file))
    private val start = 8 + file.getLong(0).toInt()
    private val header: JsonObject = try {
        val bytes = ByteArray(start - 8)
        (file.duplicate().position(8) as ByteBuffer).get(bytes)
        Json.parse(String(bytes)).asObject()!!
    } catch (error: RuntimeException) {
        throw damaged(error.toString())
    }
    private val bits = mapOf("embeddings" to 32, "embeddings_int8" to 8, "embeddings_int4" to 4).entries.find { it.key in header }?.value ?: throw damaged("it has no embeddings")
    private val width = if (bits == 4) (size + 1) / 2 else size * bits / 8
    private val levels = position(if (bits == 32) "embeddings" else "embeddings_int$bits", if (bits == 32) "F32" else "U8", count * width)
    private val scales = if (bits == 32) 0 else position("scales", "F32", 4 * count)
    private val skipped: Set<Int> = header.child("skipped")?.let { entry ->
        val bytes = (entry["shape"] as List<*>).map { (it as Number).toInt() }.single() * 4
        val from = position("skipped", "I32", bytes)
        (0 until bytes step 4).map { file.getInt(from + it) }.toSet()
    }.orEmpty()

    override fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String>): Map<String, Tensor> {
        val ids = integers(inputs, "ids")
        ids.find { it !in 0 until count }?.let { throw InputError("Ids must be from 0 to ${count - 1}. Received: $it") }
        if (output != "sentence_embedding") {
            val rows = FloatArray(ids.size * size)
            ids.forEachIndexed { index, id -> add(rows, index * size, id) }
            return mapOf(output to FloatTensor(intArrayOf(1, ids.size, size), rows))
        }
        val mask = integers(inputs, "mask")
        val counted = ids.filterIndexed { index, id -> mask[index] != 0 && id !in skipped }
        val mean = FloatArray(size)
        for (id in counted) add(mean, 0, id)
        for (index in mean.indices) mean[index] /= max(1, counted.size)
        if (normalized) {
            val length = max(sqrt(mean.sumOf { it.toDouble() * it }), 1e-12)
            for (index in mean.indices) mean[index] = (mean[index] / length).toFloat()
        }
        return mapOf(output to FloatTensor(intArrayOf(1, size), mean))
    }

    private fun integers(inputs: Map<String, Tensor>, kind: String): IntArray = (inputs.getValue(signature.inputsOf(kind).single()) as IntTensor).values

    /** Adds the vector of a token to the numbers from [start] on. */
    private fun add(sum: FloatArray, start: Int, id: Int) {
        val row = levels + id * width
        val scale = if (bits == 32) 1f else file.getFloat(scales + 4 * id)
        for (index in 0 until size) {
            sum[start + index] += when (bits) {
                32 -> file.getFloat(row + 4 * index)
                8 -> ((file.get(row + index).toInt() and 255) - 128) * scale
                else -> (((file.get(row + index / 2).toInt() shr (4 * (index % 2))) and 15) - 8) * scale
            }
        }
    }

    /** The first byte of a tensor, of which the type and the number of bytes are those that the manifest implies. */
    private fun position(name: String, dtype: String, bytes: Int): Int {
        val entry = header.child(name) ?: throw damaged("it has no $name")
        val (first, end) = (entry["data_offsets"] as List<*>).map { (it as Number).toInt() }
        if (entry.text("dtype") != dtype || end - first != bytes || start + end > file.limit()) {
            throw damaged("$name must be $dtype with $bytes bytes, since the vocabulary has $count tokens")
        }
        return start + first
    }

    private fun damaged(reason: String) = BundleError("${signature.file} is not the table of this bundle: $reason. Export the model again")

    private fun mapped(path: File): ByteBuffer = try {
        val bytes = RandomAccessFile(path, "r").use { it.channel.map(FileChannel.MapMode.READ_ONLY, 0, it.length()) }.order(ByteOrder.LITTLE_ENDIAN)
        bytes.takeIf { it.limit() >= 8 && it.getLong(0) in 0..it.limit().toLong() - 8 } ?: throw IOException("it has ${bytes.limit()} bytes")
    } catch (error: IOException) {
        throw BundleError("${path.name} cannot be read: ${error.message}. Export the model again", error)
    }

    override fun close() {}
}
