"""The Kotlin program of a card: LiteRT's compiled model on Android."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import Program, inputs, kind, main_file, prefills, takes_segments, values
from kerasformer.export.card.quoting import code, kotlin


def section(manifest: Manifest) -> str:
    """A class that takes the ids of a text and gives what the model answers."""
    program = _PROGRAMS.get(kind(manifest)) if manifest.format == "tflite" else None
    if program is None:
        return ""
    filled = Program(program).substitute(
        values(manifest, kotlin),
        prefills=prefills(manifest, '"{name}" to {length}'),
        inputs=inputs(manifest, _INPUTS, " " * 12),
        segments=", segments: IntArray = IntArray(ids.size)" if takes_segments(manifest) else "",
    )
    version = manifest.versions.get("ai-edge-litert", "2.3.0")
    return f"""## Kotlin (Android)

Gradle: `implementation("com.google.ai.edge.litert:litert:{version}")`; {code(main_file(manifest))} is an asset.
Ids are those of `tokenizer.json`, which any library for Hugging Face's tokenizers reads.

```kotlin
{filled}
```
"""


_INPUTS = {
    "input_ids": '"input_ids" to IntArray(length) { ids.getOrElse(it) { @pad } },',
    "attention_mask": '"attention_mask" to IntArray(length) { if (it < ids.size) 1 else 0 },',
    "token_type_ids": '"token_type_ids" to IntArray(length) { segments.getOrElse(it) { 0 } },',
}

_ENCODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class Reader(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures forward_N

    /** The outputs for a text's ids, by name. */
    fun read(ids: IntArray@segments): Map<String, FloatArray> {
        val length = lengths.first { it >= ids.size }
        val signature = "forward_$length"
        val inputs = mapOf(
            @inputs
        ).mapValues { (name, values) -> model.createInputBuffer(name, signature).apply { writeInt(values) } }
        val outputs = listOf(@outputs).associateWith { model.createOutputBuffer(it, signature) }
        model.run(inputs, outputs, signature)
        val answer = outputs.mapValues { (_, buffer) -> buffer.readFloat() }
        (inputs.values + outputs.values).forEach { it.close() }
        return answer
    }

    override fun close() = model.close()
}"""

_DECODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class Writer(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val prefills = listOf(@prefills)
    private val inputs = prefills.associate { (signature, _) ->
        signature to listOf("tokens", "input_pos").associateWith { model.createInputBuffer(it, signature) }
    }
    private val logits = model.createOutputBuffer("logits", "decode")

    // One buffer is a cache's input and its output, in every signature: it is updated in place.
    private val caches = (0 until @layers).flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    /** At most [count] ids that follow those of a prompt, the likeliest each. */
    fun write(prompt: IntArray, count: Int = 40): List<Int> {
        caches.values.forEach { it.writeFloat(FloatArray(@cache)) }
        var position = 0
        for ((signature, length) in prefills) {
            while (prompt.size - 1 - position >= length) {
                read(signature, prompt.copyOfRange(position, position + length), position)
                position += length
            }
        }
        val written = mutableListOf<Int>()
        var token = prompt.last()
        while (written.size < count && position < @capacity) {
            read("decode", intArrayOf(token), position++)
            val scores = logits.readFloat() // @vocabulary of them
            token = scores.indices.maxBy { scores[it] }
            if (token in listOf<Int>(@ends)) break
            written += token
        }
        return written
    }

    private fun read(signature: String, tokens: IntArray, position: Int) {
        val given = inputs.getValue(signature)
        given.getValue("tokens").writeInt(tokens)
        given.getValue("input_pos").writeInt(IntArray(tokens.size) { position + it })
        val outputs = if (signature == "decode") caches + ("logits" to logits) else caches
        model.run(given + caches, outputs, signature)
    }

    override fun close() = model.close()
}"""

_ENCODER_DECODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class Rewriter(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures encode_N
    private val layers = 0 until @layers
    private val steps = listOf("tokens", "input_pos", "encoder_mask")
        .associateWith { model.createInputBuffer(it, "decode") }
    private val logits = model.createOutputBuffer("logits", "decode")
    private val crosses = layers.flatMap { listOf("cross_k_$it", "cross_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    // One buffer is a cache's input and its output: it is updated in place.
    private val caches = layers.flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    /** At most [count] ids that answer those of a text, which begins with "@prefix" and ends with the end token. */
    fun rewrite(ids: IntArray, count: Int = 40): List<Int> {
        encode(ids)
        caches.values.forEach { it.writeFloat(FloatArray(@cache)) }
        steps.getValue("encoder_mask").writeInt(IntArray(@encoder_capacity) { if (it < ids.size) 1 else 0 })
        val written = mutableListOf<Int>()
        var token = @start
        while (written.size < minOf(count, @capacity)) {
            steps.getValue("tokens").writeInt(intArrayOf(token))
            steps.getValue("input_pos").writeInt(intArrayOf(written.size))
            model.run(steps + crosses + caches, caches + ("logits" to logits), "decode")
            val scores = logits.readFloat() // @vocabulary of them
            token = scores.indices.maxBy { scores[it] }
            if (token in listOf<Int>(@ends)) break
            written += token
        }
        return written
    }

    private fun encode(ids: IntArray) {
        val length = lengths.first { it >= ids.size }
        val inputs = mapOf(
            "input_ids" to IntArray(length) { ids.getOrElse(it) { @pad } },
            "attention_mask" to IntArray(length) { if (it < ids.size) 1 else 0 },
        ).mapValues { (name, values) -> model.createInputBuffer(name, "encode_$length").apply { writeInt(values) } }
        model.run(inputs, crosses, "encode_$length")
        inputs.values.forEach { it.close() }
    }

    override fun close() = model.close()
}"""

_PROGRAMS: dict[str | None, str] = {"encoder": _ENCODER, "decoder": _DECODER, "encoder-decoder": _ENCODER_DECODER}
