import java.io.File
import kerasformer.Json
import kerasformer.JsonObject
import kerasformer.KerasformerException
import kerasformer.asObject
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.text
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.Strategy
import kerasformer.tokenization.Tokenizer
import kerasformer.tokenization.chunks

/** Compares a folder of `mobile/vectors/tokenizers` with this library; prints the differences. */
class TokenizerVectors(private val folder: File, private val report: (String) -> Unit) {
    fun run(): Int {
        val refusal = File(folder, "error.json")
        if (refusal.exists()) {
            val expected = Json.parse(refusal.readText()).asObject()!!
            try {
                Tokenizer.open(folder)
                report("${folder.name} was not refused")
            } catch (error: KerasformerException) {
                same("error", expected["name"], error.javaClass.simpleName, folder.name)
                same("message", expected["contains"], error.message!!.takeIf { expected.text("contains")!! !in it } ?: expected["contains"], folder.name)
            }
            return 1
        }
        val tokenizer = Tokenizer.open(folder)
        val rows = File(folder, "rows.jsonl").readLines().map { Json.parse(it).asObject()!! }
        for (row in rows) if ("decode" in row) decoded(tokenizer, row, ints(row["decode"])) else encoded(tokenizer, row)
        return rows.size
    }

    private fun encoded(tokenizer: Tokenizer, row: JsonObject) {
        val text = row.text("text")!!
        val error = row.child("error")
        try {
            val whole = tokenizer.encode(text, row.text("pair"), row.flag("special", true))
            row.child("truncation")?.let { return compareChunks(whole, it, row) }
            compare(whole, row)
            if (error != null) report("${folder.name}: an error was expected: ${error["message"]}. Text: $text")
        } catch (received: KerasformerException) {
            if (error == null) throw IllegalStateException("${folder.name}: $text", received)
            same("error", error["name"], received.javaClass.simpleName, text)
            same("message", error["message"], received.message, text)
            return
        }
        decoded(tokenizer, row, ints(row["ids"]))
    }

    private fun compare(encoding: Encoding, row: JsonObject) {
        val text = row.text("text")!!
        same("ids", ints(row["ids"]).toList(), encoding.ids.toList(), text)
        same("offsets", ints(row["offsets"]).toList(), encoding.offsets.toList(), text)
        val zeros = List(encoding.size) { 0 }
        val mask = row["mask"]?.let(::runs) ?: zeros
        same("types", row["types"]?.let(::runs) ?: zeros, encoding.typeIds.toList(), text)
        same("mask", mask, encoding.specialTokensMask.toList(), text)
        same("words", runs(row["words"]), encoding.wordIds.toList(), text)
        same("sequences", row["sequences"]?.let(::runs) ?: mask.map { -it }, encoding.sequenceIds.toList(), text)
    }

    private fun compareChunks(whole: Encoding, truncation: JsonObject, row: JsonObject) {
        val strategy = Strategy.valueOf(truncation.text("strategy")!!.uppercase())
        val sided = Tokenizer.parse(File(folder, "tokenizer.json").readText(), Json.write(mapOf("truncation_side" to truncation["side"])))
        val chunks = sided.chunks(whole, truncation.int("limit")!!, strategy, truncation.int("stride") ?: 0)
        val used = if (truncation.flag("overflow")) chunks else chunks.take(1)
        same("chunks", (row["chunks"] as List<*>).map { ints(it).toList() }, used.map { it.ids.toList() }, row.text("text")!!)
    }

    private fun decoded(tokenizer: Tokenizer, row: JsonObject, ids: IntArray) {
        val text = row.text("text").orEmpty()
        same("decoded", row.text("decoded") ?: text, tokenizer.decode(ids), text)
        val plain = row.text("plain") ?: text
        same("plain", plain, tokenizer.decode(ids, skipSpecial = true), text)
        val stream = tokenizer.stream()
        val pieces = ids.map { stream.put(it) } + stream.end()
        if (row["pieces"] == null) same("joined pieces", plain, pieces.joinToString(""), text)
        else same("pieces", row["pieces"], pieces, text)
    }

    private fun same(what: String, expected: Any?, received: Any?, text: String) {
        if (expected != received) report("${folder.name}: $what of ${Json.write(text, ascii = true)}\n  expected ${Json.write(expected, ascii = true)}\n  received ${Json.write(received, ascii = true)}")
    }

    private fun ints(value: Any?): IntArray = (value as List<*>).map { (it as Long).toInt() }.toIntArray()

    private fun runs(value: Any?): List<Int> = ints(value).toList().chunked(2).flatMap { (item, count) -> List(count) { item } }
}
