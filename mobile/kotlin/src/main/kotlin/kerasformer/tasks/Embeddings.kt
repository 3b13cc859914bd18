package kerasformer.tasks

import kotlin.math.abs
import kotlin.math.sqrt
import kerasformer.InputError
import kerasformer.JsonObject
import kerasformer.child
import kerasformer.flag
import kerasformer.int
import kerasformer.repr
import kerasformer.text

/**
 * Options of embeddings.
 *
 * @property promptName Name of the model's text that is put before each text; [prompt] is such a text itself.
 * @property truncateDim Number of first entries to keep.
 * @property normalize Whether vectors are scaled to length 1; by default as the model was trained.
 */
data class EmbeddingOptions(
    val promptName: String? = null, val prompt: String? = null, val truncateDim: Int? = null, val normalize: Boolean? = null,
    val length: LongText = LongText(),
)

/** How the vectors of tokens become one: their mean, or that of the first token. */
enum class Pooling { MEAN, CLS }

private val QUERY = listOf("query")
private val DOCUMENT = listOf("document", "passage", "corpus")

internal suspend fun Runtime.embed(texts: List<String>, options: EmbeddingOptions): List<DoubleArray> {
    require("sentence-similarity")
    return embedded(texts, promptOf(options, null), options)
}

/** Ranks documents by the similarity of their embeddings to that of a query. */
internal suspend fun Runtime.rankEmbeddings(query: String, documents: List<String>, topK: Int?, options: EmbeddingOptions): List<Ranked> {
    require("sentence-similarity")
    checkTopK(topK)
    val question = embedded(listOf(query), promptOf(options, QUERY), options)[0]
    val scores = embedded(documents, promptOf(options, DOCUMENT), options).map { similarity(question, it) }.toDoubleArray()
    return ranked(scores, topK).map { Ranked(it, scores[it]) }
}

/** The similarity of two embeddings as the model was trained, larger for closer ones. */
internal fun Runtime.similarity(one: DoubleArray, other: DoubleArray): Double {
    fun dot(a: DoubleArray, b: DoubleArray) = a.indices.sumOf { a[it] * b[it] }
    val differences = DoubleArray(one.size) { one[it] - other[it] }
    return when (embedding.text("similarity")) {
        "dot" -> dot(one, other)
        "manhattan" -> -differences.sumOf { abs(it) }
        "euclidean" -> -sqrt(dot(differences, differences))
        else -> dot(unit(one), unit(other))
    }
}

private val Runtime.embedding: JsonObject get() = info.child("embedding").orEmpty()

private suspend fun Runtime.embedded(texts: List<String>, prompt: String, options: EmbeddingOptions): List<DoubleArray> {
    val dimension = embedding.int("dimension") ?: 0
    val size = options.truncateDim?.let { checkRange("truncate_dim", it, 1, dimension, optional = true) } ?: embedding.int("truncate_dim") ?: dimension
    return texts.map { text ->
        val chunks = chunksOf(prompt + text, options.length)
        val vector = combined(outputs(chunks).map { it.getValue("sentence_embedding").toDoubles() }, chunks).copyOf(size)
        if (options.normalize ?: embedding.flag("normalized")) unit(vector) else vector
    }
}

/** The text before inputs: the requested prompt, else the first prompt of some names, else the default prompt. */
private fun Runtime.promptOf(options: EmbeddingOptions, names: List<String>?): String {
    val prompts = embedding.child("prompts").orEmpty()
    val (name, prompt) = options.promptName to options.prompt
    if (name != null && prompt != null) throw InputError("Only one of prompt_name and prompt can be set. Received: both")
    if (prompt != null) return prompt
    if (name == null) return (if (names == null) prompts[embedding.text("default_prompt")] else names.firstNotNullOfOrNull { prompts[it] }) as? String ?: ""
    return prompts[name] as? String ?: throw InputError(
        "The model has no prompt of this name. Expected: ${prompts.keys.joinToString { repr(it) }.ifEmpty { "none; pass prompt= with the text" }}. " +
            "Received: ${repr(name)}",
    )
}

/** The hidden states of the tokens; with a pooling, a single vector. */
internal suspend fun Runtime.features(text: String, pooling: Pooling?, normalize: Boolean, length: LongText): List<DoubleArray> {
    require("feature-extraction")
    val chunks = chunksOf(text, length)
    val outputs = outputs(chunks)
    fun scaled(row: DoubleArray) = if (normalize) unit(row) else row
    if ("sentence_embedding" in outputs[0]) {
        if (pooling == Pooling.CLS) {
            throw InputError("This bundle computes the mean of the token vectors. Expected: pooling='mean' or None. Received: pooling='cls'")
        }
        return listOf(scaled(combined(outputs.map { it.getValue("sentence_embedding").toDoubles() }, chunks)))
    }
    val states = outputs.mapIndexed { chunk, output -> rows(output.getValue("last_hidden_state"), chunks[chunk].size) }
    if (pooling == null) return bestLocations(chunks).map { scaled(states[it.chunk][it.index]) }
    val vectors = states.map { rows ->
        // A tokenizer that adds no special tokens returns none for an empty text.
        if (rows.isEmpty()) DoubleArray(bundle.ofRole("forward").values.first().outputs.getValue("last_hidden_state").shape.last())
        else if (pooling == Pooling.CLS) rows[0] else DoubleArray(rows[0].size) { column -> rows.sumOf { it[column] } / rows.size }
    }
    return listOf(scaled(combined(vectors, chunks)))
}
