package kerasformer

/** Base of the errors of this library. Messages say what is wrong, what was expected, what was received, and what to do. */
open class KerasformerException(message: String, cause: Throwable? = null) : RuntimeException(message, cause)

/** A bundle that is incomplete, changed, or written by a newer version. */
class BundleError(message: String, cause: Throwable? = null) : KerasformerException(message, cause)

/** An invalid argument or text. */
class InputError(message: String, cause: Throwable? = null) : KerasformerException(message, cause)

/**
 * More tokens than the model or its cache can hold.
 *
 * @property most The allowed number of tokens.
 * @property received The received number of tokens.
 */
class CapacityError(message: String, val most: Int, val received: Int) : KerasformerException(message)

/** Generation settings that contradict each other or that are unsupported. */
class GenerationError(message: String) : KerasformerException(message)

/** A tokenizer that is missing, damaged or unsupported. */
class TokenizerError(message: String, cause: Throwable? = null) : KerasformerException(message, cause)

/** A chat template that is missing, damaged, unsupported or exceeds a limit, or a conversation that it refuses. */
class ChatTemplateError(message: String, cause: Throwable? = null) : KerasformerException(message, cause)

/** An engine that cannot load or run a model on this device. */
class EngineError(message: String, cause: Throwable? = null) : KerasformerException(message, cause)
