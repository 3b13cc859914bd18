package kerasformer.engine

import kerasformer.Bundle
import kerasformer.BundleError
import kerasformer.CapacityError
import kerasformer.decoding.State
import kerasformer.decoding.Step

/** A generating model in ONNX: lengths are those of the call, and the caches grow with the text. */
internal class DynamicStep(bundle: Bundle, private val engine: Engine) : Step {
    private val decoder = bundle.ofRole("decode").entries.first()
    private val encoder = bundle.ofRole("encode").entries.firstOrNull()
    private val signature = decoder.value
    private val logits = signature.outputOf("logits") ?: throw BundleError("A step with logits was expected. Received: ${signature.outputs.keys.joinToString()}")
    private val cacheNames = signature.inputsOf("key", "value")
    private val stateNames = signature.inputsOf("state")
    private val crossNames = signature.inputsOf("cross_key", "cross_value")
    private val encoderCapacity = bundle.encoderCapacity

    override val isEncoderDecoder = encoder != null
    override val capacity = bundle.capacity ?: throw BundleError("The manifest of a model that generates must have a capacity. Received: none")
    override val vocabSize = signature.outputs.getValue(logits).shape.last()

    private class Caches(val caches: Map<String, Tensor>, val memory: Shared, val length: Int) : State {
        override fun release() {
            closeAll(caches.values)
            memory.release()
        }
    }

    override fun start(ids: IntArray): State {
        if (!isEncoderDecoder) checkRoom(ids.size)
        val caches = cacheNames.associateWith { empty(it, 0) } + stateNames.associateWith { empty(it, signature.inputs.getValue(it).shape[2]) }
        val state = Caches(caches, if (isEncoderDecoder) encode(ids) else Shared(mapOf()), 0)
        return if (isEncoderDecoder) state else followed(ids.copyOf(ids.size - 1), state)
    }

    override fun resume(state: State, length: Int, ids: IntArray): State? {
        state as Caches
        checkRoom(length + ids.size)
        if (length == state.length) return followed(ids, state)
        // The states of a shorter text are gone, and caches of bytes cannot be read.
        if (stateNames.isNotEmpty() || cacheNames.any { signature.inputs.getValue(it).dtype != "float32" }) return null
        val shorter = state.caches.mapValues { (_, cache) -> cache.use { shortened(it, length) } }
        return followed(ids, Caches(shorter, state.memory, length))
    }

    override fun step(token: Int, state: State, last: Boolean): Pair<FloatArray, State> {
        state as Caches
        checkRoom(state.length + 1)
        val (outputs, next) = read(intArrayOf(token), state, true, last)
        if (last) state.release()
        return outputs!!.let { it.copyOfRange(it.size - vocabSize, it.size) } to next
    }

    /** The state after further tokens; the given one is released. */
    private fun followed(ids: IntArray, state: Caches): Caches {
        if (ids.isEmpty()) return state
        return read(ids, state, false, last = true).second.also { state.release() }
    }

    /** Encodes the text, and computes its keys and values once for all steps. */
    private fun encode(ids: IntArray): Shared {
        if (encoderCapacity != null && ids.size > encoderCapacity) {
            throw CapacityError("The model reads at most $encoderCapacity tokens. Received: ${ids.size}. Shorten the text", encoderCapacity, ids.size)
        }
        val (name, encoding) = encoder!!
        val (shape, ones) = intArrayOf(1, ids.size) to IntTensor(intArrayOf(1, ids.size), IntArray(ids.size) { 1 })
        val hidden = engine.run(name, integers(encoding, mapOf("ids" to IntTensor(shape, ids), "mask" to ones)), encoding.outputs.keys).values.first()
        val memory = integers(signature, mapOf("memory" to hidden, "memory_mask" to ones))
        val once = mapOf("ids" to ints(0), "cache_length" to IntTensor(intArrayOf(1), intArrayOf(0)))
        val none = (cacheNames + crossNames).associateWith { empty(it, 0) }
        val projected = engine.run(decoder.key, memory + none + integers(signature, once), crossNames.mapTo(HashSet()) { signature.next(it)!! })
        return Shared(memory + crossNames.associateWith { projected.getValue(signature.next(it)!!) })
    }

    /** Reads tokens. [wanted] tells whether the logits are, and [last] whether the given state is no longer used. */
    private fun read(ids: IntArray, state: Caches, wanted: Boolean, last: Boolean): Pair<FloatArray?, Caches> {
        val end = state.length + ids.size
        val values = mapOf(
            "ids" to ints(*ids),
            "mask" to ints(*IntArray(end) { 1 }),
            "positions" to ints(*IntArray(ids.size) { state.length + it }),
            "cache_length" to IntTensor(intArrayOf(1), intArrayOf(state.length)),
            // The runtime computes all outputs, and the logits of one token take the least time.
            "logits_start" to IntTensor(intArrayOf(1), intArrayOf(ids.size - 1)),
        )
        val following = (cacheNames + stateNames).associateWith { signature.next(it)!! }
        val outputs = engine.run(
            decoder.key, integers(signature, values) + state.caches + state.memory.tensors,
            following.values.toSet() + listOfNotNull(logits.takeIf { wanted }), if (last) state.caches.keys else setOf(),
        )
        val next = Caches(following.mapValues { outputs.getValue(it.value) }, state.memory.keep(), end)
        return outputs[logits]?.use { it.floats() } to next
    }

    private fun ints(vararg values: Int): IntTensor = IntTensor(intArrayOf(1, values.size), values)

    private fun empty(name: String, slots: Int): Tensor = signature.inputs.getValue(name).shape.let { Zeros(intArrayOf(1, it[1], slots, it[3])) }

    /** The first slots of a cache. */
    private fun shortened(cache: Tensor, length: Int): Tensor {
        val (_, heads, slots, size) = cache.shape.toList()
        val values = cache.floats()
        val result = FloatArray(heads * length * size)
        for (head in 0 until heads) values.copyInto(result, head * length * size, head * slots * size, (head * slots + length) * size)
        return FloatTensor(intArrayOf(1, heads, length, size), result)
    }

    private fun checkRoom(length: Int) {
        if (length <= capacity) return
        throw CapacityError(
            "The model holds $capacity tokens, including the prompt. Received: $length. Shorten the prompt, request fewer tokens, or export " +
                "with a larger capacity",
            capacity, length,
        )
    }
}
