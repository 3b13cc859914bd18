// Runs the guide's `Writer` over the model that is made up: a prompt as letters and a most a pair of arguments, a line of
// ids each. The first argument has the model's shape: layers, heads, capacity, head size, vocabulary.
import com.google.ai.edge.litert.CompiledModel
import java.io.File

fun main(arguments: Array<String>) {
    val (layers, heads, capacity, size, vocabulary) = arguments[0].split(",").map { it.toInt() }
    val caches = (0 until layers).flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }.toSet()
    CompiledModel.shape = CompiledModel.Shape(caches, capacity, heads * size, vocabulary, setOf(8, 64))
    Writer(File(".")).use { writer ->
        arguments.drop(1).chunked(2).forEach { (prompt, most) -> println(writer.write(prompt, most.toInt())) }
    }
}
