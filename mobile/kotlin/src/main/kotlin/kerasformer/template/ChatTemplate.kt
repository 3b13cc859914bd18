package kerasformer.template

import kerasformer.ChatTemplateError
import kerasformer.InputError
import kerasformer.asObject
import kerasformer.closest
import kerasformer.repr
import kerasformer.text
import kerasformer.tokenization.Tokenizer

/**
 * A message of a conversation.
 *
 * @property role Such as `"user"`, `"assistant"` or `"system"`.
 * @property content Its text; `null` beside tool calls in OpenAI's form.
 * @property fields Further fields that the chat template reads, such as `"tool_calls"`: texts, numbers, lists and maps.
 */
data class Message(val role: String, val content: String?, val fields: Map<String, Any?> = mapOf()) {
    internal fun toMap(): Map<String, Any?> = mapOf("role" to role, "content" to content) + fields
}

/**
 * Converts conversations to text, as `Tokenizer.apply_chat_template` of the Python package.
 *
 * @param value Value of `chat_template` in `tokenizer_config.json`: a template, or a list of named ones, of which `default` is
 *   used, and `tool_use` if tools are given.
 * @throws ChatTemplateError The template is damaged or unsupported, or none of several is the default one.
 */
internal class ChatTemplate(value: Any, private val tokenizer: Tokenizer) {
    private val sources: Map<String, String> = if (value is String) mapOf("default" to value) else (value as List<*>).mapNotNull { it.asObject() }
        .associate { it.text("name").orEmpty() to it.text("template").orEmpty() }
    private val templates = HashMap<String, Template>()

    init {
        if ("default" !in sources) {
            throw ChatTemplateError(
                "This tokenizer has several chat templates, and none of them is 'default'. Expected chat_template=… to be one of " +
                    "${sources.keys.joinToString { repr(it) }}. Received: none",
            )
        }
    }

    /** The text of a conversation; [variables] are further ones of the template. */
    fun render(messages: List<Map<String, Any?>>, tools: Any? = null, documents: Any? = null, prompts: Boolean = false, variables: Map<String, Any?> = mapOf()): String {
        val conversation = checked(messages).map(::withReasoning)
        val name = if (isTrue(tools) && "tool_use" in sources) "tool_use" else "default"
        val template = templates.getOrPut(name) { Template(sources.getValue(name)) }
        val given = tokenizer.specialTokens + variables.mapValues { plain(it.value) } + mapOf(
            "tools" to plain(tools), "documents" to plain(documents), "add_generation_prompt" to prompts,
        )
        val text = best(conversation) { template.render(given + mapOf("messages" to plain(it))) }
        checkRoles(conversation, sources.getValue(name))
        return text
    }

    /** The token that the template puts after an answer, or `null` if there is none. */
    val turnEnd: Int? by lazy {
        val answer = "Kerasformer"
        val text = try {
            render(listOf(mapOf("role" to "user", "content" to answer), mapOf("role" to "assistant", "content" to answer)))
        } catch (_: ChatTemplateError) {
            return@lazy null // a template for other roles
        }
        val after = text.substringAfterLast(answer).trimStart()
        val first = if (after.isEmpty()) null else tokenizer.encode(after, special = false).ids.firstOrNull()
        first?.takeIf { tokenizer.isAdded(it) && tokenizer.token(it)!!.isNotBlank() }
    }

    private fun checked(messages: List<Map<String, Any?>>): List<Map<String, Any?>> {
        if (messages.isEmpty()) {
            throw InputError("A conversation must be a non-empty list of messages, such as {\"role\": \"user\", \"content\": \"Hello\"}. Received: []")
        }
        messages.forEachIndexed { index, message ->
            if (message["role"] !is String) {
                throw InputError("Message $index must be a dict with a role, such as {\"role\": \"user\", \"content\": \"Hello\"}. Received: ${repr(message)}")
            }
        }
        return messages
    }

    /**
     * Renders a conversation with the keys that are `null`, or else without those that the template cannot read: with those of
     * the content alone, then with none.
     */
    private fun best(conversation: List<Map<String, Any?>>, write: (List<Map<String, Any?>>) -> String): String {
        fun without(vararg kept: String) = conversation.map { message -> message.filter { (name, value) -> value != null || name in kept } }
        val versions = listOf(conversation, without("content"), without()).distinct()
        val written = versions.map { runCatching { write(it) } }
        val texts = written.mapNotNull { it.getOrNull() }
        return texts.minByOrNull { text -> text.windowed(4).count { it == "None" } } ?: written.first().getOrThrow()
    }

    /** Checks roles that the template did not refuse; most templates write any role as it is. */
    private fun checkRoles(messages: List<Map<String, Any?>>, source: String) {
        messages.forEachIndexed { index, message ->
            val role = message["role"].toString()
            if (role in ROLES || "'$role'" in source || "\"$role\"" in source) return@forEachIndexed
            val near = closest(role, ROLES, 1, least = 0.6).firstOrNull()
            throw InputError(
                "Message $index has an unknown role. Expected one of ${ROLES.joinToString()}, or another one that the chat template names. " +
                    "Received: ${repr(role)}${if (near == null) "" else ". Did you mean ${repr(near)}?"}",
            )
        }
    }

    /** Adds a message's reasoning under the names that templates read. */
    private fun withReasoning(message: Map<String, Any?>): Map<String, Any?> {
        val name = REASONING.find { message[it] != null } ?: return message
        return mapOf("thinking" to message[name]) + message + ("reasoning_content" to message[name])
    }

    /** Values with the types of JSON. */
    private fun plain(value: Any?): Any? = when (value) {
        null, is String, is Boolean, is Long, is Double -> value
        is Float -> value.toDouble()
        is Number -> value.toLong()
        is Map<*, *> -> value.entries.associate { it.key.toString() to plain(it.value) }
        is Iterable<*> -> value.map(::plain)
        else -> throw InputError("messages must consist of texts, numbers, lists and maps. Received: ${value.javaClass.simpleName}")
    }

    private companion object {
        val ROLES = listOf("system", "developer", "user", "assistant", "tool", "function")
        val REASONING = listOf("reasoning_content", "thinking", "reasoning")
    }
}
