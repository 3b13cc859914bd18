"""Kotlin program of a card, with LiteRT's `CompiledModel` on Android."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import Program, inputs, kind, main_file, prefills, takes_segments, values
from kerasformer.export.card.quoting import code, kotlin


def section(manifest: Manifest) -> str:
    """Returns the section with a class that runs the model on token ids."""
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

Gradle: `implementation("com.google.ai.edge.litert:litert:{version}")`. Add {code(main_file(manifest))} to the assets.
Token ids must come from `tokenizer.json`, which any library for Hugging Face tokenizers can load.

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

class TextEncoder(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures forward_N

    /** Returns the outputs for the token ids of a text, by name. */
    fun run(ids: IntArray@segments): Map<String, FloatArray> {
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

class TextGenerator(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val prefills = listOf(@prefills)
    private val inputs = prefills.associate { (signature, _) ->
        signature to listOf("tokens", "input_pos").associateWith { model.createInputBuffer(it, signature) }
    }
    private val logits = model.createOutputBuffer("logits", "decode")

    // Each cache is one buffer, both input and output of every signature: it is updated in place.
    private val caches = (0 until @layers).flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    /** Continues the token ids of a prompt by greedy search; returns at most [count] new ids. */
    fun generate(prompt: IntArray, count: Int = 40): List<Int> {
        caches.values.forEach { it.writeFloat(FloatArray(it.readFloat().size)) }
        var position = 0
        for ((signature, length) in prefills) {
            while (prompt.size - 1 - position >= length) {
                step(signature, prompt.copyOfRange(position, position + length), position)
                position += length
            }
        }
        val generated = mutableListOf<Int>()
        var token = prompt.last()
        while (generated.size < count && position < @capacity) {
            step("decode", intArrayOf(token), position++)
            val scores = logits.readFloat() // one for each of @vocabulary tokens
            token = scores.indices.maxBy { scores[it] }
            if (token in listOf<Int>(@ends)) break
            generated += token
        }
        return generated
    }

    private fun step(signature: String, tokens: IntArray, position: Int) {
        val buffers = inputs.getValue(signature)
        buffers.getValue("tokens").writeInt(tokens)
        buffers.getValue("input_pos").writeInt(IntArray(tokens.size) { position + it })
        val outputs = if (signature == "decode") caches + ("logits" to logits) else caches
        model.run(buffers + caches, outputs, signature)
    }

    override fun close() = model.close()
}"""

_ENCODER_DECODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class TextToTextGenerator(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures encode_N
    private val layers = 0 until @layers
    private val steps = listOf("tokens", "input_pos", "encoder_mask")
        .associateWith { model.createInputBuffer(it, "decode") }
    private val logits = model.createOutputBuffer("logits", "decode")
    private val crossCaches = layers.flatMap { listOf("cross_k_$it", "cross_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    // Each cache is one buffer, both input and output: it is updated in place.
    private val caches = layers.flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }
        .associateWith { model.createInputBuffer(it, "decode") }

    /** Generates at most [count] token ids from those of a text with "@prefix" before it and the end token after it. */
    fun generate(ids: IntArray, count: Int = 40): List<Int> {
        encode(ids)
        caches.values.forEach { it.writeFloat(FloatArray(it.readFloat().size)) }
        steps.getValue("encoder_mask").writeInt(IntArray(@encoder_capacity) { if (it < ids.size) 1 else 0 })
        val generated = mutableListOf<Int>()
        var token = @start
        while (generated.size < minOf(count, @capacity)) {
            steps.getValue("tokens").writeInt(intArrayOf(token))
            steps.getValue("input_pos").writeInt(intArrayOf(generated.size))
            model.run(steps + crossCaches + caches, caches + ("logits" to logits), "decode")
            val scores = logits.readFloat() // one for each of @vocabulary tokens
            token = scores.indices.maxBy { scores[it] }
            if (token in listOf<Int>(@ends)) break
            generated += token
        }
        return generated
    }

    private fun encode(ids: IntArray) {
        val length = lengths.first { it >= ids.size }
        val inputs = mapOf(
            "input_ids" to IntArray(length) { ids.getOrElse(it) { @pad } },
            "attention_mask" to IntArray(length) { if (it < ids.size) 1 else 0 },
        ).mapValues { (name, values) -> model.createInputBuffer(name, "encode_$length").apply { writeInt(values) } }
        model.run(inputs, crossCaches, "encode_$length")
        inputs.values.forEach { it.close() }
    }

    override fun close() = model.close()
}"""

_PROGRAMS: dict[str | None, str] = {"encoder": _ENCODER, "decoder": _DECODER, "encoder-decoder": _ENCODER_DECODER}
