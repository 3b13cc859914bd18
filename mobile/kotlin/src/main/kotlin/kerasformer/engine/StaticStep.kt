package kerasformer.engine

import kerasformer.Bundle
import kerasformer.BundleError
import kerasformer.CapacityError
import kerasformer.Signature
import kerasformer.decoding.State
import kerasformer.decoding.Step
import kerasformer.flag

/** A generating model in TFLite: shapes are fixed, and there is a function for each of several lengths. */
internal class StaticStep(private val bundle: Bundle, private val engine: Engine) : Step {
    private val steps = bundle.ofRole("decode").filterValues { it.rows == 1 }.entries.sortedBy { it.value.cacheLength ?: Int.MAX_VALUE }

    // The step that attends to all slots, for texts that are too long for the others.
    private val plain = steps.lastOrNull()?.value ?: throw BundleError("A step with caches and logits was expected. Received: ${bundle.signatures.keys.joinToString()}")
    private val cacheNames = plain.inputsOf("key", "value", "state")
    private val logits = plain.outputOf("logits") ?: throw BundleError("A step with logits was expected. Received: ${plain.outputs.keys.joinToString()}")

    override val isEncoderDecoder = bundle.info.flag("is_encoder_decoder")
    override val capacity = bundle.capacity ?: plain.inputs.getValue(cacheNames[0]).shape[2]
    override val vocabSize = plain.outputs.getValue(logits).shape.last()

    // Caches of a sliding window have fewer slots than the text has tokens, and can discard only the last ones.
    private val margin = cacheNames.minOf { plain.inputs.getValue(it).margin ?: capacity }
    private val encoderCapacity = plain.inputsOf("memory_mask").firstOrNull()?.let { plain.inputs.getValue(it).shape[1] } ?: 0
    private val readers = bundle.ofRole(if (isEncoderDecoder) "encode" else "prefill").entries
        .filter { isEncoderDecoder || it.value.cacheLength == null || it.value.cacheLength == capacity }.sortedBy { it.value.tokens }

    /**
     * @property position Number of tokens in the caches.
     * @property steps Number of these tokens that a step has read and that the caches of a sliding window can discard.
     */
    private class Caches(val caches: Map<String, Tensor>, val encoded: Memory?, val position: Int, val steps: Int) : State {
        override fun release() {
            closeAll(caches.values)
            encoded?.tensors?.release()
        }
    }

    private class Memory(val tensors: Shared, val mask: IntTensor, val length: Int)

    override fun start(ids: IntArray): State {
        if (!isEncoderDecoder && ids.size > capacity) {
            throw CapacityError("A prompt must have at most $capacity tokens. Received: ${ids.size}. Shorten the prompt", capacity, ids.size)
        }
        val encoded = if (isEncoderDecoder) encode(ids) else null
        val state = Caches(cacheNames.associateWith { Zeros(plain.inputs.getValue(it).shape) }, encoded, 0, 0)
        return if (encoded != null) state else prefill(ids.copyOf(ids.size - 1), state)
    }

    override fun resume(state: State, length: Int, ids: IntArray): State? {
        state as Caches
        if (margin < capacity && state.position - length > state.steps) return null
        return prefill(ids, Caches(state.caches, state.encoded, length, 0))
    }

    override fun step(token: Int, state: State, last: Boolean): Pair<FloatArray, State> {
        state as Caches
        if (state.position >= capacity) {
            throw CapacityError("The cache is full: it holds $capacity tokens, including the prompt. Request fewer tokens", capacity, capacity + 1)
        }
        val (name, signature) = stepFor(state)
        val outputs = read(name, signature, intArrayOf(token), state, last)
        state.encoded?.tensors?.keep()
        val next = Caches(outputs - logits, state.encoded, state.position + 1, minOf(state.steps + 1, margin))
        if (last) state.release()
        return outputs.getValue(logits).use { it.floats() } to next
    }

    private fun encode(ids: IntArray): Memory {
        val (name, signature) = shortest(readers, ids.size, "input")
        val (size, ones) = signature.tokens!! to IntArray(ids.size) { 1 }
        val shape = intArrayOf(1, size)
        val inputs = mapOf("ids" to IntTensor(shape, padded(ids, size, bundle.padding)), "mask" to IntTensor(shape, padded(ones, size, 0)))
        val tensors = engine.run(name, integers(signature, inputs), signature.outputs.keys)
        return Memory(Shared(tensors), IntTensor(intArrayOf(1, encoderCapacity), padded(ones, encoderCapacity, 0)), ids.size)
    }

    /** Reads tokens of a prompt after those in the caches; the given state is replaced. */
    private fun prefill(ids: IntArray, start: Caches): Caches {
        var state = start
        val lengths = readers.map { it.value.tokens!! }
        for (size in prefillPlan(ids.size, capacity, lengths, start.position)) {
            val from = state.position - start.position
            val part = ids.copyOfRange(from, minOf(from + size, ids.size))
            val (name, signature) = if (size == 1) stepFor(state) else readers[lengths.indexOf(size)]
            val outputs = read(name, signature, padded(part, size, bundle.padding), state, true)
            closeAll(state.caches.values)
            outputs[logits]?.close()
            state = Caches(outputs - logits, state.encoded, state.position + part.size, 0)
        }
        return state
    }

    /** The step with the smallest sufficient cache length. */
    private fun stepFor(state: Caches): Map.Entry<String, Signature> {
        val reach = maxOf(state.position + 1, state.encoded?.length ?: 0)
        return steps.find { (it.value.cacheLength ?: Int.MAX_VALUE) >= reach } ?: steps.last()
    }

    private fun read(name: String, signature: Signature, tokens: IntArray, state: Caches, last: Boolean): Map<String, Tensor> {
        val values = mutableMapOf(
            "ids" to IntTensor(intArrayOf(1, tokens.size), tokens),
            "slots" to IntTensor(intArrayOf(tokens.size), IntArray(tokens.size) { state.position + it }),
        )
        state.encoded?.let { values["memory_mask"] = it.mask }
        val inputs = integers(signature, values) + state.caches + state.encoded?.tensors?.tensors.orEmpty()
        return engine.run(name, inputs, signature.outputs.keys, if (last) state.caches.keys else setOf())
    }
}

/**
 * The sizes of the calls that read a prompt: prefill lengths, and 1 for a step.
 *
 * The last call may be up to two and a half times longer than the remaining tokens, because the additional slots are overwritten
 * before they are read. It must not exceed the cache: the runtime would then move the whole write back and overwrite older tokens.
 */
internal fun prefillPlan(count: Int, capacity: Int, lengths: List<Int>, start: Int): List<Int> {
    val sizes = ArrayList<Int>()
    var position = start
    while (position < start + count) {
        val left = start + count - position
        val fitting = lengths.filter { position + it <= capacity }
        val whole = fitting.lastOrNull { it <= left }
        val enough = fitting.firstOrNull { it >= left }
        val size = if (left > 1 && enough != null && (enough <= 2.5 * left || whole == null)) enough else whole ?: 1
        sizes += if (left == 1) 1 else size
        position += minOf(sizes.last(), left)
    }
    return sizes
}
