"""The function `plain` of a card: the normalization of an uncased BERT tokenizer that MediaPipe lacks.

MediaPipe lowercases only A to Z, keeps accents and control characters, and splits only at ASCII spaces. The function
does the rest before a text is passed to it: it strips marks (category Mn, after NFD) if the tokenizer does; removes
control, format and private-use characters; replaces every space by an ASCII space; and lowercases each character
separately, like the tokenizer. (Lowercasing whole words would produce the Greek final sigma.)
"""

from __future__ import annotations

from pathlib import Path

from kerasformer.files.reading import read_json

LANGUAGES = ("kotlin", "swift", "javascript", "python")


def plain(folder: Path) -> dict[str, str]:
    """Returns the function in each language for the tokenizer in a folder; empty if MediaPipe needs no preparation."""
    content = read_json(folder / "tokenizer.json")
    if content["model"]["type"] != "WordPiece":
        return {}
    # By default, a tokenizer that lowercases also strips accents.
    return _without_accents() if content["normalizer"].get("strip_accents") is not False else _with_accents()


def _without_accents() -> dict[str, str]:
    return {name: _CODE[name].format(text=_DECOMPOSED[name], mark=_MARK[name]) for name in LANGUAGES}


def _with_accents() -> dict[str, str]:
    return {name: _CODE[name].format(text=_TEXT[name], mark="") for name in LANGUAGES}


_TEXT = {"kotlin": "text", "swift": "text", "javascript": "text", "python": "sentence"}
_DECOMPOSED = {
    "kotlin": "java.text.Normalizer.normalize(text, java.text.Normalizer.Form.NFD)",
    "swift": "text.decomposedStringWithCanonicalMapping",
    "javascript": 'text.normalize("NFD")',
    "python": 'unicodedata.normalize("NFD", sentence)',
}
_MARK = {"kotlin": r"\\p{Mn}", "swift": ".nonspacingMark, ", "javascript": r"\p{Mn}", "python": '"Mn", '}
_CODE = {
    "kotlin": r"""/** Normalizes a text like the model's tokenizer; MediaPipe itself lowercases only A to Z. */
fun plain(text: String): String {{
    val spaced = {text}.replace(Regex("[\\t\\n\\r\\p{{Z}}]"), " ")
    val kept = spaced.replace(Regex("[{mark}\\p{{Cc}}\\p{{Cf}}\\p{{Co}}]"), "")
    return kept.codePoints().toArray().joinToString("") {{ String(Character.toChars(Character.toLowerCase(it))) }}
}}
""",
    "swift": r"""/// Normalizes a text like the model's tokenizer; MediaPipe itself lowercases only A to Z.
func plain(_ text: String) -> String {{
  var kept = String.UnicodeScalarView()
  for scalar in {text}.unicodeScalars {{
    switch scalar.properties.generalCategory {{
    case .spaceSeparator, .lineSeparator, .paragraphSeparator: kept.append(" ")
    case .control where "\t\n\r".unicodeScalars.contains(scalar): kept.append(" ")
    case {mark}.control, .format, .privateUse: continue
    default: kept.append(contentsOf: scalar.properties.lowercaseMapping.unicodeScalars)
    }}
  }}
  return String(kept)
}}
""",
    "javascript": r"""/** Normalizes a text like the model's tokenizer; MediaPipe itself lowercases only A to Z. */
function plain(text) {{
  const spaced = {text}.replace(/[\t\n\r\p{{Z}}]/gu, " ");
  const kept = spaced.replace(/[{mark}\p{{Cc}}\p{{Cf}}\p{{Co}}]/gu, "");
  return Array.from(kept, (letter) => letter.toLowerCase()).join("");
}}
""",
    "python": r'''def plain(sentence):
    """Normalizes a text like the model's tokenizer; MediaPipe itself lowercases only A to Z."""
    kept = []
    for letter in {text}:
        kind = unicodedata.category(letter)
        if letter in "\t\n\r" or kind.startswith("Z"):
            kept.append(" ")
        elif kind not in ({mark}"Cc", "Cf", "Co"):
            kept.append(letter.lower())
    return "".join(kept)
''',
}
