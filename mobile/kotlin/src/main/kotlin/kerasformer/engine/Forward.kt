package kerasformer.engine

import kerasformer.Bundle
import kerasformer.BundleError
import kerasformer.CapacityError
import kerasformer.InputError
import kerasformer.Signature
import kerasformer.TensorInfo
import kerasformer.repr
import kerasformer.text
import kerasformer.tokenization.Encoding

/** The slots of the first tokens of words, and of the tokens that mark labels, for a model that finds spans. */
internal class Slots(val words: IntArray, val labels: IntArray)

/** An encoder: reads a text of any length in ONNX, and of some lengths in TFLite. */
internal class Forward(private val bundle: Bundle, private val engine: Engine) {
    private val signatures = bundle.ofRole("forward").entries.sortedBy { it.value.tokens ?: 0 }

    // Outputs with an entry for each token have a third axis, except the scores of tokens as the start or end of an answer.
    private val scoresTokens = bundle.info.text("task") == "question-answering"

    /**
     * The outputs for a text by name; those with an entry for each token, word or label have none for padding.
     *
     * @throws CapacityError The text is longer than the model reads.
     * @throws InputError An output is not finite.
     */
    fun run(tokens: Encoding, slots: Slots? = null): Map<String, FloatArray> {
        val count = tokens.size
        val further = if (slots == null) mapOf() else mapOf("word_slots" to slots.words, "label_slots" to slots.labels)
        val (name, signature) = shortest(signatures.filter { holds(it.value, further) }, count, "text")
        val size = signature.tokens ?: count
        val values = mapOf("ids" to tokens.ids, "mask" to IntArray(count) { 1 }, "segments" to tokens.typeIds) + further
        val inputs = signature.inputs.mapNotNull { (input, info) -> values[info.kind]?.let { input to tensor(info, it) } }.toMap()
        val outputs = engine.run(name, inputs, signature.outputs.keys)
        return outputs.mapValues { (output, tensor) ->
            val (read, shape) = tensor.use { it.floats() to it.shape }
            val hasPadding = signature.tokens != null && (signature.outputs.getValue(output).shape.size > 2 || scoresTokens)
            val kept = when {
                slots != null -> withoutPadding(read, shape, slots)
                hasPadding -> read.copyOf(read.size / size * count)
                else -> read
            }
            checkFinite(output, kept)
        }
    }

    /** Whether the inputs of some kinds have room for values. */
    private fun holds(signature: Signature, values: Map<String, IntArray>): Boolean = values.all { (kind, row) ->
        signature.inputsOf(kind).all { name -> signature.inputs.getValue(name).shape.last().let { it < 0 || it >= row.size } }
    }

    /** Integers, padded to the length of an input. */
    private fun tensor(info: TensorInfo, values: IntArray): IntTensor {
        val size = info.shape.last().takeIf { it >= 0 } ?: values.size
        return IntTensor(intArrayOf(1, size), padded(values, size, if (info.kind == "ids") bundle.padding else info.fill))
    }

    /** The scores `(W, K, C)` of spans that begin with one of the words, for the labels. */
    private fun withoutPadding(scores: FloatArray, shape: IntArray, slots: Slots): FloatArray {
        val (widths, columns) = shape.takeLast(2)
        val labels = slots.labels.size
        return FloatArray(slots.words.size * widths * labels) { scores[it / labels * columns + it % labels] }
    }

    private fun checkFinite(name: String, values: FloatArray): FloatArray {
        val wrong = values.find { !it.isFinite() } ?: return values
        throw InputError(
            "The model's output for a text is not finite. Expected: finite numbers. Received: ${repr(wrong)} in $name. Its weights are so large " +
                "that sums of them exceed the range of its numbers, or the question has more tokens than a model with global tokens accepts.",
        )
    }
}

/** The shortest signature for a number of tokens; [signatures] are in ascending order of their lengths. */
internal fun shortest(signatures: List<Map.Entry<String, Signature>>, count: Int, what: String): Map.Entry<String, Signature> {
    if (signatures.isEmpty()) throw BundleError("The bundle has no signature that reads a $what. Export the model again")
    signatures.find { (it.value.tokens ?: count) >= count }?.let { return it }
    val most = signatures.last().value.tokens!!
    throw CapacityError("The $what must have at most $most tokens. Received: $count. Shorten the $what", most, count)
}

internal fun padded(values: IntArray, size: Int, fill: Int): IntArray = IntArray(size) { if (it < values.size) values[it] else fill }

/** Tensors by name, from tensors by kind; kinds that the signature does not take are left out. */
internal fun <T : Tensor> integers(signature: Signature, values: Map<String, T>): Map<String, T> =
    values.flatMap { (kind, tensor) -> signature.inputsOf(kind).map { it to tensor } }.toMap()

internal fun closeAll(tensors: Collection<Tensor>) = tensors.forEach { it.close() }

/** Tensors that several states use; the last one releases them. */
internal class Shared(val tensors: Map<String, Tensor>) {
    private var users = 1

    fun keep(): Shared = also { users++ }

    fun release() {
        if (--users == 0) closeAll(tensors.values)
    }
}
