// Runs the guide's `continued` over the model that is made up: pairs of a prompt, whose letters are tokens, and a count; a
// line of ids for each. The first argument has the model's shape: layers, capacity, floats of a cache, vocabulary. Or
// `plain` and texts: the code points of what the guide's `plain` makes of each.
import android.content.AssetManager
import android.content.Context
import com.google.ai.edge.litert.CompiledModel
import java.io.File
import java.io.InputStream

class Desktop(override val filesDir: File) : Context() {
    override val cacheDir = filesDir
    override val assets = object : AssetManager() {
        override fun open(fileName: String): InputStream = "{}".byteInputStream()
    }
}

fun main(arguments: Array<String>) {
    if (arguments[0] == "plain") {
        arguments.drop(1).forEach { println(plain(it).codePoints().toArray().joinToString(" ")) }
        return
    }
    val (layers, capacity, floats, vocabulary) = arguments[0].split(",").map { it.toInt() }
    val caches = (0 until layers).flatMap { listOf("kv_cache_k_$it", "kv_cache_v_$it") }.toSet()
    CompiledModel.shape = CompiledModel.Shape(caches, capacity, floats / capacity, vocabulary, setOf(8, 64))
    val context = Desktop(File(System.getProperty("user.dir")))
    arguments.drop(1).chunked(2).forEach { (prompt, count) -> println(continued(context, prompt, count.toInt())) }
}
