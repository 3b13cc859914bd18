package kerasformer.tasks

import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.FlowCollector
import kotlinx.coroutines.flow.channelFlow
import kerasformer.CapacityError
import kerasformer.InputError
import kerasformer.JsonObject
import kerasformer.child
import kerasformer.decoding.Config
import kerasformer.decoding.FinishReason
import kerasformer.decoding.GenerationSettings
import kerasformer.decoding.Plan
import kerasformer.decoding.PrefixCache
import kerasformer.decoding.beamSearch
import kerasformer.decoding.generate
import kerasformer.repr
import kerasformer.template.Message

/**
 * A generated text.
 *
 * @property text The new text, without the prompt.
 * @property tokens Its tokens, including the end token.
 * @property reason Why it ended.
 */
class GeneratedText(val text: String, val tokens: IntArray, val reason: FinishReason)

/**
 * A text that is generated when it is collected, or when [result] is called: a flow of its pieces, which have no incomplete
 * characters. With beams, all of them come at the end. Cancelling the collection ends the generation after the current token.
 */
class Generation internal constructor(private val write: suspend (show: suspend (String) -> Unit) -> GeneratedText) : Flow<String> {
    override suspend fun collect(collector: FlowCollector<String>) = channelFlow { write { send(it) } }.collect(collector)

    /** Generates the whole text. */
    suspend fun result(): GeneratedText = write { }
}

/** Largest number of tokens of an answer, unless the settings limit it. */
private const val ANSWER_TOKENS = 256

/** The settings of a call by their names in Python. */
internal class Call(val settings: JsonObject, val show: suspend (String) -> Unit)

internal suspend fun Runtime.continued(prompt: String, call: Call): GeneratedText {
    require("text-generation")
    val ids = encode(defaultPrefix("text-generation") + prompt).ids
    if (ids.isEmpty()) throw InputError("A prompt must have at least one token. Received: ${repr(prompt)}")
    return generated(ids, storedSettings("text-generation"), call)
}

/**
 * Answers the last message of a conversation. The answer also ends with the token that the chat template puts after it. Only the
 * tokens after those that the conversation has in common with the last one are read.
 */
internal suspend fun Runtime.answered(messages: List<Map<String, Any?>>, tools: Any?, documents: Any?, variables: Map<String, Any?>, call: Call): GeneratedText {
    require("conversation")
    val chat = chat ?: throw InputError("This tokenizer has no chat template, as that of a model that was trained to continue text. Pass a prompt as a text")
    val ids = tokenizer.encode(chat.render(messages, tools, documents, prompts = true, variables), special = false).ids
    val stored = storedSettings("conversation").toMutableMap()
    val ends = listOf(stored["eos_token_id"]).flatMap { it as? List<*> ?: listOfNotNull(it) }.map { (it as Number).toInt() }
    stored["eos_token_id"] = (ends + listOfNotNull(chat.turnEnd, tokenizer.specialTokens["eos_token"]?.let(tokenizer::idOf))).distinct()
    if (stored["max_new_tokens"] == null && stored["max_length"] == null) stored["max_new_tokens"] = ANSWER_TOKENS
    val limit = step.capacity - minOf(Config.of(stored, call.settings).maxNewTokens ?: 1, step.capacity / 2)
    if (ids.size > limit) {
        throw CapacityError(
            "The conversation is too long for the cache. Expected at most $limit tokens. Received: ${ids.size} tokens in ${messages.size} messages. " +
                "Remove messages, or load or export the model with a larger capacity",
            limit, ids.size,
        )
    }
    return generated(ids, stored, call, conversationCache)
}

internal suspend fun Runtime.transformed(
    task: String, text: String, prefix: String?, source: String?, target: String?, truncation: Boolean, call: Call,
): GeneratedText {
    require(task)
    if (text.isEmpty()) throw InputError("A text that is not empty was expected. Received: an empty text.")
    val stored = storedSettings(task)
    val languages = spoken(task, source, target, prefix, stored + call.settings)
    val ids = languages.mark(whole(languages.prefix + text, truncation).ids)
    return generated(ids, stored + languages.settings, call)
}

/** The generation settings of the bundle for a task. */
private fun Runtime.storedSettings(task: String): JsonObject {
    val ofTask = if (step.isEncoderDecoder) info.child("task_settings")?.child(task).orEmpty() else mapOf()
    val known = listOf("eos_token_id", "bos_token_id", "decoder_start_token_id").associateWith { info[it] }
    return known.filterValues { it != null && it != listOf<Any>() } + info.child("generation").orEmpty().filterValues { it != null } + ofTask
}

private suspend fun Runtime.generated(prompt: IntArray, stored: JsonObject, call: Call, cache: PrefixCache? = null): GeneratedText {
    val config = Config.of(stored, call.settings)
    val plan = Plan.of(step, prompt, config, cache) { tokenizer.writer.decode(it) }
    val pieces = Pieces(this, if (step.isEncoderDecoder) intArrayOf() else prompt, call.show)
    val tokens = ArrayList<Int>()
    val reason: FinishReason
    val context = currentCoroutineContext()
    if (config.numBeams > 1) {
        val (best, why) = beamSearch(plan) { context.ensureActive() }
        best.forEach { pieces.put(it) }
        tokens += best.toList()
        reason = why
    } else {
        context.ensureActive()
        reason = generate(plan) { token ->
            tokens += token
            pieces.put(token)
            context.ensureActive()
        }
    }
    return GeneratedText(pieces.end(), tokens.toIntArray(), reason)
}

/** Decodes the new text piece by piece, in the context of the prompt: a token may start with a space or inside of a word. */
private class Pieces(runtime: Runtime, prompt: IntArray, private val show: suspend (String) -> Unit) {
    private val stream = runtime.tokenizer.writer.stream()

    // The end of the prompt's text that the stream has not returned yet.
    private var hidden = runtime.tokenizer.writer.decode(prompt, skipSpecial = true).length - stream.put(*prompt).length
    private val text = StringBuilder()

    suspend fun put(token: Int) = pass(stream.put(token))

    suspend fun end(): String {
        pass(stream.end())
        return text.toString()
    }

    /** Passes a piece on, without text that belongs to the prompt. */
    private suspend fun pass(piece: String) {
        val shown = piece.drop(hidden)
        hidden -= minOf(hidden, piece.length)
        if (shown.isEmpty()) return
        text.append(shown)
        show(shown)
    }
}

/** A conversation, as [kerasformer.TextModel.chat] takes it, with fields that a chat template reads. */
internal fun plain(messages: List<Message>): List<Map<String, Any?>> = messages.map { it.toMap() }

internal fun named(settings: GenerationSettings, show: suspend (String) -> Unit): Call = Call(settings.toMap(), show)
