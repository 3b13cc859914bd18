package kerasformer.tasks

import kotlin.math.tanh
import kerasformer.InputError
import kerasformer.repr
import kerasformer.text
import kerasformer.tokenization.Strategy

/** A class and its score: a probability, or the predicted number of a regression. */
data class Label(val label: String, val score: Double)

/**
 * A document and its score.
 *
 * @property index Its index in the list of documents.
 */
data class Ranked(val index: Int, val score: Double)

internal suspend fun Runtime.classify(text: String, pair: String?, topK: Int?, combine: Combine, length: LongText): List<Label> {
    require("text-classification")
    checkTopK(topK)
    val chunks = if (pair == null) chunksOf(text, length) else listOf(whole(text, length.truncation, pair))
    val logits = outputs(chunks).map { it.getValue("logits").toDoubles() }
    val problem = info.text("problem_type")
    val scores = combined(
        logits.map { row ->
            when {
                problem == "regression" -> row
                problem == "multi_label_classification" || row.size == 1 -> sigmoid(row)
                else -> softmax(row)
            }
        },
        chunks, combine,
    )
    return ranked(scores, topK).map { Label(labels[it], scores[it]) }
}

internal suspend fun Runtime.classifyZeroShot(
    text: String, candidates: List<String>, template: String, multiLabel: Boolean, combine: Combine, length: LongText,
): List<Label> {
    require("zero-shot-classification")
    val names = candidates.filter { it.isNotEmpty() }
    if (names.isEmpty()) throw InputError("At least one class was expected. Received: candidate_labels=${repr(candidates)}")
    if ("{}" !in template) {
        throw InputError("hypothesis_template must contain {}, which is replaced by the name of a class. Received: hypothesis_template=${repr(template)}")
    }
    val entailment = labels.indexOfFirst { it.lowercase().startsWith("entail") }
    if (entailment < 0 || labels.size < 2) {
        throw InputError(
            "zero-shot-classification needs a model for natural language inference, with a class whose name starts with 'entail' and at least " +
                "one other. Received: the classes ${labels.joinToString().ifEmpty { "none" }}. If a class has another name, load the model " +
                "with labels= and the names in order",
        )
    }
    val contradiction = if (entailment == 0) labels.size - 1 else 0 // as in transformers
    val isIndependent = multiLabel || names.size == 1
    val pairs = chunksOfPairs(text, names.map { template.replace("{}", it) }, length, isFirst = true, Strategy.ONLY_FIRST)
    val evidence = pairs.map { chunks ->
        val values = outputs(chunks).map { it.getValue("logits") }.map { row ->
            doubleArrayOf(row[entailment].toDouble() - if (isIndependent) row[contradiction].toDouble() else 0.0)
        }
        combined(values, chunks, combine)[0]
    }.toDoubleArray()
    val scores = if (isIndependent) sigmoid(evidence) else softmax(evidence)
    return ranked(scores).map { Label(names[it], scores[it]) }
}

/** Ranks documents by a classifier of pairs (a cross-encoder). */
internal suspend fun Runtime.rankPairs(query: String, documents: List<String>, topK: Int?, label: String?, combine: Combine, length: LongText): List<Ranked> {
    checkTopK(topK)
    val column = if (label == null && labels.size == 1) 0 else labels.indexOf(label)
    if (column < 0) throw InputError("A model with several classes ranks by one of them. Expected: label=…, one of ${labels.joinToString()}. Received: label=${repr(label)}")
    val activate = activation(info.text("score_activation"))
    val scores = documents.map { document ->
        val chunks = chunksOfPairs(document, listOf(query), length, isFirst = false, Strategy.LONGEST_FIRST)[0]
        val values = outputs(chunks).map { doubleArrayOf(activate(it.getValue("logits").toDoubles())[column]) }
        combined(values, chunks, combine, text = 1)[0]
    }.toDoubleArray()
    return ranked(scores, topK).map { Ranked(it, scores[it]) }
}

private fun same(logits: DoubleArray): DoubleArray = logits

private fun hyperbolicTangent(logits: DoubleArray): DoubleArray = DoubleArray(logits.size) { tanh(logits[it]) }

/** The function for the scores of a cross-encoder, by its name in checkpoints. */
private fun Runtime.activation(name: String?): (DoubleArray) -> DoubleArray = when (name) {
    null -> if (labels.size == 1) ::sigmoid else ::same
    "torch.nn.modules.linear.Identity" -> ::same
    "torch.nn.modules.activation.Sigmoid" -> ::sigmoid
    "torch.nn.modules.activation.Tanh" -> ::hyperbolicTangent
    else -> throw InputError("The checkpoint has an unsupported function for scores. Expected: Identity, Sigmoid or Tanh. Received: $name")
}
