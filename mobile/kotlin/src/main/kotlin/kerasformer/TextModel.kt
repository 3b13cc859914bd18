package kerasformer

import java.io.File
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import kerasformer.decoding.GenerationSettings
import kerasformer.decoding.ignoredSettings
import kerasformer.engine.Engine
import kerasformer.engine.EngineFactory
import kerasformer.tasks.Aggregation
import kerasformer.tasks.Answer
import kerasformer.tasks.Call
import kerasformer.tasks.Combine
import kerasformer.tasks.CombineEntities
import kerasformer.tasks.EmbeddingOptions
import kerasformer.tasks.Entity
import kerasformer.tasks.Filling
import kerasformer.tasks.GeneratedText
import kerasformer.tasks.Generation
import kerasformer.tasks.Label
import kerasformer.tasks.LongText
import kerasformer.tasks.Pooling
import kerasformer.tasks.Ranked
import kerasformer.tasks.Runtime
import kerasformer.tasks.answered
import kerasformer.tasks.answers
import kerasformer.tasks.classify
import kerasformer.tasks.classifyZeroShot
import kerasformer.tasks.continued
import kerasformer.tasks.embed
import kerasformer.tasks.entities
import kerasformer.tasks.features
import kerasformer.tasks.fillings
import kerasformer.tasks.languageCodes
import kerasformer.tasks.named
import kerasformer.tasks.namedEntities
import kerasformer.tasks.plain
import kerasformer.tasks.rankEmbeddings
import kerasformer.tasks.rankPairs
import kerasformer.tasks.similarity
import kerasformer.tasks.transformed
import kerasformer.template.Message
import kerasformer.tokenization.Tokenizer

/**
 * An exported model that reads and writes text, with the results of `kf.pipeline` in Python.
 *
 * Any number of coroutines and threads may call one model; their calls run one after another, on a background thread. A cancelled
 * call ends between two chunks or tokens. All errors are a [KerasformerException].
 *
 * @property info What the model is for.
 * @property tokenizer Its tokenizer.
 */
class TextModel private constructor(private val runtime: Runtime, private val engine: Engine) : AutoCloseable {
    val info = ModelInfo(runtime)
    val tokenizer: Tokenizer get() = runtime.tokenizer
    private val queue = Mutex()
    private var isOpen = true

    /**
     * The classes of a text or of a pair of texts, the most probable first.
     *
     * @param topK Number of classes; `null` for all.
     * @throws CapacityError The pair is longer than the model, and `length.truncation` is not set.
     */
    suspend fun classify(
        text: String, pair: String? = null, topK: Int? = 1, combine: Combine = Combine.MEAN, length: LongText = LongText(),
    ): List<Label> = run { it.classify(text, pair, topK, combine, length) }

    /**
     * The most probable of classes that are named here, with a model for natural language inference.
     *
     * @param labels Names of the classes.
     * @param hypothesisTemplate A sentence about a class, with `{}` for its name.
     * @param multiLabel Whether the classes do not exclude each other.
     */
    suspend fun classifyZeroShot(
        text: String, labels: List<String>, hypothesisTemplate: String = "This example is {}.", multiLabel: Boolean = false,
        combine: Combine = Combine.MEAN, length: LongText = LongText(),
    ): List<Label> = run { it.classifyZeroShot(text, labels, hypothesisTemplate, multiLabel, combine, length) }

    /**
     * Documents in the order of their relevance for a query, by a cross-encoder.
     *
     * @param topK Number of documents; `null` for all.
     * @param label The class that ranks, of a model with several classes.
     */
    suspend fun rank(
        query: String, documents: List<String>, topK: Int? = null, label: String? = null, combine: Combine = Combine.MAX,
        length: LongText = LongText(),
    ): List<Ranked> = run {
        it.require("text-ranking")
        it.rankPairs(query, documents, topK, label, combine, length)
    }

    /** Documents in the order of the similarity of their embeddings to that of a query. */
    suspend fun search(query: String, documents: List<String>, topK: Int? = null, options: EmbeddingOptions = EmbeddingOptions()): List<Ranked> =
        run { it.rankEmbeddings(query, documents, topK, options) }

    /** The tokens of a text with their classes, or entities such as names. */
    suspend fun tokens(
        text: String, aggregation: Aggregation = Aggregation.NONE, ignoreLabels: Set<String> = setOf("O"),
        combine: CombineEntities = CombineEntities.TOKENS, length: LongText = LongText(),
    ): List<Entity> = run { it.entities(text, aggregation, ignoreLabels, combine, length) }

    /**
     * Entities of types that are named here, with a model of GLiNER, which reads the names before the text.
     *
     * @param labels Names of the types in plain words.
     * @param threshold Probability that an entity exceeds.
     * @param flatNer Whether entities do not overlap; otherwise, one may lie within another.
     * @param multiLabel Whether one span may be of several types.
     * @param truncation Whether the last words of a text that is too long are omitted.
     * @throws CapacityError The text is too long, there are more types than the model reads, or their names leave no space for a text.
     */
    suspend fun entities(
        text: String, labels: List<String>, threshold: Double = 0.5, flatNer: Boolean = true, multiLabel: Boolean = false,
        truncation: Boolean = false,
    ): List<Entity> = run { it.namedEntities(text, labels, threshold, flatNer, multiLabel, truncation) }

    /**
     * The most probable answers to a question in a text, which is read in overlapping chunks.
     *
     * @param docStride Number of tokens that neighbouring chunks share.
     * @param maxAnswerLength Largest number of tokens of an answer.
     * @param handleImpossibleAnswer Whether the result may be that there is no answer.
     */
    suspend fun answer(
        question: String, context: String, topK: Int = 1, docStride: Int = 128, chunkLength: Int? = null, maxAnswerLength: Int = 15,
        handleImpossibleAnswer: Boolean = false,
    ): List<Answer> = run { it.answers(question, context, topK, docStride, chunkLength, maxAnswerLength, handleImpossibleAnswer) }

    /** The most probable words for each masked token ([ModelInfo.maskToken]) of a text. */
    suspend fun fillMask(text: String, topK: Int = 5, truncation: Boolean = false): List<List<Filling>> = run { it.fillings(text, topK, truncation) }

    /** The embedding of a text. */
    suspend fun embed(text: String, options: EmbeddingOptions = EmbeddingOptions()): DoubleArray = embed(listOf(text), options)[0]

    /** The embeddings of texts. */
    suspend fun embed(texts: List<String>, options: EmbeddingOptions = EmbeddingOptions()): List<DoubleArray> = run { it.embed(texts, options) }

    /** The similarity of two embeddings as the model was trained, larger for closer ones. */
    fun similarity(one: DoubleArray, other: DoubleArray): Double = runtime.similarity(one, other)

    /** The hidden states of the tokens of a text, or their [pooling] as a single vector. */
    suspend fun features(text: String, pooling: Pooling? = null, normalize: Boolean = false, length: LongText = LongText()): List<DoubleArray> =
        run { it.features(text, pooling, normalize, length) }

    /** Continues a text. */
    fun generate(prompt: String, settings: GenerationSettings = GenerationSettings()): Generation =
        Generation { show -> run { it.continued(prompt, named(settings, show)) } }

    /**
     * Answers the last message of a conversation, of a model with a chat template. The next call continues from the tokens that the
     * conversation has in common with the last one.
     *
     * @param tools JSON schemas of functions that the model may call: maps of texts, numbers, lists and maps.
     * @param documents Texts for the answer, likewise.
     * @param variables Further variables of the chat template, such as `"enable_thinking"`.
     */
    fun chat(
        messages: List<Message>, settings: GenerationSettings = GenerationSettings(), tools: List<Map<String, Any?>>? = null,
        documents: List<Map<String, Any?>>? = null, variables: Map<String, Any?> = mapOf(),
    ): Generation = Generation { show -> run { it.answered(plain(messages), tools, documents, variables, named(settings, show)) } }

    /**
     * Translates a text.
     *
     * @param from Code of its language; [to] is that of the translation. See [ModelInfo.languages].
     * @param prefix Text put before the input, instead of that of the model.
     * @param truncation Whether only the start of a text that is longer than the model is read.
     */
    fun translate(
        text: String, from: String? = null, to: String? = null, prefix: String? = null, truncation: Boolean = false,
        settings: GenerationSettings = GenerationSettings(),
    ): Generation = Generation { show -> run { it.transformed("translation", text, prefix, from, to, truncation, named(settings, show)) } }

    /** Summarizes a text. */
    fun summarize(text: String, prefix: String? = null, truncation: Boolean = false, settings: GenerationSettings = GenerationSettings()): Generation =
        Generation { show -> run { it.transformed("summarization", text, prefix, null, null, truncation, named(settings, show)) } }

    /** Writes a text from another one, as the model was trained. */
    fun transform(text: String, prefix: String? = null, truncation: Boolean = false, settings: GenerationSettings = GenerationSettings()): Generation =
        Generation { show -> run { it.transformed("text2text-generation", text, prefix, null, null, truncation, named(settings, show)) } }

    /** Frees the engine, after the call that runs. */
    override fun close() = kotlinx.coroutines.runBlocking {
        queue.withLock {
            if (isOpen) engine.close()
            isOpen = false
        }
    }

    private suspend fun <T> run(call: suspend (Runtime) -> T): T = withContext(Dispatchers.Default) {
        queue.withLock {
            if (!isOpen) throw InputError("This model was closed. Open it again")
            call(runtime)
        }
    }

    /** Generates with settings by their names in Python. */
    internal suspend fun generated(settings: JsonObject, show: suspend (String) -> Unit, call: suspend Runtime.(Call) -> GeneratedText): GeneratedText =
        run { it.call(Call(settings, show)) }

    companion object {
        /**
         * Opens the folder of a bundle. This takes seconds for a large model: call it on a background thread.
         *
         * @param engine `LiteRt()` for bundles in TFLite, `OnnxRuntime()` for those in ONNX, `Table()` for static embeddings.
         * @param checkFiles Whether the checksums of the model's files are compared with those of the manifest; small files always are.
         * @throws BundleError A file is missing or was changed, or the folder is no bundle.
         * @throws TokenizerError The tokenizer is unsupported.
         * @throws EngineError The engine cannot load the model.
         */
        fun open(folder: File, engine: EngineFactory, checkFiles: Boolean = true): TextModel {
            val bundle = Bundle.open(folder)
            if (checkFiles) bundle.signatures.values.map { it.file }.distinct().forEach(bundle::checkFile)
            val tokenizer = Tokenizer.of(bundle)
            return engine.open(bundle).let { opened -> TextModel(Runtime(bundle, tokenizer, opened), opened) }
        }
    }
}

/**
 * What a model is for.
 *
 * @property task The task of the bundle, as in `kf.pipeline`.
 * @property labels Names of the classes.
 * @property maxLength Largest number of tokens of a text; `null` without a limit.
 * @property capacity Number of tokens that a prompt and the new text have together.
 * @property languages Codes of the languages of a translation.
 * @property maskToken The token that [TextModel.fillMask] replaces.
 * @property ignoredSettings Generation settings of the bundle that have an effect in Python, but none here.
 */
class ModelInfo internal constructor(runtime: Runtime) {
    val task: String = runtime.info.text("task").orEmpty()
    val modelType: String = runtime.info.text("model_type").orEmpty()
    val labels: List<String> = runtime.labels
    val maxLength: Int? = runtime.maxLength
    val capacity: Int? = runtime.bundle.capacity
    val languages: List<String> by lazy { runtime.languageCodes() }
    val maskToken: String? = runtime.tokenizer.specialTokens["mask_token"]
    val ignoredSettings: Map<String, Any?> = ignoredSettings(runtime.info.child("generation").orEmpty())
}
