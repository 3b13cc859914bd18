"""Engines of Keras models: `Forward`, and `Step` with compiled functions and a cache of fixed size.

Shape letters: `B` batch, `T` tokens of one call, `P` prompt length, `S` capacity, `M` length of the encoded text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import keras
import numpy as np
from keras import ops

from kerasformer import engines
from kerasformer.basics.arguments import check, integer, optional
from kerasformer.bundle.interface import MAX_CAPACITY
from kerasformer.engines.arrays import prompt_arrays, row_indices, step_tokens
from kerasformer.engines.protocols import MIN_REWIND, default_capacity
from kerasformer.engines.saved_state import SavedState, identity_of
from kerasformer.errors import CapacityError, InputError, TokenizerError
from kerasformer.files.adapters import Adapter
from kerasformer.generation import Request, Stream, request
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.generation.streams import Callback
from kerasformer.layers import FixedCache, LayerCache, Visibility, cache_of_slots
from kerasformer.layers.core import lora_change
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor, TensorFunction
from kerasformer.models.named_arrays import check_shapes
from kerasformer.models.weights_digest import WeightsDigest, host_array
from kerasformer.tokenization import Encoding, Tokenizer
from kerasformer.tokenization.fitting import check_known

if TYPE_CHECKING:
    import tensorflow as tf

    from kerasformer.models.contracts import CausalLM, Generated, Prompts, Seq2SeqLM
    from kerasformer.models.pretrained import PretrainedModel

_Compiled = TypeVar("_Compiled")

# Compilation takes seconds for each shape. Therefore prompts are padded to a multiple of the smallest part and read in
# these parts, the texts of encoders are padded to that multiple times a power of two, and caches grow in large steps.
_PARTS = (512, 128, 32)
_BUCKET = _PARTS[-1]
_FIRST_SLOTS, _GROWTH = 256, 4


class KerasForward:
    """The `Forward` protocol for a Keras model that does not generate.

    Args:
        model: A model with `generates = False`.
        function: Function from the inputs, as keyword arguments, to outputs by name; by default `model.named_outputs`.
    """

    def __init__(self, model: PretrainedModel, function: TensorFunction | None = None) -> None:
        self.model = model
        self._key = "outputs", lora_change(model)
        compiled_function = (
            None if function is None or function == model.named_outputs else _of_named_inputs(function, model)
        )
        self._function = compiled_function

    @property
    def _call(self) -> TensorFunction:
        """The compiled function, compiled anew after an adapter was loaded or removed."""
        if self._function is not None:
            return self._function
        return _stored(self.model, self._key, self._compiled)

    def _compiled(self) -> TensorFunction:
        return _of_named_inputs(self.model.named_outputs, self.model)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        _set_adapter(self.model, adapter)

    def output_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Returns the shapes of the model's outputs, in which the batch size and the length of texts are `None`."""
        names = self.model.input_names
        if isinstance(call := self._call, _Graphs):  # the graph that will be run
            outputs = call.graph({name: ops.zeros((1, 1), "int32") for name in names}).structured_outputs
        else:
            outputs = self.model.named_outputs(**{name: keras.KerasTensor((None, None), "int32") for name in names})
        return {name: tuple(output.shape) for name, output in outputs.items()}

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs; see `Forward.run`."""
        arrays = {name: self.model.ids(name, array) for name, array in inputs.items()}
        check_shapes(arrays, self.model.max_length)  # the compiled function has no shapes that it could check
        outputs = self._call(arrays)
        return {name: ops.convert_to_numpy(value).astype("float32") for name, value in outputs.items()}


@dataclass(frozen=True)
class KerasState:
    """State of generation between steps.

    Attributes:
        caches: Tensors `(B, H, S, D)` of each layer's cache; little longer than the window in a layer with a window.
        slots: Number of slots of the caches of layers without a window.
        index: Slot of the next token in all rows.
        unused: Number of slots before `index` that no row uses, since prompts are padded.
        starts: Slot of the first real token of each row, `(B,)` int32.
        memory: Mask `(B, M)` and cross caches of an encoder-decoder; `None` for a decoder.
        steps: Number of tokens from `step` that can be discarded.
    """

    caches: list[tuple[Tensor, ...]]
    slots: int
    index: int
    unused: int
    starts: np.ndarray
    memory: tuple[Tensor, list[tuple[Tensor, ...]]] | None = None
    steps: int = 0

    @property
    def context(self) -> tuple[object, ...]:
        """The arguments of the compiled functions that steps do not change."""
        return (self.starts,) if self.memory is None else self.memory


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

    def __init__(self, model: CausalLM | Seq2SeqLM, capacity: int | None = None, jit_compile: bool = True) -> None:
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
        self._slots = _rounded(self.capacity) + _BUCKET
        self._margin = max((MIN_REWIND, *self.step_lengths))
        self._is_rolling = self._cache_shapes(1, self._slots) != model.cache_shapes(1, self._slots)
        self._jit_compile = jit_compile
        self._key = jit_compile, lora_change(model)
        self._digest = WeightsDigest(model)

    @property
    def prefix_lm(self) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions; see `continues_prompts`."""
        return bool(self.model.config.prefix_lm)

    def _functions(self, slots: int) -> dict[str, TensorFunction]:
        """Returns the compiled functions for caches of this size, compiled anew after an adapter has changed."""
        make = partial(_functions, self.model, self._jit_compile, slots)
        return _stored(self.model, (*self._key, self.prefix_lm, slots), make)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        _set_adapter(self.model, adapter)

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> KerasState:
        """Computes the caches of the prompt; see `Step.start`."""
        inputs, mask = prompt_arrays(inputs, mask, self.input_vocab_size)
        if self.is_encoder_decoder:
            return self._encode(inputs, mask)
        batch, length = inputs.shape
        if length > self.capacity:
            raise CapacityError(
                f"The prompt is longer than the cache. Expected at most {self.capacity} tokens. Received: {length}"
            )
        # The last token is left to the first step. A prefix language model reads it here, too, since all others see it.
        count = length if self.prefix_lm else length - 1
        ids, mask = inputs[:, :count], mask[:, :count]
        unused = -ids.shape[1] % _BUCKET
        ids, mask = (np.pad(array, ((0, 0), (unused, 0))).astype("int32") for array in (ids, mask))
        starts = ids.shape[1] - mask.sum(axis=1, dtype="int32")
        slots = self._sufficient(ids.shape[1] + 1)
        caches, read = self._empty(batch, slots), 0
        parts = (ids.shape[1],) if self.prefix_lm else _PARTS
        while read < ids.shape[1]:
            size = next(size for size in parts if size <= ids.shape[1] - read)
            caches = self._functions(slots)["read"](ids[:, read : read + size], np.int32(read), caches, starts)
            read += size
        return KerasState(caches, slots, unused + length - 1, unused, starts)

    def step(self, tokens: np.ndarray, state: KerasState) -> tuple[np.ndarray, KerasState]:
        """Computes the logits of further tokens; see `Step.step`."""
        tokens = step_tokens(tokens, len(state.starts), self.step_lengths)
        count = tokens.shape[1]
        self._check_room(state, count)
        state = self._with_room(state, count)
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
            state = self._with_room(state, 1)
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
        if state.index - state.unused + count > self.capacity:
            raise CapacityError(f"The cache is full: it holds {self.capacity} tokens")

    def _after(self, state: KerasState, caches: list[tuple[Tensor, ...]], count: int) -> KerasState:
        """Returns the state after `count` more tokens of `step`."""
        steps = min(state.steps + count, self._margin) if self._is_rolling else state.steps + count
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
        if not 0 <= count <= state.steps:
            raise InputError(
                f"count must be from 0 to {state.steps}, the number of tokens that can be discarded. Received: {count}"
            )
        return replace(state, index=state.index - count, steps=state.steps - count)

    def resume(self, state: KerasState, length: int, tokens: np.ndarray) -> KerasState:
        """Keeps the first tokens of a text and reads others after them; see `ResumableStep.resume`."""
        if self.prefix_lm:
            raise InputError(
                "The tokens of a prompt of a prefix language model (prefix_lm) attend to later ones, so that a longer "
                f"prompt is read as a whole. Expected: Step.start. Received: {length} tokens to keep"
            )
        index = state.unused + length
        if self._is_rolling and state.index - index > state.steps:
            raise InputError(
                f"At most {state.steps} tokens can be discarded, because some layers keep only the last tokens. "
                f"Received: {state.index - index}"
            )
        if length + len(tokens) > self.capacity:
            raise CapacityError(f"The cache holds {self.capacity} tokens. Received: {length + len(tokens)}")
        ids = tokens[None].astype("int32")
        state = self._with_room(replace(state, index=index), len(tokens) + 1)
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
        for layer, (caches, spec) in enumerate(zip(state.caches, self.model.cache_specs(), strict=True)):
            slots = spec.shape(1, self._slots, self._margin)[2]
            first, end = self._used_slots(slots, state.index, state.unused)
            for name, cache in zip(spec.tensors, caches, strict=True):
                arrays[f"{name}.{layer}"] = host_array(cache)[:, :, first:end]
        if state.memory is not None:
            arrays["memory_mask"] = host_array(state.memory[0]).astype(np.int64)
            memory = zip(cast("Seq2SeqLM", self.model).memory_specs(), state.memory[1], strict=True)
            for layer, (spec, cross) in enumerate(memory):
                named = zip(spec.tensors, cross, strict=True)
                arrays |= {f"cross_{name}.{layer}": host_array(cache) for name, cache in named}
        return SavedState.copy_of(self.identity(), arrays)

    def restore(self, saved: SavedState) -> KerasState:
        """Copies a state to tensors; the capacity may differ from that at saving. See `ResumableStep.restore`."""
        saved.check_model(self.identity())
        unused = int(saved.integers("unused", (1,), 0, _BUCKET - 1)[0])
        index = int(saved.integers("index", (1,), unused, MAX_CAPACITY + _BUCKET)[0])
        if index - unused > self.capacity:
            raise CapacityError(f"The cache holds {self.capacity} tokens. Received: a state of {index - unused}")
        starts = saved.integers("starts", (None,), 0, index)
        steps = int(saved.integers("steps", (1,), 0, index)[0])
        dtype, batch = np.dtype(self.model.compute_dtype), len(starts)
        caches, num_slots = [], self._sufficient(index + 1)
        for layer, spec in enumerate(self.model.cache_specs()):
            shape, new_shape = (spec.shape(batch, slots, self._margin) for slots in (self._slots, num_slots))
            first, end = self._used_slots(shape[2], index, unused)
            around = ((0, 0), (0, 0), (first, new_shape[2] - end), (0, 0))
            names = (f"{name}.{layer}" for name in spec.tensors)
            used = (saved.array(name, (batch, shape[1], end - first, shape[3]), dtype) for name in names)
            caches.append(tuple(ops.pad(ops.convert_to_tensor(slots), around) for slots in used))
        memory = self._restored_memory(saved, batch) if self.is_encoder_decoder else None
        return KerasState(caches, num_slots, index, unused, starts.astype("int32"), memory, steps)

    def _restored_memory(self, saved: SavedState, batch: int) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        mask = saved.integers("memory_mask", (batch, None), 0, 1)
        dtype = np.dtype(self.model.compute_dtype)
        cross: list[tuple[Tensor, ...]] = []
        for layer, spec in enumerate(cast("Seq2SeqLM", self.model).memory_specs()):
            names, shape = (f"cross_{name}.{layer}" for name in spec.tensors), spec.shape(batch, mask.shape[1])
            cross.append(tuple(ops.convert_to_tensor(saved.array(name, shape, dtype)) for name in names))
        return ops.convert_to_tensor(mask.astype("int32")), cross

    def _used_slots(self, slots: int, index: int, unused: int) -> tuple[int, int]:
        """Returns the first used slot of a cache with `slots` slots, and the end of the used ones."""
        if slots < self._slots:  # those of a window are overwritten in turn
            return 0, min(index, slots)
        return unused, index

    def version(self) -> str:
        """Returns a digest of all weights, since training changes them in place."""
        return self._digest()

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        windows = [shape[2] if shape[2] < self._slots else None for shape in self._cache_shapes(1, self._slots)]
        model = type(self.model).__name__, repr(self.model.config), self.model.compute_dtype
        return identity_of("keras", model, windows, self.version())

    def fork(self, state: KerasState) -> KerasState:
        """Returns the state itself, since its tensors are never modified."""
        return state

    def _sufficient(self, count: int) -> int:
        """Returns the size of caches for `count` slots."""
        slots = _FIRST_SLOTS // 2 if self.is_encoder_decoder else _FIRST_SLOTS  # which hold no prompt
        while slots < min(count, self._slots):
            slots *= _GROWTH
        return min(slots, self._slots)

    def _with_room(self, state: KerasState, count: int) -> KerasState:
        """Returns the state with caches for `count` more tokens."""
        slots = self._sufficient(state.index + count)
        if slots <= state.slots:
            return state
        shapes = self._cache_shapes(len(state.starts), slots)
        grown = [
            tuple(ops.pad(cache, ((0, 0), (0, 0), (0, shape[2] - cache.shape[2]), (0, 0))) for cache in caches)
            for caches, shape in zip(state.caches, shapes, strict=True)
        ]
        return replace(state, caches=grown, slots=slots)

    def _cache_shapes(self, batch: int, slots: int) -> list[tuple[int, ...]]:
        shapes: list[tuple[int, ...]] = self.model.cache_shapes(batch, slots, self._margin)
        return shapes

    def _empty(self, batch: int, slots: int) -> list[tuple[Tensor, ...]]:
        shapes = self._cache_shapes(batch, slots)
        zeros = {shape: ops.zeros(shape, self.model.compute_dtype) for shape in set(shapes)}
        specs = zip(self.model.cache_specs(), shapes, strict=True)
        return [tuple(zeros[shape] for _ in spec.tensors) for spec, shape in specs]

    def _encode(self, inputs: np.ndarray, mask: np.ndarray) -> KerasState:
        limit = self.model.max_length
        if limit is not None and inputs.shape[1] > limit:
            raise CapacityError(
                f"The text is longer than the model. Expected at most {limit} tokens. Received: {inputs.shape[1]}"
            )
        size = _BUCKET
        while size < inputs.shape[1]:
            size *= 2
        padding = min(size, limit or MAX_CAPACITY) - inputs.shape[1]
        ids, mask = (np.pad(array, ((0, 0), (0, padding))).astype("int32") for array in (inputs, mask))
        slots = self._sufficient(1)
        cross = self._functions(slots)["encode"](ids, mask)
        starts = np.zeros(len(ids), "int32")
        return KerasState(self._empty(len(ids), slots), slots, 0, 0, starts, (ops.convert_to_tensor(mask), cross))


def _set_adapter(model: PretrainedModel, adapter: Adapter | None) -> None:
    if adapter is None:
        model.unload_adapter()
    else:
        model.attach_adapter(adapter)


def _stored(model: PretrainedModel, key: tuple[object, ...], make: Callable[[], _Compiled]) -> _Compiled:
    """Returns compiled functions, which are stored in the model, so that the next engine does not compile again."""
    functions: dict[object, _Compiled] = model.__dict__.setdefault("_compiled_functions", {})
    if key not in functions:
        functions[key] = make()
    return functions[key]


def _of_named_inputs(function: TensorFunction, model: PretrainedModel) -> TensorFunction:
    return compiled(lambda inputs: function(**inputs), model, jit_compile=False, any_length=True)


def _rounded(length: int) -> int:
    return -(-length // _BUCKET) * _BUCKET


def _take(caches: Sequence[tuple[Tensor, ...]], rows: np.ndarray) -> list[tuple[Tensor, ...]]:
    return [tuple(ops.take(tensor, rows, axis=0) for tensor in tensors) for tensors in caches]


def _functions(model: CausalLM | Seq2SeqLM, jit_compile: bool, num_slots: int) -> dict[str, TensorFunction]:
    """Compiles the steps of a model; `num_slots` is the number of cache slots of layers without a window."""
    if model.is_encoder_decoder:
        functions = _encoder_decoder_steps(cast("Seq2SeqLM", model), num_slots)
    else:
        decode = _decoder_step(cast("CausalLM", model), num_slots)
        read = _decoder_step(cast("CausalLM", model), num_slots, causal=not model.config.prefix_lm)
        # A prompt needs no logits, which take much time and memory if the vocabulary is large.
        functions = {"decode": decode, "read": lambda *arguments: read(*arguments)[1]}
    functions["write"] = _greedy(functions["decode"], num_slots)
    return {name: compiled(function, model, jit_compile) for name, function in functions.items()}


def _decoder_step(model: CausalLM, num_slots: int, causal: bool = True) -> TensorFunction:
    """Returns the function that reads tokens into the caches, which all see each other if it is not `causal`."""

    def decode(
        tokens: Tensor, index: Tensor, caches: Sequence[tuple[Tensor, Tensor]], starts: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        slots = ops.arange(tokens.shape[1], dtype="int32") + index
        positions = ops.maximum(ops.reshape(slots, (1, -1)) - ops.reshape(starts, (-1, 1)), 0)
        keys = ops.arange(num_slots, dtype="int32")
        # Slots after the tokens are empty.
        used = None if causal else ops.expand_dims(keys < index + tokens.shape[1], 0)
        visibility = Visibility(
            causal=causal, query_slots=slots, key_slots=keys, key_mask=used, positions=positions, starts=starts
        )
        logits, new = model.decode(tokens, visibility, _opened(caches, index, num_slots))
        return logits, _tensors(new)

    return decode


def _encoder_decoder_steps(model: Seq2SeqLM, num_slots: int) -> dict[str, TensorFunction]:
    def encode(ids: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        return model.project_memory(model.encode(ids, mask))

    def decode(
        tokens: Tensor,
        index: Tensor,
        caches: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor,
        cross: Sequence[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        slots = ops.arange(tokens.shape[1], dtype="int32") + index
        keys = ops.arange(num_slots, dtype="int32")
        visibility = Visibility(causal=True, query_slots=slots, key_slots=keys)
        fixed = [FixedCache(tuple(tensors)) for tensors in cross]
        logits, new, _ = model.decode(tokens, visibility, _opened(caches, index, num_slots), memory_mask, fixed)
        return logits, _tensors(new)

    return {"encode": encode, "decode": decode}


def _greedy(decode: TensorFunction, num_slots: int) -> TensorFunction:
    """Returns a function that generates up to `count` tokens after the given ones, until all rows have ended.

    One call for many tokens saves the time of a call, and the caches are updated in place, without a copy.
    """

    def write(
        tokens: Tensor,
        index: Tensor,
        count: Tensor,
        ended: Tensor,
        ends: Tensor,
        caches: Sequence[tuple[Tensor, Tensor]],
        *context: Tensor,
    ) -> tuple[Tensor, ...]:
        def continues(size: Tensor, ended: Tensor, *_: Tensor) -> Tensor:
            return ops.logical_and(size < count, ops.logical_not(ops.all(ended)))

        def add(
            size: Tensor,
            ended: Tensor,
            tokens: Tensor,
            ids: Tensor,
            logits: Tensor,
            caches: Sequence[tuple[Tensor, Tensor]],
        ) -> tuple[Tensor, ...]:
            scores, caches = decode(tokens, index + size, caches, *context)
            scores = ops.cast(scores[:, -1], "float32")
            tokens = ops.cast(ops.argmax(scores, axis=-1, keepdims=True), "int32")
            ended = ops.logical_or(ended, ops.any(ops.equal(tokens, ends), axis=-1))
            ids = ops.slice_update(ids, (0, size), tokens)
            logits = ops.slice_update(logits, (0, size), ops.max(scores, axis=-1, keepdims=True))
            return size + 1, ended, tokens, ids, logits, caches

        shape = ops.shape(tokens)[0], num_slots
        numbers = ops.zeros(shape, "int32"), ops.zeros(shape, "float32")
        size, _, _, ids, logits, caches = ops.while_loop(
            continues, add, (ops.zeros((), "int32"), ended, tokens, *numbers, caches)
        )
        return ids, logits, size, caches

    return write


def _opened(caches: Sequence[Sequence[Tensor]], index: Tensor, num_slots: int) -> list[LayerCache]:
    """Returns caches whose next token has the slot `index`."""
    return [cache_of_slots(tuple(tensors), index, num_slots) for tensors in caches]


def _tensors(caches: Sequence[Any]) -> list[tuple[Tensor, ...]]:
    return [cache.tensors for cache in caches]


class _Graphs:
    """A function as TensorFlow graphs, traced for each new combination of shapes; see `compiled`."""

    def __init__(self, function: TensorFunction, jit_compile: bool, any_length: bool) -> None:
        import tensorflow as tf

        self._function = tf.function(function, jit_compile=jit_compile, autograph=False)
        # XLA needs all shapes, and beside texts of any length, arguments may be weights.
        self._any_batch = not jit_compile and not any_length
        self._any_length = any_length
        self._traced: dict[Hashable, tf.types.experimental.ConcreteFunction] = {}

    def graph(self, *tensors: Tensor) -> tf.types.experimental.ConcreteFunction:
        """Returns the concrete function for these tensors."""
        import tensorflow as tf

        free, fixed = (tensors[0], tensors[1:]) if self._any_length else ({}, tensors)
        # The lookup of TensorFlow takes a millisecond, which is significant for steps of small models.
        key = (*free, *(self._shape(tensor) for tensor in tf.nest.flatten(fixed)))
        if key not in self._traced:
            specs = {name: tf.TensorSpec([None, None], tensor.dtype) for name, tensor in free.items()}
            others = tf.nest.map_structure(lambda tensor: tf.TensorSpec(self._shape(tensor), tensor.dtype), fixed)
            self._traced[key] = self._function.get_concrete_function(*([specs] if free else []), *others)
        return self._traced[key]

    def _shape(self, tensor: Tensor) -> tuple[int | None, ...]:
        """Returns the shape that a graph for this tensor has, with any number of rows except for XLA."""
        shape = tuple(tensor.shape)
        return (None, *shape[1:]) if shape and self._any_batch else shape

    def __call__(self, *arguments: Tensor) -> Tensor | Outputs:
        import tensorflow as tf

        tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        return self.graph(*tensors)(*tensors)


def compiled(
    function: TensorFunction, model: PretrainedModel, jit_compile: bool, any_length: bool = False
) -> TensorFunction:
    """Compiles a function with the active Keras backend.

    Args:
        function: A function of tensors.
        model: The model whose variables it reads.
        jit_compile: Whether to compile it with XLA.
        any_length: Whether to compile it only once for arrays `(batch, length)` of all shapes, the values of the
            dictionary that is its first argument (TensorFlow).
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _Graphs(function, jit_compile, any_length)
    if backend == "jax":
        import jax

        def pure(values: Sequence[Tensor], *arguments: Tensor) -> Tensor | Outputs:
            # Weights are arguments; otherwise the compiled function would contain their current values as constants.
            with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
                return function(*arguments)

        jitted = jax.jit(pure) if jit_compile else pure
        return lambda *arguments: jitted([variable.value for variable in model.variables], *arguments)
    import torch

    def without_gradient(*arguments: Tensor) -> Tensor | Outputs:
        with torch.no_grad():
            return function(*arguments)

    return without_gradient


def generate(
    model: CausalLM | Seq2SeqLM, inputs: Any, attention_mask: np.ndarray | None, settings: GenerationSettings
) -> Generated:
    """Implements `model.generate`."""
    if isinstance(inputs, Mapping):
        inputs, attention_mask = _of_mapping(inputs, attention_mask)
    texts, single = ([inputs], True) if isinstance(inputs, str) else (inputs, False)
    if not (isinstance(texts, Sequence) and texts and isinstance(texts[0], str)):
        ids = _ids(inputs)
        mask = np.ones_like(ids) if attention_mask is None else np.asarray(attention_mask)
        generation, step = _prepared(model, settings)
        output = generation.generate(step, ids, mask)
        return output.sequences if generation.result == "texts" else output
    encoded, settings = _encoded(model, texts, settings)
    generation, step = _prepared(model, settings)
    result = generation.write(step, encoded.input_ids, encoded.attention_mask)
    if generation.result != "texts":
        return result.result(generation.result)
    prefixes = ["" if model.is_encoder_decoder else text for text in texts]
    outputs = [prefix + new for prefix, row in zip(prefixes, result.texts, strict=True) for new in row]
    return outputs[0] if single and len(outputs) == 1 else outputs


def stream(model: CausalLM | Seq2SeqLM, text: str, callback: Callback | None, settings: GenerationSettings) -> Stream:
    """Implements `model.stream`."""
    if not isinstance(text, str):
        raise InputError(f"A stream requires a single text. Received: {str(text)[:80]}")
    encoded, settings = _encoded(model, [text], settings)
    generation, step = _prepared(model, settings)
    return generation.stream(step, encoded.input_ids, encoded.attention_mask, callback)


def _encoded(
    model: PretrainedModel, texts: Sequence[str], settings: GenerationSettings
) -> tuple[Encoding, GenerationSettings]:
    """Tokenizes texts, and replaces the languages among the settings by the settings that they stand for."""
    if model.tokenizer is None:
        raise TokenizerError("This model has no tokenizer. Pass ids, or load the model from a folder with a tokenizer.")
    others = {name: value for name, value in settings.items() if name not in ("src_lang", "tgt_lang")}
    tokenizer = model.tokenizer.for_languages(settings.get("src_lang"), settings.get("tgt_lang"))
    encoded: Encoding = tokenizer(list(texts), padding_side="right")
    check_known(encoded.input_ids, tokenizer, model.config.vocab_size)
    return encoded, {**tokenizer.target_settings({**model.generation_config.to_dict(), **others}), **others}


def _prepared(model: CausalLM | Seq2SeqLM, settings: GenerationSettings) -> tuple[Request, KerasStep]:
    """Returns the requested generation, and an engine for texts of any length."""
    settings = dict(settings)
    jit_compile = settings.pop("jit_compile", True)
    generation = request(settings, model.generation_config, model.tokenizer, partial(_open_assistant, jit_compile))
    return generation, KerasStep(model, model.max_answer_length or MAX_CAPACITY, jit_compile)


def _open_assistant(jit_compile: bool, source: Any) -> tuple[engines.Step, Tokenizer | None]:
    """Returns the engine and tokenizer of an assistant: an engine, a pipeline, a model, or a checkpoint to load."""
    if isinstance(source, engines.Step):
        return source, None
    if isinstance(source, str | os.PathLike):
        from kerasformer.models.loading import load

        source = load(source)
    engine = getattr(source, "model", None)
    if isinstance(engine, engines.Step):
        return engine, source.tokenizer
    if not getattr(source, "generates", False):
        raise InputError(f"A model that generates was expected. Received: {source!r}")
    return KerasStep(source, jit_compile=jit_compile), source.tokenizer


def _of_mapping(
    inputs: Mapping[str, np.ndarray], attention_mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the ids and the attention mask of an encoding or another mapping."""
    arrays = dict(inputs)
    ids, mask = arrays.pop("input_ids", None), arrays.pop("attention_mask", None)
    if ids is None or arrays or (mask is not None and attention_mask is not None):
        raise InputError(
            "Prompts in a dictionary must be input_ids (batch, length) and optionally attention_mask. Received: "
            f"{', '.join([*inputs, *(['attention_mask='] if attention_mask is not None else [])]) or 'nothing'}"
        )
    return ids, attention_mask if mask is None else mask


def _ids(inputs: Prompts) -> np.ndarray:
    try:
        ids = np.asarray(inputs)
    except (TypeError, ValueError):
        ids = np.zeros(0)
    if ids.ndim != 2:
        raise InputError(
            "Prompts must be a text, a list of texts, or ids (batch, length); ids of unequal length must be padded, "
            f"with an attention_mask. Received: {str(inputs)[:80]}"
        )
    return ids
