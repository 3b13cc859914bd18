"""Projection of the vectors of texts to a plane, coloured by class, and their nearest neighbours.

Shape letters: `N` texts, `E` size of a vector, `L` layers.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import TEXT, check, integer, one_of, optional, sequence
from kerasformer.errors import CapacityError, InputError, MissingExtraError
from kerasformer.extras import require
from kerasformer.pipelines import Opened
from kerasformer.tools.interpretability.reading import keras_model
from kerasformer.tools.interpretability.states import states_source

ProjectionMethod = Literal["pca", "umap"]
Pooling = Literal["mean", "first", "last"]
_BATCH = 32
"""Number of texts in one call of the model."""


@dataclass(frozen=True)
class Neighbor:
    """A text whose vector is close to that of another.

    Attributes:
        index: Index of the text.
        text: The text.
        label: Its class, or `None`.
        similarity: Cosine similarity of both vectors.
    """

    index: int
    text: str
    label: str | None
    similarity: float


@dataclass(frozen=True)
class Projection:
    """Vectors of texts, and their projection to a plane.

    Attributes:
        texts: The texts.
        labels: The class of each text; `None` without classes.
        vectors: Vectors of the texts, `(N, E)` float32.
        points: Their projection, `(N, 2)` float32.
        shares: Share of the variance that each axis has, `(2,)`, for PCA; `None` for UMAP.
        method: `"pca"` or `"umap"`.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] | None
    vectors: np.ndarray
    points: np.ndarray
    shares: np.ndarray | None
    method: str

    def nearest(self, index: int, count: int = 5) -> list[Neighbor]:
        """Returns the texts whose vectors are most similar to that of a text, the most similar first.

        Args:
            index: Index of the text.
            count: Number of neighbours.

        Raises:
            InputError: there is no such text.
        """
        last = len(self.texts) - 1
        index, count = check("index", index, integer(0, last)), check("count", count, integer(1))
        similarities = self._similarities(index)
        return [
            Neighbor(other, self.texts[other], None if self.labels is None else self.labels[other], similarity)
            for other in np.argsort(-similarities, kind="stable")[: min(count, last)].tolist()
            for similarity in [float(similarities[other])]
        ]

    def agreement(self, count: int = 5) -> float:
        """Returns the share of nearest neighbours that have the class of their text, from 0 to 1.

        Args:
            count: Number of neighbours of each text.

        Raises:
            InputError: there are no classes.
        """
        if self.labels is None:
            raise InputError("Agreement needs the classes of the texts. Expected: labels=. Received: none")
        pairs = [
            (label, neighbor.label)
            for index, label in enumerate(self.labels)
            for neighbor in self.nearest(index, count)
        ]
        return sum(first == second for first, second in pairs) / len(pairs)

    def _similarities(self, index: int) -> np.ndarray:
        """Returns the cosine similarity to each text, `(N,)`; -inf to itself."""
        norms = np.maximum(np.linalg.norm(self.vectors, axis=1), np.finfo(np.float32).tiny)
        cosines = self.vectors @ self.vectors[index] / (norms * norms[index])
        cosines[index] = -np.inf
        return cosines

    def picture(self, path: str | Path, title: str = "", dark: bool = False) -> None:
        """Draws the points with the colours of their classes.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            title: Title of the figure.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, its folder does not exist, or there are too many classes.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_points

        axes = ["", ""] if self.shares is None else [f" ({share:.0%} of the variance)" for share in self.shares]
        names = [f"axis {number}{share}" for number, share in enumerate(axes, 1)]
        draw_points(self.points, self.labels, path, names, title, dark)


def projection(
    model: Any,
    texts: Sequence[str],
    labels: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    pooling: Pooling | None = None,
    method: ProjectionMethod = "pca",
    seed: int = 0,
) -> Projection:
    """Projects the hidden states of texts to a plane, to see what a layer separates.

        kf.projection("sentiment-bert", reviews, labels).picture("reviews.png")

    Args:
        model: A Keras model, or a checkpoint, preset or hub id; or vectors of the texts `(N, E)`, such as the
            embeddings that the pipeline of a bundle returns.
        texts: At least three texts.
        labels: The class of each text; optional.
        layer: Layer whose states are used, 0 for the embeddings; by default the last one, -1.
        pooling: `"mean"` of all tokens of a text, which is the default, or the `"first"` or the `"last"` one.
        method: `"pca"`, or `"umap"`, which needs the package `umap-learn`.
        seed: Seed of UMAP.

    Raises:
        CapacityError: a text is longer than the model.
        InputError: too few texts, other numbers of labels or vectors, no such layer, the source is a bundle, or `layer`
            or `pooling` is passed with vectors.
        MissingExtraError: UMAP is requested and not installed.
        TokenizerError: the model has no tokenizer.
    Reference: Pearson 1901 for PCA; McInnes, Healy, Melville 2018, arXiv:1802.03426, for UMAP.
    """
    rows = check("texts", texts, sequence(TEXT, least=3))
    classes = check("labels", labels, optional(sequence(TEXT)))
    if classes is not None and len(classes) != len(rows):
        raise InputError(f"Each text needs a label. Received: {len(rows)} texts and {len(classes)} labels")
    method = check("method", method, one_of("pca", "umap"))
    chosen = check("pooling", pooling, optional(one_of("mean", "first", "last")))
    if isinstance(model, np.ndarray) and (layer is not None or chosen is not None):
        raise InputError(
            "layer and pooling would have no effect: they choose states of a model. "
            f"Received: vectors, layer={layer!r}, pooling={chosen!r}"
        )
    reducer = _umap() if method == "umap" else None  # before the states, which take longer
    if isinstance(model, np.ndarray):
        vectors = _checked(model, len(rows))
    else:
        vectors = _vectors(model, rows, -1 if layer is None else layer, chosen or "mean")
    if reducer is not None:
        neighbors = min(15, len(rows) - 1)
        points = reducer(n_neighbors=neighbors, random_state=check("seed", seed, integer(0)), n_jobs=1, init="random")
        return Projection(rows, classes, vectors, points.fit_transform(vectors).astype(np.float32), None, method)
    return Projection(rows, classes, vectors, *pca(vectors), method)


def pca(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Projects vectors `(N, E)` to the two directions of greatest variance.

    Returns:
        Points `(N, 2)` float32, and the share of the variance that each axis has, `(2,)`. The largest entry of each
        direction is positive, so that equal vectors give equal pictures.
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, lengths, directions = np.linalg.svd(centered, full_matrices=False)
    axes = np.zeros((2, centered.shape[1]))
    axes[: len(directions)] = directions[:2]
    axes *= np.where(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1) < 0, -1, 1)
    variances = np.zeros(2)
    variances[: len(lengths)] = lengths[:2] ** 2
    return (centered @ axes.T).astype(np.float32), variances / max(float((lengths**2).sum()), 1e-30)


def _checked(vectors: np.ndarray, count: int) -> np.ndarray:
    if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
        raise InputError(f"Finite vectors ({count}, E) were expected, one for each text. Received: {vectors.shape}")
    return vectors.astype(np.float32)


def _vectors(model: Any, texts: Sequence[str], layer: int, pooling: str) -> np.ndarray:
    """Returns the vectors of texts, `(N, E)`, from the hidden states of a layer."""
    source = states_source(model, "A projection")
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors: list[Any] = [None] * len(texts)
    for first in range(0, len(order), _BATCH):
        part = order[first : first + _BATCH].tolist()
        for index, vector in zip(part, _batch(source, [texts[place] for place in part], layer, pooling), strict=True):
            vectors[index] = vector
    return _checked(np.stack(vectors), len(texts))


def _batch(source: Opened, texts: Sequence[str], layer: int, pooling: str) -> np.ndarray:
    keras, model = require("keras", "tensorflow"), keras_model(source, "A projection")
    encoded = source.tokenizer(texts, padding_side="right")
    length, limit = encoded.input_ids.shape[1], source.info.max_length
    if limit is not None and length > limit:
        raise CapacityError(f"A text is longer than the model. Expected at most {limit} tokens. Received: {length}.")
    names = {*source.info.input_names, "attention_mask"} & set(encoded.inputs)
    states = model({name: encoded.inputs[name] for name in names}, training=False, return_hidden_states=True)
    layers = states["hidden_states"]
    state = keras.ops.convert_to_numpy(layers[check("layer", layer, integer(-len(layers), len(layers) - 1))])
    mask = encoded.attention_mask.astype(np.float32)
    if not mask.any(axis=1).all():
        raise InputError("Texts with at least one token were expected. Received: an empty text")
    if pooling == "mean":
        vectors: np.ndarray = (state * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return vectors
    places = mask.sum(axis=1).astype(int) - 1 if pooling == "last" else np.zeros(len(mask), int)
    chosen: np.ndarray = state[np.arange(len(mask)), places]
    return chosen


def _umap() -> Any:
    """Imports UMAP.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module("umap").UMAP
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "method='umap' needs umap-learn, which is not installed. Install it with: pip install umap-learn. "
            "method='pca' needs no further package"
        ) from error
