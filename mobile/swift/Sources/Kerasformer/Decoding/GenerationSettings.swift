/// Settings of a generation, with the meanings of `kerasformer.generation.GenerationConfig`. A setting that is `nil` is that of the
/// bundle, or else the default. A sampling setting or a seed without `doSample` enables sampling.
///
/// ```swift
/// let settings = GenerationSettings { $0.maxNewTokens = 40; $0.topP = 0.9; $0.seed = 1 }
/// ```
public struct GenerationSettings: Sendable {
    /// Largest number of new tokens; 20 by default.
    public var maxNewTokens: Int?
    /// Largest number of tokens with the prompt, instead of `maxNewTokens`.
    public var maxLength: Int?
    /// Number of new tokens, or of tokens with the prompt, before which a text does not end.
    public var minNewTokens, minLength: Int?
    /// Whether tokens are drawn at random; otherwise the most probable one is chosen.
    public var doSample: Bool?
    /// Divides the logits; 0 for the most probable token.
    public var temperature: Double?
    /// Number of most probable tokens that are drawn from; 0 for all.
    public var topK: Int?
    /// Total probability of the most probable tokens that are drawn from; smallest probability relative to that of the best.
    public var topP, minP: Double?
    /// Selects the random numbers: those of Python, so that a seed gives the same text.
    public var seed: Int?
    /// Number of texts that beam search extends in parallel.
    public var numBeams: Int?
    /// Power of the length by which the sum of a text is divided in beam search.
    public var lengthPenalty: Double?
    /// `true`, `false` or `"never"`: when beam search ends.
    public var earlyStopping: JSON?
    /// Divides or multiplies logits of tokens that occurred, and the reverse for tokens of the input; 1 for no penalty.
    public var repetitionPenalty, encoderRepetitionPenalty: Double?
    /// Subtracted from a logit for each occurrence of its token in the new text, and once.
    public var frequencyPenalty, presencePenalty: Double?
    /// Length of sequences of tokens that do not occur twice, and of sequences of the input that do not occur; 0 for no limit.
    public var noRepeatNgramSize, encoderNoRepeatNgramSize: Int?
    /// Sequences of tokens that do not occur.
    public var badWordsIds: [[Int]]?
    /// Tokens that do not occur, and tokens that are not the first new one.
    public var suppressTokens, beginSuppressTokens: [Int]?
    /// The first new token of an encoder-decoder.
    public var forcedBosTokenId: Int?
    /// The last tokens of a text that reaches its largest length, and tokens that end a text.
    public var forcedEosTokenId, eosTokenId: [Int]?
    /// Texts that end a text.
    public var stopStrings: [String]?
    /// The first token that the decoder of an encoder-decoder reads.
    public var decoderStartTokenId: Int?
    /// Seconds after which a text ends.
    public var maxTime: Double?

    public init(_ change: (inout GenerationSettings) -> Void = { _ in }) { change(&self) }

    /// The settings that are not `nil`, by their names in Python.
    var values: [String: JSON] {
        func list(_ tokens: [Int]?) -> JSON? { tokens.map { .array($0.map { .int($0) }) } }
        func int(_ value: Int?) -> JSON? { value.map { .int($0) } }
        func double(_ value: Double?) -> JSON? { value.map { .double($0) } }
        let all: [String: JSON?] = [
            "max_new_tokens": int(maxNewTokens), "max_length": int(maxLength), "min_new_tokens": int(minNewTokens),
            "min_length": int(minLength), "do_sample": doSample.map { .bool($0) }, "temperature": double(temperature),
            "top_k": int(topK), "top_p": double(topP), "min_p": double(minP), "seed": int(seed), "num_beams": int(numBeams),
            "length_penalty": double(lengthPenalty), "early_stopping": earlyStopping,
            "repetition_penalty": double(repetitionPenalty), "encoder_repetition_penalty": double(encoderRepetitionPenalty),
            "frequency_penalty": double(frequencyPenalty), "presence_penalty": double(presencePenalty),
            "no_repeat_ngram_size": int(noRepeatNgramSize), "encoder_no_repeat_ngram_size": int(encoderNoRepeatNgramSize),
            "bad_words_ids": badWordsIds.map { .array($0.compactMap { list($0) }) }, "suppress_tokens": list(suppressTokens),
            "begin_suppress_tokens": list(beginSuppressTokens), "forced_bos_token_id": int(forcedBosTokenId),
            "forced_eos_token_id": list(forcedEosTokenId), "eos_token_id": list(eosTokenId),
            "stop_strings": stopStrings.map { .array($0.map { .string($0) }) }, "decoder_start_token_id": int(decoderStartTokenId),
            "max_time": double(maxTime),
        ]
        return all.compactMapValues { $0 }
    }
}

/// The values that a setting may have, and its default.
private struct Setting {
    let expected: String
    let usual: JSON
    var samples = false
    var isListed = false
    let isValid: (JSON) -> Bool
}

private func integer(_ low: Int, _ usual: JSON, samples: Bool = false, high: Int? = nil) -> Setting {
    let expected = high.map { "an integer from \(low) to \($0)" } ?? "an integer of at least \(low)"
    return Setting(expected: expected, usual: usual, samples: samples) { value in
        guard let number = value.int else { return false }
        return number >= low && number <= (high ?? Int.max)
    }
}

private func number(_ expected: String, _ usual: JSON, samples: Bool = false, _ isValid: @escaping (Double) -> Bool) -> Setting {
    Setting(expected: expected, usual: usual, samples: samples) { value in
        guard let number = value.number else { return false }
        return number.isFinite && isValid(number)
    }
}

private let mostId = Int(Int32.max)

private func areTokens(_ value: JSON) -> Bool {
    guard let items = value.items else { return false }
    return items.allSatisfy { item in item.int.map { $0 >= 0 && $0 <= mostId } ?? false }
}

private let tokenList = Setting(expected: "a token id or a list of token ids", usual: .array([]), isListed: true, isValid: areTokens)

private let allSettings: [String: Setting] = [
    "max_new_tokens": integer(1, .null),
    "max_length": integer(1, .null),
    "min_new_tokens": integer(0, .null),
    "min_length": integer(0, .int(0)),
    "do_sample": Setting(expected: "True or False", usual: .null) { $0.bool != nil },
    "num_beams": integer(1, .int(1), high: 4096),
    "length_penalty": number("a finite number", .double(1)) { _ in true },
    "early_stopping": Setting(expected: "True, False or 'never'", usual: .bool(false)) { $0.bool != nil || $0.string == "never" },
    // With smaller temperatures, the divided logits would exceed float32.
    "temperature": number("0 (greedy search) or a number of at least 1e-06", .double(1), samples: true) { $0 == 0 || $0 >= 1e-6 },
    "top_k": integer(0, .int(0), samples: true),
    "top_p": number("a number from 0 to 1", .double(1), samples: true) { $0 >= 0 && $0 <= 1 },
    "min_p": number("a number from 0 to 1", .null, samples: true) { $0 >= 0 && $0 <= 1 },
    "seed": integer(0, .null, samples: true),
    "encoder_repetition_penalty": number("a number above 0", .double(1)) { $0 > 0 },
    "repetition_penalty": number("a number above 0", .double(1)) { $0 > 0 },
    "frequency_penalty": number("a finite number", .double(0)) { _ in true },
    "presence_penalty": number("a finite number", .double(0)) { _ in true },
    "no_repeat_ngram_size": integer(0, .int(0)),
    "encoder_no_repeat_ngram_size": integer(0, .int(0)),
    "bad_words_ids": Setting(expected: "a list of non-empty lists of token ids", usual: .array([])) { value in
        value.items?.allSatisfy { areTokens($0) && $0 != .array([]) } ?? false
    },
    "forced_bos_token_id": integer(0, .null, high: mostId),
    "forced_eos_token_id": tokenList,
    "suppress_tokens": tokenList,
    "begin_suppress_tokens": tokenList,
    "eos_token_id": tokenList,
    "pad_token_id": integer(0, .null, high: mostId),
    "bos_token_id": integer(0, .null, high: mostId),
    "decoder_start_token_id": integer(0, .null, high: mostId),
    "stop_strings": Setting(expected: "a non-empty string or a list of non-empty strings", usual: .array([]), isListed: true) { value in
        value.items?.allSatisfy { !($0.string ?? "").isEmpty } ?? false
    },
    "max_time": number("a number above 0", .null) { $0 > 0 },
]

/// The names of settings of a bundle that have an effect in Python, but are unsupported here.
func ignoredSettings(_ stored: [String: JSON]) -> [String] {
    stored.keys.filter { allSettings[$0] == nil }.sorted()
}

/// The settings that apply to one generation.
struct GenerationConfig {
    let values: [String: JSON]
    var maxNewTokens: Int?
    var minNewTokens: Int?
    let maxLength, seed, forcedBosTokenId, bosTokenId, decoderStartTokenId: Int?
    let minLength, numBeams, topK, noRepeatNgramSize, encoderNoRepeatNgramSize: Int
    let doSample: Bool
    let earlyStopping: JSON
    let temperature: Float
    let lengthPenalty, topP, encoderRepetitionPenalty, repetitionPenalty, frequencyPenalty, presencePenalty: Double
    let minP, maxTime: Double?
    let badWordsIds: [[Int]]
    let forcedEosTokenId, suppressTokens, beginSuppressTokens, eosTokenId: [Int]
    let stopStrings: [String]

    /// Combines the settings of a bundle with those of a call, which take precedence; `null` restores a default.
    ///
    /// - Throws: `GenerationError` for an unknown name or an invalid value.
    init(stored: [String: JSON], given: [String: JSON]) throws {
        for name in given.keys { try checkName(name) }
        var changes = given
        var chosen: [String: JSON] = ["do_sample": .bool(false)]
        for (name, value) in stored where allSettings[name] != nil && !value.isNull {
            chosen[name] = value
        }
        if !(changes["max_length"] ?? .null).isNull && changes["max_new_tokens"] == nil { changes["max_new_tokens"] = .null }
        if !(changes["min_length"] ?? .null).isNull && changes["min_new_tokens"] == nil { changes["min_new_tokens"] = .null }
        let beams = (changes["num_beams"] ?? chosen["num_beams"] ?? .null).int ?? 1
        // A seed alone does not turn beams into samples.
        let wantsSamples = changes.contains { name, value in
            allSettings[name]!.samples && !value.isNull && !(name == "seed" && beams > 1)
        }
        if wantsSamples && changes["do_sample"] == nil { changes["do_sample"] = .bool(true) }
        chosen.merge(changes) { $1 }
        var values: [String: JSON] = [:]
        for (name, setting) in allSettings { values[name] = try checked(name, setting, chosen[name] ?? .null) }
        if values["temperature"]?.number == 0 {
            values["temperature"] = .double(1)
            values["do_sample"] = .bool(false)
        }
        if values["do_sample"] == .null {
            values["do_sample"] = .bool(allSettings.contains { $1.samples && !isSame(values[$0]!, $1.usual) })
        }
        if values["do_sample"] == .bool(true) && beams > 1 {
            throw GenerationError(
                "beam search with sampling is unsupported here. Received: num_beams=\(beams) with sampling. Set num_beams=1 or do_sample=False.")
        }
        self.init(values)
    }

    private init(_ values: [String: JSON]) {
        func int(_ name: String) -> Int? { values[name]!.int }
        func double(_ name: String) -> Double? { values[name]!.number }
        func tokens(_ value: JSON) -> [Int] { (value.items ?? []).map { $0.int ?? 0 } }
        self.values = values
        maxNewTokens = int("max_new_tokens")
        minNewTokens = int("min_new_tokens")
        maxLength = int("max_length")
        seed = int("seed")
        forcedBosTokenId = int("forced_bos_token_id")
        bosTokenId = int("bos_token_id")
        decoderStartTokenId = int("decoder_start_token_id")
        minLength = int("min_length") ?? 0
        numBeams = int("num_beams") ?? 1
        topK = int("top_k") ?? 0
        noRepeatNgramSize = int("no_repeat_ngram_size") ?? 0
        encoderNoRepeatNgramSize = int("encoder_no_repeat_ngram_size") ?? 0
        doSample = values["do_sample"] == .bool(true)
        earlyStopping = values["early_stopping"]!
        temperature = Float(double("temperature") ?? 1)
        lengthPenalty = double("length_penalty") ?? 1
        topP = double("top_p") ?? 1
        encoderRepetitionPenalty = double("encoder_repetition_penalty") ?? 1
        repetitionPenalty = double("repetition_penalty") ?? 1
        frequencyPenalty = double("frequency_penalty") ?? 0
        presencePenalty = double("presence_penalty") ?? 0
        minP = double("min_p")
        maxTime = double("max_time")
        badWordsIds = (values["bad_words_ids"]!.items ?? []).map { tokens($0) }
        forcedEosTokenId = tokens(values["forced_eos_token_id"]!)
        suppressTokens = tokens(values["suppress_tokens"]!)
        beginSuppressTokens = tokens(values["begin_suppress_tokens"]!)
        eosTokenId = tokens(values["eos_token_id"]!)
        stopStrings = (values["stop_strings"]!.items ?? []).map { $0.string ?? "" }
    }

    /// The settings that differ from the defaults.
    var changed: [String: JSON] { values.filter { !isSame($0.value, allSettings[$0.key]!.usual) && $0.value != .bool(false) } }
}

private func isSame(_ one: JSON, _ other: JSON) -> Bool {
    if let first = one.number, let second = other.number { return first == second }
    return one == other
}

private func checkName(_ name: String) throws {
    if allSettings[name] != nil { return }
    let known = allSettings.keys.sorted()
    let advice = closest(name, known, count: 1).first.map { "Did you mean \($0)?" }
    throw GenerationError("\(name) is not a generation setting. \(advice ?? "Known names: " + known.joined(separator: ", ") + ".")")
}

private func checked(_ name: String, _ setting: Setting, _ value: JSON) throws -> JSON {
    if value.isNull { return setting.usual }
    let plain = setting.isListed && value.items == nil ? .array([value]) : value
    if setting.isValid(plain) { return plain }
    throw GenerationError("\(name) must be \(setting.expected). Received: \(name)=\(repr(value))")
}
