"""Models with further tokens, whose embeddings are new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kerasformer.basics.arguments import STRING, check, sequence
from kerasformer.errors import InputError
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.resized import with_vocabulary


def add_tokens(model: PretrainedModel, tokens: Sequence[str] = (), **named: str) -> PretrainedModel:
    """Creates a model with further special tokens, which must be trained.

        model = kf.zoo.add_tokens(model, [f"<extra_id_{index}>" for index in range(100)])
        model = kf.zoo.add_tokens(model, mask_token="<mask>")

    Their embeddings are random, with the mean and the deviation of those of all other tokens.

    Args:
        model: A model with a tokenizer; it does not change.
        tokens: The tokens. Those that the tokenizer has become special.
        named: Tokens by their name, such as `mask_token` or `sep_token`.

    Returns:
        The model, with a tokenizer that has the tokens.

    Raises:
        InputError: the model has no tokenizer, or one of an unsupported kind, or an argument is not accepted.
        UnsupportedConfigError: the size of the vocabulary is not that of the embeddings.
    """
    if not isinstance(model, PretrainedModel) or model.tokenizer is None:
        received = "a model without tokenizer" if isinstance(model, PretrainedModel) else type(model).__name__
        raise InputError(f"A model with a tokenizer was expected, such as of zoo.load. Received: {received}")
    tokenizer = model.tokenizer.with_tokens(check("tokens", tokens, sequence(STRING)), **named)
    before = model.config.vocab_size
    size = max(before, max(tokenizer.get_vocab().values()) + 1)
    random = np.random.default_rng(before)

    def longer(value: np.ndarray, axis: int) -> np.ndarray:
        count = size - before
        shape = [count if index == axis else length for index, length in enumerate(value.shape)]
        mean, deviation = value.mean(axis, "float32", keepdims=True), value.std(axis, "float32", keepdims=True)
        return np.concatenate([value, (mean + deviation * random.standard_normal(shape)).astype(value.dtype)], axis)

    other = with_vocabulary(model, replace(model.config, vocab_size=size), longer)
    other.set_tokenizer(tokenizer)
    return other
