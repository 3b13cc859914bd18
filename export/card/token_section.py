"""How an app sees whether its tokenizer makes the tokens of the model: by the texts that a bundle carries."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.targets import Target
from kerasformer.tokenization.hard_texts import FILE

_LANGUAGES = {"tflite": ("python", "kotlin", "swift", "javascript"), "onnx": ("python", "javascript")}


def section(manifest: Manifest, target: Target, folder: Path) -> str:
    """Lines for each language that runs this format; `""` where an app makes no tokens."""
    if target.tokenizes or not (folder / FILE).is_file():
        return ""
    blocks = [f"```{name}\n{_CODE[name]}```\n" for name in _LANGUAGES.get(manifest.format, ("python",))]
    return "\n".join([_ABOUT, *blocks])


_ABOUT = f"""## Tokens

Libraries in other languages read the same `tokenizer.json` by fewer rules or other ones, and the model then answers to
another text without a word. `{FILE}` has texts with the ids that the model was given, special tokens included: of many
scripts, with odd spaces, and made of this vocabulary and its rules. A test of the app compares them; each of these
gives the texts that are read otherwise, and there should be none.
"""

_CODE = {
    "python": f"""import json
from pathlib import Path

from tokenizers import Tokenizer

folder = Path("path/to/this/folder")
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
rows = json.loads((folder / "{FILE}").read_text(encoding="utf-8"))
print([row["text"] for row in rows if tokenizer.encode(row["text"]).ids != row["ids"]])
""",
    "kotlin": """import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer
import org.json.JSONArray

/** Of the texts of that file, those with other tokens here. */
fun differing(tokenizer: HuggingFaceTokenizer, file: String): List<String> {
    val rows = JSONArray(file)
    return (0 until rows.length()).map { rows.getJSONObject(it) }.filter { row ->
        val ids = row.getJSONArray("ids")
        tokenizer.encode(row.getString("text")).ids.toList() != List(ids.length()) { ids.getLong(it) }
    }.map { it.getString("text") }
}
""",
    "swift": """import Foundation
import Tokenizers

struct HardText: Decodable {
    let text: String
    let ids: [Int]
}

/// Of the texts of that file, those with other tokens here.
func differing(_ tokenizer: any Tokenizer, file: URL) throws -> [String] {
    let rows = try JSONDecoder().decode([HardText].self, from: Data(contentsOf: file))
    return rows.filter { tokenizer.encode(text: $0.text) != $0.ids }.map { $0.text }
}
""",
    "javascript": """\
/** Of the rows of that file, the texts with other tokens here; the tokenizer is a pipeline's, or a page's. */
function differing(tokenizer, rows) {
  const ids = (text) => tokenizer.encode(text).ids ?? tokenizer.encode(text);
  return rows.filter((row) => String(ids(row.text)) !== String(row.ids)).map(({ text }) => text);
}
""",
}
