import Foundation
import XCTest

@testable import Kerasformer

final class TokenizerTests: XCTestCase {
    func testVectors() throws {
        for folder in try Vectors.folders("tokenizers") { try check(folder) }
    }

    func testRangesCountScalars() {
        let text = "a🙂e\u{301}b"
        XCTAssertEqual(text.span(start: 1, end: 2), "🙂")
        XCTAssertEqual(text.span(start: 3, end: 5).unicodeScalars.map { $0.value }, [0x301, 0x62])
        XCTAssertEqual(String(text[text.range(start: 4, end: 5)]), "b")
    }

    func testMissingFolder() {
        XCTAssertThrowsError(try Tokenizer(folder: URL(fileURLWithPath: "/nowhere"))) { XCTAssertTrue($0 is TokenizerError) }
    }

    private func check(_ folder: URL) throws {
        let name = folder.lastPathComponent
        if let refusal = try? Vectors.json(folder.appendingPathComponent("error.json")) {
            XCTAssertThrowsError(try Tokenizer(folder: folder), name) { error in
                let (kind, message) = Vectors.described(error)
                XCTAssertEqual(kind, refusal.text("name"))
                XCTAssertTrue(message.contains(refusal.text("contains")), message)
            }
            return
        }
        let tokenizer = try Tokenizer(folder: folder)
        for row in try Vectors.lines(folder.appendingPathComponent("rows.jsonl")) {
            let what = "\(name): \(row["text"].written(JSONStyle(ascii: true)))"
            if row.has("decode") {
                checkDecoding(tokenizer, row, Vectors.ints(row["decode"]), what)
            } else if row["error"].text("message").contains("surrogate") {
                continue  // a text of Swift has none
            } else {
                try checkEncoding(tokenizer, folder, row, what)
            }
        }
    }

    private func checkEncoding(_ tokenizer: Tokenizer, _ folder: URL, _ row: JSON, _ what: String) throws {
        let encoding: Encoding
        do {
            encoding = try tokenizer.encode(row.text("text"), pair: row["pair"].string, special: row.flag("special", true))
            if row.has("truncation") { return try checkChunks(folder, encoding, row, what) }
            XCTAssertFalse(row.has("error"), "an error was expected: \(what)")
        } catch {
            XCTAssertEqual(Vectors.described(error).name, row["error"].text("name"), what)
            XCTAssertEqual(Vectors.described(error).message, row["error"].text("message"), what)
            return
        }
        let zeros = [Int](repeating: 0, count: encoding.count)
        XCTAssertEqual(encoding.ids, Vectors.ints(row["ids"]), "ids of \(what)")
        XCTAssertEqual(encoding.offsets, Vectors.ints(row["offsets"]), "offsets of \(what)")
        XCTAssertEqual(encoding.typeIds, row.has("types") ? Vectors.runs(row["types"]) : zeros, "types of \(what)")
        let mask = row.has("mask") ? Vectors.runs(row["mask"]) : zeros
        XCTAssertEqual(encoding.specialTokensMask, mask, "mask of \(what)")
        XCTAssertEqual(encoding.wordIds, Vectors.runs(row["words"]), "words of \(what)")
        XCTAssertEqual(encoding.sequenceIds, row.has("sequences") ? Vectors.runs(row["sequences"]) : mask.map { -$0 }, "sequences of \(what)")
        checkDecoding(tokenizer, row, encoding.ids, what)
    }

    private func checkChunks(_ folder: URL, _ encoding: Encoding, _ row: JSON, _ what: String) throws {
        let truncation = row["truncation"]
        let content = try Vectors.json(folder.appendingPathComponent("tokenizer.json"))
        let sided = try Tokenizer(content, ["truncation_side": truncation["side"]])
        let strategy = try XCTUnwrap(Truncation(rawValue: truncation.text("strategy")))
        let chunks = try sided.chunks(encoding, limit: truncation["limit"].int ?? 0, strategy: strategy, stride: truncation["stride"].int ?? 0)
        let used = truncation.flag("overflow") ? chunks : Array(chunks.prefix(1))
        XCTAssertEqual(used.map { $0.ids }, row.list("chunks").map { Vectors.ints($0) }, "chunks of \(what)")
    }

    private func checkDecoding(_ tokenizer: Tokenizer, _ row: JSON, _ ids: [Int], _ what: String) {
        func same(_ received: String, _ expected: String, _ kind: String) {
            XCTAssertEqual(received.codePoints, expected.codePoints, "\(kind) of \(what): \(received.debugDescription)")
        }
        let plain = row["plain"].string ?? row.text("text")
        same(tokenizer.decode(ids), row["decoded"].string ?? row.text("text"), "decoded")
        same(tokenizer.decode(ids, skipSpecial: true), plain, "plain")
        var stream = tokenizer.stream()
        let pieces = ids.map { stream.put([$0]) } + [stream.end()]
        same(pieces.joined(), plain, "joined pieces")
        if let expected = row["pieces"].items { same(pieces.joined(separator: "|"), expected.map { $0.string ?? "" }.joined(separator: "|"), "pieces") }
    }
}
