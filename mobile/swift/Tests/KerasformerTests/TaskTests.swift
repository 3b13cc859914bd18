import Foundation
import XCTest

@testable import Kerasformer

/// A call of the vectors that the types of Swift exclude, such as an unknown name of a rule.
private struct Impossible: Error {}

final class TaskTests: XCTestCase {
    func testVectors() async throws {
        for folder in try Vectors.folders("tasks") {
            let calls = try Vectors.json(folder.appendingPathComponent("calls.json"))
            let engine = calls.has("engine") ? EngineOpener { TestEngine($0, calls["engine"]) } : .table()
            let model = try await TextModel.open(folder, engine: engine)
            for call in calls.list("calls") {
                let what = "\(folder.lastPathComponent): \(call.with("result", .null).written())"
                do {
                    let result = try await answer(model, call)
                    XCTAssertFalse(call.has("error"), what)
                    XCTAssertTrue(Vectors.agree(result, call["result"]), "\(what)\n\(result.written())\n\(call["result"].written())")
                } catch is Impossible {
                    continue
                } catch {
                    let (name, message) = Vectors.described(error)
                    XCTAssertEqual(name, call["error"].text("name"), "\(what): \(message)")
                    // The conversation's advice names an option that this library does not have.
                    if !message.contains("conversation is too long") { XCTAssertEqual(message, call["error"].text("message"), what) }
                }
            }
            model.close()
            do {
                _ = try await model.classify("closed")
                XCTFail("a closed model answered")
            } catch { XCTAssertTrue(error is InputError) }
        }
    }

    func testCancellation() async throws {
        let folder = Vectors.folder.appendingPathComponent("tasks/story")
        let calls = try Vectors.json(folder.appendingPathComponent("calls.json"))
        let model = try TextModel(folder, engine: EngineOpener { TestEngine($0, calls["engine"]) })
        var count = 0
        for try await _ in model.generate("The cat", settings: GenerationSettings { $0.maxNewTokens = 50 }) {
            count += 1
            if count == 3 { break }
        }
        XCTAssertEqual(count, 3)
        let first = try await model.generate("The cat").text()
        let second = try await model.generate("The cat").text()
        XCTAssertEqual(first, second)
    }

    func testChangedManifestIsRefused() throws {
        let copy = FileManager.default.temporaryDirectory.appendingPathComponent("kerasformer-\(UUID().uuidString)")
        try FileManager.default.copyItem(at: Vectors.folder.appendingPathComponent("tasks/classes"), to: copy)
        defer { try? FileManager.default.removeItem(at: copy) }
        XCTAssertNoThrow(try ModelBundle(folder: copy).file("tokenizer.json"))
        let file = copy.appendingPathComponent("tokenizer.json")
        try (try Data(contentsOf: file) + Data(" ".utf8)).write(to: file)
        XCTAssertThrowsError(try ModelBundle(folder: copy).file("tokenizer.json")) { XCTAssertTrue($0 is BundleError) }
        let manifest = copy.appendingPathComponent("kerasformer.json")
        let text = String(decoding: try Data(contentsOf: manifest), as: UTF8.self).replacingOccurrences(of: "text-classification", with: "fill-mask")
        try Data(text.utf8).write(to: manifest)
        XCTAssertThrowsError(try ModelBundle(folder: copy)) { error in
            XCTAssertTrue((error as? BundleError)?.message.contains("was changed after its export") ?? false, "\(error)")
        }
        XCTAssertThrowsError(try ModelBundle(folder: copy.appendingPathComponent("onnx"))) { XCTAssertTrue($0 is BundleError) }
    }

    private func answer(_ model: TextModel, _ call: JSON) async throws -> JSON {
        let inputs = call["inputs"]
        let options = call["options"]
        let text = inputs.string ?? ""
        let length = LongText(truncation: options.flag("truncation"), chunkLength: options["chunk_length"].int, stride: options["stride"].int)
        let topK = options["top_k"].int
        func chosen<Kind: RawRepresentable>(_ name: String, _ usual: Kind) throws -> Kind where Kind.RawValue == String {
            guard let value = options[name].string else { return usual }
            guard let kind = Kind(rawValue: value) else { throw Impossible() }
            return kind
        }
        func objects(_ documents: [RankedDocument]) -> JSON {
            .array(documents.map { ["corpus_id": .int($0.index), "score": .double($0.score)] })
        }
        /// Names as a list, or separated by commas.
        func names(_ value: JSON) -> [String] {
            value.string.map { $0.components(separatedBy: ",").map { $0.trimmingCharacters(in: .whitespaces) } }
                ?? (value.items ?? []).map { $0.string ?? "" }
        }
        func entities(_ found: [Entity]) -> JSON {
            .array(
                found.map { entity in
                    let rest: JSON = [
                        "score": .double(entity.score), "word": .string(entity.word), "start": .int(entity.start), "end": .int(entity.end),
                    ]
                    guard let index = entity.index else { return rest.with("entity_group", .string(entity.label)) }
                    return rest.with("entity", .string(entity.label)).with("index", .int(index))
                })
        }
        func numbers(_ row: [Double]) -> JSON { .array(row.map { .double($0) }) }
        func labels(_ scores: [ClassScore]) -> JSON { .array(scores.map { ["label": .string($0.label), "score": .double($0.score)] }) }
        switch call.text("task") {
        case "text-classification":
            let first = inputs["text"].string ?? text
            let count = options.has("top_k") ? topK : 1
            return labels(try await model.classify(first, pair: inputs["pair"].string, topK: count, combine: try chosen("combine", .mean), length: length))
        case "zero-shot-classification":
            let found = try await model.classifyZeroShot(
                text, labels: names(options["candidate_labels"]).filter { !$0.isEmpty },
                hypothesisTemplate: options["hypothesis_template"].string ?? "This example is {}.", multiLabel: options.flag("multi_label"),
                combine: try chosen("combine", .mean), length: length)
            return ["sequence": inputs, "labels": .array(found.map { .string($0.label) }), "scores": numbers(found.map { $0.score })]
        case "text-ranking":
            if options.flag("return_documents") { throw Impossible() }
            return objects(
                try await model.rank(
                    inputs.text("query"), inputs.list("documents").map { $0.string ?? "" }, topK: topK, label: options["label"].string,
                    combine: try chosen("combine", .max), length: length))
        case "token-classification":
            return entities(
                try await model.tokens(
                    text, aggregation: try chosen("aggregation_strategy", .none),
                    ignoreLabels: options["ignore_labels"].items?.map { $0.string ?? "" } ?? ["O"], combine: try chosen("combine", .tokens),
                    length: length))
        case "zero-shot-token-classification":
            return entities(
                try await model.entities(
                    text, labels: names(options["labels"]), threshold: options["threshold"].number ?? 0.5, flatNer: options.flag("flat_ner", true),
                    multiLabel: options.flag("multi_label"), truncation: length.truncation))
        case "question-answering":
            let found = try await model.answer(
                inputs.text("question"), context: inputs.text("context"), topK: topK ?? 1, docStride: options["doc_stride"].int ?? 128,
                chunkLength: options["chunk_length"].int, maxAnswerLength: options["max_answer_len"].int ?? 15,
                handleImpossibleAnswer: options.flag("handle_impossible_answer"))
            let results: [JSON] = found.map {
                ["score": .double($0.score), "start": .int($0.start), "end": .int($0.end), "answer": .string($0.answer)]
            }
            return topK ?? 1 == 1 ? results[0] : .array(results)
        case "fill-mask":
            let found = try await model.fillMask(text, topK: topK ?? 5, truncation: length.truncation)
            let lists: [JSON] = found.map { gap in
                .array(
                    gap.map {
                        ["score": .double($0.score), "token": .int($0.token), "token_str": .string($0.text), "sequence": .string($0.sequence)]
                    })
            }
            return lists.count == 1 ? lists[0] : .array(lists)
        case "feature-extraction":
            let pooling: Pooling? = options["pooling"].isNull ? nil : try chosen("pooling", .mean)
            let found = try await model.features(text, pooling: pooling, normalize: options.flag("normalize"), length: length)
            return pooling == nil && found.count != 1 ? .array(found.map { numbers($0) }) : numbers(found[0])
        case "sentence-similarity":
            let how = EmbeddingOptions(
                promptName: options["prompt_name"].string, prompt: options["prompt"].string, truncateDim: options["truncate_dim"].int,
                normalize: options["normalize"].bool)
            if inputs.has("query") {
                if options.flag("return_documents") { throw Impossible() }
                let documents = inputs.list("documents").map { $0.string ?? "" }
                return objects(try await model.search(inputs.text("query"), documents, topK: topK, options: how, length: length))
            }
            if inputs.has("some") { throw Impossible() }
            guard let texts = inputs.items else { return numbers(try await model.embed(text, options: how, length: length)) }
            return .array(try await model.embed(texts.map { $0.string ?? "" }, options: how, length: length).map { numbers($0) })
        default: return try await generated(model, call)
        }
    }

    private func generated(_ model: TextModel, _ call: JSON) async throws -> JSON {
        let options = call["options"]
        let settings = try settings(options)
        let messages = (call["inputs"].items ?? []).map { message in
            let others = message.fields.filter { !["role", "content"].contains($0.name) }.map { ($0.name, $0.value) }
            return Message(role: message.text("role"), content: message["content"].string, fields: Dictionary(uniqueKeysWithValues: others))
        }
        let text = call["inputs"].string ?? ""
        let prefix = options["prefix"].string
        let truncation = options.flag("truncation")
        let stream: GeneratedText
        switch call.text("task") {
        case "text-generation": stream = model.generate(text, settings: settings)
        case "conversation":
            stream = model.chat(messages, tools: options["tools"].items, variables: options["chat_template_kwargs"].dictionary, settings: settings)
        case "translation":
            stream = model.translate(
                text, from: options["src_lang"].string, to: options["tgt_lang"].string, prefix: prefix, truncation: truncation, settings: settings)
        case "summarization": stream = model.summarize(text, prefix: prefix, truncation: truncation, settings: settings)
        default: stream = model.transform(text, prefix: prefix, truncation: truncation, settings: settings)
        }
        var pieces: [GeneratedPiece] = []
        for try await piece in stream { pieces.append(piece) }
        let answer = pieces.map { $0.text }.joined()
        if let expected = call["pieces"].items {
            let shown = pieces.map { $0.text }.filter { !$0.isEmpty }
            XCTAssertEqual(shown.joined(separator: "|").codePoints, expected.map { $0.string ?? "" }.joined(separator: "|").codePoints)
        }
        if let reason = call["reason"].string { XCTAssertEqual(pieces.last?.finishReason?.rawValue, reason) }
        switch call.text("task") {
        case "summarization": return [["summary_text": .string(answer)]]
        case "translation": return [["translation_text": .string(answer)]]
        case "conversation" where options.flag("return_full_text", true):
            return [["generated_text": .array((call["inputs"].items ?? []) + [["role": "assistant", "content": .string(answer)]])]]
        case "text-generation" where options.flag("return_full_text", true): return [["generated_text": .string(text + answer)]]
        default: return [["generated_text": .string(answer)]]
        }
    }

    private func settings(_ options: JSON) throws -> GenerationSettings {
        var result = GenerationSettings()
        for field in options.fields {
            switch field.name {
            case "max_new_tokens": result.maxNewTokens = field.value.int
            case "no_repeat_ngram_size": result.noRepeatNgramSize = field.value.int
            case "num_beams": result.numBeams = field.value.int
            case "seed": result.seed = field.value.int
            case "top_k": result.topK = field.value.int
            case "top_p": result.topP = field.value.number
            case "temperature": result.temperature = field.value.number
            case "length_penalty": result.lengthPenalty = field.value.number
            case "repetition_penalty": result.repetitionPenalty = field.value.number
            case "stop_strings": result.stopStrings = field.value.items?.map { $0.string ?? "" }
            case "prefix", "src_lang", "tgt_lang", "truncation", "return_full_text", "tools", "chat_template_kwargs", "documents": break
            default: throw Impossible()
            }
        }
        return result
    }
}
