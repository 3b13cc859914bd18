// Runs a class of the programs with a mock model. Arguments: the class, the folder of the assets, the shape of the mock model
// (layers, capacity, floats of a cache, vocabulary; lengths of an encoder), then one word for each call: token ids with
// commas, after "language=" of a translation. Prints a line for each call: tokens, scores, or the message of an error.
import com.google.ai.edge.litert.CompiledModel
import java.io.File

object Models {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (layers, capacity, floats, vocabulary) = numbers(arguments[2])
        fun names(vararg beginnings: String) = (0 until layers).flatMap { layer -> beginnings.map { "${it}_$layer" } }.toSet()
        val translates = arguments[0] == "TextToTextGenerator"
        val crosses = if (translates) names("cross_k", "cross_v") else setOf()
        val caches = names("kv_cache_k", "kv_cache_v")
        val encoders = numbers(arguments[3]).toSet()
        CompiledModel.shape =
            CompiledModel.Shape(caches, capacity, floats / capacity, vocabulary, setOf(8, 64), crosses, encoders)
        val context = Desktop(File(arguments[1]))
        for (call in arguments.drop(4)) {
            val ids = numbers(call.substringAfter('=')).toIntArray()
            val language = call.substringBefore('=', "").ifEmpty { null }
            try {
                println(
                    when {
                        translates -> TextToTextGenerator(context, "bundle").use { listOf(it.prefix, it.generate(ids, 6, language)) }
                        arguments[0] == "TextGenerator" -> TextGenerator(context, "bundle").use { it.generate(ids, 6) }
                        else -> TextEncoder(context, "bundle").use { it.labels + it.run(ids).getValue("logits").map(Float::toInt) }
                    },
                )
            } catch (error: IllegalArgumentException) {
                println(error.message)
            }
        }
    }

    private fun numbers(text: String) = text.split(",").filter { it.isNotEmpty() }.map { it.toInt() }
}
