package kerasformer.engine

import kerasformer.Bundle
import kerasformer.EngineError

/** Values in the memory of this process or of an engine. */
interface Tensor : AutoCloseable {
    /** Its dimensions. */
    val shape: IntArray

    /** A copy of the values, in row-major order. */
    fun floats(): FloatArray

    /** Frees the memory of an engine; does nothing for other tensors. */
    override fun close() {}
}

/** Integers, which an engine converts to the type of the model's input. */
class IntTensor(override val shape: IntArray, val values: IntArray) : Tensor {
    override fun floats(): FloatArray = FloatArray(values.size) { values[it].toFloat() }
}

/** Numbers in float32. */
class FloatTensor(override val shape: IntArray, val values: FloatArray) : Tensor {
    override fun floats(): FloatArray = values.copyOf()
}

/** Zeros of any type, such as those of an empty cache. */
class Zeros(override val shape: IntArray) : Tensor {
    override fun floats(): FloatArray = FloatArray(shape.fold(1, Int::times))
}

/**
 * Runs the functions of a model. Calls come one after another, from any thread.
 *
 * A test or another runtime implements this interface and [EngineFactory].
 */
interface Engine : AutoCloseable {
    /**
     * Runs a function.
     *
     * @param signature Its name in the manifest.
     * @param inputs Tensors by name, which remain those of the caller.
     * @param outputs Names of the wanted outputs.
     * @param replaced Names of inputs that the caller will not use again: their memory may become that of the outputs that
     *   continue them. The caller closes them nevertheless.
     * @return The wanted outputs, which the caller closes. They may remain in the memory of the engine.
     * @throws EngineError The function cannot be run.
     */
    fun run(signature: String, inputs: Map<String, Tensor>, outputs: Set<String>, replaced: Set<String> = setOf()): Map<String, Tensor>
}

/** Opens the model files of a bundle. */
fun interface EngineFactory {
    /** @throws EngineError The files cannot be loaded on this device. */
    fun open(bundle: Bundle): Engine
}
