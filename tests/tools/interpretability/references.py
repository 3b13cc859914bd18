"""Tiny models with the weights of `transformers`, and attribution written out with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers

import kerasformer as kf
from tests import tiny_text

ENTITIES = {0: "O", 1: "B-PER", 2: "B-LOC"}
_ENCODER = {
    "vocab_size": 180, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 50,
    "max_position_embeddings": 64,
}  # fmt: skip
_GPT2 = {"vocab_size": 320, "n_positions": 64, "n_embd": 36, "n_layer": 3, "n_head": 3}


def _bert(head: str, **settings: Any) -> Callable[[], Any]:
    config = lambda: transformers.BertConfig(**_ENCODER, attn_implementation="eager", **settings)  # noqa: E731
    return lambda: getattr(transformers, f"BertFor{head}")(config())


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "classes": (_bert("SequenceClassification", num_labels=3), tiny_text.wordpiece, "text-classification"),
    "entities": (_bert("TokenClassification", id2label=ENTITIES), tiny_text.wordpiece, "token-classification"),
    "answers": (_bert("QuestionAnswering"), tiny_text.wordpiece, "question-answering"),
    "masks": (_bert("MaskedLM"), tiny_text.wordpiece, "fill-mask"),
    "next": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT2, attn_implementation="eager")),
        tiny_text.byte_pairs,
        "text-generation",
    ),
}


@cache
def pair(name: str) -> tuple[Any, Any]:
    """Returns the model of `transformers` and the Keras model with the same weights; tests must not change them."""
    make, tokenizer, task = MODELS[name]
    torch.manual_seed(5)
    reference = make().eval()
    with torch.no_grad():  # larger weights, so that layers are far from linear
        for parameter in reference.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    with TemporaryDirectory() as folder:
        reference.save_pretrained(Path(folder))
        model = kf.load(folder, task)
    model.set_tokenizer(tokenizer())
    return reference, model


def scores(reference: Any, vectors: Any, inputs: dict[str, Any], pick: Callable[[Any], Any]) -> Any:
    """Returns the scores `(B,)` of a model of `transformers` for vectors of tokens `(B, T, E)`."""
    others = {name: array.repeat(len(vectors), 1) for name, array in inputs.items() if name != "input_ids"}
    return pick(reference(inputs_embeds=vectors, **others))


def integrated_gradients(
    reference: Any, inputs: dict[str, Any], changed: np.ndarray, pick: Callable[[Any], Any], steps: int
) -> tuple[np.ndarray, float]:
    """The formula of Captum's `LayerIntegratedGradients`, with Gauss-Legendre: shares `(T,)`, difference of scores."""
    table = reference.get_input_embeddings()
    end, start = (table(torch.as_tensor(ids).long()[None]).detach() for ids in (inputs["input_ids"][0], changed))
    places, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(end)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        point = (start + float(place) * (end - start)).requires_grad_()
        (gradient,) = torch.autograd.grad(scores(reference, point, inputs, pick).sum(), point)
        total += float(weight) * gradient
    with torch.no_grad():
        difference = scores(reference, end, inputs, pick) - scores(reference, start, inputs, pick)
    return (total * (end - start)).sum(-1)[0].numpy(), float(difference)


def gradient_x_input(reference: Any, inputs: dict[str, Any], pick: Callable[[Any], Any]) -> np.ndarray:
    """The gradient at the text times its vectors, `(T,)`."""
    vectors = reference.get_input_embeddings()(inputs["input_ids"].long()).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(scores(reference, vectors, inputs, pick).sum(), vectors)
    shares: np.ndarray = (gradient * vectors).sum(-1)[0].detach().numpy()
    return shares
