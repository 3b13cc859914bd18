import java.io.File
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import kerasformer.BundleError
import kerasformer.InputError
import kerasformer.Json
import kerasformer.TextModel
import kerasformer.asObject
import kerasformer.child
import kerasformer.decoding.GenerationSettings
import kerasformer.engine.EngineFactory

/** Flows, cancellation, calls at the same time, a closed model and a changed file, with the bundle `story` of the vectors. */
object Calls {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val folder = File(arguments[0])
        val config = Json.parse(File(folder, "calls.json").readText()).asObject()!!.child("engine")!!
        val engine = EngineFactory { engineOf(config, it) }
        val settings = GenerationSettings(maxNewTokens = 12, seed = 4)
        val model = TextModel.open(folder, engine, checkFiles = false)
        runBlocking {
            val whole = model.generate("Once upon", settings).result()
            check(whole.tokens.size == 12 && whole.reason.name == "LENGTH")
            val pieces = model.generate("Once upon", settings).toList()
            check(pieces.size > 3 && pieces.joinToString("") == whole.text) { "pieces $pieces of ${whole.text}" }
            check(model.generate("Once upon", settings).take(2).toList() == pieces.take(2))
            val answers = List(4) { async(Dispatchers.Default) { model.generate("Once upon", settings).result().text } }.awaitAll()
            check(answers.all { it == whole.text }) { "calls at the same time: $answers" }
            model.close()
            check(runCatching { model.generate("x").result() }.exceptionOrNull() is InputError)
        }
        val changed = File(arguments[1])
        folder.copyRecursively(changed)
        File(changed, "tokenizer.json").appendText(" ")
        val error = runCatching { TextModel.open(changed, engine, checkFiles = false) }.exceptionOrNull()
        check(error is BundleError && "was changed after its export: tokenizer.json" in error.message!!) { "$error" }
        File(changed, "kerasformer.json").delete()
        check(runCatching { TextModel.open(changed, engine, checkFiles = false) }.exceptionOrNull() is BundleError)
        println("the calls are right")
    }
}
