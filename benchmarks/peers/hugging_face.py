"""Answers with the API of Hugging Face, which transformers (PyTorch) and optimum (ONNX Runtime) share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.shapes import VOCABULARY
from kerasformer.bench.question import Question, Tokens


class TokenCallback:
    """A streamer that calls a function after each token."""

    def __init__(self, on_token: Callable[[], Any]) -> None:
        self._on_token = on_token
        self._has_prompt = False

    def put(self, value: Any) -> None:
        """Receives the prompt first, and then one token of each row at a time."""
        if self._has_prompt:
            self._on_token()
        self._has_prompt = True

    def end(self) -> None:
        """Does nothing."""


def embeddings(run: Callable[[Any, Any], Any], question: Question, tokenizer: Any) -> Tokens:
    """Computes the embeddings of a question: pooling by the mean, normalized.

    Texts run one by one, which takes less time on CPUs than padding all of them to the longest one.

    Args:
        run: Returns the hidden states `(B, T, E)` of ids and mask, both int64 `(B, T)`.
        question: Ids or texts.
        tokenizer: Tokenizer for texts.
    """
    import numpy as np

    rows = [question.ids(VOCABULARY)]
    if question.texts:
        rows = [np.array([ids]) for ids in tokenizer(list(question.texts))["input_ids"]]
    for ids in rows:
        ids = ids.astype("int64")
        mask = np.ones_like(ids)
        means = np.asarray(run(ids, mask)).mean(axis=1)
        means / np.linalg.norm(means, axis=1, keepdims=True)
    return Tokens(sum(ids.size for ids in rows), 0)


def answer(model: Any, question: Question, on_token: Callable[[], Any]) -> Tokens:
    """Computes the outputs or generates exactly `question.write` tokens."""
    import torch

    ids = torch.from_numpy(question.ids(VOCABULARY)).long()
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        if not question.write:
            model(input_ids=ids, attention_mask=mask)
            return Tokens(ids.numel(), 0)
        written = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=question.write,
            min_new_tokens=question.write,
            pad_token_id=0,
            num_beams=question.beams,
            streamer=TokenCallback(on_token) if question.beams == 1 else None,
        )
    before = 1 if model.config.is_encoder_decoder else question.read
    return Tokens(ids.numel(), written.shape[0] * (written.shape[1] - before))


def word(token: int) -> str:
    """Returns the word of an id in the tokenizer of `write_tokenizer`."""
    return f"w{token}"


def write_tokenizer(folder: Path) -> None:
    """Writes a tokenizer in which each id is a word; some converters require one, and random checkpoints lack it."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoConfig, PreTrainedTokenizerFast

    config = AutoConfig.from_pretrained(folder)
    names = [word(token) for token in range(config.vocab_size)]
    padding = config.pad_token_id or 0
    names[padding] = "<pad>"  # the converter removes Marian's by its name
    end = names[config.eos_token_id or 1]
    special = {"unk_token": word(2), "bos_token": end, "eos_token": end, "pad_token": names[padding]}
    words = {name: token for token, name in enumerate(names)}
    backend = Tokenizer(WordLevel(words, unk_token=special["unk_token"]))
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)
