// The part of LiteRT-LM's Kotlin interface that the guide and the model cards call, as its sources declare it
// (kotlin/java/com/google/ai/edge/litertlm). For compilation only: nothing here can run.
package com.google.ai.edge.litertlm

import kotlinx.coroutines.flow.Flow

sealed class Backend(val name: String) {
    data class CPU(val threadCount: Int? = null) : Backend("CPU")

    class GPU : Backend("GPU")
}

data class EngineConfig(
    val modelPath: String,
    val backend: Backend = Backend.CPU(),
    val visionBackend: Backend? = null,
    val audioBackend: Backend? = null,
    val maxNumTokens: Int? = null,
    val maxNumImages: Int? = null,
    val cacheDir: String? = null,
)

data class SamplerConfig(val topK: Int, val topP: Double, val temperature: Double, val seed: Int = 0)

data class ConversationConfig(val samplerConfig: SamplerConfig? = null, val maxOutputToken: Int? = null)

class Message

class Conversation : AutoCloseable {
    fun sendMessageAsync(text: String, extraContext: Map<String, Any> = emptyMap()): Flow<Message> = TODO()

    override fun close() {}
}

class Engine(val engineConfig: EngineConfig) : AutoCloseable {
    fun initialize() {}

    fun createConversation(conversationConfig: ConversationConfig = ConversationConfig()): Conversation = TODO()

    override fun close() {}
}

data class EmbeddingEngineConfig(
    val modelPath: String? = null,
    val backend: Backend = Backend.CPU(),
    val visionBackend: Backend? = null,
    val audioBackend: Backend? = null,
    val cacheDir: String? = null,
    val modelFd: Int? = null,
    val maxInputLength: Int? = null,
    val visionTokensPerImage: Int? = null,
)

data class EmbeddingOptions(val normalize: Boolean? = null, val insertSpecialTokens: Boolean? = null)

class EmbeddingResponse(val embedding: FloatArray)

sealed class InputData {
    data class Text(val text: String) : InputData()
}

class EmbeddingEngine(val config: EmbeddingEngineConfig) : AutoCloseable {
    fun initialize() {}

    fun computeEmbedding(
        contents: List<InputData>,
        options: EmbeddingOptions = EmbeddingOptions(),
    ): EmbeddingResponse = TODO()

    override fun close() {}
}
