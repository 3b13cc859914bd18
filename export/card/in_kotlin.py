"""Kotlin program of a card, with LiteRT's `CompiledModel` on Android."""

from __future__ import annotations

from kerasformer.bundle import Kind, Manifest
from kerasformer.export.card.program import (
    Program,
    ProgramFile,
    inputs,
    kind,
    main_file,
    prefills,
    rules,
    takes_segments,
    values,
)
from kerasformer.export.card.quoting import code, kotlin


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns a class that runs the model on token ids."""
    if manifest.format != "tflite" or kind(manifest) not in _PROGRAMS:
        return None
    name, template = _PROGRAMS[kind(manifest)]
    source = Program(template).substitute(
        values(manifest, kotlin, "$it"),
        **rules(manifest, _FORBIDDEN, _FIRST),
        prefills=prefills(manifest, '"{name}" to {length}'),
        inputs=inputs(manifest, _INPUTS, kotlin, " " * 12),
        segments=", segments: IntArray = IntArray(ids.size)" if takes_segments(manifest) else "",
    )
    version = manifest.versions.get("ai-edge-litert", "2.3.0")
    needs = f'`implementation("com.google.ai.edge.litert:litert:{version}")`; {code(main_file(manifest))} in the assets'
    return ProgramFile(f"{name}.kt", "Kotlin (Android)", needs, source)


_INPUTS = {
    Kind.IDS: '"@name" to IntArray(length) { ids.getOrElse(it) { @pad } },',
    Kind.MASK: '"@name" to IntArray(length) { if (it < ids.size) 1 else 0 },',
    Kind.SEGMENTS: '"@name" to IntArray(length) { segments.getOrElse(it) { 0 } },',
    Kind.OTHER: '"@name" to IntArray(length) { @default },',
}

_ENCODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class TextEncoder(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures @{forward}N

    /** Returns the outputs for the token ids of a text, by name. */
    fun run(ids: IntArray@segments): Map<String, FloatArray> {
        require(ids.size in 1..@limit) { "A text can have 1 to @limit tokens. Received: ${ids.size}" }
        val length = lengths.first { it >= ids.size }
        val signature = "@forward$length"
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
}
"""

_FORBIDDEN = """            for (never in listOf(@ids)) scores[never] = Float.NEGATIVE_INFINITY
"""
_FIRST = """            if (generated.isEmpty()) token = @id // the first token of every answer
"""

_DECODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class TextGenerator(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val prefills = listOf(@prefills)
    private val inputs = prefills.associate { (signature, _) ->
        signature to listOf("@ids", "@slots").associateWith { model.createInputBuffer(it, signature) }
    }
    private val logits = model.createOutputBuffer("@logits", "@step")

    // Each cache is one buffer, both input and output of every signature: it is updated in place.
    private val caches = (0 until @layers).flatMap { listOf(@caches) }
        .associateWith { model.createInputBuffer(it, "@step") }

    /** Continues the token ids of a prompt by greedy search; returns at most [count] new ids. */
    fun generate(prompt: IntArray, count: Int = 40): List<Int> {
        require(prompt.size in 1..@limit) { "A prompt can have 1 to @limit tokens. Received: ${prompt.size}" }
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
            step("@step", intArrayOf(token), position++)
            val scores = logits.readFloat() // one for each of @vocabulary tokens
@{forbidden}            token = scores.indices.maxBy { scores[it] }
            if (token in listOf<Int>(@ends)) break
            generated += token
        }
        return generated
    }

    private fun step(signature: String, tokens: IntArray, position: Int) {
        val buffers = inputs.getValue(signature)
        buffers.getValue("@ids").writeInt(tokens)
        buffers.getValue("@slots").writeInt(IntArray(tokens.size) { position + it })
        val outputs = if (signature == "@step") caches + ("@logits" to logits) else caches
        model.run(buffers + caches, outputs, signature)
    }

    override fun close() = model.close()
}
"""

_ENCODER_DECODER = """import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

class TextToTextGenerator(context: Context) : AutoCloseable {
    private val model = CompiledModel.create(context.assets, "@file", CompiledModel.Options(Accelerator.CPU))
    private val lengths = listOf(@lengths) // signatures @{encode}N
    private val layers = 0 until @layers
    private val steps = listOf("@ids", "@slots", "@memory_mask")
        .associateWith { model.createInputBuffer(it, "@step") }
    private val logits = model.createOutputBuffer("@logits", "@step")
    private val crossCaches = layers.flatMap { listOf(@cross_caches) }
        .associateWith { model.createInputBuffer(it, "@step") }

    // Each cache is one buffer, both input and output: it is updated in place.
    private val caches = layers.flatMap { listOf(@caches) }
        .associateWith { model.createInputBuffer(it, "@step") }

    /** Generates at most [count] token ids from those of a text with @{with_prefix}the end token after it. */
    fun generate(ids: IntArray, count: Int = 40): List<Int> {
        require(ids.size in 1..@limit) { "A text can have 1 to @limit tokens. Received: ${ids.size}" }
        encode(ids)
        caches.values.forEach { it.writeFloat(FloatArray(it.readFloat().size)) }
        steps.getValue("@memory_mask").writeInt(IntArray(@encoder_capacity) { if (it < ids.size) 1 else 0 })
        val generated = mutableListOf<Int>()
        var token = @start
        while (generated.size < minOf(count, @capacity)) {
            steps.getValue("@ids").writeInt(intArrayOf(token))
            steps.getValue("@slots").writeInt(intArrayOf(generated.size))
            model.run(steps + crossCaches + caches, caches + ("@logits" to logits), "@step")
            val scores = logits.readFloat() // one for each of @vocabulary tokens
@{forbidden}            token = scores.indices.maxBy { scores[it] }
@{first}            if (token in listOf<Int>(@ends)) break
            generated += token
        }
        return generated
    }

    private fun encode(ids: IntArray) {
        val length = lengths.first { it >= ids.size }
        val inputs = mapOf(
            "@text_ids" to IntArray(length) { ids.getOrElse(it) { @pad } },
            "@text_mask" to IntArray(length) { if (it < ids.size) 1 else 0 },
        ).mapValues { (name, values) -> model.createInputBuffer(name, "@encode$length").apply { writeInt(values) } }
        model.run(inputs, crossCaches, "@encode$length")
        inputs.values.forEach { it.close() }
    }

    override fun close() = model.close()
}
"""

_PROGRAMS: dict[str | None, tuple[str, str]] = {
    "encoder": ("TextEncoder", _ENCODER),
    "decoder": ("TextGenerator", _DECODER),
    "encoder-decoder": ("TextToTextGenerator", _ENCODER_DECODER),
}
