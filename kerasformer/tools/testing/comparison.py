"""Inputs, calls of a Keras model and of its reference in `transformers`, and the comparison of outputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import torch

from kerasformer import zoo
from kerasformer.layers import Outputs, Tensor
from kerasformer.models import EncoderDecoder, PretrainedModel
from kerasformer.tools.testing.case import Case, expect

if TYPE_CHECKING:
    import transformers

Arrays = dict[str, np.ndarray]

TOLERANCE = 1e-5
"""Relative to the largest magnitude of the reference; float32 sums in different order differ by some 6e-8 per term."""

HIDDEN = -1e5
"""Scores below this are those of hidden tokens."""
PAD = 0


@dataclass(frozen=True)
class Loaded:
    """A checkpoint, the model of `transformers` that saved it, and the model loaded from it."""

    case: Case
    task: str
    folder: Path
    reference: transformers.PreTrainedModel
    model: PretrainedModel

    @classmethod
    def of(cls, case: Case, task: str, folder: Path) -> Loaded:
        """Creates the reference of a case, saves it to a folder and loads it."""
        reference = case.reference(task)
        reference.save_pretrained(folder)
        return cls(case, task, folder, reference, zoo.load(folder, case.opened_for(task)))


def ragged(lengths: Iterable[int], side: str) -> np.ndarray:
    """Returns the attention mask `(B, T)` of texts of these lengths."""
    lengths = np.array(list(lengths))[:, None]
    slots = np.arange(lengths.max())
    return (slots < lengths if side == "right" else slots >= lengths.max() - lengths).astype("int32")


def make_inputs(loaded: Loaded, side: str | None = "right", seed: int = 0) -> Arrays:
    """Returns random inputs for both models: texts of 9, 4 and 6 tokens with padding on a side; `None` for no padding.

    Left-padded texts come with the positions that their tokens have, where the model takes positions.
    """
    random = np.random.default_rng(seed)
    config, names = loaded.model.config, loaded.model.input_names
    mask = ragged((9, 4, 6), side) if side else np.ones((3, 9), "int32")
    inputs = {"input_ids": random.integers(3, config.vocab_size, mask.shape).astype("int32") * mask}
    if loaded.case.separator is not None and loaded.task == "question-answering":
        for row, real in zip(inputs["input_ids"], mask > 0, strict=True):
            row[np.flatnonzero(real)[[1, 2, -1]]] = loaded.case.separator
    if side:
        inputs["attention_mask"] = mask
    if loaded.case.end_token is not None:
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
        inputs["input_ids"][np.arange(len(mask)), last] = loaded.case.end_token
    if "token_type_ids" in names:
        inputs["token_type_ids"] = random.integers(0, config.num_segments, mask.shape).astype("int32")
    if "decoder_input_ids" in names:
        theirs = ragged((3, 7, 5), "right")  # the text of a decoder starts at slot 0 in every row
        inputs["decoder_input_ids"] = random.integers(3, config.vocab_size, theirs.shape).astype("int32") * theirs
        if side:
            inputs["decoder_attention_mask"] = theirs
    if "langs" in names:
        inputs["langs"] = random.integers(0, config.num_languages, mask.shape).astype("int32")
    if side == "left" and takes_positions(loaded):
        inputs["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
    return inputs


def takes_positions(loaded: Loaded) -> bool:
    """Whether the reference accepts `position_ids`, which encoder-decoders do not take here."""
    if isinstance(loaded.model.backbone, EncoderDecoder):
        return False
    return "position_ids" in inspect.signature(loaded.reference.forward).parameters


def run(loaded: Loaded, inputs: Arrays, **options: object) -> Outputs:
    """Returns the outputs of the Keras model by Hugging Face's names."""
    output = loaded.model(inputs, **options)
    return {name: keras.ops.convert_to_numpy(value) for name, value in loaded.model.named(output).items()}


WITHOUT_DECODER_TEXT = ("MarianModel", "PegasusModel")
"""Classes of `transformers` that require the text of the decoder; here, it is that of the encoder, as in BART."""


def run_reference(
    model: transformers.PreTrainedModel, inputs: Arrays, **options: object
) -> transformers.utils.ModelOutput:
    """Returns the outputs of the model of `transformers`."""
    if type(model).__name__ in WITHOUT_DECODER_TEXT and "decoder_input_ids" not in inputs:
        ids = inputs["input_ids"]
        start = np.full_like(ids[:, :1], model.config.decoder_start_token_id)
        inputs = {**inputs, "decoder_input_ids": np.concatenate([start, ids[:, :-1]], axis=1)}
    parts = (model.base_model, getattr(model.base_model, "encoder", None))
    base = next((part for part in parts if hasattr(part, "set_attention_type")), None)
    if base is not None:
        # BigBird keeps full attention after a short text, and cannot return the weights of the text that changes it.
        config, length = model.config, inputs["input_ids"].shape[1]
        short = length <= (5 + 2 * config.num_random_blocks) * config.block_size
        base.set_attention_type("original_full" if short else config.attention_type)
    options |= further_inputs(model, inputs["input_ids"])
    with torch.no_grad():
        return model(**{name: torch.tensor(value).long() for name, value in inputs.items()}, **options)


def further_inputs(model: transformers.PreTrainedModel, ids: np.ndarray) -> Arrays:
    """Returns inputs that the model of `transformers` needs to be that of this package: the global token of LED."""
    if model.config.model_type != "led":
        return {}
    mask = torch.zeros(ids.shape, dtype=torch.long)
    mask[:, 0] = 1
    return {"global_attention_mask": mask}


def dense_weights(banded: np.ndarray) -> np.ndarray:
    """Converts weights of a window around each token, `(B, H, T, 2 * w + 1)`, to `(B, H, T, T)`.

    An even number of columns has the weights of the first token, which is global, before those of the window.
    """
    if banded.shape[-1] % 2 == 0:
        dense = dense_weights(banded[..., 1:])
        dense[..., 0] += banded[..., 0]
        return dense
    *_, length, width = banded.shape
    dense = np.zeros((*banded.shape[:3], length), banded.dtype)
    for query in range(length):
        for slot in range(width):
            key = query - width // 2 + slot
            if 0 <= key < length:
                dense[..., query, key] = banded[..., query, slot]
    return dense


def real(inputs: Arrays, value: np.ndarray) -> np.ndarray:
    """Returns the values of an output `(B, T, …)` at real tokens; all values of an output without `T`."""
    for name in ("decoder_attention_mask", "attention_mask"):
        if name in inputs and value.ndim > 1 and value.shape[:2] == inputs[name].shape:
            return value[inputs[name] > 0]
    return value


def assert_close(
    inputs: Arrays, actual: Tensor, expected: Tensor, name: str = "", tolerance: float = TOLERANCE
) -> float:
    """Asserts equality at real tokens, within `tolerance` of the largest magnitude; returns the error."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    expect(actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}")
    actual, expected = real(inputs, actual), real(inputs, expected)
    # Scores of a question, which cannot be part of the answer, would hide errors in others.
    shown = expected > HIDDEN
    expect((shown == (actual > HIDDEN)).all(), f"{name}: other tokens are hidden")
    actual, expected = actual[shown], expected[shown]
    error = float(np.abs(actual - expected).max() / np.abs(expected).max())
    expect(error <= tolerance, f"{name}: error {error:.1e} of scale, allowed {tolerance:.0e}")
    return error


def assert_same_outputs(inputs: Arrays, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Asserts that all outputs are close; returns the largest error."""
    return max(assert_close(inputs, value, expected[name], name) for name, value in actual.items())
