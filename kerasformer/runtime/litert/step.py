"""`LiteRTStep`: generation on LiteRT.

A TFLite file has static shapes. Each generated row has a cache of its own; steps of several rows take several such
caches and read the weights once, and the answer of a row does not depend on its neighbours. A step of several tokens is
of one row.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.bundle.interface import CACHES, CROSS_CACHES, Kind
from kerasformer.decoding.arrays import prompt_arrays, row_indices, token_array
from kerasformer.errors import BundleError, CapacityError, InputError
from kerasformer.runtime.litert.engine import Held
from kerasformer.runtime.litert.signatures import (
    by_length,
    decode_steps,
    open_file,
    prefill_plan,
    row_lengths,
    rows_at_once,
    smallest,
    verify_steps,
)

_POOL_SIZE = 16
"""Sets of cache buffers kept for later rows."""


@dataclass
class _Row:
    """One text that is being generated.

    Attributes:
        caches: Keys and values of the self attention, updated in place.
        cross: Keys and values of the encoded text, shared by rows that continue the same one.
        encoder_mask: int32 `(1, S)`, for an encoder-decoder.
        encoded: Tokens of the encoded text.
        position: Tokens in the caches.
        steps: How many of them came from `step`.
        release: Gives the caches back to the pool, once; also called when the row is forgotten.
    """

    caches: dict[str, Held]
    cross: dict[str, Held]
    encoder_mask: np.ndarray | None
    encoded: int = 0
    position: int = 0
    steps: int = 0
    release: Any = None

    def reach(self, count: int = 1) -> int:
        """Positions that a step of so many tokens sees."""
        return max(self.position + count, self.encoded)


@dataclass
class LiteRTState:
    """What `LiteRTStep` remembers; `rows` is `None` once a later state has taken its buffers over."""

    rows: list[_Row] | None


class LiteRTStep:
    """The bundle of a model that generates; offers `kerasformer.decoding.protocols.Step`.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signatures of the roles `prefill` or `encode`, `decode` and `verify` are used.
            Without `verify`, a step reads one token.
        num_threads: CPU threads; as many as there are CPUs, at most 8, by default.
        cache_dir: Folder for packed weights, which make the next start faster at the cost of as much disk.
        accelerator: `"gpu"` or `"npu"`.
    Raises:
        BundleError: no such signature, or a file that LiteRT cannot load.
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
                "A bundle that generates has a signature of the role 'decode' for one text. "
                f"Received: {list(manifest.signatures)}"
            )
        # The one that sees all slots serves whatever no other one fits.
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
        self.vocab_size = int(decode.outputs[logits].shape[-1])
        role = Role.ENCODE if self.is_encoder_decoder else Role.PREFILL
        self._signatures = by_length(manifest, role, needed=self.is_encoder_decoder)
        self._verifies = verify_steps(manifest)
        self.step_lengths = (1, *self._verifies)
        mask = decode.input(Kind.MEMORY_MASK)
        self._encoder_capacity = 0 if mask is None else int(decode.inputs[mask].shape[1])
        self._pad = manifest.info.pad_token_id or 0
        self._engine = open_file(folder, manifest, num_threads, cache_dir, accelerator)
        self._free: list[dict[str, Held]] = []
        self._spare: dict[str, Held] = {}
        self._row_names: dict[str, list[dict[str, str]]] = {}
        self._lock = RLock()

    def limited_to(self, names: Container[str]) -> LiteRTStep:
        """The same loaded file, of which only these signatures are run, and the plain step where no other one fits."""
        other = copy.copy(self)
        other._signatures = {size: chosen for size, chosen in self._signatures.items() if chosen[0] in names}
        other._steps, other._verifies = _named(self._steps, names), _named(self._verifies, names)
        other.step_lengths = (1, *other._verifies)
        return other

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> LiteRTState:
        """Reads the prompts; see `Step.start`. The padding of a row is left out, on whichever side it is.

        Raises:
            CapacityError: a prompt is longer than the cache, or an input than the encoder.
            InputError: a prompt without tokens, or arrays of other shapes.
        """
        ids, mask = prompt_arrays(inputs, mask, self.vocab_size)
        with self._lock:
            if self.is_encoder_decoder:
                return LiteRTState(self._encode(ids, mask))
            prompts = [ids[row][mask[row] > 0] for row in range(len(ids))]
            longest = max(map(len, prompts))
            if longest > self.capacity:
                raise CapacityError(
                    f"A prompt has at most {self.capacity} tokens here. Received: {longest}. Shorten it"
                )
            return LiteRTState([self._prefill(prompt[:-1]) for prompt in prompts])

    def step(self, tokens: np.ndarray, state: LiteRTState) -> tuple[np.ndarray, LiteRTState]:
        """Reads some tokens of each row; see `Step.step`.

        Raises:
            CapacityError: a row's cache is full.
            InputError: tokens of another shape, outside of the vocabulary, or a state that was used before.
        """
        tokens, rows = token_array("tokens", tokens, self.vocab_size), _alive(state)
        if len(tokens) != len(rows) or tokens.shape[1] not in self.step_lengths:
            raise InputError(
                f"A step reads tokens of {len(rows)} rows, as many of each as step_lengths says: {self.step_lengths}. "
                f"Received: shape {tokens.shape}"
            )
        count = tokens.shape[1]
        if any(row.position + count > self.capacity for row in rows):
            raise CapacityError(
                f"The cache is full: it holds {self.capacity} tokens, prompt and generated ones together"
            )
        with self._lock:
            state.rows = None
            if count == 1:
                logits = self._read_rows(rows, tokens)
            else:
                logits = np.concatenate([self._read_tokens(row, ids) for row, ids in zip(rows, tokens, strict=True)])
            for row in rows:
                row.steps += count
        return logits, LiteRTState(rows)

    def reorder(self, state: LiteRTState, rows: np.ndarray) -> LiteRTState:
        """See `Step.reorder`. A row that goes on once keeps its buffers; only further copies of it are copied.

        Raises:
            InputError: a row that is not there, or a state that was used before.
        """
        with self._lock:
            old = _alive(state)
            wanted = row_indices(rows, len(old)).tolist()
            state.rows = None
            for index in set(range(len(old))) - set(wanted):
                old[index].release()
            seen: set[int] = set()
            new = []
            for index in wanted:
                new.append(self._copy(old[index]) if index in seen else old[index])
                seen.add(index)
        return LiteRTState(new)

    def rewind(self, state: LiteRTState, count: int) -> LiteRTState:
        """See `Step.rewind`. What the forgotten tokens left in the caches is overwritten before it is read.

        Raises:
            InputError: more tokens than `step` has taken, or a state that was used before.
        """
        with self._lock:
            rows = _alive(state)
            most = min((row.steps for row in rows), default=0)
            if not 0 <= count <= most:
                raise InputError(f"Between 0 and {most} tokens can be taken back. Received: {count}")
            state.rows = None
            for row in rows:
                row.position -= count
                row.steps -= count
        return LiteRTState(rows)

    def fork(self, state: LiteRTState) -> LiteRTState:
        """See `Step.fork`.

        Raises:
            InputError: a state that was used before.
        """
        with self._lock:
            return LiteRTState([self._copy(row) for row in _alive(state)])

    def _encode(self, ids: np.ndarray, mask: np.ndarray) -> list[_Row]:
        lengths = row_lengths(mask)
        chosen = [smallest(self._signatures, length, "input") for length in lengths]
        rows = []
        for index, (length, (size, name, _)) in enumerate(zip(lengths, chosen, strict=True)):
            text, real = np.full((1, size), self._pad, np.int32), np.zeros((1, size), np.int32)
            text[0, :length], real[0, :length] = ids[index, :length], mask[index, :length]
            given = _filled(self._all[name], {Kind.IDS: text, Kind.MASK: real})
            cross = {key: self._engine.hold(self._decode_name, key) for key in self._cross_names}
            self._engine.run(name, given, cross)
            encoder_mask = np.zeros((1, self._encoder_capacity), np.int32)
            encoder_mask[0, :length] = mask[index, :length]
            rows.append(self._row(cross, encoder_mask, length))
        return rows

    def _prefill(self, prompt: np.ndarray) -> _Row:
        row = self._row({}, None)
        for size in prefill_plan(len(prompt), self.capacity, list(self._signatures)):
            part = prompt[row.position : row.position + size]
            if size == 1:
                self._read_rows([row], part[None])
                continue
            tokens = np.full((1, size), self._pad, np.int32)
            tokens[0, : len(part)] = part
            slots = np.arange(row.position, row.position + size, dtype=np.int32)
            name = self._signatures[size][0]
            self._engine.run(name, _filled(self._all[name], {Kind.IDS: tokens, Kind.SLOTS: slots}), row.caches)
            row.position += len(part)
        return row

    def _read_rows(self, rows: list[_Row], tokens: np.ndarray) -> np.ndarray:
        """Logits `(N, 1, V)` of one token `(N, 1)` for each row."""
        logits = np.empty((len(rows), 1, self.vocab_size), np.float32)
        # Texts of like length together, for the longest one decides how far a step reaches.
        left = sorted(range(len(rows)), key=lambda index: rows[index].reach())
        while left:
            count, name = self._next_step([rows[index].reach() for index in left])
            now, left = left[:count], left[count:]
            logits[now] = self._decode(name, [rows[index] for index in now], tokens[now])
        return logits

    def _read_tokens(self, row: _Row, ids: np.ndarray) -> np.ndarray:
        """Logits `(1, T, V)` of several tokens `(T,)` of a row: in one run, if there is one that reaches so far."""
        for reach, name in self._verifies[len(ids)].items():
            if row.reach(len(ids)) <= reach:
                return self._decode(name, [row], ids[None])
        return np.concatenate([self._read_rows([row], token[None, None]) for token in ids], axis=1)

    def _next_step(self, reaches: list[int]) -> tuple[int, str]:
        """How many of the rows the next step takes, given how far each reaches (ascending), and its signature."""
        if self._steps:
            size = rows_at_once(len(reaches), self._steps)
            for reach, name in self._steps[size].items():
                if reaches[:size][-1] <= reach:
                    return size, name
        return 1, self._decode_name

    def _decode(self, name: str, rows: list[_Row], tokens: np.ndarray) -> np.ndarray:
        """Logits `(N, T, V)` of tokens `(N, T)`, of which either is 1; `name` may be a step with room for more rows."""
        signature = self._all[name]
        room, count = signature.rows or 1, signature.tokens or 1
        slots = [row.position + offset for row in rows for offset in range(count)] + [0] * (room - len(rows))
        # The rows of an encoder-decoder all began with one token, and write to one slot.
        written = int(signature.inputs[str(signature.input(Kind.SLOTS))].shape[0])
        arrays = {Kind.SLOTS: np.array(slots[:written], np.int32), Kind.IDS: np.zeros((room, count), np.int32)}
        arrays[Kind.IDS][: len(rows)] = tokens
        if self.is_encoder_decoder:
            masks = [row.encoder_mask for row in rows if row.encoder_mask is not None]
            arrays[Kind.MEMORY_MASK] = np.concatenate([*masks, *masks[:1] * (room - len(masks))])
        if room > len(rows) and not self._spare:
            self._spare.update(self._caches())
        unused = [{**self._spare, **rows[0].cross}] * (room - len(rows))
        names = self._names_of_rows(name)
        held = {}
        for index, caches in enumerate([*({**row.caches, **row.cross} for row in rows), *unused]):
            held.update({names[index][key]: tensor for key, tensor in caches.items()})
        logits = self._engine.run(name, _filled(signature, arrays), held)[str(signature.output(Kind.LOGITS))]
        for row in rows:
            row.position += count
        return logits[: len(rows)]

    def _row(self, cross: dict[str, Held], encoder_mask: np.ndarray | None, encoded: int = 0) -> _Row:
        """A row with caches from the pool. Old content is never read: the mask hides what a row has not written."""
        caches = self._free.pop() if self._free else self._caches()
        row = _Row(caches, cross, encoder_mask, encoded)
        row.release = weakref.finalize(row, _give_back, self._free, caches)
        row.release.atexit = False
        return row

    def _caches(self) -> dict[str, Held]:
        return {name: self._engine.hold(self._decode_name, name) for name in self._cache_names}

    def _names_of_rows(self, name: str) -> list[dict[str, str]]:
        """For each row of a step, the names of its caches by those of the plain step."""
        if name not in self._row_names:
            plain, step = self._all[self._decode_name], self._all[name]
            held = {
                (plain.inputs[key].kind, plain.inputs[key].layer): key for key in plain.named(*CACHES, *CROSS_CACHES)
            }
            by_row: dict[int, dict[str, str]] = {}
            for key in step.named(*CACHES, *CROSS_CACHES):
                info = step.inputs[key]
                by_row.setdefault(info.row or 0, {})[held[info.kind, info.layer]] = key
            self._row_names[name] = [by_row[row] for row in sorted(by_row)]
        return self._row_names[name]

    def _copy(self, row: _Row) -> _Row:
        new = self._row(row.cross, row.encoder_mask, row.encoded)
        new.position, new.steps = row.position, row.steps
        for name, source in row.caches.items():
            self._engine.copy(source, new.caches[name], row.position)
        return new


def _give_back(pool: list[dict[str, Held]], caches: dict[str, Held]) -> None:
    if len(pool) < _POOL_SIZE:
        pool.append(caches)


def _named(steps: dict[int, dict[int, str]], names: Container[str]) -> dict[int, dict[int, str]]:
    """Those of the steps that have one of these names."""
    kept = {size: {reach: name for reach, name in of.items() if name in names} for size, of in steps.items()}
    return {size: of for size, of in kept.items() if of}


def _filled(signature: Signature, arrays: Mapping[Kind, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by the names that a signature gives to inputs of these kinds."""
    return {str(signature.input(kind)): array for kind, array in arrays.items()}


def _alive(state: LiteRTState) -> list[_Row]:
    if state.rows is None:
        raise InputError("This state was used before, and its buffers went on to the next one. Use that, or fork first")
    return state.rows
