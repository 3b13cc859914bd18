"""Vectors of one word in several texts, by layer.

Shape letters: `L` layers, `N` occurrences of the word, `E` hidden.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.basics.arguments import TEXT, check, integer, sequence
from kerasformer.errors import InputError
from kerasformer.tools.interpretability.reading import ReadText, read
from kerasformer.tools.interpretability.states import states_of, states_source

DEFAULT_MODEL = "embedder-bert"
"""Preset whose vectors are computed if the caller passes no model."""
_WITHOUT_SPACES = {"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR"}
"""Scripts without spaces between words, as the Unicode names of their letters begin."""


@dataclass(frozen=True)
class ContextualVectors:
    """Vectors of a word in several texts.

    Attributes:
        word: The word.
        reads: The text of each occurrence, with its tokens.
        positions: Positions of the tokens of each occurrence.
        vectors: Mean of the hidden states of these tokens, `(L + 1, N, E)` float32; entry 0 of the first axis is that
            of the embeddings, and the last one is the output of the last layer.
    """

    word: str
    reads: tuple[ReadText, ...]
    positions: tuple[np.ndarray, ...]
    vectors: np.ndarray

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each occurrence, `N` texts."""
        return tuple(read.text for read in self.reads)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the entries of the first axis: `"embeddings"`, `"layer 0"` and so on."""
        return ("embeddings", *(f"layer {index}" for index in range(len(self.vectors) - 1)))

    def similarities(self) -> np.ndarray:
        """Returns the cosine similarity of each pair of occurrences in each layer, `(L + 1, N, N)` float32."""
        norms = np.linalg.norm(self.vectors, axis=-1, keepdims=True)
        unit = self.vectors / np.maximum(norms, np.finfo(np.float32).tiny)
        cosines: np.ndarray = unit @ np.swapaxes(unit, 1, 2)
        return cosines

    def picture(self, path: str | Path, layer: int = -1, dark: bool = False) -> None:
        """Draws the similarities in a layer.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            layer: Index of the first axis; -1 is the last layer.
            dark: Use colours for dark pages.

        Raises:
            InputError: there is no such layer, `path` has another suffix, or its folder does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_cells

        count = len(self.vectors)
        values = self.similarities()[check("layer", layer, integer(-count, count - 1))]
        names = [_shortened(text) for text in self.texts]
        draw_cells(
            values, [[f"{value:.2f}" for value in row] for row in values.tolist()], names,
            [f"text {index}" for index in range(1, len(names) + 1)], path, dark=dark, label="cosine similarity",
            title=f"“{self.word}”, {self.layers[layer]}",
        )  # fmt: skip


def contextual(word: str, texts: Sequence[str], model: Any = DEFAULT_MODEL) -> ContextualVectors:
    """Computes the vectors of one word in several texts, after the embeddings and after each layer.

        flies = kf.contextual("flies", ["time flies like an arrow", "fruit flies like a banana"])
        flies.similarities()[-1]

    Every occurrence of the word counts; upper and lower case are not distinguished. A word is not found within a longer
    one, unless its script has no spaces between words, such as Chinese. The vector of a word of several tokens is the
    mean of theirs.

    Args:
        word: The word.
        texts: Texts that contain it.
        model: A Keras model, or a checkpoint, preset or hub id.

    Raises:
        CapacityError: a text is longer than the model.
        InputError: a text does not contain the word, or the model is a bundle.
        TokenizerError: the model has no tokenizer.
    """
    word = check("word", word, TEXT)
    rows = check("texts", texts, sequence(TEXT, least=1))
    pattern = _pattern(word)
    if missing := [text for text in rows if not word or not pattern.search(text)]:
        raise InputError(f"Each text must contain the word {word!r}. Received: {missing[0]!r}")
    source = states_source(model, "Vectors of a word")
    reads, positions, vectors = [], [], []
    for text in rows:
        tokens = read(source, text)
        states = states_of(source, tokens)
        for match in pattern.finditer(text):
            places = tokens.overlapping(0, *match.span())
            if not len(places):
                raise InputError(f"The tokenizer has no token for {word!r}. Received: {text!r}")
            reads.append(tokens)
            positions.append(places)
            vectors.append(states[:, places].mean(axis=1))
    return ContextualVectors(word, tuple(reads), tuple(positions), np.stack(vectors, axis=1))


def _pattern(word: str) -> re.Pattern[str]:
    """Returns the pattern of a word: not within a longer one, unless there are no spaces between words."""
    scripts = {unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in word if letter.isalpha()}
    escaped = re.escape(word)
    joined = scripts and scripts <= _WITHOUT_SPACES
    return re.compile(escaped if joined else rf"(?<!\w){escaped}(?!\w)", re.IGNORECASE)


def _shortened(text: str, longest: int = 32) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
