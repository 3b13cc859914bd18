"""What a Keras model computes on the way to an answer: attention weights, hidden states, and what its head reads there.

Shape letters: `L` layers, `H` heads, `T` tokens, `M` tokens of the encoded text, `P` places, `N` candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.interpretability.explainer.answers import (
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
from kerasformer.interpretability.explainer.readings import Reading
from kerasformer.pipelines.opening import Opened

if TYPE_CHECKING:
    from kerasformer.models.pretrained import PretrainedModel


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
    reading = text.reading if isinstance(text, Continued) else text
    inputs = arrays(opened.info, reading.inputs)
    decoder: np.ndarray | None = None
    if isinstance(text, Continued) and model.is_encoder_decoder:
        decoder = text.ids[:-1]
        inputs = {**inputs, "decoder_input_ids": decoder[None]}
    elif isinstance(text, Continued):
        ids = text.ids[:-1][None]
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    elif model.is_encoder_decoder:
        decoder = _array(model.backbone.shift_right(inputs["input_ids"], inputs.get("attention_mask")))[0]
    states: dict[str, Any] = model(inputs, return_hidden_states=True, return_attention=True)
    encoded = inputs["input_ids"][0]
    return Insides(_attentions(states, encoded, decoder, _is_causal(model)), _layers(model, opened, text, inputs, states))


def _array(tensor: Any) -> np.ndarray:
    from kerasformer.models.weights_digest import host_array

    array = host_array(tensor)
    return array if array.dtype.kind in "iu" else array.astype(np.float32, copy=False)


def _is_causal(model: PretrainedModel) -> bool:
    return hasattr(model.backbone, "decoder") and not hasattr(model.backbone, "encoder")


def _attentions(
    states: dict[str, Any], ids: np.ndarray, decoder: np.ndarray | None, causal: bool
) -> tuple[Attention, ...]:
    if decoder is None:
        stacks = [("decoder" if causal else "encoder", "attentions", ids, ids)]
    else:
        stacks = [
            ("encoder", "encoder_attentions", ids, ids),
            ("decoder", "attentions", decoder, decoder),
            ("cross", "cross_attentions", decoder, ids),
        ]
    found = []
    for name, key, queries, keys in stacks:
        layers = [index for index, weights in enumerate(states.get(key, ())) if weights is not None]
        if layers:
            weights = np.stack([_array(states[key][index])[0] for index in layers])
            found.append(Attention(name, weights[..., : len(keys)], tuple(layers), queries, keys))
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
