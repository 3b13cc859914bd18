import java.io.File
import java.lang.management.ManagementFactory
import kerasformer.tokenization.Tokenizer

/** The commands `tokenize` and `time`, see mobile/vectors/README.md. */
object Tokenize {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val tokenizer = Tokenizer.open(File(arguments[1]))
        val lines = System.`in`.bufferedReader().readText().removeSuffix("\n").split("\n")
        if (arguments[0] == "time") return time(tokenizer, lines)
        val out = System.out.bufferedWriter()
        for (line in lines) {
            val encoding = tokenizer.encode(line)
            out.write("{\"ids\":[${encoding.ids.joinToString(",")}],\"offsets\":[${encoding.offsets.joinToString(",")}]}\n")
        }
        out.flush()
    }

    private fun time(tokenizer: Tokenizer, lines: List<String>) {
        for (line in lines) tokenizer.encode(line)
        val threads = ManagementFactory.getThreadMXBean()
        val start = threads.currentThreadCpuTime
        for (line in lines) tokenizer.encode(line)
        println((threads.currentThreadCpuTime - start) / 1e9)
    }
}
