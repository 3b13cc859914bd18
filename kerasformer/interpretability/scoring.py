"""Outputs of any engine for texts of equal length: those of an encoder, or the scores of the next token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasformer.decoding import Forward, GenerationConfig
from kerasformer.decoding.preparation import decoder_start
from kerasformer.errors import InputError
from kerasformer.pipelines.opening import Opened

TOKENS_AT_ONCE = 1024
"""Number of tokens in one call of a model, unless the caller sets the number of texts."""


class Scorer:
    """Function from the arrays of texts of equal length to outputs by name.

    A model that generates has the output `logits`, `(B, V)`: the scores of the next token, or of the first token that
    an encoder-decoder writes.

    Args:
        source: The source.
        batch_size: Number of texts in one call of the model; by default about `TOKENS_AT_ONCE` tokens.
    """

    def __init__(self, source: Opened, batch_size: int | None = None) -> None:
        self.engine, self._batch_size = source.model, batch_size
        self.model = getattr(source.model, "model", None) if source.engine == "keras" else None
        self.generates = not isinstance(source.model, Forward)
        self.start: int | None = None
        if not isinstance(source.model, Forward) and source.model.is_encoder_decoder:
            self.start = decoder_start(source.model, GenerationConfig.from_dict(source.info.generation))

    def batch_size(self, length: int) -> int:
        """Returns the number of texts of `length` tokens in one call."""
        return self._batch_size or max(1, TOKENS_AT_ONCE // length)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs, float32.

        Raises:
            InputError: an output is not finite.
        """
        rows, length = inputs["input_ids"].shape
        size = self.batch_size(length)
        batches = [
            {name: array[first : first + size] for name, array in inputs.items()} for first in range(0, rows, size)
        ]
        parts = [self._run(batch) for batch in batches]
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if bad := [name for name, values in outputs.items() if not np.isfinite(values).all()]:
            raise InputError(f"Finite outputs of the model were expected. Received: NaN or infinity in {bad[0]}")
        return outputs

    def _run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if isinstance(self.engine, Forward):
            return self.engine.run(inputs)
        if self.model is not None:  # without the compiled functions of generation, which take longer to compile
            outputs = self.next_token(self.model(self.with_start(inputs), training=False))
            return {name: np.asarray(value, np.float32) for name, value in outputs.items()}
        ids = inputs["input_ids"]
        state = self.engine.start(ids, inputs.get("attention_mask", np.ones_like(ids)))
        first = ids[:, -1:] if self.start is None else np.full((len(ids), 1), self.start, np.int32)
        return {"logits": self.engine.step(first, state)[0][:, -1]}

    def with_start(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs of a call of a Keras model, with the first token of an encoder-decoder's decoder."""
        if self.start is None:
            return dict(inputs)
        starts = np.full((len(inputs["input_ids"]), 1), self.start, np.int32)
        return {**inputs, "decoder_input_ids": starts}

    @staticmethod
    def next_token(logits: Any) -> dict[str, Any]:
        """Returns the scores of the next token from those of all tokens, `(B, T, V)`."""
        return {"logits": logits[:, -1]}
