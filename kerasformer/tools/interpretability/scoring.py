"""Outputs of any engine for texts of equal length: those of an encoder, or the scores of the next token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kerasformer.bundle import PROBABILITIES
from kerasformer.engines import Forward
from kerasformer.errors import InputError
from kerasformer.generation import GenerationConfig, decoder_start
from kerasformer.pipelines import Opened

TOKENS_AT_ONCE = 1024
"""Number of tokens in one call of a model, unless the caller sets the number of texts."""


class Scorer:
    """Function from the arrays of texts of equal length to outputs by name.

    A model that generates has the output `logits`, `(B, V)`: the scores of the next token, or of the first token that
    an encoder-decoder writes and that its settings do not force. The `logits` of a bundle that returns probabilities
    are their logarithms `log p`, or `log(p / (1 - p))` where classes do not exclude each other.

    Args:
        source: The source.
        batch_size: Number of texts in one call of the model; by default about `TOKENS_AT_ONCE` tokens.
    """

    def __init__(self, source: Opened, batch_size: int | None = None) -> None:
        self.engine, self._batch_size = source.model, batch_size
        self.model = getattr(source.model, "model", None) if source.engine == "keras" else None
        self.generates = not isinstance(source.model, Forward)
        self._several_labels = source.info.problem_type == "multi_label_classification"
        self.start: tuple[int, ...] = ()
        """Tokens that an encoder-decoder's decoder reads: its first one, and one that is forced to follow it."""
        if not isinstance(source.model, Forward) and source.model.is_encoder_decoder:
            settings = source.info.generation
            config = GenerationConfig.from_dict({**settings, **source.tokenizer.target_settings(settings)})
            forced = () if config.forced_bos_token_id is None else (config.forced_bos_token_id,)
            self.start = (decoder_start(source.model, config), *forced)

    def batch_size(self, length: int) -> int:
        """Returns the number of texts of `length` tokens in one call."""
        return self._batch_size or max(1, TOKENS_AT_ONCE // length)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs, float32.

        Raises:
            InputError: an output is not finite.
        """
        parts = list(self.batches(inputs))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def batches(self, inputs: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Computes the outputs of one batch after the other, so that those of all texts need not fit into memory.

        Raises:
            InputError: an output is not finite.
        """
        rows, length = inputs["input_ids"].shape
        size = self.batch_size(length)
        for first in range(0, rows, size):
            outputs = self._run({name: array[first : first + size] for name, array in inputs.items()})
            if bad := [name for name, values in outputs.items() if not np.isfinite(values).all()]:
                raise InputError(f"Finite outputs of the model were expected. Received: NaN or infinity in {bad[0]}")
            yield self._with_logits(outputs)
            del outputs  # before the next ones are computed

    def _with_logits(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs with logits instead of probabilities."""
        if PROBABILITIES not in outputs:
            return outputs
        least = np.finfo(np.float32).tiny
        logs = np.log(np.maximum(outputs[PROBABILITIES], least))
        if self._several_labels:
            logs -= np.log(np.maximum(1 - outputs[PROBABILITIES], least))
        return {**{name: array for name, array in outputs.items() if name != PROBABILITIES}, "logits": logs}

    def _run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if isinstance(self.engine, Forward):
            return self.engine.run(inputs)
        if self.model is not None:  # without the compiled functions of generation, which take longer to compile
            outputs = self.next_token(self.model(self.with_start(inputs), training=False))
            return {name: np.asarray(value, np.float32) for name, value in outputs.items()}
        ids = inputs["input_ids"]
        state = self.engine.start(ids, inputs.get("attention_mask", np.ones_like(ids)))
        for first in self._starts(len(ids)).T if self.start else ids[:, -1:].T:
            logits, state = self.engine.step(first[:, None], state)
        return {"logits": logits[:, -1]}

    def with_start(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs of a call of a Keras model, with the first tokens of an encoder-decoder's decoder."""
        if not self.start:
            return dict(inputs)
        return {**inputs, "decoder_input_ids": self._starts(len(inputs["input_ids"]))}

    def _starts(self, count: int) -> np.ndarray:
        return np.tile(np.array(self.start, np.int32), (count, 1))

    @staticmethod
    def next_token(logits: Any) -> dict[str, Any]:
        """Returns the scores of the next token from those of all tokens, `(B, T, V)`."""
        return {"logits": logits[:, -1]}
