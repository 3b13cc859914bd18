package kerasformer.decoding

import kerasformer.GenerationError
import kerasformer.JsonObject
import kerasformer.closest
import kerasformer.repr

/**
 * Settings of a generation, with the meanings of `kerasformer.generation.GenerationConfig`. A setting that is `null` is that of the
 * bundle, or else the default. A sampling setting or a seed without [doSample] enables sampling.
 *
 * @property maxNewTokens Largest number of new tokens; 20 by default.
 * @property maxLength Largest number of tokens with the prompt, instead of [maxNewTokens].
 * @property minNewTokens Number of tokens before which a text does not end.
 * @property minLength The same with the prompt.
 * @property doSample Whether tokens are drawn at random; otherwise the most probable one is chosen.
 * @property temperature Divides the logits; 0 for the most probable token.
 * @property topK Number of most probable tokens that are drawn from; 0 for all.
 * @property topP Total probability of the most probable tokens that are drawn from.
 * @property minP Smallest probability relative to that of the best token.
 * @property seed Selects the random numbers: those of Python, so that a seed gives the same text.
 * @property numBeams Number of texts that beam search extends in parallel.
 * @property lengthPenalty Power of the length by which the sum of a text is divided.
 * @property earlyStopping `true`, `false` or `"never"`: when beam search ends.
 * @property repetitionPenalty Divides or multiplies logits of tokens that occurred; 1 for no penalty.
 * @property encoderRepetitionPenalty The reverse for tokens of the input.
 * @property frequencyPenalty Subtracted from a logit for each occurrence of its token in the new text.
 * @property presencePenalty Subtracted once.
 * @property noRepeatNgramSize Length of sequences of tokens that do not occur twice; 0 for no limit.
 * @property encoderNoRepeatNgramSize Length of sequences of the input that do not occur in the new text.
 * @property badWordsIds Sequences of tokens that do not occur.
 * @property suppressTokens Tokens that do not occur.
 * @property beginSuppressTokens Tokens that are not the first new one.
 * @property forcedBosTokenId The first new token of an encoder-decoder.
 * @property forcedEosTokenId The last tokens of a text that reaches its largest length.
 * @property eosTokenId Tokens that end a text.
 * @property stopStrings Texts that end a text.
 * @property decoderStartTokenId The first token that the decoder of an encoder-decoder reads.
 * @property maxTime Seconds after which a text ends.
 */
data class GenerationSettings(
    val maxNewTokens: Int? = null,
    val maxLength: Int? = null,
    val minNewTokens: Int? = null,
    val minLength: Int? = null,
    val doSample: Boolean? = null,
    val temperature: Double? = null,
    val topK: Int? = null,
    val topP: Double? = null,
    val minP: Double? = null,
    val seed: Long? = null,
    val numBeams: Int? = null,
    val lengthPenalty: Double? = null,
    val earlyStopping: Any? = null,
    val repetitionPenalty: Double? = null,
    val encoderRepetitionPenalty: Double? = null,
    val frequencyPenalty: Double? = null,
    val presencePenalty: Double? = null,
    val noRepeatNgramSize: Int? = null,
    val encoderNoRepeatNgramSize: Int? = null,
    val badWordsIds: List<List<Int>>? = null,
    val suppressTokens: List<Int>? = null,
    val beginSuppressTokens: List<Int>? = null,
    val forcedBosTokenId: Int? = null,
    val forcedEosTokenId: List<Int>? = null,
    val eosTokenId: List<Int>? = null,
    val stopStrings: List<String>? = null,
    val decoderStartTokenId: Int? = null,
    val maxTime: Double? = null,
) {
    internal fun toMap(): JsonObject = mapOf(
        "max_new_tokens" to maxNewTokens, "max_length" to maxLength, "min_new_tokens" to minNewTokens, "min_length" to minLength,
        "do_sample" to doSample, "temperature" to temperature, "top_k" to topK, "top_p" to topP, "min_p" to minP, "seed" to seed,
        "num_beams" to numBeams, "length_penalty" to lengthPenalty, "early_stopping" to earlyStopping,
        "repetition_penalty" to repetitionPenalty, "encoder_repetition_penalty" to encoderRepetitionPenalty,
        "frequency_penalty" to frequencyPenalty, "presence_penalty" to presencePenalty,
        "no_repeat_ngram_size" to noRepeatNgramSize, "encoder_no_repeat_ngram_size" to encoderNoRepeatNgramSize,
        "bad_words_ids" to badWordsIds, "suppress_tokens" to suppressTokens, "begin_suppress_tokens" to beginSuppressTokens,
        "forced_bos_token_id" to forcedBosTokenId, "forced_eos_token_id" to forcedEosTokenId, "eos_token_id" to eosTokenId,
        "stop_strings" to stopStrings, "decoder_start_token_id" to decoderStartTokenId, "max_time" to maxTime,
    ).filterValues { it != null }
}

/** A name of a setting, the values that it may have, and its default. */
private class Setting(val expected: String, val default: Any?, val samples: Boolean = false, val isListed: Boolean = false, val valid: (Any) -> Boolean)

private fun integer(low: Long, default: Any?, samples: Boolean = false, high: Long? = null): Setting =
    Setting(if (high == null) "an integer of at least $low" else "an integer from $low to $high", default, samples) {
        (it is Int || it is Long) && (it as Number).toLong() in low..(high ?: Long.MAX_VALUE)
    }

private fun number(expected: String, default: Double?, samples: Boolean = false, valid: (Double) -> Boolean): Setting =
    Setting(expected, default, samples) { it is Number && it.toDouble().let { value -> value.isFinite() && valid(value) } }

private fun isToken(value: Any?): Boolean = (value is Int || value is Long) && (value as Number).toLong() in 0..Int.MAX_VALUE

private val TOKENS = Setting("a token id or a list of token ids", listOf<Any>(), isListed = true) { value -> (value as List<*>).all(::isToken) }

private val SETTINGS: Map<String, Setting> = mapOf(
    "max_new_tokens" to integer(1, null),
    "max_length" to integer(1, null),
    "min_new_tokens" to integer(0, null),
    "min_length" to integer(0, 0),
    "do_sample" to Setting("True or False", null) { it is Boolean },
    "num_beams" to integer(1, 1, high = 4096),
    "length_penalty" to number("a finite number", 1.0) { true },
    "early_stopping" to Setting("True, False or 'never'", false) { it is Boolean || it == "never" },
    // With smaller temperatures, the divided logits would exceed float32.
    "temperature" to number("0 (greedy search) or a number of at least 1e-06", 1.0, true) { it == 0.0 || it >= 1e-6 },
    "top_k" to integer(0, 0, true),
    "top_p" to number("a number from 0 to 1", 1.0, true) { it in 0.0..1.0 },
    "min_p" to number("a number from 0 to 1", null, true) { it in 0.0..1.0 },
    "seed" to integer(0, null, true),
    "encoder_repetition_penalty" to number("a number above 0", 1.0) { it > 0 },
    "repetition_penalty" to number("a number above 0", 1.0) { it > 0 },
    "frequency_penalty" to number("a finite number", 0.0) { true },
    "presence_penalty" to number("a finite number", 0.0) { true },
    "no_repeat_ngram_size" to integer(0, 0),
    "encoder_no_repeat_ngram_size" to integer(0, 0),
    "bad_words_ids" to Setting("a list of non-empty lists of token ids", listOf<Any>()) { value ->
        value is List<*> && value.all { it is List<*> && it.isNotEmpty() && it.all(::isToken) }
    },
    "forced_bos_token_id" to integer(0, null, high = Int.MAX_VALUE.toLong()),
    "forced_eos_token_id" to TOKENS,
    "suppress_tokens" to TOKENS,
    "begin_suppress_tokens" to TOKENS,
    "eos_token_id" to TOKENS,
    "pad_token_id" to integer(0, null, high = Int.MAX_VALUE.toLong()),
    "bos_token_id" to integer(0, null, high = Int.MAX_VALUE.toLong()),
    "decoder_start_token_id" to integer(0, null, high = Int.MAX_VALUE.toLong()),
    "stop_strings" to Setting("a non-empty string or a list of non-empty strings", listOf<Any>(), isListed = true) { value ->
        (value as List<*>).all { it is String && it.isNotEmpty() }
    },
    "max_time" to number("a number above 0", null) { it > 0 },
)

/** The settings of a bundle that have an effect in Python, but are unsupported here. */
internal fun ignoredSettings(stored: JsonObject): JsonObject = stored.filterKeys { it !in SETTINGS }

/** The settings that apply to one generation. */
internal class Config private constructor(val values: JsonObject) {
    val maxNewTokens: Int? = int("max_new_tokens")
    val maxLength: Int? = int("max_length")
    val minNewTokens: Int? = int("min_new_tokens")
    val minLength: Int = int("min_length")!!
    val doSample: Boolean = values["do_sample"] == true
    val numBeams: Int = int("num_beams")!!
    val lengthPenalty: Double = double("length_penalty")!!
    val earlyStopping: Any? = values["early_stopping"]
    val temperature: Float = double("temperature")!!.toFloat()
    val topK: Int = int("top_k")!!
    val topP: Double = double("top_p")!!
    val minP: Double? = double("min_p")
    val seed: Long? = (values["seed"] as Number?)?.toLong()
    val encoderRepetitionPenalty: Double = double("encoder_repetition_penalty")!!
    val repetitionPenalty: Double = double("repetition_penalty")!!
    val frequencyPenalty: Double = double("frequency_penalty")!!
    val presencePenalty: Double = double("presence_penalty")!!
    val noRepeatNgramSize: Int = int("no_repeat_ngram_size")!!
    val encoderNoRepeatNgramSize: Int = int("encoder_no_repeat_ngram_size")!!
    val badWordsIds: List<IntArray> = (values["bad_words_ids"] as List<*>).map { ints(it) }
    val forcedBosTokenId: Int? = int("forced_bos_token_id")
    val forcedEosTokenId: IntArray = ints(values["forced_eos_token_id"])
    val suppressTokens: IntArray = ints(values["suppress_tokens"])
    val beginSuppressTokens: IntArray = ints(values["begin_suppress_tokens"])
    val eosTokenId: IntArray = ints(values["eos_token_id"])
    val bosTokenId: Int? = int("bos_token_id")
    val decoderStartTokenId: Int? = int("decoder_start_token_id")
    val stopStrings: List<String> = (values["stop_strings"] as List<*>).map { it.toString() }
    val maxTime: Double? = double("max_time")

    private fun int(name: String): Int? = (values[name] as Number?)?.toInt()

    private fun double(name: String): Double? = (values[name] as Number?)?.toDouble()

    private fun ints(value: Any?): IntArray = (value as List<*>).map { (it as Number).toInt() }.toIntArray()

    /** A copy with the lengths that were determined for a prompt. */
    fun withLengths(maxNewTokens: Int, minNewTokens: Int): Config =
        Config(values + mapOf("max_new_tokens" to maxNewTokens, "min_new_tokens" to minNewTokens))

    companion object {
        /**
         * Combines the settings of a bundle with those of a call, which take precedence; `null` restores a default.
         *
         * @throws GenerationError An unknown name or an invalid value.
         */
        fun of(stored: JsonObject, given: JsonObject): Config {
            for (name in given.keys) checkName(name)
            val changes = LinkedHashMap(given)
            val settings = LinkedHashMap<String, Any?>()
            settings["do_sample"] = false
            for ((name, value) in stored) if (name in SETTINGS && value != null) settings[name] = value
            if (changes["max_length"] != null && "max_new_tokens" !in changes) changes["max_new_tokens"] = null
            if (changes["min_length"] != null && "min_new_tokens" !in changes) changes["min_new_tokens"] = null
            val beams = ((changes["num_beams"] ?: settings["num_beams"]) as? Number)?.toInt() ?: 1
            // A seed alone does not turn beams into samples.
            val requestsSampling = changes.any { (name, value) -> SETTINGS.getValue(name).samples && value != null && !(name == "seed" && beams > 1) }
            if (requestsSampling && "do_sample" !in changes) changes["do_sample"] = true
            settings += changes
            val values = SETTINGS.mapValuesTo(LinkedHashMap()) { (name, setting) -> checked(name, setting, settings[name]) }
            if ((values["temperature"] as Number).toDouble() == 0.0) {
                values["temperature"] = 1.0
                values["do_sample"] = false
            }
            if (values["do_sample"] == null) values["do_sample"] = SETTINGS.any { (name, setting) -> setting.samples && values[name] != setting.default }
            if (values["do_sample"] == true && beams > 1) {
                throw GenerationError("beam search with sampling is unsupported here. Received: num_beams=$beams with sampling. Set num_beams=1 or do_sample=False.")
            }
            return Config(values)
        }

        /** The settings that differ from the defaults. */
        fun changed(config: Config): JsonObject = config.values.filter { (name, value) ->
            val default = SETTINGS.getValue(name).default
            if (value is Number && default is Number) value.toDouble() != default.toDouble() else value != default && value != false
        }

        private fun checkName(name: String) {
            if (name in SETTINGS) return
            val near = closest(name, SETTINGS.keys, 1, least = 0.6).firstOrNull()
            val advice = if (near == null) "Known names: ${SETTINGS.keys.sorted().joinToString()}." else "Did you mean $near?"
            throw GenerationError("$name is not a generation setting. $advice")
        }

        private fun checked(name: String, setting: Setting, value: Any?): Any? {
            if (value == null) return setting.default
            val plain = if (setting.isListed && value !is List<*>) listOf(value) else value
            if (setting.valid(plain)) return plain
            throw GenerationError("$name must be ${setting.expected}. Received: $name=${repr(value)}")
        }
    }
}
