package kerasformer.tasks

import kerasformer.InputError
import kerasformer.tokenization.Encoding
import kerasformer.tokenization.span

/** How the tokens of a word or an entity are joined: not at all, by their classes, or by the class that a word's tokens have together. */
enum class Aggregation { NONE, SIMPLE, FIRST, AVERAGE, MAX }

/** Which results overlapping chunks of a long text have: the best one for each token, or the longest of overlapping entities. */
enum class CombineEntities { TOKENS, ENTITIES }

/**
 * An entity, or a token with its class.
 *
 * @property label Its class; of an entity without its place, such as `B-` or `I-`.
 * @property index Index of the token; `null` for an entity of several tokens.
 * @property word Its part of the text.
 * @property start Start in the text, in Unicode code points; see [kerasformer.tokenization.span].
 * @property end End in the text.
 */
data class Entity(val label: String, val score: Double, val index: Int?, val word: String, val start: Int, val end: Int)

/** A token, or the tokens of a word, with the scores of the classes. */
private class Scored(val scores: DoubleArray, val start: Int, val end: Int, val index: Int, val word: Int) {
    val best: Int = argmax(scores)
    val score: Double = scores[best]
}

internal suspend fun Runtime.entities(
    text: String, aggregation: Aggregation, ignored: Set<String>, combine: CombineEntities, length: LongText,
): List<Entity> {
    require("token-classification")
    val byEntities = combine == CombineEntities.ENTITIES
    if (byEntities && aggregation == Aggregation.NONE) {
        throw InputError("combine='entities' needs an aggregation strategy other than 'none', which returns tokens. Received: aggregation_strategy='none'")
    }
    val chunks = chunksOf(text, length)
    val scores = outputs(chunks).mapIndexed { chunk, output -> rows(output.getValue("logits"), chunks[chunk].size).map(::softmax) }
    fun scored(locations: List<Location>) = locations.mapNotNull { scored(chunks[it.chunk], it.index, scores[it.chunk][it.index]) }
    if (!byEntities || chunks.size == 1) {
        val tokens = scored(bestLocations(chunks))
        val found = if (aggregation == Aggregation.NONE) tokens.map { entity(text, labels[it.best], listOf(it), it.index) } else grouped(text, tokens, aggregation)
        return found.filter { it.label !in ignored }
    }
    val found = chunks.indices.flatMap { chunk ->
        grouped(text, scored(chunks[chunk].ids.indices.map { Location(chunk, it) }), aggregation).filter { it.label !in ignored }
    }
    return withoutOverlaps(found)
}

private fun scored(tokens: Encoding, index: Int, scores: DoubleArray): Scored? =
    if (tokens.sequenceIds[index] < 0) null
    else Scored(scores, tokens.start(index), tokens.end(index), tokens.positions[index], tokens.wordIds[index])

private fun entity(text: String, label: String, tokens: List<Scored>, index: Int?): Entity {
    val (start, end) = tokens.first().start to tokens.last().end
    return Entity(label, tokens.map { it.score }.average(), index, text.span(start, end), start, end)
}

/** Groups neighbouring tokens of one entity. */
private fun Runtime.grouped(text: String, tokens: List<Scored>, aggregation: Aggregation): List<Entity> {
    val decided = if (aggregation == Aggregation.SIMPLE) tokens else words(tokens).map { merged(it, aggregation) }
    val places = placesOf(labels)
    val groups = ArrayList<MutableList<Scored>>()
    var last: Tag? = null
    for (token in decided) {
        val tag = tagOf(labels[token.best], places)
        if (last == null || !tag.continues(last)) groups += ArrayList<Scored>()
        groups.last() += token
        last = tag
    }
    return groups.map { entity(text, tagOf(labels[it[0].best], places).kind, it, null) }
}

/** Letters before a hyphen that are places in entities, of each scheme. */
private val SCHEMES = listOf("BIES", "BMES", "BILU")

/** A label such as `B-PER`: its place in an entity, `I` for labels without one, and the type of the entity. */
private class Tag(val place: Char, val kind: String) {
    /** Whether a token belongs to the same entity as the token before it. */
    fun continues(before: Tag): Boolean = kind == before.kind && place !in "BSU" && before.place !in "ESLU"
}

/** The letters that are places in entities: `B` and `I`, and those of a scheme that has all letters. */
private fun placesOf(labels: List<String>): String {
    val found = labels.filter { it.getOrNull(1) == '-' }.map { it[0] }
    return "BI" + SCHEMES.find { scheme -> found.any { it in "BI" } && found.all { it in scheme } }.orEmpty()
}

private fun tagOf(label: String, places: String): Tag =
    if (label.getOrNull(1) == '-' && label[0] in places) Tag(label[0], label.drop(2)) else Tag('I', label)

private fun words(tokens: List<Scored>): List<List<Scored>> {
    val words = ArrayList<MutableList<Scored>>()
    for (token in tokens) if (words.lastOrNull()?.first()?.word == token.word) words.last() += token else words += arrayListOf(token)
    return words
}

/** Merges the tokens of a word into one. */
private fun merged(tokens: List<Scored>, aggregation: Aggregation): Scored {
    val first = tokens.first()
    val scores = when (aggregation) {
        Aggregation.MAX -> tokens.maxByOrNull { it.score }!!.scores
        Aggregation.AVERAGE -> DoubleArray(first.scores.size) { label -> tokens.map { it.scores[label] }.average() }
        else -> first.scores
    }
    return Scored(scores, first.start, tokens.last().end, first.index, first.word)
}

/** The longest of overlapping entities; of equally long ones, that with the highest score. */
private fun withoutOverlaps(entities: List<Entity>): List<Entity> {
    val kept = ArrayList<Entity>()
    for (entity in entities.sortedBy { it.start }) {
        val last = kept.lastOrNull()
        if (last == null || entity.start >= last.end) {
            kept += entity
        } else if (compareValuesBy(entity, last, { it.end - it.start }, { it.score }) > 0) {
            kept[kept.lastIndex] = entity
        }
    }
    return kept
}
