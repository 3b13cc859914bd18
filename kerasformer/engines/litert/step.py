"""`LiteRTStep`: generation on LiteRT.

Shapes in a TFLite file are static. Each generated row has a separate cache. Steps for several rows take several such
caches and read the weights once; the result of a row does not depend on the other rows. Steps for several tokens
process a single row.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.bundle.adapters import Adapter
from kerasformer.bundle.interface import CACHES, CROSS_CACHES, Kind, without_row
from kerasformer.engines.arrays import check_discarded, prompt_arrays, row_indices, row_lengths, step_tokens
from kerasformer.engines.litert.engine import KeptTensor
from kerasformer.engines.litert.held_adapter import HeldAdapter
from kerasformer.engines.litert.signatures import (
    by_length,
    decode_steps,
    open_file,
    prefill_plan,
    prefill_steps,
    rows_at_once,
    smallest,
    verify_steps,
)
from kerasformer.engines.protocols import check_capacity, read_by_start
from kerasformer.engines.saved_state import SavedState, identity_of
from kerasformer.errors import BundleError, InputError

_POOL_SIZE = 16
"""Maximum number of unused sets of cache buffers kept for later rows."""


@dataclass
class _Row:
    """A text that is being generated.

    Attributes:
        caches: Tensors of the layers' caches by name, updated in place.
        cross: Keys and values of the encoded text by name, shared by rows with the same text.
        encoder_mask: Mask of the encoded text, int32 `(1, M)`; `None` for a decoder-only model.
        encoded: Number of tokens of the encoded text.
        position: Number of tokens in the caches, which is the position of the next token.
        steps: Number of these tokens that were added by `step` and can be discarded.
        held: For each signature that was run for this row alone, all tensors that it was run with.
        release: Returns the caches to the pool, once; also called when the row is garbage-collected.
    """

    caches: dict[str, KeptTensor]
    cross: dict[str, KeptTensor]
    encoder_mask: np.ndarray | None
    encoded: int = 0
    position: int = 0
    steps: int = 0
    held: dict[str, dict[str, KeptTensor]] = field(default_factory=dict)
    release: Any = None

    def reach(self, count: int = 1) -> int:
        """Returns the number of slots that a step of `count` tokens attends to."""
        return max(self.position + count, self.encoded)


@dataclass
class LiteRTState:
    """State of `LiteRTStep`; `rows` is `None` after its buffers were passed on to a later state."""

    rows: list[_Row] | None


class LiteRTStep:
    """Runs the bundle of a model that generates; implements `kerasformer.engines.protocols.Step`.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; signatures of the roles `prefill` or `encode`, `decode` and `verify` are used.
            Without `verify`, a step processes one token.
        num_threads: Number of CPU threads; by default the number of CPUs, at most 8.
        cache_dir: Folder for packed weights, which make later loads faster and take as much disk space as the model.
        accelerator: `"gpu"` or `"npu"`.
    Raises:
        BundleError: there is no such signature, or LiteRT cannot load the file.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        *,
        cache_dir: str | Path | bool | None = None,
        accelerator: str | None = None,
    ) -> None:
        self._all, self._steps = manifest.signatures, decode_steps(manifest)
        if 1 not in self._steps:
            raise BundleError(
                "The bundle of a model that generates must have a signature of the role 'decode' for one text. "
                f"Received: {list(manifest.signatures)}"
            )
        # The signature with the full cache length, used if no other one is suitable.
        self._decode_name = list(self._steps[1].values())[-1]
        decode = self._all[self._decode_name]
        logits = decode.output(Kind.LOGITS)
        self._cache_names = decode.named(*CACHES)
        self._cross_names = decode.named(*CROSS_CACHES)
        if not self._cache_names or logits is None:
            raise BundleError(
                f"{self._decode_name} needs logits, and caches as inputs and outputs. Received: {list(decode.inputs)}"
            )
        self.is_encoder_decoder = manifest.info.is_encoder_decoder
        self.capacity = manifest.capacity or max(int(decode.inputs[name].shape[2]) for name in self._cache_names)
        caches = [decode.inputs[name] for name in self._cache_names]
        self._margin = min((info.margin for info in caches if info.margin is not None), default=self.capacity)
        self._recurrent = frozenset(decode.named(Kind.RECURRENT))
        self.rewinds = not self._recurrent
        self.vocab_size = int(decode.outputs[logits].shape[-1])
        self.input_vocab_size = manifest.info.input_vocab_size(self.vocab_size)
        self._encoders = by_length(manifest, Role.ENCODE, needed=self.is_encoder_decoder)
        self._prefills = prefill_steps(manifest)
        self._verifies = verify_steps(manifest)
        self.step_lengths = (1, *self._verifies)
        mask = decode.input(Kind.MEMORY_MASK)
        self._encoder_capacity = 0 if mask is None else int(decode.inputs[mask].shape[1])
        self._pad = manifest.info.input_padding
        self._digest = manifest.model_digest
        self._engine = open_file(folder, manifest, num_threads, cache_dir, accelerator)
        self._adapter = HeldAdapter(self._engine, manifest)
        self._free: list[dict[str, KeptTensor]] = []
        self._spare: dict[str, KeptTensor] = {}
        self._row_names: dict[str, list[dict[str, str]]] = {}
        self._lock = RLock()

    def limited_to(self, names: Container[str]) -> LiteRTStep:
        """Returns an engine for the same loaded file that runs only these signatures, or `decode` if none fits."""
        other = copy.copy(self)
        other._encoders = {size: entry for size, entry in self._encoders.items() if entry[0] in names}
        other._steps, other._verifies = _named(self._steps, names), _named(self._verifies, names)
        other._prefills = _named(self._prefills, names)
        other.step_lengths = (1, *other._verifies)
        return other

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> LiteRTState:
        """Processes the prompts; see `Step.start`. Padding is skipped, on either side.

        Raises:
            CapacityError: a prompt exceeds the cache, or an input the encoder's capacity.
            InputError: a prompt has no tokens, or an array has a wrong shape.
        """
        ids, mask = prompt_arrays(inputs, mask, self.input_vocab_size)
        with self._lock:
            if self.is_encoder_decoder:
                return LiteRTState(self._encode(ids, mask))
            prompts = [ids[row][mask[row] > 0] for row in range(len(ids))]
            check_capacity(self, max(map(len, prompts)))
            return LiteRTState([self._prefill(read_by_start(self, prompt)) for prompt in prompts])

    def step(self, tokens: np.ndarray, state: LiteRTState) -> tuple[np.ndarray, LiteRTState]:
        """Processes the next tokens of each row; see `Step.step`.

        Raises:
            CapacityError: the cache of a row is full.
            InputError: the tokens have a wrong shape, or the state was used before.
        """
        rows = _rows_of(state)
        tokens = step_tokens(tokens, len(rows), self.step_lengths)
        count = tokens.shape[1]
        check_capacity(self, count + max((row.position for row in rows), default=0))
        with self._lock:
            state.rows = None
            if count == 1:
                logits = self._step_rows(rows, tokens)
            else:
                logits = np.concatenate([self._step_tokens(row, ids) for row, ids in zip(rows, tokens, strict=True)])
            for row in rows:
                row.steps = min(row.steps + count, self._margin)
        return logits, LiteRTState(rows)

    def step_together(self, texts: Sequence[tuple[np.ndarray, LiteRTState]]) -> list[tuple[np.ndarray, LiteRTState]]:
        """Processes the next token of texts with separate states; see `JointStep.step_together`."""
        parts = [_rows_of(state) for _, state in texts]
        for (tokens, _), rows in zip(texts, parts, strict=True):
            step_tokens(tokens, len(rows), (1,))
        ends = np.cumsum([len(rows) for rows in parts])[:-1]
        tokens = np.concatenate([tokens for tokens, _ in texts])
        logits, _ = self.step(tokens, LiteRTState([row for rows in parts for row in rows]))
        for _, state in texts:
            state.rows = None
        return [(part, LiteRTState(rows)) for part, rows in zip(np.split(logits, ends), parts, strict=True)]

    def reorder(self, state: LiteRTState, rows: np.ndarray) -> LiteRTState:
        """Selects rows; see `Step.reorder`. A row that is selected once keeps its buffers; only duplicates are copied.

        Raises:
            InputError: a row does not exist, or the state was used before.
        """
        with self._lock:
            old = _rows_of(state)
            selected = row_indices(rows, len(old)).tolist()
            state.rows = None
            for index in set(range(len(old))) - set(selected):
                old[index].release()
            seen: set[int] = set()
            new = []
            for index in selected:
                new.append(self._copy(old[index]) if index in seen else old[index])
                seen.add(index)
        return LiteRTState(new)

    def rewind(self, state: LiteRTState, count: int) -> LiteRTState:
        """Removes the last tokens; see `Step.rewind`. Their slots are overwritten before they are read again.

        Raises:
            InputError: `count` exceeds the number of tokens added by `step`, or the state was used before.
        """
        with self._lock:
            rows = _rows_of(state)
            check_discarded(count, min((row.steps for row in rows), default=0))
            state.rows = None
            for row in rows:
                row.position -= count
                row.steps -= count
        return LiteRTState(rows)

    def resume(self, state: LiteRTState, length: int, tokens: np.ndarray) -> LiteRTState:
        """Keeps the first tokens of a text and processes others after them; see `ResumableStep.resume`.

        Raises:
            InputError: the caches of a sliding window no longer have the keys, or the state was used before.
        """
        with self._lock:
            (row,) = _rows_of(state)
            if self._margin < self.capacity:
                check_discarded(row.position - length, row.steps)
            check_capacity(self, length + len(tokens))
            state.rows = None
            row.position, row.steps = length, 0
            self._read(row, tokens)
            return LiteRTState([row])

    def save(self, state: LiteRTState) -> SavedState:
        """Copies a state to host memory; see `ResumableStep.save`.

        Raises:
            InputError: the state was used before.
        """
        with self._lock:
            rows = _rows_of(state)
            # Rows that attend to the same text share its keys and values.
            texts = list({id(row.cross): row for row in rows}.values())
            index = {id(row.cross): position for position, row in enumerate(texts)}
            numbers = {
                "positions": [row.position for row in rows],
                "steps": [row.steps for row in rows],
                "texts": [index[id(row.cross)] for row in rows],
                "encoded": [row.encoded for row in texts],
            }
            arrays = {name: np.array(values, np.int64) for name, values in numbers.items()}
            for number, row in enumerate(rows):
                for name, held in row.caches.items():
                    arrays[f"{number}.{name}"] = self._engine.content(held)[:, :, : self._used(name, row.position)]
            for number, row in enumerate(texts if self.is_encoder_decoder else []):
                arrays[f"{number}.mask"] = np.asarray(row.encoder_mask)
                for name, held in row.cross.items():
                    arrays[f"{number}.{name}"] = self._engine.content(held)[:, :, : row.encoded]
            return SavedState.copy_of(self.identity(), arrays)

    def restore(self, saved: SavedState) -> LiteRTState:
        """Copies a state into buffers; see `ResumableStep.restore`."""
        saved.check_model(self.identity())
        with self._lock:
            positions = saved.integers("positions", (None,), 0, self.capacity)
            steps = saved.integers("steps", positions.shape, 0, self._margin)
            encoded = saved.integers("encoded", (None,), 0, self._encoder_capacity)
            texts = saved.integers("texts", positions.shape, 0, len(encoded) - 1)
            memories: list[tuple[dict[str, KeptTensor], np.ndarray | None]] = [({}, None)] * len(encoded)
            for number in range(len(encoded) * self.is_encoder_decoder):
                held = {name: self._engine.hold(self._decode_name, name) for name in self._cross_names}
                self._fill(held, saved, number, int(encoded[number]))
                memories[number] = held, saved.array(f"{number}.mask", (1, self._encoder_capacity), "int32")
            rows = []
            for number, (position, text) in enumerate(zip(positions.tolist(), texts.tolist(), strict=True)):
                cross, encoder_mask = memories[text]
                row = self._row(cross, encoder_mask, int(encoded[text]))
                self._fill(row.caches, saved, number, position)
                row.position, row.steps = position, int(steps[number])
                rows.append(row)
        return LiteRTState(rows)

    def _fill(self, caches: Mapping[str, KeptTensor], saved: SavedState, number: int, count: int) -> None:
        """Writes the slots of a row or an encoded text to its caches."""
        for name, held in caches.items():
            info = self._all[self._decode_name].inputs[name]
            _, heads, slots, size = (int(dimension) for dimension in info.shape)
            used = min(self._used(name, count), slots)
            self._engine.fill(held, saved.array(f"{number}.{name}", (1, heads, used, size), info.dtype))

    def _used(self, name: str, count: int) -> int:
        """Returns the number of entries of a cache, along its third axis, that `count` tokens have at most."""
        return int(self._all[self._decode_name].inputs[name].shape[2]) if name in self._recurrent else count

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        with self._lock:
            self._adapter.set(adapter)

    def version(self) -> str:
        """Returns a digest of the adapter, since the weights of a bundle do not change."""
        return self._adapter.version

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        return identity_of(self._digest, self.version())

    def fork(self, state: LiteRTState) -> LiteRTState:
        """Copies a state; see `Step.fork`.

        Raises:
            InputError: the state was used before.
        """
        with self._lock:
            return LiteRTState([self._copy(row) for row in _rows_of(state)])

    def _encode(self, ids: np.ndarray, mask: np.ndarray) -> list[_Row]:
        lengths = row_lengths(mask).tolist()
        selected = [smallest(self._encoders, length, "input") for length in lengths]
        rows = []
        for index, (length, (size, name, _)) in enumerate(zip(lengths, selected, strict=True)):
            text, text_mask = np.full((1, size), self._pad, np.int32), np.zeros((1, size), np.int32)
            text[0, :length], text_mask[0, :length] = ids[index, :length], mask[index, :length]
            inputs = _by_name(self._all[name], {Kind.IDS: text, Kind.MASK: text_mask})
            cross = {key: self._engine.hold(self._decode_name, key) for key in self._cross_names}
            self._run(name, inputs, cross)
            encoder_mask = np.zeros((1, self._encoder_capacity), np.int32)
            encoder_mask[0, :length] = mask[index, :length]
            rows.append(self._row(cross, encoder_mask, length))
        return rows

    def _prefill(self, prompt: np.ndarray) -> _Row:
        row = self._row({}, None)
        self._read(row, prompt)
        return row

    def _read(self, row: _Row, tokens_of_prompt: np.ndarray) -> None:
        """Processes tokens of a prompt after those in the caches of a row, without logits."""
        start = row.position
        for size in prefill_plan(len(tokens_of_prompt), self.capacity, list(self._prefills), start):
            part = tokens_of_prompt[row.position - start : row.position - start + size]
            if size == 1:
                self._step_rows([row], part[None])
                continue
            tokens = np.full((1, size), self._pad, np.int32)
            tokens[0, : len(part)] = part
            slots = np.arange(row.position, row.position + size, dtype=np.int32)
            if self._recurrent:
                slots[len(part) :] = -1
            # Padding must not exceed a short cache either: it would be shifted over earlier tokens.
            name = next(name for reach, name in self._prefills[size].items() if row.position + size <= reach)
            self._run(name, _by_name(self._all[name], {Kind.IDS: tokens, Kind.SLOTS: slots}), row.caches)
            row.position += len(part)

    def _step_rows(self, rows: list[_Row], tokens: np.ndarray) -> np.ndarray:
        """Returns logits `(N, 1, V)` for one token of each row, `(N, 1)`."""
        if len(rows) == 1:
            return self._decode(self._next_step([rows[0].reach()])[1], rows, tokens)
        logits = np.empty((len(rows), 1, self.vocab_size), np.float32)
        # A step of an encoder-decoder has one position for all rows; those of separate texts may differ.
        positions = [row.position if self.is_encoder_decoder else 0 for row in rows]
        for position in dict.fromkeys(positions):
            # Rows of similar length are grouped, since the longest one determines the cache length of a step.
            same = [index for index, other in enumerate(positions) if other == position]
            remaining = sorted(same, key=lambda index: rows[index].reach())
            while remaining:
                count, name = self._next_step([rows[index].reach() for index in remaining])
                group, remaining = remaining[:count], remaining[count:]
                logits[group] = self._decode(name, [rows[index] for index in group], tokens[group])
        return logits

    def _step_tokens(self, row: _Row, ids: np.ndarray) -> np.ndarray:
        """Returns logits `(1, T, V)` for several tokens `(T,)` of a row, in one run if a cache length is sufficient."""
        for reach, name in self._verifies[len(ids)].items():
            if row.reach(len(ids)) <= reach:
                return self._decode(name, [row], ids[None])
        return np.concatenate([self._step_rows([row], token[None, None]) for token in ids], axis=1)

    def _next_step(self, reaches: list[int]) -> tuple[int, str]:
        """Returns the number of rows of the next step and its signature, given the ascending reaches of all rows."""
        if self._steps:
            size = rows_at_once(len(reaches), self._steps)
            for reach, name in self._steps[size].items():
                if reaches[:size][-1] <= reach:
                    return size, name
        return 1, self._decode_name

    def _decode(self, name: str, rows: list[_Row], tokens: np.ndarray) -> np.ndarray:
        """Returns logits `(N, T, V)` of tokens `(N, T)`, where `N` or `T` is 1; the signature may have more rows."""
        signature = self._all[name]
        num_rows, count = signature.rows or 1, signature.tokens or 1
        slots = [row.position + offset for row in rows for offset in range(count)] + [0] * (num_rows - len(rows))
        # The rows of an encoder-decoder have the same position and write to the same slot.
        num_slots = int(signature.inputs[str(signature.input(Kind.SLOTS))].shape[0])
        arrays = {Kind.SLOTS: np.array(slots[:num_slots], np.int32), Kind.IDS: np.zeros((num_rows, count), np.int32)}
        arrays[Kind.IDS][: len(rows)] = tokens
        if self.is_encoder_decoder:
            masks = [row.encoder_mask for row in rows if row.encoder_mask is not None]
            arrays[Kind.MEMORY_MASK] = np.concatenate([*masks, *masks[:1] * (num_rows - len(masks))])
        if num_rows > 1:
            held = self._held(name, rows, num_rows)
        elif name in rows[0].held:
            held = rows[0].held[name]
        else:
            held = rows[0].held[name] = self._held(name, rows, 1)
        logits = self._engine.run(name, _by_name(signature, arrays), held)[str(signature.output(Kind.LOGITS))]
        for row in rows:
            row.position += count
        return logits[: len(rows)]

    def _held(self, name: str, rows: list[_Row], num_rows: int) -> dict[str, KeptTensor]:
        """Returns the caches of the rows of a step and the adapter, by the names of the signature's inputs."""
        if num_rows > len(rows) and not self._spare:
            self._spare.update(self._caches())
        unused = [{**self._spare, **rows[0].cross}] * (num_rows - len(rows))
        names = self._names_of_rows(name)
        held = dict(self._adapter.held[name])
        for index, caches in enumerate([*({**row.caches, **row.cross} for row in rows), *unused]):
            held.update({names[index][key]: tensor for key, tensor in caches.items()})
        return held

    def _run(
        self, name: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, KeptTensor] | None = None
    ) -> dict[str, np.ndarray]:
        return self._engine.run(name, inputs, {**(held or {}), **self._adapter.held[name]})

    def _row(self, cross: dict[str, KeptTensor], encoder_mask: np.ndarray | None, encoded: int = 0) -> _Row:
        """Creates a row with caches from the pool; their old content is never read, since it is masked."""
        caches = self._free.pop() if self._free else self._caches()
        row = _Row(caches, cross, encoder_mask, encoded)
        row.release = weakref.finalize(row, _return_caches, self._free, caches)
        row.release.atexit = False
        return row

    def _caches(self) -> dict[str, KeptTensor]:
        return {name: self._engine.hold(self._decode_name, name) for name in self._cache_names}

    def _names_of_rows(self, name: str) -> list[dict[str, str]]:
        """Returns, for each row of a step, the names of its caches by the corresponding names in `decode`."""
        if name not in self._row_names:
            step, by_row = self._all[name], dict[int, dict[str, str]]()
            for key in step.named(*CACHES, *CROSS_CACHES):
                by_row.setdefault(step.inputs[key].row or 0, {})[without_row(key)] = key
            self._row_names[name] = [by_row[row] for row in sorted(by_row)]
        return self._row_names[name]

    def _copy(self, row: _Row) -> _Row:
        new = self._row(row.cross, row.encoder_mask, row.encoded)
        new.position, new.steps = row.position, row.steps
        for name, source in row.caches.items():
            self._engine.copy(source, new.caches[name], self._used(name, row.position))
        return new


def _return_caches(pool: list[dict[str, KeptTensor]], caches: dict[str, KeptTensor]) -> None:
    if len(pool) < _POOL_SIZE:
        pool.append(caches)


def _named(steps: dict[int, dict[int, str]], names: Container[str]) -> dict[int, dict[int, str]]:
    selected = {size: {reach: name for reach, name in of.items() if name in names} for size, of in steps.items()}
    return {size: of for size, of in selected.items() if of}


def _by_name(signature: Signature, arrays: Mapping[Kind, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays by the names of the signature's inputs of these kinds."""
    return {str(signature.input(kind)): array for kind, array in arrays.items()}


def _rows_of(state: LiteRTState) -> list[_Row]:
    if state.rows is None:
        raise InputError("This state was used before, and its buffers belong to the next one. Use that, or fork first")
    return state.rows
