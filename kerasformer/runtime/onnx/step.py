"""`OnnxStep`: generation on ONNX Runtime. Batch and lengths are free.

Keys and values of earlier tokens stay where ONNX Runtime reads and writes them (`caches.py`), and so do the
logits: a step copies none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    CACHE_LENGTH,
    CACHES,
    CROSS_CACHES,
    DECODER_MODEL,
    ENCODER_ATTENTION_MASK,
    ENCODER_MODEL,
    ENCODER_STATES,
    INPUT_IDS,
    LAST_HIDDEN_STATE,
    LOGITS,
    MODEL,
    POSITION_IDS,
)
from kerasformer.decoding.arrays import prompt_arrays, row_indices, token_array
from kerasformer.errors import BundleError, CapacityError, InputError
from kerasformer.runtime.onnx.caches import Caches, GrowingCaches, SharedCaches
from kerasformer.runtime.onnx.session import OnnxSession, tensor


@dataclass(frozen=True)
class _Memory:
    """The encoded text of each row, for an encoder-decoder. Never changed.

    Attributes:
        tensors: Inputs of the decoder: hidden states, their mask, keys and values of the cross attention.
        texts: Which of the texts that were given to `start` each row has, int `(B,)`.
    """

    tensors: dict[str, Any]
    texts: np.ndarray

    def reorder(self, rows: np.ndarray) -> _Memory:
        """That of other rows; nothing is moved between beams of one text."""
        texts = self.texts[rows]
        if np.array_equal(texts, self.texts):
            return self
        return _Memory({name: tensor(value.numpy()[rows]) for name, value in self.tensors.items()}, texts)


@dataclass(frozen=True)
class _State:
    """What is remembered of a batch of `B` rows.

    Attributes:
        caches: Keys and values of the decoder.
        version: Of the caches, when this state came about.
        mask: int64 `(B, S)` over their filled positions, 0 where a prompt is padded on its left.
        memory: Of an encoder-decoder.
        places: Which row of all these each of the caller's rows is, int `(B,)`: rows that only change places are not
            moved.
        steps: How many of the positions came from `step`.
    """

    caches: Caches
    version: int
    mask: np.ndarray
    memory: _Memory | None
    places: np.ndarray
    steps: int = 0

    @property
    def length(self) -> int:
        """Filled positions."""
        return self.mask.shape[1]


class OnnxStep:
    """A bundle that generates; offers `kerasformer.decoding.protocols.Step`. It may be used by several threads.

    Several tokens of one row are read in one run; of several rows where no fused attention stands against it. In
    float32 the answers are those of single steps up to 1e-6. In int8 they may lie some hundredths of the largest logit
    apart: sums differ in their last bits, and a bit decides how an activation is rounded.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signature `model`, or `encoder_model` and `decoder_model_merged`, are used.
        num_threads: CPU threads; ONNX Runtime's choice, all cores, by default.
        providers: ONNX Runtime's execution providers; the CPU by default.
        cache_dir: Taken as other engines take it; nothing is kept, as `OnnxSession` says.
    Raises:
        BundleError: no such signature, no capacity in the manifest, or a file that ONNX Runtime cannot load.
        InputError: a provider that the installed ONNX Runtime lacks.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
        cache_dir: str | Path | bool | None = None,
    ) -> None:
        self.is_encoder_decoder = ENCODER_MODEL in manifest.signatures
        name = DECODER_MODEL if self.is_encoder_decoder else MODEL
        self._decoder = OnnxSession(folder, manifest, name, num_threads, providers)
        self._encoder = None
        if self.is_encoder_decoder:
            self._encoder = OnnxSession(folder, manifest, ENCODER_MODEL, num_threads, providers)
        if manifest.capacity is None:
            raise BundleError(
                f"The manifest of a model that generates must have a capacity. Received: none in {folder}"
            )
        self.capacity = manifest.capacity
        self._encoder_capacity = manifest.encoder_capacity
        self.vocab_size = int(self._decoder.signature.outputs[LOGITS].shape[-1])
        self.step_lengths = tuple(range(1, self.capacity + 1))
        self._own, self._cross = (self._decoder.signature.named(*kinds) for kinds in (CACHES, CROSS_CACHES))

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads the prompt; see `Step.start`."""
        ids, mask = prompt_arrays(inputs, mask, self.vocab_size, "int64")
        memory = None
        if self._encoder is not None:
            memory = self._encode(self._encoder, ids, mask)
        else:
            self._check_room(ids.shape[1])
        nothing = np.ones((len(ids), 0), np.int64)
        state = _State(self._empty(len(ids)), 0, nothing, memory, np.arange(len(ids)))
        if memory is None and ids.shape[1] > 1:
            _, state = self._advance(ids[:, :-1], mask[:, :-1], state, logits=False)
        # The last token of a prompt is real, and is given to the first step.
        return replace(state, steps=0)

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Reads some tokens; see `Step.step`."""
        ids = token_array("tokens", tokens, self.vocab_size, "int64")
        if len(ids) != len(state.mask):
            raise InputError(f"tokens must have a row for each of the {len(state.mask)} texts. Received: {len(ids)}")
        self._check_room(state.length + ids.shape[1])
        places = state.places
        logits, state = self._read(ids[np.argsort(places)], state)
        return (logits if _in_order(places) else logits[places]), state

    def _read(self, ids: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Logits of the next tokens, both in the order of the caches."""
        if len(ids) == 1 or not state.length or not self._decoder.in_place:
            return self._advance(ids, np.ones_like(ids), state, logits=True)
        # The fused attention reads several tokens after others for a single row alone.
        parts = []
        for column in np.split(ids, ids.shape[1], axis=1):
            logits, state = self._advance(column, np.ones_like(column), state, logits=True)
            parts.append(logits)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), state

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """Chooses rows; see `Step.reorder`."""
        _check_current(state)
        rows = row_indices(rows, len(state.mask))
        if len(rows) == len(state.mask) and _in_order(rows):
            return state
        sources, places = _arranged(state.places[rows], len(state.mask))
        caches = state.caches.reorder(sources, state.length)
        memory = None if state.memory is None else state.memory.reorder(sources)
        return _State(caches, caches.version, state.mask[sources], memory, places, state.steps)

    def rewind(self, state: _State, count: int) -> _State:
        """Forgets the last tokens; see `Step.rewind`."""
        _check_current(state)
        if not 0 <= count <= state.steps:
            raise InputError(f"count must be from 0 to {state.steps}, the tokens of earlier steps. Received: {count}")
        # Positions that do not count are overwritten by and by.
        return replace(state, mask=state.mask[:, : state.length - count], steps=state.steps - count)

    def fork(self, state: _State) -> _State:
        """A copy; see `Step.fork`."""
        _check_current(state)
        caches = state.caches.fork(state.length)
        return replace(state, caches=caches, version=caches.version)

    def _encode(self, encoder: OnnxSession, ids: np.ndarray, mask: np.ndarray) -> _Memory:
        """Reads the text, and projects it once for all steps."""
        if self._encoder_capacity is not None and ids.shape[1] > self._encoder_capacity:
            raise CapacityError(
                f"The model reads {self._encoder_capacity} tokens at most. Received: {ids.shape[1]}. Shorten the text"
            )
        (hidden,) = encoder.call({INPUT_IDS: ids, ATTENTION_MASK: mask}, [LAST_HIDDEN_STATE])
        tensors = {ENCODER_STATES: hidden, ENCODER_ATTENTION_MASK: tensor(mask)}
        empty = GrowingCaches.empty(self._decoder, [*self._own, *self._cross], len(ids)).past
        feeds = {**tensors, **empty, INPUT_IDS: np.zeros((len(ids), 1), np.int64)}
        after = self._decoder.signature.continued()
        projected = self._decoder.call(feeds, [after[name] for name in self._cross])
        return _Memory(tensors | dict(zip(self._cross, projected, strict=True)), np.arange(len(ids)))

    def _advance(self, ids: np.ndarray, mask: np.ndarray, state: _State, logits: bool) -> tuple[np.ndarray, _State]:
        """Reads `(B, T)` tokens, of which `mask` says whether they are real; logits cost time if nobody wants them."""
        _check_current(state)
        whole = np.concatenate([state.mask, mask], axis=1)
        inputs: dict[str, Any] = {INPUT_IDS: tensor(ids)}
        if state.memory is None:
            # Padding does not count; its own position only has to exist.
            positions = np.maximum(np.cumsum(whole, axis=1) - 1, 0)[:, -ids.shape[1] :]
            given = {ATTENTION_MASK: whole, POSITION_IDS: positions}
            # A model without positions of its own, such as one with linear biases, need not take them.
            inputs |= {name: tensor(x) for name, x in given.items() if name in self._decoder.signature.inputs}
        else:
            inputs |= state.memory.tensors
        # Says how much of a cache is filled, for a decoder that cannot tell by its attention mask.
        if CACHE_LENGTH in self._decoder.signature.inputs:
            inputs[CACHE_LENGTH] = tensor(np.array([state.length]))
        scores = np.empty((*ids.shape, self.vocab_size), np.float32) if logits else np.empty(0, np.float32)
        caches = state.caches.run(inputs, state.length, ids.shape[1], scores if logits else None)
        steps = state.steps + ids.shape[1]
        return scores, _State(caches, caches.version, whole, state.memory, state.places, steps)

    def _empty(self, batch: int) -> Caches:
        """Without a position."""
        if self._decoder.on_cpu and self._decoder.in_place.issuperset(self._own):
            return SharedCaches.empty(self._decoder, self._own, batch, self.capacity)
        return GrowingCaches.empty(self._decoder, self._own, batch)

    def _check_room(self, length: int) -> None:
        if length > self.capacity:
            raise CapacityError(
                f"The model holds {self.capacity} tokens, prompt and answer together. Received: {length}. "
                "Shorten the prompt, ask for fewer tokens, or export with a larger capacity"
            )


def _arranged(parents: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where rows with these parents go, so that few are copied: the first child of each stays in its parent's place.

    The others take the places of rows without children: of parents 0, 2, 0, 3 only the second 0 is copied, to place 1.
    Both are taken in ascending order, in which beams of one text stay side by side.

    Returns:
        For each place the row that it comes from, and for each row its place.
    """
    if len(parents) != size:
        return parents, np.arange(len(parents))
    every = np.arange(size)
    _, first = np.unique(parents, return_index=True)
    others = np.setdiff1d(every, first)
    places = parents.copy()
    places[others[np.argsort(parents[others], kind="stable")]] = np.setdiff1d(every, parents)
    return parents[np.argsort(places)], places


def _in_order(rows: np.ndarray) -> bool:
    return np.array_equal(rows, np.arange(len(rows)))


def _check_current(state: _State) -> None:
    """Refuses a state whose caches have gone on without it."""
    if state.version != state.caches.version:
        raise InputError(
            "A state is used once: its caches are those of the step that followed. "
            "Go on with what `step` or `reorder` gave, or `fork` a state to use it twice"
        )
