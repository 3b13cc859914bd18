import java.io.File
import kerasformer.Bundle
import kerasformer.engine.LiteRt
import kerasformer.engine.OnnxRuntime

/**
 * Compares a folder of vectors with this library: `FOLDER tokenizers|decoding|tasks [NAME]`, or the folder of a real bundle with
 * calls: `FOLDER bundle`. Prints the differences, then a line with their number.
 */
object Vectors {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (folder, kind) = File(arguments[0]) to arguments[1]
        val differences = ArrayList<String>()
        val rows = when (kind) {
            "decoding" -> DecodingVectors(folder, differences::add).run()
            "bundle" -> TaskVectors(folder, differences::add).run(if (Bundle.open(folder).format == "onnx") OnnxRuntime() else LiteRt())
            else -> File(folder, kind).listFiles()!!.sorted().filter { arguments.size < 3 || it.name in arguments }.sumOf {
                if (kind == "tasks") TaskVectors(it, differences::add).run() else TokenizerVectors(it, differences::add).run()
            }
        }
        differences.take(20).forEach(::println)
        println("$rows rows, ${differences.size} differences")
    }
}
