"""The engine of Keras models that generate: `Step` with compiled functions and caches of fixed sizes.

Shape letters: `B` batch, `T` tokens of one call, `P` prompt length, `S` capacity, `M` length of the encoded text.

Called by `opening.engine` and by exports, whose reference answers it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from keras import ops

from kerasformer.basics.arguments import check, integer, optional
from kerasformer.bundle.adapters import Adapter
from kerasformer.bundle.interface import MAX_CAPACITY
from kerasformer.engines.arrays import check_discarded, check_length, prompt_arrays, row_indices, step_tokens
from kerasformer.engines.protocols import MIN_REWIND, check_capacity, default_capacity, read_by_start
from kerasformer.engines.saved_state import SavedState, identity_of
from kerasformer.errors import CapacityError, InputError
from kerasformer.layers.core import lora_change
from kerasformer.layers.tensor import Tensor, TensorFunction
from kerasformer.models.adaptation import set_adapter
from kerasformer.models.compilation import stored
from kerasformer.models.keras_caches import KerasCaches, KerasState
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.step_functions import step_functions
from kerasformer.models.weights_digest import WeightsDigest

# Compilation takes seconds for each shape. Therefore prompts are padded to a multiple of the smallest part and read in
# these parts, and the texts of encoders are padded to that multiple times a power of two.
_PARTS = (512, 128, 32)
_BUCKET = _PARTS[-1]


class KerasStep:
    """The `Step` protocol for a generative Keras model.

    Each step reads the whole cache. It therefore has 256 slots at first, or 128 in an encoder-decoder, which hold the
    answer alone, and four times as many whenever it is full.

    Args:
        model: A `CausalLM` or a `Seq2SeqLM`.
        capacity: Number of tokens of the longest text; by default that of the model, but at most 1024.
        jit_compile: Whether to compile each step with XLA (TensorFlow, JAX), which takes seconds and pays off except
            for tiny models.

    Raises:
        InputError: the model does not generate.
        CapacityError: `capacity` is not positive or exceeds the maximum length of the model.
    """

    # Other numbers are possible, but compilation takes seconds for each.
    step_lengths: tuple[int, ...] = (1, 4, 8)

    def __init__(self, model: PretrainedModel, capacity: int | None = None, jit_compile: bool = True) -> None:
        if not getattr(model, "generates", False):
            raise InputError(f"A model that generates was expected. Received: {model!r}")
        limit = model.max_answer_length
        capacity = check("capacity", capacity, optional(integer(1, MAX_CAPACITY)), error=CapacityError)
        if capacity is not None and limit is not None and capacity > limit:
            raise CapacityError(f"The model has {limit} positions. Received: capacity={capacity!r}")
        self.model = model
        self.is_encoder_decoder = model.is_encoder_decoder
        self.vocab_size = model.output_vocab_size
        self.input_vocab_size = int(model.config.vocab_size)
        self.capacity = capacity or default_capacity(limit)
        # A multiple of the bucket, to compile fewer sizes, and one more bucket for the padding of prompts.
        slots = -(-self.capacity // _BUCKET) * _BUCKET + _BUCKET
        self._caches = KerasCaches(model, slots, max((MIN_REWIND, *self.step_lengths)))
        self._discardable, self.rewinds = self._caches.discardable(), model.rewinds
        self._jit_compile = jit_compile
        self._key = jit_compile, lora_change(model)
        self._digest = WeightsDigest(model)

    @property
    def prefix_lm(self) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions; see `continues_prompts`."""
        return bool(self.model.config.prefix_lm)

    def _functions(self, slots: int) -> dict[str, TensorFunction]:
        """Returns the compiled functions for caches of this size, compiled anew after an adapter has changed."""
        make = partial(step_functions, self.model, self._jit_compile, slots)
        return stored(self.model, (*self._key, self.prefix_lm, slots), make)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        set_adapter(self.model, adapter)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> KerasState:
        """Computes the caches of the prompt; see `Step.start`."""
        inputs, mask = prompt_arrays(inputs, mask, self.input_vocab_size)
        if self.is_encoder_decoder:
            return self._encode(inputs, mask)
        check_capacity(self, inputs.shape[1])
        count = read_by_start(self, inputs).shape[1]
        # A prefix language model reads the last token here, too, since all others see it.
        ids, mask = (array if self.prefix_lm else read_by_start(self, array) for array in (inputs, mask))
        unused = -ids.shape[1] % _BUCKET
        ids, mask = (np.pad(array, ((0, 0), (unused, 0))).astype("int32") for array in (ids, mask))
        starts = ids.shape[1] - mask.sum(axis=1, dtype="int32")
        slots = self._caches.sufficient(ids.shape[1] + 1)
        caches, read = self._caches.empty(len(ids), slots), 0
        parts = (ids.shape[1],) if self.prefix_lm else _PARTS
        while read < ids.shape[1]:
            size = next(size for size in parts if size <= ids.shape[1] - read)
            caches = self._functions(slots)["read"](ids[:, read : read + size], np.int32(read), caches, starts)
            read += size
        return KerasState(caches, slots, unused + count, unused, starts)

    def step(self, tokens: np.ndarray, state: KerasState) -> tuple[np.ndarray, KerasState]:
        """Computes the logits of further tokens; see `Step.step`."""
        tokens = step_tokens(tokens, len(state.starts), self.step_lengths)
        count = tokens.shape[1]
        self._check_room(state, count)
        state = self._caches.with_room(state, count)
        decode = self._functions(state.slots)["decode"]
        logits, caches = decode(tokens, np.int32(state.index), state.caches, *state.context)
        return ops.convert_to_numpy(logits).astype("float32"), self._after(state, caches, count)

    def continue_greedily(
        self, tokens: np.ndarray, state: KerasState, count: int, ended: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, KerasState]:
        """Generates several tokens in one call of a compiled function; see `GreedyStep.continue_greedily`."""
        tokens, ended = step_tokens(tokens, len(state.starts), (1,)), np.array(ended)
        self._check_room(state, count)
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        while count and not ended.all():
            state = self._caches.with_room(state, 1)
            room = min(count, state.slots - state.index)
            write = self._functions(state.slots)["write"]
            limits = np.int32(state.index), np.int32(room), ended, ends
            *numbers, size, caches = write(tokens, *limits, state.caches, *state.context)
            ids, logits = (ops.convert_to_numpy(array)[:, : int(size)] for array in numbers)
            parts.append((ids, logits))
            state, tokens = self._after(state, caches, ids.shape[1]), ids[:, -1:]
            count, ended = count - ids.shape[1], ended | np.isin(ids, ends).any(axis=1)
        new, greatest = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        return new, greatest, state

    def _check_room(self, state: KerasState, count: int) -> None:
        check_capacity(self, state.index - state.unused + count)

    def _after(self, state: KerasState, caches: list[tuple[Tensor, ...]], count: int) -> KerasState:
        """Returns the state after `count` more tokens of `step`."""
        steps = state.steps + count if self._discardable is None else min(state.steps + count, self._discardable)
        return replace(state, caches=caches, index=state.index + count, steps=steps)

    def reorder(self, state: KerasState, rows: np.ndarray) -> KerasState:
        """Returns the state of the given rows; see `Step.reorder`."""
        if np.array_equal(rows, np.arange(len(state.starts))):
            return state
        index = row_indices(rows, len(state.starts)).astype("int32")
        memory = state.memory
        if memory is not None:
            memory = (ops.take(memory[0], index, axis=0), _take(memory[1], index))
        return replace(state, caches=_take(state.caches, index), starts=state.starts[rows], memory=memory)

    def rewind(self, state: KerasState, count: int) -> KerasState:
        """Returns the state before the last `count` tokens, whose slots are overwritten before they are visible."""
        check_discarded(count, state.steps)
        return replace(state, index=state.index - count, steps=state.steps - count)

    def resume(self, state: KerasState, length: int, tokens: np.ndarray) -> KerasState:
        """Keeps the first tokens of a text and reads others after them; see `ResumableStep.resume`."""
        if self.prefix_lm:
            raise InputError(
                "The tokens of a prompt of a prefix language model (prefix_lm) attend to later ones, so that a longer "
                f"prompt is read as a whole. Expected: Step.start. Received: {length} tokens to keep"
            )
        index = state.unused + length
        if self._discardable is not None:
            check_discarded(state.index - index, state.steps)
        check_capacity(self, length + len(tokens))
        ids = tokens[None].astype("int32")
        state = self._caches.with_room(replace(state, index=index), len(tokens) + 1)
        caches, functions, read = state.caches, self._functions(state.slots), 0
        while read < len(tokens):
            # Lengths for which the functions are compiled anyway.
            size = next(size for size in (*_PARTS, *reversed(self.step_lengths)) if size <= len(tokens) - read)
            part = ids[:, read : read + size]
            arguments = part, np.int32(index + read), caches, state.starts
            caches = functions["read"](*arguments) if size in _PARTS else functions["decode"](*arguments)[1]
            read += size
        return replace(state, caches=caches, index=index + read, steps=0)

    def save(self, state: KerasState) -> SavedState:
        """Copies a state to host memory; see `ResumableStep.save`."""
        numbers = {"index": [state.index], "unused": [state.unused], "steps": [state.steps], "starts": state.starts}
        arrays = {name: np.asarray(values, np.int64) for name, values in numbers.items()}
        return SavedState.copy_of(self.identity(), arrays | self._caches.saved(state))

    def restore(self, saved: SavedState) -> KerasState:
        """Copies a state to tensors; the capacity may differ from that at saving. See `ResumableStep.restore`."""
        saved.check_model(self.identity())
        unused = int(saved.integers("unused", (1,), 0, _BUCKET - 1)[0])
        index = int(saved.integers("index", (1,), unused, MAX_CAPACITY + _BUCKET)[0])
        check_capacity(self, index - unused)
        starts = saved.integers("starts", (None,), 0, index)
        steps = int(saved.integers("steps", (1,), 0, index)[0])
        caches, slots, memory = self._caches.restored(saved, len(starts), index, unused)
        return KerasState(caches, slots, index, unused, starts.astype("int32"), memory, steps)

    def version(self) -> str:
        """Returns a digest of all weights, since training changes them in place."""
        return self._digest()

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        model = type(self.model).__name__, repr(self.model.config), self.model.compute_dtype
        return identity_of("keras", model, self._caches.windows(), self.version())

    def fork(self, state: KerasState) -> KerasState:
        """Returns the state itself, since its tensors are never modified."""
        return state

    def _encode(self, inputs: np.ndarray, mask: np.ndarray) -> KerasState:
        limit = self.model.max_length
        check_length(inputs.shape[1], limit)
        size = _BUCKET
        while size < inputs.shape[1]:
            size *= 2
        padding = min(size, limit or MAX_CAPACITY) - inputs.shape[1]
        ids, mask = (np.pad(array, ((0, 0), (0, padding))).astype("int32") for array in (inputs, mask))
        slots = self._caches.sufficient(1)
        cross = self._functions(slots)["encode"](ids, mask)
        memory = ops.convert_to_tensor(mask), cross
        return KerasState(self._caches.empty(len(ids), slots), slots, 0, 0, np.zeros(len(ids), "int32"), memory)


def _take(caches: Sequence[tuple[Tensor, ...]], rows: np.ndarray) -> list[tuple[Tensor, ...]]:
    return [tuple(ops.take(tensor, rows, axis=0) for tensor in tensors) for tensors in caches]
