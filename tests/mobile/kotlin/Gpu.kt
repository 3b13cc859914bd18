import com.google.ai.edge.litert.Accelerator
import java.io.File
import kerasformer.Bundle
import kerasformer.engine.LiteRt

/** Opens a bundle for the GPU, and writes the error. */
object Gpu {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val opened = runCatching { LiteRt(accelerator = Accelerator.GPU).open(Bundle.open(File(arguments[0]))) }
        println(opened.exceptionOrNull()?.let { "${it.javaClass.simpleName}: ${it.message}" } ?: "opened")
    }
}
