import kerasformer.Json
import kerasformer.KerasformerException
import kerasformer.asObject
import kerasformer.text
import kerasformer.template.Template

/** Renders chat templates: reads lines `{"template", "variables"}`, and writes a text or `{"error"}` for each as JSON. */
object Templates {
    @JvmStatic
    fun main(arguments: Array<String>) = System.`in`.bufferedReader().forEachLine { line ->
        val row = Json.parse(line).asObject()!!
        val result: Any = try {
            Template(row.text("template")!!).render(row["variables"].asObject()!!)
        } catch (error: KerasformerException) {
            mapOf("error" to error.message)
        }
        println(Json.write(result, ascii = true))
    }
}
