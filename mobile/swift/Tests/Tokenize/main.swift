// The commands `tokenize` and `time`, see mobile/vectors/README.md.
import Foundation
import Kerasformer

let arguments = CommandLine.arguments
let tokenizer = try Tokenizer(folder: URL(fileURLWithPath: arguments[2]))
let input = String(decoding: FileHandle.standardInput.readDataToEndOfFile(), as: UTF8.self)
var lines = input.utf8.split(separator: 10, omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
if lines.last == "" { lines.removeLast() }

if arguments[1] == "time" {
    for line in lines { _ = try tokenizer.encode(line) }
    let start = clock()
    for line in lines { _ = try tokenizer.encode(line) }
    print(Double(clock() - start) / Double(CLOCKS_PER_SEC))
} else {
    for line in lines {
        let encoding = try tokenizer.encode(line)
        let ids = encoding.ids.map { String($0) }.joined(separator: ",")
        let offsets = encoding.offsets.map { String($0) }.joined(separator: ",")
        print("{\"ids\":[\(ids)],\"offsets\":[\(offsets)]}")
    }
}
