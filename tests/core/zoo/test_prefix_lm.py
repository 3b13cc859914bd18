"""Prefix language models: the tokens of a prompt attend to each other in both directions, the others causally."""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from kerasformer import generation, zoo
from kerasformer.errors import ExportError, InputError, UnsupportedConfigError
from kerasformer.generation import GenerationConfig
from kerasformer.models.keras_engine import KerasStep
from kerasformer.pipelines.session import Session
from kerasformer.tools.evaluation.likelihood import sequence_logprob
from kerasformer.tools.testing.comparison import ragged
from tests.core.generation.engines import Rows, TorchDecoder
from tests.core.zoo.cases import GPT2, LLAMA

NEW = 6
LENGTHS = 37, 5, 40
"""Lengths of prompts, some of which a causal model reads in two parts."""


class Reference(TorchDecoder):
    """A decoder of `transformers` that reads the whole text at each step, with the mask of the training."""

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        rows = super().start(inputs, mask)
        return Rows(rows.ids, rows.mask, np.full(len(inputs), inputs.shape[1]))

    def logits(self, rows: Rows) -> np.ndarray:
        slots = np.arange(rows.ids.shape[1])
        seen = (slots <= slots[:, None]) | (slots < rows.extra[:, None, None])
        seen = seen & (rows.mask[:, None, : len(slots)] == 1)
        bias = torch.tensor(np.where(seen, 0, -1e9)[:, None], dtype=torch.float32)
        positions = torch.tensor(np.maximum(rows.mask[:, : len(slots)].cumsum(axis=1) - 1, 0))
        with torch.no_grad():
            ids = torch.tensor(rows.ids, dtype=torch.long)
            return self.model(ids, attention_mask=bias, position_ids=positions).logits[:, -1:].numpy()


@cache
def models(name: str) -> tuple[Any, Reference]:
    """The model as it is loaded from a checkpoint of `transformers`, and the reference."""
    torch.manual_seed(0)
    kinds = {"gpt2": (transformers.GPT2Config, GPT2), "llama": (transformers.LlamaConfig, LLAMA)}
    kind, settings = kinds[name]
    config = kind(**settings, initializer_range=0.3, prefix_lm=True, attn_implementation="eager")
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        return zoo.load(folder, "text-generation"), Reference(reference)


@pytest.fixture(params=["gpt2", "llama"])
def pair(request):
    return models(request.param)


def prompts() -> tuple[np.ndarray, np.ndarray]:
    mask = ragged(LENGTHS, "left")
    return np.random.default_rng(0).integers(3, 97, mask.shape).astype("int32") * mask, mask


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"guidance_scale": 1.5}, {"do_sample": True, "seed": 1}])
def test_generated_tokens_are_those_of_the_whole_text(pair, settings):
    """Prompts of different lengths, of which rows are reordered, repeated and read beside a negative prompt."""
    model, reference = pair
    ids, mask = prompts()
    config = GenerationConfig(max_new_tokens=NEW, **settings)
    expected = generation.generate(reference, ids, mask, config).sequences
    received = model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW, eos_token_id=[], jit_compile=False, **settings
    )
    np.testing.assert_array_equal(received, expected)
    if not settings:
        # The same prompts with padding on the right.
        ids, mask = (np.stack([np.roll(row, n) for row, n in zip(x, LENGTHS, strict=True)]) for x in (ids, mask))
        guessed = model.generate(
            ids, attention_mask=mask, max_new_tokens=NEW, eos_token_id=[], jit_compile=False, assistant=model
        )
        np.testing.assert_array_equal(guessed, expected)


def test_logits_are_those_of_the_whole_text(pair):
    """One token at a time and four at once, after a rewind, and from a copy of the state."""
    model, reference = pair
    (ids, mask), text = prompts(), np.random.default_rng(1).integers(3, 97, (3, 5)).astype("int32")
    following = np.concatenate([ids[:, -1:], text], axis=1)
    state, expected = reference.start(ids, mask), []
    for tokens in following.T:
        logits, state = reference.step(tokens[:, None], state)
        expected.append(logits)
    expected = np.concatenate(expected, axis=1)
    step = KerasStep(model, 64, jit_compile=False)
    state, received = step.restore(step.save(step.start(ids, mask))), []
    for columns in (slice(0, 1), slice(1, 5), slice(5, 6)):
        logits, state = step.step(following[:, columns], state)
        received.append(logits)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.concatenate(received, axis=1), expected, rtol=0, atol=1e-5 * scale)
    again, _ = step.step(following[:, :4], step.rewind(state, 6))
    np.testing.assert_allclose(again, expected[:, :4], rtol=0, atol=1e-5 * scale)


def test_the_likelihood_of_an_answer(pair):
    model, reference = pair
    ids, mask = prompts()
    prompt, answer = ids[1][mask[1] == 1], np.array([7, 8, 9])
    state, total = reference.start(prompt[None], mask[1:2, mask[1] == 1]), 0.0
    for token, target in zip([prompt[-1], *answer], answer, strict=False):
        logits, state = reference.step(np.array([[token]], "int32"), state)
        total += float(torch.tensor(logits[0, -1]).log_softmax(-1)[target])
    step = KerasStep(model, 64, jit_compile=False)
    assert sequence_logprob(step, prompt, target=answer) == pytest.approx(total, abs=1e-4)
    assert sequence_logprob(step, [*prompt, *answer], len(prompt)) == pytest.approx(total, abs=1e-4)


def test_earlier_texts_are_not_continued():
    """A longer prompt changes the states of its first tokens; a cache of prompts reads it as a whole."""
    model, _ = models("gpt2")
    step, kept = KerasStep(model, 64, jit_compile=False), generation.PrefixCache()
    ids = prompts()[0][2:]
    for count in (20, 40):
        config = GenerationConfig(max_new_tokens=NEW)
        expected = generation.generate(step, ids[:, :count], None, config).sequences
        controls = generation.Controls(cache=kept)
        received = generation.generate(step, ids[:, :count], None, config, controls).sequences
        np.testing.assert_array_equal(received, expected)
        assert kept.reused == 0
    mask = np.ones_like(ids)
    with pytest.raises(InputError, match="prefix_lm.*read as a whole"):
        step.resume(step.start(ids, mask), 5, ids[0])
    with pytest.raises(InputError, match="session.*prefix_lm=True"):
        Session(step)


@pytest.mark.parametrize(
    ("model_type", "task", "further"),
    [
        ("mistral", "text-generation", {"num_key_value_heads": 1}),
        ("bert", "fill-mask", {}),
        ("gpt2", "text-classification", {}),
    ],
)
def test_models_without_prefixes(model_type, task, further):
    """A sliding window, an encoder, and a task that reads a text once."""
    sizes = {"vocab_size": 9, "hidden_dim": 4, "num_layers": 1, "num_heads": 1, **further}
    with pytest.raises(UnsupportedConfigError, match="prefix_lm needs a decoder-only language model"):
        zoo.build(model_type, task=task, prefix_lm=True, **sizes)


def test_a_call_needs_the_prefix():
    model, _ = models("gpt2")
    ids = prompts()[0][2:]
    whole = np.asarray(model({"input_ids": ids, "prefix_mask": np.ones_like(ids)}))
    logits, _ = (step := KerasStep(model, 64, jit_compile=False)).step(ids[:, -1:], step.start(ids, np.ones_like(ids)))
    np.testing.assert_allclose(whole[:, -1:], logits, rtol=0, atol=1e-5 * np.abs(whole).max())
    with pytest.raises(InputError, match="Expected: prefix_mask"):
        model({"input_ids": ids})


@pytest.mark.parametrize("file_format", ["litert", "onnx"])
def test_an_export_would_read_prompts_causally(tmp_path, file_format):
    model, _ = models("gpt2")
    with pytest.raises(ExportError, match="prefix_lm=True"):
        model.export(tmp_path / "bundle", file_format)


def test_it_is_saved(tmp_path):
    model, _ = models("gpt2")
    model.save_pretrained(tmp_path)
    assert zoo.load(tmp_path).config.prefix_lm
    assert transformers.AutoConfig.from_pretrained(tmp_path).prefix_lm
    assert "prefix_lm" not in type(model.config)().to_hf()
