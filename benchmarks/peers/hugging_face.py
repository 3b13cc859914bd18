"""`transformers` and `sentence-transformers` on PyTorch in float32, and what other libraries share with them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import Variant
from benchmarks.shapes import VOCABULARY
from kerasformer.tools.bench.own_models import size_mb
from kerasformer.tools.bench.question import Facts, Question, Tokens


class Model(Variant):
    """A model of `transformers`, or of `sentence-transformers` if it has a tokenizer."""

    _model: Any

    def import_runtime(self) -> None:
        import torch  # noqa: F401

        if self._job.shape.package is not None:
            importlib.import_module("sentence_transformers")
        else:
            getattr(importlib.import_module("transformers"), self._job.shape.kind)  # which is imported lazily

    def load(self, threads: int | None) -> Facts:
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        if self._job.shape.package is not None:
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(self._job.checkpoint), device="cpu")
        else:
            import transformers

            kind = getattr(transformers, self._job.shape.kind)
            self._model = kind.from_pretrained(self._job.checkpoint, dtype=torch.float32).eval()
        return self._facts("pytorch", size_mb(self._job.checkpoint))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        if self._job.shape.package is None:
            return answer(self._model, question, on_token)
        import torch

        if question.texts:  # in one call, with the default size of a batch
            self._model.encode(list(question.texts), show_progress_bar=False)
            return Tokens(sum(len(ids) for ids in self._model.tokenizer(list(question.texts))["input_ids"]), 0)
        ids = torch.from_numpy(question.ids(VOCABULARY)).long()
        with torch.inference_mode():
            self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["sentence_embedding"].numpy()
        return Tokens(ids.numel(), 0)


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
