"""Draws the path from a checkpoint to a phone for the README: python -m docs.site.path_picture.

It writes `docs/pictures/path-light.svg` and `path-dark.svg`, and two of them for phones, `path-narrow-light.svg` and
`path-narrow-dark.svg`, with the colours of the page of `kerasformer web`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from docs.site.colours import colours

FOLDER = Path(__file__).parents[1] / "pictures"
WIDTH, HEIGHT = 760, 324
NARROW, TALL = 360, 696
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


def svg(theme: Mapping[str, str], narrow: bool = False) -> str:
    """Returns the picture.

    Args:
        theme: Colours by the names of the style sheet.
        narrow: Whether it goes from top to bottom, for phones.
    """
    width, height = (NARROW, TALL) if narrow else (WIDTH, HEIGHT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="t d" font-family="{_FONT}">',
        f'<title id="t">{TITLE}</title><desc id="d">{DESCRIPTION}</desc>',
        *(_from_the_top(theme) if narrow else _from_the_left(theme)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _from_the_left(theme: Mapping[str, str]) -> list[str]:
    middle = (_TOP + _BOTTOM) // 2
    return [
        *(_pill(0, _row(index), 116, text, theme) for index, text in enumerate(_SOURCES)),
        _arrow(116, 170, middle, "load", theme),
        _card(172, _TOP, 168, "Keras 3 model", _MODEL, theme, strong=False),
        _arrow(340, 394, middle, "export", theme),
        _card(396, _TOP, 172, "Bundle", _BUNDLE, theme, strong=True),
        _arrow(568, 614, middle, "run", theme),
        *(_place(616, _row(index), 144, *each, theme) for index, each in enumerate(_PLACES.items())),
        _example(0, 256, WIDTH, (76, 28), (410, 28), theme),
    ]


def _from_the_top(theme: Mapping[str, str]) -> list[str]:
    half, card = (NARROW - 10) / 2, 158
    corners = [(x, y) for y in (0, 56) for x in (0, half + 10)]
    return [
        *(_pill(x, y, half, text, theme) for (x, y), text in zip(corners, _SOURCES, strict=True)),
        _arrow_down(102, 148, "load", theme),
        _card(0, 150, card, "Keras 3 model", _MODEL, theme, strong=False),
        _arrow(card, NARROW - card, 254, "export", theme),
        _card(NARROW - card, 150, card, "Bundle", _BUNDLE, theme, strong=True),
        _arrow_down(358, 404, "run", theme),
        *(_place(x, y + 406, half, *each, theme) for (x, y), each in zip(corners, _PLACES.items(), strict=True)),
        _example(0, 524, NARROW, (18, 52), (18, 132), theme),
    ]


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


def _card(
    x: float, y: float, width: float, title: str, lines: Sequence[str], theme: Mapping[str, str], strong: bool
) -> str:
    fill, line = (theme["accent-soft"], theme["accent"]) if strong else (theme["card"], theme["edge"])
    parts = [
        _box(x, y, width, _BOTTOM - _TOP, fill, line, 14),
        _text(
            x + 16, y + 40, title, theme["accent" if strong else "text"], 18 if width > 160 else 15, 'font-weight="700"'
        ),
    ]
    parts += [_text(x + 16, y + 80 + 31 * index, each, theme["text"], 14) for index, each in enumerate(lines)]
    return "".join(parts)


def _arrow(start: float, end: float, y: float, text: str, theme: Mapping[str, str]) -> str:
    stroke = f'fill="none" stroke="{theme["accent"]}" stroke-width="2.5" stroke-linecap="round"'
    label = _text((start + end) / 2, y - 10, text, theme["muted"], 13, 'text-anchor="middle"')
    line = f'<path d="M{start + 8:g} {y:g}H{end - 6:g}" {stroke}/>'
    head = f'<path d="M{end - 13:g} {y - 6:g}l8 6l-8 6" {stroke} stroke-linejoin="round"/>'
    return label + line + head


def _arrow_down(start: float, end: float, text: str, theme: Mapping[str, str]) -> str:
    stroke = f'fill="none" stroke="{theme["accent"]}" stroke-width="2.5" stroke-linecap="round"'
    x = NARROW / 2
    line = f'<path d="M{x:g} {start + 8:g}V{end - 6:g}" {stroke}/>'
    head = f'<path d="M{x - 6:g} {end - 13:g}l6 8l6-8" {stroke} stroke-linejoin="round"/>'
    return _text(x + 14, (start + end) / 2 + 5, text, theme["muted"], 13) + line + head


def _example(
    x: float, y: float, width: float, asked: tuple[float, float], given: tuple[float, float], theme: Mapping[str, str]
) -> str:
    """Draws question and answer, each with a line of explanation; before or above them is what they are."""
    parts = [_box(x, y, width, max(asked[1], given[1]) + 38, theme["raised"], theme["line"])]
    for (left, down), what, text, about, style in (
        (asked, "text in", "How many days has a week?", "SmolLM2-135M-Instruct, 98 MB on LiteRT", {}),
        (given, "text out", "The answer is 7. A week is 7 days.", "the same in Keras, LiteRT and ONNX Runtime", _GOOD),
    ):
        label = (left, down - 26) if width == NARROW else (left - 58 if what == "text in" else left - 66, down)
        colour = theme["good"] if style else theme["text"]
        parts.append(_text(x + label[0], y + label[1], what, theme["muted"], 13))
        parts.append(_text(x + left, y + down, text, colour, 16, **style))
        parts.append(_text(x + left, y + down + 24, about, theme["muted"], 13))
    return "".join(parts)


_GOOD = {"extra": 'font-weight="600"'}


def files() -> dict[Path, str]:
    """Returns the content of the files."""
    wide = {FOLDER / f"path-{name}.svg": svg(theme) for name, theme in colours().items()}
    narrow = {FOLDER / f"path-narrow-{name}.svg": svg(theme, narrow=True) for name, theme in colours().items()}
    return wide | narrow


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path}, {len(text):,} bytes")
