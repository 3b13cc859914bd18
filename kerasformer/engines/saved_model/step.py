"""`SavedModelStep`: generation on TensorFlow, with any batch size and length.

Caches are tensors that are never modified, so that every state can be used more than once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.basics.arguments import check, integer
from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    CACHES,
    CROSS_CACHES,
    DECODE,
    ENCODE,
    ENCODER_MASK,
    GENERATE,
    INPUT_IDS,
    LOGITS,
    PREFILL,
    TOKENS,
    Kind,
)
from kerasformer.engines.arrays import check_discarded, check_length, prompt_arrays, row_indices, step_tokens
from kerasformer.engines.protocols import check_capacity, read_by_start
from kerasformer.engines.saved_model.loaded_model import LoadedModel
from kerasformer.engines.saved_state import SavedState, identity_of
from kerasformer.errors import BundleError
from kerasformer.extras import require

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class _State:
    """State of a batch of `B` rows.

    Attributes:
        caches: Keys and values `(B, H, S, D)`, by name.
        mask: Mask of the cached tokens, int32 `(B, S)`: 0 for left padding of a prompt.
        memory: Inputs of a step that describe the encoded texts, by name.
        steps: Number of cached tokens that were added by `step`.
    """

    caches: dict[str, tf.Tensor]
    mask: np.ndarray
    memory: dict[str, tf.Tensor]
    steps: int = 0


class SavedModelStep:
    """Runs the bundle of a model that generates; implements `kerasformer.engines.protocols.Step`. It is thread-safe.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; the signatures `prefill` or `encode`, and `decode`, are used.
        num_threads: Number of CPU threads; cannot be changed after TensorFlow has started.
    Raises:
        BundleError: there is no such signature, the manifest has no capacity, or TensorFlow cannot load the folder.
        InputError: TensorFlow has started with another number of threads.
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
        self.input_vocab_size = manifest.info.input_vocab_size(self.vocab_size)
        self._caches = decode.named(*CACHES)
        self._recurrent = frozenset(decode.named(Kind.RECURRENT))
        self.rewinds = not self._recurrent

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Processes the prompts; see `Step.start`."""
        ids, mask = prompt_arrays(inputs, mask, self.input_vocab_size)
        caches = {name: self._empty(name, len(ids)) for name in self._caches}
        if self.is_encoder_decoder:
            check_length(ids.shape[1], self._loaded.manifest.encoder_capacity)
            memory = self._loaded.call(ENCODE, {INPUT_IDS: ids, ATTENTION_MASK: mask})
            return _State(caches, np.ones((len(ids), 0), np.int32), {ENCODER_MASK: mask, **memory})
        check_capacity(self, ids.shape[1])
        ids, mask = read_by_start(self, ids), read_by_start(self, mask)
        if ids.size:
            caches = self._loaded.call(PREFILL, {TOKENS: ids, ATTENTION_MASK: mask, **caches})
        return _State(caches, mask, {})

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Processes the next tokens; see `Step.step`."""
        ids = step_tokens(tokens, len(state.mask))
        mask = np.concatenate([state.mask, np.ones_like(ids)], axis=1)
        check_capacity(self, mask.shape[1])
        others = state.memory or {ATTENTION_MASK: mask}
        results = self._loaded.call(DECODE, {TOKENS: ids, **others, **state.caches})
        logits = results.pop(LOGITS).numpy()
        return logits, _State(results, mask, state.memory, (state.steps + ids.shape[1]) * self.rewinds)

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """Selects rows; see `Step.reorder`."""
        rows = row_indices(rows, len(state.mask))
        if np.array_equal(rows, np.arange(len(state.mask))):
            return state
        caches, memory = (
            {name: _take(tensor, rows) for name, tensor in tensors.items()} for tensors in (state.caches, state.memory)
        )
        return replace(state, caches=caches, memory=memory, mask=state.mask[rows])

    def rewind(self, state: _State, count: int) -> _State:
        """Removes the last tokens; see `Step.rewind`."""
        check_discarded(count, state.steps)
        return replace(self._cut(state, state.mask.shape[1] - count), steps=state.steps - count)

    def resume(self, state: _State, length: int, tokens: np.ndarray) -> _State:
        """Keeps the first tokens of a text and processes others after them; see `ResumableStep.resume`."""
        if self._recurrent:
            check_discarded(state.mask.shape[1] - length, 0)
        kept = replace(self._cut(state, length), steps=0)
        return replace(self.step(tokens[None], kept)[1], steps=0) if len(tokens) else kept

    def _cut(self, state: _State, length: int) -> _State:
        """Returns a state with the first tokens alone."""
        caches = {
            name: tensor if name in self._recurrent else tensor[:, :, :length] for name, tensor in state.caches.items()
        }
        return replace(state, caches=caches, mask=state.mask[:, :length])

    def save(self, state: _State) -> SavedState:
        """Copies a state; see `ResumableStep.save`."""
        arrays = {"mask": state.mask, "steps": np.array([state.steps]), **state.caches, **state.memory}
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        arrays = {name: array.astype(np.int64) if array.dtype.kind == "i" else array for name, array in arrays.items()}
        return SavedState.copy_of(self.identity(), arrays)

    def restore(self, saved: SavedState) -> _State:
        """Returns a saved state, whose arrays no step modifies; see `ResumableStep.restore`."""
        saved.check_model(self.identity())
        mask = saved.integers("mask", (None, None), 0, 1)
        batch, length = mask.shape
        check_capacity(self, length)
        inputs = self._loaded.signature(DECODE).inputs
        caches, memory = {}, {}
        for name in self._caches:
            caches[name] = saved.array(name, self._shape(name, batch, length), "float32")
        if self.is_encoder_decoder:
            memory[ENCODER_MASK] = saved.integers(ENCODER_MASK, (batch, None), 0, 1).astype(np.int32)
        width = memory[ENCODER_MASK].shape[1] if memory else 0
        for name in self._loaded.signature(DECODE).named(*CROSS_CACHES):
            _, heads, _, size = inputs[name].shape
            memory[name] = saved.array(name, (batch, int(heads), width, int(size)), "float32")
        return _State(caches, mask.astype(np.int32), memory, int(saved.integers("steps", (1,), 0, length)[0]))

    def version(self) -> int:
        """Returns a constant, since the weights of a bundle do not change."""
        return 0

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        return identity_of(self._loaded.manifest.model_digest, self.version())

    def fork(self, state: _State) -> _State:
        """Returns the state itself, since its tensors are never modified."""
        return state

    def generate(self, inputs: np.ndarray, mask: np.ndarray, max_new_tokens: int) -> list[list[int]]:
        """Runs greedy search within the graph, until an end token.

        Args:
            inputs: Token ids, int32 `(B, T)`, padded as for `start`.
            mask: int32 `(B, T)`, 1 for real tokens.
            max_new_tokens: Maximum number of new tokens.

        Returns:
            The new tokens of each row, including the end token.
        """
        ids, mask = prompt_arrays(inputs, mask, self.input_vocab_size)
        limit = check("max_new_tokens", max_new_tokens, integer(1, self.capacity))
        arrays = {INPUT_IDS: ids, ATTENTION_MASK: mask, "max_new_tokens": limit}
        results = self._loaded.call(GENERATE, arrays)
        rows = zip(results["output_ids"].numpy().tolist(), results["lengths"].numpy().tolist(), strict=True)
        return [row[:length] for row, length in rows]

    def _empty(self, name: str, batch: int) -> np.ndarray:
        """Returns a cache without slots."""
        return np.zeros(self._shape(name, batch, 0), np.float32)

    def _shape(self, name: str, batch: int, length: int) -> tuple[int, ...]:
        """Returns the shape of a cache after `length` tokens."""
        _, heads, slots, size = self._loaded.signature(DECODE).inputs[name].shape
        return batch, int(heads), int(slots) if name in self._recurrent else length, int(size)


def _take(tensor: tf.Tensor, rows: np.ndarray) -> tf.Tensor:
    return tensor[rows] if isinstance(tensor, np.ndarray) else require("tensorflow", "tensorflow").gather(tensor, rows)
