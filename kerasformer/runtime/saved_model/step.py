"""`SavedModelStep`: generation on TensorFlow.

Batch and lengths are free. Caches are tensors that no step changes, so that every state can be used again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer
from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    CACHES,
    DECODE,
    ENCODE,
    ENCODER_MASK,
    GENERATE,
    INPUT_IDS,
    LOGITS,
    PREFILL,
    TOKENS,
)
from kerasformer.decoding.arrays import prompt_arrays, row_indices, token_array
from kerasformer.errors import BundleError, CapacityError, InputError, require
from kerasformer.runtime.saved_model.loaded_model import LoadedModel, check_length


@dataclass(frozen=True)
class _State:
    """What is remembered of a batch of `B` rows.

    Attributes:
        caches: Keys and values `(B, H, P, D)`, by name.
        mask: int32 `(B, P)`: 0 where a prompt is padded on its left.
        memory: The step's inputs of an encoded text.
        steps: How many of the positions came from `step`.
    """

    caches: dict[str, Any]
    mask: np.ndarray
    memory: dict[str, Any]
    steps: int = 0


class SavedModelStep:
    """A bundle that generates; offers `kerasformer.decoding.protocols.Step`. It may be used by several threads.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signatures `prefill` or `encode`, and `decode`, are used.
        num_threads: CPU threads of TensorFlow; it must not have started with others.
    Raises:
        BundleError: no such signature, no capacity in the manifest, or a folder that TensorFlow cannot load.
        InputError: TensorFlow has started with other threads.
    """

    def __init__(self, folder: Path, manifest: Manifest, num_threads: int | None = None) -> None:
        self.is_encoder_decoder = ENCODE in manifest.signatures
        self._loaded = LoadedModel(folder, manifest, num_threads)
        if manifest.capacity is None:
            raise BundleError(
                f"The manifest of a model that generates must have a capacity. Received: none in {folder}"
            )
        self.capacity = manifest.capacity
        self.step_lengths = tuple(range(1, self.capacity + 1))
        decode = self._loaded.signature(DECODE)
        self.vocab_size = int(decode.outputs[LOGITS].shape[-1])
        self._caches = decode.named(*CACHES)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads the prompt; see `Step.start`."""
        ids, mask = prompt_arrays(inputs, mask, self.vocab_size)
        caches = {name: self._empty(name, len(ids)) for name in self._caches}
        if self.is_encoder_decoder:
            check_length(ids.shape[1], self._loaded.manifest.encoder_capacity)
            memory = self._loaded.call(ENCODE, {INPUT_IDS: ids, ATTENTION_MASK: mask})
            return _State(caches, np.ones((len(ids), 0), np.int32), {ENCODER_MASK: mask, **memory})
        self._check_room(ids.shape[1])
        before = mask[:, :-1]
        if ids.shape[1] > 1:
            caches = self._loaded.call(PREFILL, {TOKENS: ids[:, :-1], ATTENTION_MASK: before, **caches})
        return _State(caches, before, {})

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Reads some tokens; see `Step.step`."""
        ids = token_array("tokens", tokens, self.vocab_size)
        if len(ids) != len(state.mask):
            raise InputError(f"tokens must have a row for each of the {len(state.mask)} texts. Received: {len(ids)}")
        mask = np.concatenate([state.mask, np.ones_like(ids)], axis=1)
        self._check_room(mask.shape[1])
        others = state.memory or {ATTENTION_MASK: mask}
        results = self._loaded.call(DECODE, {TOKENS: ids, **others, **state.caches})
        logits = results.pop(LOGITS).numpy()
        return logits, _State(results, mask, state.memory, state.steps + ids.shape[1])

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """Chooses rows; see `Step.reorder`."""
        rows = row_indices(rows, len(state.mask))
        if np.array_equal(rows, np.arange(len(state.mask))):
            return state
        caches, memory = (
            {name: _take(tensor, rows) for name, tensor in tensors.items()} for tensors in (state.caches, state.memory)
        )
        return replace(state, caches=caches, memory=memory, mask=state.mask[rows])

    def rewind(self, state: _State, count: int) -> _State:
        """Forgets the last tokens; see `Step.rewind`."""
        if not 0 <= count <= state.steps:
            raise InputError(f"count must be from 0 to {state.steps}, the tokens of earlier steps. Received: {count}")
        length = state.mask.shape[1] - count
        caches = {name: tensor[:, :, :length] for name, tensor in state.caches.items()}
        return replace(state, caches=caches, mask=state.mask[:, :length], steps=state.steps - count)

    def fork(self, state: _State) -> _State:
        """The state itself: its tensors are never changed."""
        return state

    def generate(self, inputs: np.ndarray, mask: np.ndarray, max_new_tokens: int) -> list[list[int]]:
        """What the graph writes by itself: the best token each time, until an end token.

        Args:
            inputs: `(B, P)` int32 ids, padded as `start` takes them.
            mask: `(B, P)` int32, 1 for real tokens.
            max_new_tokens: Most tokens of an answer.

        Returns:
            The new tokens of each row, the end token included.
        """
        ids, mask = prompt_arrays(inputs, mask, self.vocab_size)
        most = check("max_new_tokens", max_new_tokens, integer(1, self.capacity))
        given = {INPUT_IDS: ids, ATTENTION_MASK: mask, "max_new_tokens": most}
        results = self._loaded.call(GENERATE, given)
        rows = zip(results["output_ids"].numpy().tolist(), results["lengths"].numpy().tolist(), strict=True)
        return [row[:length] for row, length in rows]

    def _empty(self, name: str, batch: int) -> np.ndarray:
        """A cache of no token."""
        _, heads, _, size = self._loaded.signature(DECODE).inputs[name].shape
        return np.zeros((batch, int(heads), 0, int(size)), np.float32)

    def _check_room(self, length: int) -> None:
        if length > self.capacity:
            raise CapacityError(
                f"The model holds {self.capacity} tokens, prompt and answer together. Received: {length}. "
                "Shorten the prompt, ask for fewer tokens, or export with a larger capacity"
            )


def _take(tensor: Any, rows: np.ndarray) -> Any:
    """Rows of an array or a tensor."""
    return tensor[rows] if isinstance(tensor, np.ndarray) else require("tensorflow", "tensorflow").gather(tensor, rows)
