"""Bundles on ONNX Runtime: `OnnxForward` for encoders, `OnnxStep` for models that generate. No Keras, no TensorFlow.

Batch and lengths are free. Keys and values of earlier tokens stay in ONNX Runtime's own tensors: what one step gives is
what the next one takes, and nothing of it passes through NumPy. Such a tensor is never changed, so states may share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import BundleError, CapacityError, InputError, require

DECODER, ENCODER, DECODER_WITH_MEMORY = "model", "encoder_model", "decoder_model_merged"
"""Names of the signatures, which are those of the files."""


class OnnxForward:
    """An encoder's bundle; offers `kerasformer.decoding.protocols.Forward`. It may be used by several threads.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signature `model` is used.
        num_threads: CPU threads; ONNX Runtime's choice, all cores, by default.
        providers: ONNX Runtime's execution providers; the CPU by default.
    Raises:
        BundleError: no such signature, or a file that ONNX Runtime cannot load.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
        cache_dir: str | Path | bool | None = None,
    ) -> None:
        self._max_length = manifest.info.max_length
        self._graph = _Graph(folder, manifest, DECODER, num_threads, providers)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the model once.

        Args:
            inputs: `(B, T)` integers: `input_ids`, and what else the model takes. A missing `attention_mask` is all
                ones, missing `token_type_ids` are zeros.

        Returns:
            float32 arrays.

        Raises:
            CapacityError: the texts are longer than the model reads.
            InputError: an input that the model does not take, or of another shape.
        """
        names = self._graph.signature.inputs
        if unknown := sorted(set(inputs) - set(names)):
            raise InputError(f"This model does not take {unknown}. Expected: {list(names)}")
        if "input_ids" not in inputs:
            raise InputError(f"input_ids are needed. Received: {sorted(inputs)}")
        ids = _tokens(inputs["input_ids"], "input_ids")
        if self._max_length is not None and ids.shape[1] > self._max_length:
            raise CapacityError(
                f"The model reads {self._max_length} tokens at most. Received: {ids.shape[1]}. Shorten the text"
            )
        feeds = {}
        for name in names:
            default = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
            feeds[name] = np.asarray(inputs.get(name, default)).astype(np.int64)
            if feeds[name].shape != ids.shape:
                raise InputError(f"{name} must have the shape of input_ids, {ids.shape}. Received: {feeds[name].shape}")
        outputs = list(self._graph.signature.outputs)
        return {name: value.numpy() for name, value in zip(outputs, self._graph.run(feeds, outputs), strict=True)}


@dataclass(frozen=True)
class _State:
    """What is remembered of a batch of `B` rows. Nothing in it is ever changed.

    Attributes:
        past: Keys and values by the names of the graph's inputs, `(B, H, S, D)` each.
        mask: int64 `(B, S)`, 0 where a prompt is padded on its left; all ones for an encoder-decoder.
        memory: `encoder_hidden_states` and `encoder_attention_mask`, for an encoder-decoder.
        steps: How many of the positions came from `step`.
    """

    past: dict[str, Any]
    mask: np.ndarray
    memory: dict[str, Any]
    steps: int = 0


class OnnxStep:
    """A bundle that generates; offers `kerasformer.decoding.protocols.Step`. It may be used by several threads.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signature `model`, or `encoder_model` and `decoder_model_merged`, are used.
        num_threads: CPU threads; ONNX Runtime's choice, all cores, by default.
        providers: ONNX Runtime's execution providers; the CPU by default.
    Raises:
        BundleError: no such signature, no capacity in the manifest, or a file that ONNX Runtime cannot load.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
        cache_dir: str | Path | bool | None = None,
    ) -> None:
        self.is_encoder_decoder = ENCODER in manifest.signatures
        name = DECODER_WITH_MEMORY if self.is_encoder_decoder else DECODER
        self._decoder = _Graph(folder, manifest, name, num_threads, providers)
        self._encoder = _Graph(folder, manifest, ENCODER, num_threads, providers) if self.is_encoder_decoder else None
        if manifest.capacity is None:
            raise BundleError(
                f"The manifest of a model that generates must have a capacity. Received: none in {folder}"
            )
        self.capacity = manifest.capacity
        self._encoder_capacity = manifest.encoder_capacity
        self.vocab_size = int(self._decoder.signature.outputs["logits"].shape[-1])
        self.step_lengths = tuple(range(1, self.capacity + 1))
        self._past = [name for name in self._decoder.signature.inputs if name.startswith("past_key_values.")]

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _State:
        """Reads the prompt; see `Step.start`."""
        ids, mask = _tokens(inputs, "inputs"), _tokens(mask, "mask")
        if ids.shape != mask.shape:
            raise InputError(f"mask must have the shape of inputs, {ids.shape}. Received: {mask.shape}")
        if self._encoder is not None:
            return self._encode(self._encoder, ids, mask)
        self._check_room(ids.shape[1])
        state = _State(self._empty(len(ids)), np.ones((len(ids), 0), np.int64), {})
        if ids.shape[1] > 1:
            _, state = self._advance(ids[:, :-1], mask[:, :-1], state, logits=False)
        # The last token of a prompt is real, and is given to the first step.
        return replace(state, steps=0)

    def step(self, tokens: np.ndarray, state: _State) -> tuple[np.ndarray, _State]:
        """Reads some tokens; see `Step.step`."""
        ids = _tokens(tokens, "tokens")
        if len(ids) != len(state.mask):
            raise InputError(f"tokens must have a row for each of the {len(state.mask)} texts. Received: {len(ids)}")
        self._check_room(state.mask.shape[1] + ids.shape[1])
        # ONNX Runtime's fused attention reads several tokens after others for a single row alone.
        several = len(ids) > 1 and state.mask.shape[1] > 0
        all_logits = []
        for part in np.split(ids, ids.shape[1], axis=1) if several else [ids]:
            logits, state = self._advance(part, np.ones_like(part), state, logits=True)
            all_logits.append(logits.numpy())
        return np.concatenate(all_logits, axis=1), state

    def reorder(self, state: _State, rows: np.ndarray) -> _State:
        """Chooses rows; see `Step.reorder`."""
        rows = np.asarray(rows)
        if np.array_equal(rows, np.arange(len(state.mask))):
            return state
        past = {name: _value(value.numpy()[rows]) for name, value in state.past.items()}
        memory = {name: _value(value.numpy()[rows]) for name, value in state.memory.items()}
        return _State(past, state.mask[rows], memory, state.steps)

    def rewind(self, state: _State, count: int) -> _State:
        """Forgets the last tokens; see `Step.rewind`."""
        if not 0 <= count <= state.steps:
            raise InputError(f"count must be from 0 to {state.steps}, the tokens of earlier steps. Received: {count}")
        kept = state.mask.shape[1] - count
        past = {
            name: value if _is_cross(name) else _value(value.numpy()[:, :, :kept]) for name, value in state.past.items()
        }
        return _State(past, state.mask[:, :kept], state.memory, state.steps - count)

    def fork(self, state: _State) -> _State:
        """The state itself: no step changes it."""
        return state

    def _encode(self, encoder: _Graph, ids: np.ndarray, mask: np.ndarray) -> _State:
        if self._encoder_capacity is not None and ids.shape[1] > self._encoder_capacity:
            raise CapacityError(
                f"The model reads {self._encoder_capacity} tokens at most. Received: {ids.shape[1]}. Shorten the text"
            )
        (hidden,) = encoder.run({"input_ids": ids, "attention_mask": mask}, ["last_hidden_state"])
        memory = {"encoder_hidden_states": hidden, "encoder_attention_mask": _value(mask)}
        return _State(self._empty(len(ids)), np.ones((len(ids), 0), np.int64), memory)

    def _advance(self, ids: np.ndarray, mask: np.ndarray, state: _State, logits: bool) -> tuple[Any, _State]:
        """Reads `(B, T)` tokens, of which `mask` says whether they are real; logits cost time if nobody wants them."""
        whole = np.concatenate([state.mask, mask], axis=1)
        feeds: dict[str, Any] = {"input_ids": ids, **state.past, **state.memory}
        if self._encoder is None:
            # Padding does not count; its own position only has to exist.
            positions = np.maximum(np.cumsum(whole, axis=1) - 1, 0)[:, -ids.shape[1] :]
            feeds |= {"attention_mask": whole, "position_ids": np.ascontiguousarray(positions)}
        # The cross caches are complete after the first step; from then on the same tensors are given again.
        new = [name for name in self._past if state.mask.shape[1] == 0 or not _is_cross(name)]
        wanted = [name.replace("past_key_values", "present") for name in new]
        results = self._decoder.run(feeds, ["logits", *wanted] if logits else wanted)
        past = state.past | dict(zip(new, results[-len(new) :], strict=True))
        return results[0], _State(past, whole, state.memory, state.steps + ids.shape[1])

    def _empty(self, batch: int) -> dict[str, Any]:
        """A past of length 0."""
        sizes = {name: self._decoder.signature.inputs[name].shape for name in self._past}
        return {name: _value(np.zeros((batch, int(s[1]), 0, int(s[3])), np.float32)) for name, s in sizes.items()}

    def _check_room(self, length: int) -> None:
        if length > self.capacity:
            raise CapacityError(
                f"The model holds {self.capacity} tokens, prompt and answer together. Received: {length}. "
                "Shorten the prompt, ask for fewer tokens, or export with a larger capacity"
            )


class _Graph:
    """One ONNX file, loaded."""

    def __init__(
        self, folder: Path, manifest: Manifest, name: str, num_threads: int | None, providers: Sequence[str] | None
    ) -> None:
        onnxruntime = require("onnxruntime", "onnx")
        if name not in manifest.signatures:
            raise BundleError(
                f"An ONNX bundle of this kind has the signature {name!r}. Received: {list(manifest.signatures)} "
                f"in {folder}. Export it again"
            )
        self.signature: Signature = manifest.signatures[name]
        self._run_options = onnxruntime.RunOptions()
        # Not the output projection while a prompt is read, say.
        self._run_options.only_execute_path_to_fetches = True
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        # Threads that wait by spinning take the cores from everything else on the device.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if num_threads is not None:
            options.intra_op_num_threads = num_threads
        path = Path(folder) / self.signature.file
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=list(providers or ["CPUExecutionProvider"])
            )
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise BundleError(f"ONNX Runtime cannot load {path}: {error}. Export it again") from error

    def run(self, feeds: dict[str, Any], outputs: Sequence[str]) -> list[Any]:
        """Runs what `outputs` need; arrays or ONNX Runtime's tensors in, its tensors out."""
        binding = self._session.io_binding()
        values = {name: _value(feed) if isinstance(feed, np.ndarray) else feed for name, feed in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding, self._run_options)
        return list(binding.get_outputs())


def _value(array: np.ndarray) -> Any:
    """ONNX Runtime's tensor of an array."""
    return require("onnxruntime", "onnx").OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _is_cross(name: str) -> bool:
    """Whether a cache holds the encoded text."""
    return ".encoder." in name


def _tokens(array: np.ndarray, name: str) -> np.ndarray:
    """int64 `(B, T)`."""
    array = np.asarray(array)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must be integers (batch, tokens), neither of them 0. "
            f"Received: shape {array.shape}, dtype {array.dtype}"
        )
    return array.astype(np.int64)
