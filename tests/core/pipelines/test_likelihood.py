"""Log-probabilities of texts, compared with PyTorch and with the scores of generation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer import generation
from kerasformer.errors import CapacityError, GenerationError, InputError, TokenizerError
from kerasformer.export.reference_texts import READING
from kerasformer.generation import Controls, GenerationConfig
from kerasformer.tools.evaluation.likelihood import next_token_distribution
from tests.core.generation.engines import Toy
from tests.core.pipelines.agreement import TOLERANCE
from tests.tiny_text import PROMPTS


@pytest.fixture(scope="module")
def their_story(checkpoint):
    return transformers.GPT2LMHeadModel.from_pretrained(checkpoint("story")).eval()


@pytest.fixture(scope="module")
def their_rewrite(checkpoint):
    return transformers.T5ForConditionalGeneration.from_pretrained(checkpoint("rewrite")).eval()


def of_continuation(model, ids, input_len):
    with torch.no_grad():
        logs = model(torch.tensor([ids])).logits.log_softmax(-1)[0, :-1]
    each = logs.gather(1, torch.tensor(ids)[1:, None])[:, 0]
    return float(each[max(input_len - 1, 0) :].sum())


def of_target(model, ids, target, input_len):
    with torch.no_grad():
        logs = model(torch.tensor([ids]), labels=torch.tensor([target])).logits.log_softmax(-1)[0]
    return float(logs.gather(1, torch.tensor(target)[:, None])[input_len:, 0].sum())


@pytest.mark.parametrize("input_len", [0, 1, 4])
@pytest.mark.grid
def test_log_probabilities_of_a_decoder_equal_those_of_pytorch(story, their_story, input_len):
    ids = [story.tokenizer.encode(text) for text in PROMPTS[:3]]
    assert len({len(row) for row in ids}) == 3
    expected = [of_continuation(their_story, row, input_len) for row in ids]
    np.testing.assert_allclose(kf.sequence_logprob(story, PROMPTS[:3], input_len), expected, rtol=1e-5)
    np.testing.assert_allclose(kf.sequence_logprob(story.model, ids, input_len), expected, rtol=1e-5)
    one = kf.sequence_logprob(story, PROMPTS[0], input_len)
    assert isinstance(one, float) and one == pytest.approx(expected[0], rel=1e-5)


@pytest.mark.parametrize("input_len", [0, 2])
@pytest.mark.grid
def test_log_probabilities_of_an_encoder_decoder_equal_those_of_pytorch(rewrite, their_rewrite, input_len):
    texts, targets = READING[:2], PROMPTS[:2]
    encode = rewrite.tokenizer.encode
    pairs = [(encode(text), encode(target)) for text, target in zip(texts, targets, strict=True)]
    expected = [of_target(their_rewrite, *pair, input_len) for pair in pairs]
    received = kf.sequence_logprob(rewrite, texts, input_len, target=targets)
    np.testing.assert_allclose(received, expected, rtol=1e-5)
    assert kf.sequence_logprob(rewrite, texts[1], input_len, target=targets[1]) == pytest.approx(expected[1], rel=1e-5)


def test_a_model_that_does_not_generate_raises(checkpoint):
    with pytest.raises(InputError, match="that generates"):
        kf.sequence_logprob(checkpoint("classes"), PROMPTS[0])


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"top_k": 5, "seed": 3}], ids=str)
def test_log_probability_equals_the_scores_of_generation(story, settings):
    ids = np.array([story.tokenizer.encode(PROMPTS[0])], np.int32)
    config = GenerationConfig(max_new_tokens=6, **settings)
    output = generation.generate(story.model, ids, config=config, controls=Controls(record=True))
    whole = [*ids[0].tolist(), *output.sequences[0].tolist()]
    log_probability = kf.sequence_logprob(story, whole, input_len=ids.shape[1])
    assert output.log_probabilities is not None
    assert log_probability == pytest.approx(float(output.log_probabilities[0].sum()), rel=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_tokens_after_a_prompt(story, several):
    """`generate` returns them without the prompt, whose length `input_len` would be."""
    ids = [np.array([story.tokenizer.encode(text)], np.int32) for text in PROMPTS[: 1 + several]]
    new = [story.model.model.generate(row, max_new_tokens=5)[0] for row in ids]
    whole = [[*row[0], *tokens] for row, tokens in zip(ids, new, strict=True)]
    expected = [kf.sequence_logprob(story, row, a.shape[1]) for row, a in zip(whole, ids, strict=True)]
    prompts = [row[0] for row in ids]
    found = kf.sequence_logprob(story, prompts if several else ids[0], target=new)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    one = kf.sequence_logprob(story, prompts[0], target=new[0])
    assert isinstance(one, float) and one == pytest.approx(expected[0], rel=1e-5)
    rest = kf.sequence_logprob(story, whole[0], len(prompts[0]) + 2)
    assert kf.sequence_logprob(story, prompts[0], 2, target=new[0]) == pytest.approx(rest, rel=1e-5)
    for wrong in (new, new[0], np.array(new[0], subok=True)[None]):
        with pytest.raises(InputError, match="returns the new tokens alone.*input_len=2.*target="):
            kf.sequence_logprob(story, wrong, input_len=2)
    assert repr(new[0]).startswith("array(") and type(np.concatenate([prompts[0], new[0]])) is np.ndarray


def test_a_string_after_a_string_is_part_of_one_text(story):
    text = PROMPTS[0]
    start, rest = text[: text.index(" ") + 1], text[text.index(" ") + 1 :]
    ids = story.tokenizer.encode(text)
    count = len(story.tokenizer.encode(start.rstrip()))
    expected = kf.sequence_logprob(story, ids, count)
    assert kf.sequence_logprob(story, start, target=rest) == pytest.approx(expected, rel=1e-5)


def test_next_token_distribution(story, their_story, rewrite):
    found = next_token_distribution(story, PROMPTS[0])
    with torch.no_grad():
        logits = their_story(torch.tensor([story.tokenizer.encode(PROMPTS[0])])).logits[0, -1]
    np.testing.assert_allclose(found.probabilities, logits.softmax(-1).numpy(), atol=TOLERANCE)
    assert next_token_distribution(rewrite, PROMPTS[0]).probabilities.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((["a", "b"],), "text must be a string"), (("a", 0), "temperature must be a number of at least 1e-06")],
)
def test_invalid_arguments_of_a_distribution_raise(story, arguments, message):
    with pytest.raises(InputError, match=message):
        kf.next_token_distribution(story, *arguments)


def test_methods_of_a_distribution(story):
    found = next_token_distribution(story, PROMPTS[0])
    assert found.left(top_k=5) == 5 and found.left(top_p=None) == len(found.probabilities)
    with pytest.raises(InputError, match="count must be an integer of at least 1"):
        found.best(0)
    with pytest.raises(GenerationError, match="Did you mean top_k"):
        found.left(top_kk=5)


def test_the_log_probability_of_no_tokens_is_zero(story):
    ids = story.tokenizer.encode(PROMPTS[0])
    assert kf.sequence_logprob(story, ids, len(ids)) == 0
    assert kf.sequence_logprob(story, ids[:1]) == 0


@pytest.mark.parametrize(
    ("source", "text", "input_len", "target", "error", "message"),
    [
        ("story", "", 0, None, InputError, "at least one token"),
        ("story", [[0.5]], 0, None, InputError, "at least one token"),
        ("story", [1, 2], 3, None, InputError, "input_len must be an integer from 0 to 2. Received: input_len=3"),
        ("story", [1] * 2000, 0, None, CapacityError, "Received: 2000"),
        ("rewrite", "a", 0, None, InputError, "needs target="),
        ("rewrite", ["a", "b"], 0, "c", InputError, "Expected: 2. Received: 1"),
        ("story", [1, 2], 3, [1, 2], InputError, "input_len must be an integer from 0 to 2. Received: input_len=3"),
        ("engine", "a", 0, None, TokenizerError, "Pass token ids"),
        ("story", None, 0, None, InputError, "text must be a text or its ids.*Received: text=None"),
        ("story", [[1], [True]], 0, None, InputError, "at least one token"),
        ("story", [1, 2**32 + 5], 0, None, InputError, "ids from 0 to"),
        ("rewrite", [1], 0, [10**6], InputError, "target must be a text or its ids"),
    ],
)
def test_invalid_arguments_raise(story, rewrite, source, text, input_len, target, error, message):
    with pytest.raises(error, match=message):
        kf.sequence_logprob(
            {"story": story, "rewrite": rewrite, "engine": Toy()}[source], text, input_len, target=target
        )
