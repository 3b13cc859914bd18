"""Logit lens: what a model would predict if it ended after each layer.

Shape letters: `L` layers, `T` tokens, `K` predicted tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.basics.arguments import check, integer
from kerasformer.engines import softmax
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.generation import readable_token
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.interpretability.reading import ReadText, keras_model, opened, read

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel


@dataclass(frozen=True)
class LogitLens:
    """Predictions of a model after its embeddings and after each layer.

    Attributes:
        read: The text and its tokens.
        ids: Most probable tokens, `(L + 1, T, K)` int32, the most probable first; entry 0 of the first axis is that of
            the embeddings, and the last one is the output of the model.
        probabilities: Their probabilities, `(L + 1, T, K)` float32.
        ranks: Rank in each layer of the token that the model predicts in the end, `(L + 1, T)` int32; 0 is the most
            probable token.
        shifted: Whether a prediction is that of the next token, rather than of the token itself (masked models).
        tokenizer: Tokenizer of the model.
    """

    read: ReadText
    ids: np.ndarray
    probabilities: np.ndarray
    ranks: np.ndarray
    shifted: bool
    tokenizer: Tokenizer

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of the text in readable form."""
        return self.read.tokens

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the entries of the first axis: `"embeddings"`, `"layer 0"` and so on."""
        return ("embeddings", *(f"layer {index}" for index in range(len(self.ids) - 1)))

    def best(self, layer: int, position: int) -> list[tuple[str, float]]:
        """Returns the most probable tokens at a position after a layer, 0 for the embeddings, with their probabilities.

        Args:
            layer: Index of the first axis; -1 is the output of the model.
            position: Position of the token; -1 is the last one.

        Raises:
            InputError: there is no such layer or position.
        """
        count, length = self.ranks.shape
        layer = check("layer", layer, integer(-count, count - 1))
        position = check("position", position, integer(-length, length - 1))
        pairs = zip(self.ids[layer, position].tolist(), self.probabilities[layer, position].tolist(), strict=True)
        return [(readable_token(self.tokenizer, token), probability) for token, probability in pairs]

    def first_layer(self, position: int = -1) -> int:
        """Returns the first layer after which the model predicts at a position what it predicts in the end."""
        agree = self.ranks[:, check("position", position, integer(-len(self.tokens), len(self.tokens) - 1))] == 0
        return int(np.flatnonzero(~np.append(False, agree))[-1])

    def picture(self, path: str | Path, dark: bool = False) -> None:
        """Draws a heat map: layers from bottom to top, tokens from left to right, with the most probable token of each.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, its folder does not exist, or the text is too long for a picture.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_cells

        texts = [[readable_token(self.tokenizer, token) for token in row] for row in self.ids[..., 0].tolist()]
        order = slice(None, None, -1)  # the last layer on top
        draw_cells(
            self.probabilities[order, :, 0], texts[order], self.layers[order], self.tokens, path, dark=dark,
            label="probability",
            title="The next token that each layer predicts" if self.shifted else "The token that each layer predicts",
        )  # fmt: skip


def logit_lens(source: Any, text: str, top_k: int = 5, *, tokenizer: Tokenizer | None = None) -> LogitLens:
    """Computes what a language model predicts after each layer: the last norm and the head are applied to each state.

        lens = kf.logit_lens("story-gpt2", "Once upon a")
        lens.best(-1, -1)

    Args:
        source: A decoder-only language model or a masked model: a Keras model, or a checkpoint, preset or hub id.
        text: The text.
        top_k: Number of tokens to keep for each layer and position.
        tokenizer: Tokenizer, for a model that has none.

    Raises:
        CapacityError: the text is longer than the model.
        InputError: the source is a bundle, or does not score the tokens of its vocabulary.
        TokenizerError: the source has no tokenizer.

    Reference: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    count = check("top_k", top_k, integer(1))
    model_source = opened(source) if tokenizer is None else _opened_with(source, tokenizer)
    model = keras_model(model_source, "The logit lens")
    if model.task not in ("text-generation", "fill-mask"):
        raise InputError(
            "The logit lens is for language models. Expected: a model for text-generation or fill-mask. Received: "
            f"{type(model).__name__}, for {model.task}"
        )
    tokens = read(model_source, text)
    layers: list[tuple[np.ndarray, ...]] = []
    for logits in layer_logits(model, tokens.inputs):
        if not layers:
            final = logits.argmax(axis=-1)[:, None]
        ranks = (logits > np.take_along_axis(logits, final, axis=1)).sum(axis=1)
        layers.append((*_largest(logits, min(count, logits.shape[-1])), ranks.astype(np.int32)))
    ids, probabilities, all_ranks = (np.stack(arrays[::-1]) for arrays in zip(*layers, strict=True))
    return LogitLens(tokens, ids, probabilities, all_ranks, model.generates, model_source.tokenizer)


def _opened_with(source: Any, tokenizer: Tokenizer) -> Any:
    from kerasformer.pipelines import open_source

    return open_source(None, source, tokenizer)


def layer_logits(model: PretrainedModel, inputs: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the scores of the vocabulary `(T, V)` float32 after each layer, the last one first, and the embeddings.

    Those after the last layer are the output of the model, whose hidden state is already normalized.

    Args:
        model: A model for text-generation or fill-mask.
        inputs: Arrays of one text, `(1, T)`, by name.

    Raises:
        InputError: the output is not finite.
    """
    keras = require("keras", "tensorflow")
    head: Any = model
    outputs = head(inputs, training=False, return_hidden_states=True)
    stack = model.backbone.decoder if model.generates else model.backbone.encoder
    projection = getattr(model.backbone, "output_projection", None)
    arrays = {name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()}
    yield _as_array(keras, outputs["output"])
    for state in outputs["hidden_states"][-2::-1]:
        if stack.final_norm is not None:
            state = stack.final_norm(state)
        if projection is not None:
            state = projection(state)
        yield _as_array(keras, head.answer({"output": state}, arrays, False))


def _as_array(keras: Any, logits: Any) -> np.ndarray:
    array: np.ndarray = keras.ops.convert_to_numpy(logits)[0].astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError("Finite outputs of the model were expected. Received: NaN or infinity")
    return array


def _largest(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids and the probabilities of the most probable tokens of each row, `(T, K)` each."""
    some = np.argpartition(-logits, count - 1, axis=1)[:, :count]
    order = np.lexsort((some, -np.take_along_axis(logits, some, axis=1)), axis=1)
    ids = np.take_along_axis(some, order, axis=1)
    return ids.astype(np.int32), np.take_along_axis(softmax(logits), ids, axis=1).astype(np.float32)
