import XCTest

@testable import Kerasformer

final class DecodingTests: XCTestCase {
    private func rows(_ name: String) throws -> [JSON] { try Vectors.json("decoding/\(name).json").items ?? [] }

    private func logits(_ value: JSON) -> [Float] { (value.items ?? []).map { $0.string == "-inf" ? -Float.infinity : Float($0.number ?? 0) } }

    private func config(_ row: JSON) throws -> GenerationConfig {
        try GenerationConfig(stored: row["stored"].dictionary, given: row["settings"].dictionary)
    }

    func testMockModel() throws {
        for row in try rows("mock") {
            let encoder = row["encoder"].items == nil ? nil : Vectors.ints(row["encoder"])
            XCTAssertEqual(MockModel(row["model"]).logits(Vectors.ints(row["history"]), encoder: encoder), logits(row["logits"]))
        }
    }

    func testRandomNumbers() throws {
        for row in try rows("random") {
            var random = Random(seed: UInt64(row["seed"].int ?? 0))
            for value in row.list("values") { XCTAssertEqual(random.next(), value.number) }
        }
    }

    func testSamplers() throws {
        for row in try rows("samplers") {
            let config = try config(row)
            for (uniform, token) in zip(row.list("uniform"), row.list("tokens")) {
                XCTAssertEqual(try choose(logits(row["logits"]), config) { uniform.number ?? 0 }, token.int, row.written())
            }
        }
    }

    func testRules() throws {
        for row in try rows("rules") {
            let ids = Vectors.ints(row["ids"])
            let width = row["width"].int ?? 0
            var history = History(prefix: Array(ids[..<width]), prompt: Vectors.ints(row["prompt"]))
            for id in ids[width...] { history.add(id) }
            var expected = logits(row["logits"])
            for field in row["changed"].fields { expected[Int(field.name)!] = logits([field.value])[0] }
            XCTAssertEqual(applyRules(history, logits(row["logits"]), try config(row)), expected, row["settings"].written())
        }
    }

    func testSettings() throws {
        for row in try rows("settings") {
            if row.has("error") {
                XCTAssertThrowsError(try config(row), row.written()) { error in
                    XCTAssertEqual(Vectors.described(error).name, row["error"].text("name"))
                    XCTAssertEqual(Vectors.described(error).message, row["error"].text("message"))
                }
            } else {
                let changed = try config(row).changed
                XCTAssertEqual(Set(changed.keys), Set(row["config"].dictionary.keys), row.written())
                for (name, value) in changed { XCTAssertTrue(Vectors.agree(value, row["config"][name]), "\(name): \(row.written())") }
            }
        }
    }

    func testGenerations() throws {
        for row in try rows("generations") {
            let name = row.text("name")
            let tokenizer = try row["tokenizer"].string.map { try Tokenizer(folder: Vectors.folder.appendingPathComponent("tokenizers/\($0)")) }
            do {
                let step = MockStep(row["model"])
                let plan = try Plan(step, prompt: Vectors.ints(row["prompt"]), try config(row)) { tokenizer?.decoded($0) ?? [] }
                var tokens: [Int] = []
                var reason = FinishReason.length
                if plan.config.numBeams > 1 { (tokens, reason) = try beamSearch(plan) } else { reason = try generateTokens(plan) { tokens.append($0) } }
                XCTAssertFalse(row.has("error"), name)
                XCTAssertEqual(tokens, Vectors.ints(row["tokens"]), name)
                XCTAssertEqual(reason.rawValue, row.text("reason"), name)
                if let text = row["text"].string { XCTAssertEqual(tokenizer?.decode(tokens, skipSpecial: true).codePoints, text.codePoints, name) }
            } catch {
                XCTAssertEqual(Vectors.described(error).name, row["error"].text("name"), name)
                XCTAssertEqual(Vectors.described(error).message, row["error"].text("message"), name)
            }
        }
    }
}
