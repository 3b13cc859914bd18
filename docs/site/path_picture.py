"""Draws the path from a checkpoint to a phone for the README: python -m docs.site.path_picture.

It writes `docs/pictures/path-light.svg` and `path-dark.svg`, with the colours of the page of `kerasformer web`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from docs.site.colours import colours

FOLDER = Path(__file__).parents[1] / "pictures"
WIDTH, HEIGHT = 760, 324
_TOP, _BOTTOM = 18, 226
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"

TITLE = "From a checkpoint to a phone"
DESCRIPTION = (
    "A checkpoint of Hugging Face, a GGUF file or a preset is loaded as a Keras 3 model, exported as a bundle that was "
    "compared with Keras, and run on phones, in browsers and on servers: text in, text out. SmolLM2 gives the same "
    "answer in Keras, LiteRT and ONNX Runtime."
)
_SOURCES = ("Hugging Face", "GGUF", "KerasHub", "preset")
_MODEL = ("BERT to DeBERTa", "GPT-2 to Gemma 3", "T5 to NLLB", "train, look inside")
_BUNDLE = ("LiteRT or ONNX", "float32 to 4 bits", "tokenizer", "answers of Keras")
_PLACES = {
    "Phone": "Kotlin, Swift, C++",
    "Browser": "JavaScript, offline",
    "Server": "OpenAI's API",
    "Elsewhere": "MediaPipe, Triton",
}


def svg(theme: Mapping[str, str]) -> str:
    """Returns the picture.

    Args:
        theme: Colours by the names of the style sheet.
    """
    middle = (_TOP + _BOTTOM) // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-labelledby="t d" font-family="{_FONT}">',
        f'<title id="t">{TITLE}</title><desc id="d">{DESCRIPTION}</desc>',
        *(_pill(0, _row(index), 116, text, theme) for index, text in enumerate(_SOURCES)),
        _arrow(116, 170, middle, "load", theme),
        _card(172, 168, "Keras 3 model", _MODEL, theme, strong=False),
        _arrow(340, 394, middle, "export", theme),
        _card(396, 172, "Bundle", _BUNDLE, theme, strong=True),
        _arrow(568, 614, middle, "run", theme),
        *(_place(616, _row(index), 144, *each, theme) for index, each in enumerate(_PLACES.items())),
        _example(theme),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(index: int) -> float:
    return _TOP + index * (_BOTTOM - _TOP + 10) / 4


def _text(x: float, y: float, text: str, colour: str, size: int = 14, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" {extra}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str, line: str, radius: int = 12) -> str:
    place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{width - 1:g}" height="{height - 1:g}"'
    return f'<rect {place} rx="{radius}" fill="{fill}" stroke="{line}"/>'


def _pill(x: float, y: float, width: float, text: str, theme: Mapping[str, str]) -> str:
    label = _text(x + width / 2, y + 29, text, theme["text"], 15, 'text-anchor="middle"')
    return _box(x, y, width, 46, theme["card"], theme["line"]) + label


def _place(x: float, y: float, width: float, name: str, how: str, theme: Mapping[str, str]) -> str:
    title = _text(x + 12, y + 20, name, theme["text"], 15, 'font-weight="600"')
    return _box(x, y, width, 46, theme["card"], theme["line"]) + title + _text(x + 12, y + 37, how, theme["muted"], 13)


def _card(x: float, width: float, title: str, lines: Sequence[str], theme: Mapping[str, str], strong: bool) -> str:
    fill, line = (theme["accent-soft"], theme["accent"]) if strong else (theme["card"], theme["edge"])
    parts = [
        _box(x, _TOP, width, _BOTTOM - _TOP, fill, line, 14),
        _text(x + 16, _TOP + 40, title, theme["accent" if strong else "text"], 18, 'font-weight="700"'),
    ]
    parts += [_text(x + 16, _TOP + 80 + 31 * index, each, theme["text"], 14) for index, each in enumerate(lines)]
    return "".join(parts)


def _arrow(start: float, end: float, y: float, text: str, theme: Mapping[str, str]) -> str:
    stroke = f'fill="none" stroke="{theme["accent"]}" stroke-width="2.5" stroke-linecap="round"'
    label = _text((start + end) / 2, y - 10, text, theme["muted"], 13, 'text-anchor="middle"')
    line = f'<path d="M{start + 8:g} {y:g}H{end - 6:g}" {stroke}/>'
    head = f'<path d="M{end - 13:g} {y - 6:g}l8 6l-8 6" {stroke} stroke-linejoin="round"/>'
    return label + line + head


def _example(theme: Mapping[str, str]) -> str:
    y = 256
    return "".join(
        [
            _box(0, y, WIDTH, 66, theme["raised"], theme["line"]),
            _text(18, y + 28, "text in", theme["muted"], 13),
            _text(76, y + 28, "How many days has a week?", theme["text"], 16),
            _text(344, y + 28, "text out", theme["muted"], 13),
            _text(410, y + 28, "The answer is 7. A week is 7 days.", theme["good"], 16, 'font-weight="600"'),
            _text(76, y + 52, "SmolLM2-135M-Instruct, 98 MB on LiteRT", theme["muted"], 13),
            _text(410, y + 52, "the same in Keras, LiteRT and ONNX Runtime", theme["muted"], 13),
        ]
    )


def files() -> dict[Path, str]:
    """Returns the content of both files."""
    return {FOLDER / f"path-{name}.svg": svg(theme) for name, theme in colours().items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path}, {len(text):,} bytes")
