"""What a Keras model computes on the way to an answer: attention weights, hidden states, and what its head reads there.

Shape letters: `L` layers, `H` heads, `T` tokens, `M` tokens of the encoded text, `P` places, `N` candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.errors import CapacityError
from kerasformer.models import attention_outputs, family
from kerasformer.pipelines import Opened
from kerasformer.tools.interpretability.attention_sources import BundleSource, shifted
from kerasformer.tools.interpretability.explainer.answers import (
    MASK,
    VECTOR,
    Answers,
    Continued,
    arrays,
    described,
    kind_of,
    masked,
    of_gaps,
)
from kerasformer.tools.interpretability.explainer.readings import Reading

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

__all__ = ["Attention", "Insides", "family", "insides", "of_bundle"]


@dataclass(frozen=True)
class Attention:
    """Attention weights of one stack.

    Attributes:
        name: `"encoder"`, `"decoder"` or `"cross"`.
        weights: `(L, H, T, M)`, the rows of which are those of queries; a layer without attention is left out.
        layers: Indices of the layers.
        queries: Token ids `(T,)`.
        keys: Token ids `(M,)`.
    """

    name: str
    weights: np.ndarray
    layers: tuple[int, ...]
    queries: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class Insides:
    """What a model computes for one text.

    Attributes:
        attentions: Weights of all stacks.
        layers: Answers that the head gives from the input of the first layer and from the output of each layer, `L + 1`
            of them; none for a model whose answers are vectors.
    """

    attentions: tuple[Attention, ...]
    layers: tuple[Answers, ...]


def insides(model: PretrainedModel, opened: Opened, text: Continued | Reading) -> Insides:
    """Runs a Keras model once and returns what it computed."""
    inputs = _inputs(opened, text)
    decoder = inputs.get("decoder_input_ids")
    if family(model) == "encoder-decoder" and decoder is None:
        decoder = _array(model.backbone.shift_right(inputs["input_ids"], inputs.get("attention_mask")))
    states: dict[str, Any] = model(inputs, return_hidden_states=True, return_attention=True)
    weights = {
        stack: {index: _array(each)[0] for index, each in enumerate(states.get(key, ())) if each is not None}
        for stack, key in attention_outputs(model).items()
    }
    return Insides(_attentions(weights, inputs["input_ids"], decoder), _layers(model, opened, text, inputs, states))


def of_bundle(source: BundleSource, opened: Opened, text: Continued | Reading) -> Insides:
    """Runs a bundle that was exported with attention weights; it has no hidden states."""
    inputs = _inputs(opened, text)
    if opened.info.is_encoder_decoder and "decoder_input_ids" not in inputs:
        return Insides((), ())
    try:
        weights = {stack: {each.index: each.weights for each in layers} for stack, layers in source.run(inputs).items()}
    except CapacityError:  # the signature with attention weights may be shorter than the others
        return Insides((), ())
    decoder = inputs.get("decoder_input_ids")
    if "cross" in weights and decoder is None:
        decoder = shifted(opened.info, inputs["input_ids"])
    return Insides(_attentions(weights, inputs["input_ids"], decoder), ())


def _inputs(opened: Opened, text: Continued | Reading) -> dict[str, np.ndarray]:
    """Returns int32 arrays `(1, T)` of all tokens that a model reads, of a continued text without the last one."""
    if not isinstance(text, Continued):
        return arrays(opened.info, text.inputs)
    ids = text.ids[:-1][None]
    if opened.info.is_encoder_decoder:
        return {**arrays(opened.info, text.reading.inputs), "decoder_input_ids": ids}
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _array(tensor: Any) -> np.ndarray:
    from kerasformer.models import host_array

    array = host_array(tensor)
    return array if array.dtype.kind in "iu" else array.astype(np.float32, copy=False)


def _attentions(
    weights: dict[str, dict[int, np.ndarray]], ids: np.ndarray, decoder: np.ndarray | None
) -> tuple[Attention, ...]:
    """Returns the attention of each stack from weights `(H, T, M)` by stack and layer."""
    found = []
    for stack, layers in weights.items():
        queries = ids[0] if decoder is None or stack == "encoder" else decoder[0]
        keys = ids[0] if decoder is None or stack != "decoder" else decoder[0]
        if layers:
            stacked = np.stack([layers[index] for index in sorted(layers)])[:, :, : len(queries), : len(keys)]
            found.append(Attention(stack, stacked, tuple(sorted(layers)), queries, keys))
    return tuple(found)


def _layers(
    model: PretrainedModel, opened: Opened, text: Continued | Reading, inputs: dict[str, Any], states: dict[str, Any]
) -> tuple[Answers, ...]:
    """Lets the head read the states of each layer, after the norm that follows the last one.

    Reference: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    kind = kind_of(opened)
    if kind == VECTOR:
        return ()
    gaps: list[int] = []
    if kind == MASK and isinstance(text, Reading):
        gaps, texts = masked(opened, text)
        inputs = arrays(opened.info, texts)
        states = model(inputs, return_hidden_states=True, return_attention=False)
    answers = []
    for hidden in _normed(model, states["hidden_states"]):
        if isinstance(text, Continued):
            scores = _array(model.project(hidden))[0]
            answers.append(Answers("next", tuple(range(1, len(scores) + 1)), scores))
            continue
        layer = {"output": hidden}
        pooler = getattr(model.backbone, "pooler", None)
        if pooler is not None:
            layer["pooled"] = pooler(hidden[:, 0])
        outputs = {name: _array(value) for name, value in model.named(model.answer(layer, inputs, False)).items()}
        answers.append(of_gaps(outputs, gaps) if gaps else described(opened.info, outputs, text))
    return tuple(answers)


def _normed(model: PretrainedModel, hidden: tuple[Any, ...]) -> list[Any]:
    """Returns the states of all layers as the head expects them; those of the last layer already are."""
    stack = getattr(model.backbone, "decoder", None) or model.backbone.encoder
    projection = getattr(model.backbone, "output_projection", None)
    states = list(hidden)
    for index, state in enumerate(states[:-1]):
        if stack.final_norm is not None:
            state = stack.final_norm(state)
        states[index] = state if projection is None else projection(state)
    return states
