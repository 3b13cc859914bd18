"""`OnnxStep`: generation on ONNX Runtime, with any batch size and length.

Caches (`caches.py`) and logits stay in buffers that ONNX Runtime reads and writes directly, so that a step copies none
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.adapters import Adapter
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
    LOGITS_START,
    MODEL,
    POSITION_IDS,
)
from kerasformer.engines.adapter_inputs import AdapterInputs
from kerasformer.engines.arrays import check_discarded, check_length, prompt_arrays, row_indices, step_tokens
from kerasformer.engines.onnx.caches import Caches, GrowingCaches, SharedCaches, ShiftingStates
from kerasformer.engines.onnx.session import OnnxSession, tensor
from kerasformer.engines.protocols import check_capacity, read_by_start
from kerasformer.engines.saved_state import SavedState, identity_of
from kerasformer.errors import BundleError, InputError

if TYPE_CHECKING:
    import onnxruntime

_PART = 256
"""Number of tokens of a prompt that are read at once. Fused attention also computes the masked half of the pairs of
tokens in a part."""


@dataclass(frozen=True)
class _Memory:
    """Encoded texts of all rows, for an encoder-decoder; never modified.

    Attributes:
        tensors: Inputs of the decoder by name: hidden states, their mask, keys and values of the cross-attention.
        texts: For each row, index of its text in the batch passed to `start`, int `(B,)`.
    """

    tensors: dict[str, onnxruntime.OrtValue]
    texts: np.ndarray

    def reorder(self, rows: np.ndarray) -> _Memory:
        """Selects rows; nothing is copied if every row keeps its text."""
        texts = self.texts[rows]
        if np.array_equal(texts, self.texts):
            return self
        return _Memory({name: tensor(value.numpy()[rows]) for name, value in self.tensors.items()}, texts)


class _Slots:
    """Which cache slots of each row have tokens, and the positions of these.

    Args:
        mask: int64 `(B, S)`, 0 for padding of a prompt; all later slots have tokens.
    """

    def __init__(self, mask: np.ndarray) -> None:
        self._mask = mask
        self._padded = not mask.all()

    def mask(self, length: int) -> np.ndarray:
        """Returns the mask of the first slots `(B, length)`, which must not be changed."""
        missing = length - self._mask.shape[1]
        if missing > 0:  # with room for more, so that most steps copy nothing
            self._mask = np.pad(self._mask, [(0, 0), (0, missing + length)], constant_values=1)
        return self._mask[:, :length]

    def positions(self, start: int, length: int) -> np.ndarray:
        """Returns the positions of the slots from `start` to `length`, `(B, T)`; those of padding have no meaning."""
        if self._padded:
            return np.maximum(np.cumsum(self.mask(length), axis=1) - 1, 0)[:, start:]
        return np.arange(start, length)[None].repeat(len(self._mask), axis=0)


@dataclass(frozen=True)
class _State:
    """State of a batch of `B` rows.

    Attributes:
        caches: Keys and values of the decoder.
        version: Version of the caches when the state was created.
        length: Number of cache slots in use.
        slots: Which of them have tokens.
        memory: Encoded texts, for an encoder-decoder.
        cache_rows: For each of the caller's rows, its row in the caches, int `(B,)`, so that permuting rows copies
            nothing.
        steps: Number of cached tokens that were added by `step`.
    """

    caches: Caches
    version: int
    length: int
    slots: _Slots
    memory: _Memory | None
    cache_rows: np.ndarray
    steps: int = 0


class OnnxStep:
    """Runs the bundle of a model that generates; implements `kerasformer.engines.protocols.Step`. It is thread-safe.

    Several tokens of one row are processed in one run, and those of several rows too unless the file has fused
    attention. In float32 the logits equal those of single steps up to rounding. In int8 they may differ by some
    hundredths of the largest logit, since a difference in the last bit can change how an activation is rounded.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; the signature `model`, or `encoder_model` and `decoder_model_merged`, is used.
        num_threads: Number of CPU threads; ONNX Runtime's default, all cores, if `None`.
        providers: Execution providers of ONNX Runtime; the CPU by default.
        cache_dir: Ignored; accepted for compatibility with other engines, see `OnnxSession`.
    Raises:
        BundleError: there is no such signature, the manifest has no capacity, or ONNX Runtime cannot load a file.
        InputError: the installed ONNX Runtime lacks a provider.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
        cache_dir: str | Path | bool | None = None,
    ) -> None:
        self._adapter = AdapterInputs(manifest.signatures.values(), manifest.info.name, rank_first=False)

        def session(name: str) -> OnnxSession:
            opened = OnnxSession(folder, manifest, name, num_threads, providers)
            opened.hold(self._adapter.arrays)
            return opened

        self.is_encoder_decoder = ENCODER_MODEL in manifest.signatures
        name = DECODER_MODEL if self.is_encoder_decoder else MODEL
        self._decoder = session(name)
        self._encoder = None
        if self.is_encoder_decoder:
            self._encoder = session(ENCODER_MODEL)
        if manifest.capacity is None:
            raise BundleError(
                f"The manifest of a model that generates must have a capacity. Received: none in {folder}"
            )
        self.capacity = manifest.capacity
        self._encoder_capacity = manifest.encoder_capacity
        # Manifests of version 1 do not say which tensors share memory.
        self._fused = self._decoder.in_place or manifest.profile == "ort"
        self._digest = manifest.model_digest
        self.vocab_size = int(self._decoder.signature.outputs[LOGITS].shape[-1])
        self.input_vocab_size = manifest.info.input_vocab_size(self.vocab_size)
        self._cache_names, self._cross_names = (
            self._decoder.signature.named(*kinds) for kinds in (CACHES, CROSS_CACHES)
        )
        caches = [self._decoder.signature.inputs[name] for name in self._cache_names]
        # The tokens of a step can be discarded, unless a model can discard none.
        self._margin = min((info.margin for info in caches if info.margin is not None), default=self.capacity)
        self.rewinds = self._margin > 0
        self.step_lengths = tuple(range(1, min(self._margin or self.capacity, self.capacity) + 1))

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Processes the prompts; see `Step.start`."""
        ids, mask = prompt_arrays(inputs, mask, self.input_vocab_size, "int64")
        memory = None
        if self._encoder is not None:
            memory = self._encode(self._encoder, ids, mask)
        else:
            check_capacity(self, ids.shape[1])
        read = read_by_start(self, ids)
        caches = self._empty(len(ids), read.shape[1] + 1)
        state = _State(caches, 0, 0, _Slots(read_by_start(self, mask)), memory, np.arange(len(ids)))
        return replace(self._read(read, state), steps=0)

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Processes the next tokens; see `Step.step`."""
        cache_rows = state.cache_rows
        ids = step_tokens(tokens, len(cache_rows), dtype="int64")
        check_capacity(self, state.length + ids.shape[1])
        if len(ids) == 1 or _in_order(cache_rows):
            return self._process(ids, state)
        logits, state = self._process(ids[np.argsort(cache_rows)], state)
        return logits[cache_rows], state

    def _process(self, ids: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Returns the logits of the next tokens, both in the row order of the caches."""
        if len(ids) == 1 or not state.length or not self._fused:
            return self._advance(ids, state, logits=True)
        # With filled caches, fused attention supports several tokens only for a single row.
        parts = []
        for column in np.split(ids, ids.shape[1], axis=1):
            logits, state = self._advance(column, state, logits=True)
            parts.append(logits)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), state

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """Selects rows; see `Step.reorder`."""
        _check_current(state)
        size = len(state.cache_rows)
        rows = row_indices(rows, size)
        if len(rows) == size and _in_order(rows):
            return state
        sources, cache_rows = _arranged(state.cache_rows[rows], size)
        caches = state.caches.reorder(sources, state.length)
        memory = None if state.memory is None else state.memory.reorder(sources)
        slots = _Slots(state.slots.mask(state.length)[sources])
        return _State(caches, caches.version, state.length, slots, memory, cache_rows, state.steps)

    def rewind(self, state: _State, count: int) -> _State:
        """Removes the last tokens; see `Step.rewind`."""
        _check_current(state)
        check_discarded(count, state.steps)
        # Their slots are overwritten by later steps.
        return replace(state, length=state.length - count, steps=state.steps - count)

    def resume(self, state: _State, length: int, tokens: np.ndarray) -> _State:
        """Keeps the first tokens of a text and processes others after them; see `ResumableStep.resume`."""
        _check_current(state)
        check_capacity(self, length + len(tokens))
        if self._margin < self.capacity:
            check_discarded(state.length - length, state.steps)
        kept = replace(state, length=length, slots=_Slots(state.slots.mask(length)), steps=0)
        return replace(self._read(tokens[None].astype("int64"), kept), steps=0)

    def save(self, state: _State) -> SavedState:
        """Copies a state; see `ResumableStep.save`."""
        _check_current(state)
        mask = state.slots.mask(state.length)
        arrays = {"mask": mask, "cache_rows": state.cache_rows, "steps": np.array([state.steps])}
        arrays |= state.caches.content(state.length)
        if state.memory is not None:
            arrays |= {name: value.numpy() for name, value in state.memory.tensors.items()}
            arrays["texts"] = state.memory.texts
        caches = {*self._cache_names, *self._cross_names}
        arrays = {
            name: array.astype(np.int64) if array.dtype.kind == "i" and name not in caches else array
            for name, array in arrays.items()
        }
        return SavedState.copy_of(self.identity(), arrays)

    def restore(self, saved: SavedState) -> _State:
        """Copies a saved state into new caches; see `ResumableStep.restore`."""
        saved.check_model(self.identity())
        mask = saved.integers("mask", (None, None), 0, 1)
        batch, length = mask.shape
        check_capacity(self, length)
        rows = saved.integers("cache_rows", (batch,), 0, batch - 1)
        steps = saved.integers("steps", (1,), 0, min(length, self._margin))
        content = {name: self._saved(saved, name, batch, length) for name in self._cache_names}
        caches: Caches
        if self._shares_caches:
            caches = SharedCaches.filled(self._decoder, content, length, self.capacity)
        else:
            caches = GrowingCaches.filled(self._decoder, content, length)
        memory = self._restored_memory(saved, batch) if self.is_encoder_decoder else None
        return _State(caches, caches.version, length, _Slots(mask), memory, rows, int(steps[0]))

    def _restored_memory(self, saved: SavedState, batch: int) -> _Memory:
        mask = saved.integers(ENCODER_ATTENTION_MASK, (batch, None), 0, 1)
        length = mask.shape[1]
        size = int(self._decoder.signature.inputs[ENCODER_STATES].shape[-1])
        arrays = {
            ENCODER_STATES: saved.array(ENCODER_STATES, (batch, length, size), "float32"),
            ENCODER_ATTENTION_MASK: mask,
            **{name: self._saved(saved, name, batch, length) for name in self._cross_names},
        }
        texts = saved.integers("texts", (batch,), 0, np.iinfo(np.int32).max)
        return _Memory({name: tensor(array) for name, array in arrays.items()}, texts)

    def _saved(self, saved: SavedState, name: str, batch: int, length: int) -> np.ndarray:
        """Returns the saved tensor of a cache."""
        info = self._decoder.signature.inputs[name]
        slots = length if info.margin is None else int(info.shape[2])
        return saved.array(name, (batch, int(info.shape[1]), slots, int(info.shape[3])), info.dtype)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`.

        Not while another thread runs the model, which would read parts of both.
        """
        self._adapter.set(adapter)

    def version(self) -> str:
        """Returns a digest of the adapter, since the weights of a bundle do not change."""
        return self._adapter.version

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        return identity_of(self._digest, self.version())

    def fork(self, state: _State) -> _State:
        """Copies a state; see `Step.fork`."""
        _check_current(state)
        caches = state.caches.fork(state.length)
        return replace(state, caches=caches, version=caches.version)

    def _encode(self, encoder: OnnxSession, ids: np.ndarray, mask: np.ndarray) -> _Memory:
        """Encodes the texts and computes the keys and values of the cross-attention, once for all steps."""
        check_length(ids.shape[1], self._encoder_capacity)
        (hidden,) = encoder.call({INPUT_IDS: ids, ATTENTION_MASK: mask}, [LAST_HIDDEN_STATE])
        tensors = {ENCODER_STATES: hidden, ENCODER_ATTENTION_MASK: tensor(mask)}
        empty = GrowingCaches.empty(self._decoder, [*self._cache_names, *self._cross_names], len(ids)).past
        feeds = {**tensors, **empty, INPUT_IDS: np.zeros((len(ids), 1), np.int64)}
        after = self._decoder.signature.continued()
        projected = self._decoder.call(feeds, [after[name] for name in self._cross_names])
        return _Memory(tensors | dict(zip(self._cross_names, projected, strict=True)), np.arange(len(ids)))

    def _read(self, ids: np.ndarray, state: _State) -> _State:
        """Processes tokens of prompts `(B, T)` without logits; fused attention reads those of a single row in parts."""
        size = _PART if len(ids) == 1 and isinstance(state.caches, SharedCaches) else max(ids.shape[1], 1)
        for start in range(0, ids.shape[1], size):
            _, state = self._advance(ids[:, start : start + size], state, logits=False)
        return state

    def _advance(self, ids: np.ndarray, state: _State, logits: bool) -> tuple[np.ndarray, _State]:
        """Processes tokens `(B, T)`; computing logits takes time and is optional."""
        _check_current(state)
        expected, count = self._decoder.signature.inputs, ids.shape[1]
        length = state.length + count
        inputs: dict[str, np.ndarray | onnxruntime.OrtValue] = {INPUT_IDS: ids}
        if state.memory is None:
            inputs[ATTENTION_MASK] = state.slots.mask(length)
            # A model without position embeddings, such as one with ALiBi, may lack the input.
            if POSITION_IDS in expected:
                inputs[POSITION_IDS] = state.slots.positions(state.length, length)
        else:
            inputs |= state.memory.tensors
        # For a decoder that cannot derive the number of valid slots from its attention mask.
        if CACHE_LENGTH in expected:
            inputs[CACHE_LENGTH] = np.array([state.length])
        # ONNX Runtime computes all outputs; the logits of one token take the least time.
        if LOGITS_START in expected:
            inputs[LOGITS_START] = np.array([0 if logits else count - 1])
        scores = np.empty((*ids.shape, self.vocab_size), np.float32) if logits else np.empty(0, np.float32)
        caches = state.caches.run(inputs, state.length, count, (LOGITS, scores) if logits else None)
        steps = min(state.steps + count, self._margin)
        return scores, _State(caches, caches.version, length, state.slots, state.memory, state.cache_rows, steps)

    def _empty(self, batch: int, length: int) -> Caches:
        """Returns caches for prompts of `length` tokens, shared ones if the file supports them."""
        if self._shares_caches:
            return SharedCaches.empty(self._decoder, self._cache_names, batch, length, self.capacity)
        return GrowingCaches.empty(self._decoder, self._cache_names, batch)

    @property
    def _shares_caches(self) -> bool:
        """Whether steps update the caches in place."""
        states = ShiftingStates.named(self._decoder, self._cache_names)
        growing = set(self._cache_names) - set(states)
        return self._decoder.on_cpu and self._decoder.in_place.issuperset(growing)


def _arranged(parents: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Assigns cache rows to rows with these parents so that few are copied.

    The first child of each parent keeps the parent's cache row; the other children get the rows of parents without
    children. For parents 0, 2, 0, 3 only the second 0 is copied, to row 1. Both are assigned in ascending order, so
    that beams of the same text stay next to each other.

    Returns:
        For each cache row the row to copy it from, and for each of the caller's rows its cache row.
    """
    if len(parents) != size:
        return parents, np.arange(len(parents))
    every = np.arange(size)
    _, first = np.unique(parents, return_index=True)
    others = np.setdiff1d(every, first)
    cache_rows = parents.copy()
    cache_rows[others[np.argsort(parents[others], kind="stable")]] = np.setdiff1d(every, parents)
    return parents[np.argsort(cache_rows)], cache_rows


def _in_order(rows: np.ndarray) -> bool:
    return np.array_equal(rows, np.arange(len(rows)))


def _check_current(state: _State) -> None:
    """Raises `InputError` for a state whose caches were changed by a later step."""
    if state.version != state.caches.version:
        raise InputError(
            "A state can be used only once, because the next step reuses its caches. "
            "Continue with the state returned by `step` or `reorder`, or `fork` a state to use it twice"
        )
