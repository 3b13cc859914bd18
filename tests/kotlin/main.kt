// Three programs, chosen by the first argument:
// - `layers,capacity,floats of a cache,vocabulary` (the shape of the mock model), then pairs of a prompt, whose characters are
//   its tokens, and a count: runs the guide's `generate` and prints a line of ids for each pair;
// - `translate`, then texts: prints the guide's translation of each by a model of 6 layers;
// - `plain`, then texts: prints the code points of each text after the guide's `plain`.
import com.google.ai.edge.litert.CompiledModel
import java.io.File

fun main(arguments: Array<String>) {
    if (arguments[0] == "plain") {
        arguments.drop(1).forEach { println(plain(it).codePoints().toArray().joinToString(" ")) }
        return
    }
    if (arguments[0] == "translate") {
        fun names(vararg beginnings: String) = (0 until 6).flatMap { layer -> beginnings.map { "${it}_$layer" } }.toSet()
        val crosses = names("cross_k", "cross_v")
        CompiledModel.shape =
            CompiledModel.Shape(names("kv_cache_k", "kv_cache_v"), 128, 4, 58101, setOf(), crosses, setOf(32, 128))
        arguments.drop(1).forEach { println(translate(Desktop(File(System.getProperty("user.dir"))), it)) }
        return
    }
    val (layers, capacity, floats, vocabulary) = arguments[0].split(",").map { it.toInt() }
    val caches = (0 until layers).flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }.toSet()
    CompiledModel.shape = CompiledModel.Shape(caches, capacity, floats / capacity, vocabulary, setOf(8, 64))
    val context = Desktop(File(System.getProperty("user.dir")))
    arguments.drop(1).chunked(2).forEach { (prompt, count) -> println(generate(context, prompt, count.toInt())) }
}
