"""Page with code by which an app checks its tokenizer on the bundle's test texts."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.targets import Target
from kerasformer.tokenization.hard_texts import FILE

_LANGUAGES = {"tflite": ("python", "kotlin", "swift", "javascript"), "onnx": ("python", "javascript")}


def section(manifest: Manifest, target: Target, folder: Path) -> str:
    """Returns the page with code in each language that runs this format; empty if an app handles no tokens."""
    if target.tokenizes or not (folder / FILE).is_file():
        return ""
    blocks = [f"```{name}\n{_CODE[name]}```\n" for name in _LANGUAGES.get(manifest.format, ("python",))]
    return "\n".join([_ABOUT, *blocks])


WITHOUT_FILE = f"""## Tokens

The rules of this tokenizer cannot be written as `tokenizer.json`, so the programs take token ids. Tokenize texts
with kerasformer, or with `AutoTokenizer.from_pretrained(folder)` of transformers. `{FILE}` contains test texts with
their correct ids, including special tokens. If the model has the input `langs`, it is the id of the language of each
token, from `lang2id` in `config.json`, or -1 for no language.
"""

_ABOUT = f"""# Tests of a tokenizer

Tokenizer libraries in other languages may implement the rules of `tokenizer.json` incompletely or differently, and the
model then silently answers to a different text. `{FILE}` contains test texts with their correct ids, including special
tokens: texts in many scripts, with unusual spaces, and derived from this vocabulary and its rules. Compare them in a
test of the app: each of these programs returns the texts with wrong ids, which should be none.
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

/** Returns the texts of that file for which this tokenizer returns wrong ids. */
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

/// Returns the texts of that file for which this tokenizer returns wrong ids.
func differing(_ tokenizer: any Tokenizer, file: URL) throws -> [String] {
    let rows = try JSONDecoder().decode([HardText].self, from: Data(contentsOf: file))
    return rows.filter { tokenizer.encode(text: $0.text) != $0.ids }.map { $0.text }
}
""",
    "javascript": """\
/** Returns the texts of the rows of that file for which a tokenizer (of a pipeline or a page) returns wrong ids. */
function differing(tokenizer, rows) {
  const ids = (text) => tokenizer.encode(text).ids ?? tokenizer.encode(text);
  return rows.filter((row) => String(ids(row.text)) !== String(row.ids)).map(({ text }) => text);
}
""",
}
