"""Settings beside each other: texts, likelihoods and repetitions are those of single calls and of formulas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import GenerationError, InputError
from kerasformer.tools.evaluation.decoding_sweep import SWEEP
from kerasformer.tools.evaluation.metrics import distinct, repetition
from tests.core.export.text_models import shared_bundle

PROMPT = "The sea"


def test_repetition_and_distinct_n_by_hand() -> None:
    tokens = list("abcabcd")  # abc bca cab abc bcd: one of five trigrams is a repetition
    assert repetition(tokens, 3) == pytest.approx(1 / 5)
    assert repetition(tokens, 1) == pytest.approx(3 / 7) and repetition("ab", 3) == 0
    assert distinct([tokens, "dx"], 1) == pytest.approx(5 / 9)
    assert distinct([tokens, "dx"], 2) == pytest.approx(5 / 9)  # ab bc ca cd dx
    assert distinct([], 1) == 0


def test_rows_equal_single_calls() -> None:
    pipe = kf.pipeline(shared_bundle("gpt2-text-generation", "onnx"))
    pipe.generation_config = pipe.generation_config.replace(repetition_penalty=5.0)  # which a sweep ignores
    settings = {"greedy": {}, "beams": {"num_beams": 2}, "sampled": {"temperature": 1.5}}
    swept = kf.sweep(pipe, PROMPT, settings, samples=2, seed=7, max_new_tokens=6)
    ids = pipe.tokenizer.encode(PROMPT)
    for row in swept.rows:
        options = {"repetition_penalty": 1.0, "max_new_tokens": 6, **settings[row.name]}
        seeds = [7, 8] if row.name == "sampled" else [None]
        sequences = [
            pipe(PROMPT, return_dict_in_generate=True, **options, **({} if seed is None else {"seed": seed})).sequences[
                0
            ]
            for seed in seeds
        ]
        total = sum(kf.sequence_logprob(pipe, [*ids, *new.tolist()], input_len=len(ids)) for new in sequences)
        count = sum(map(len, sequences))
        assert len(row.texts) == len(seeds) and row.num_tokens == count
        assert row.log_probability == pytest.approx(total / count, abs=1e-4)
        assert row.distinct_1 == len({token for new in sequences for token in new.tolist()}) / count
        assert row.seconds > 0
    assert (
        swept.rows[0].texts[0]
        == pipe(PROMPT, return_full_text=False, max_new_tokens=6, repetition_penalty=1.0)[0]["generated_text"]
    )
    assert "log-prob / token" in str(swept) and len(str(swept).splitlines()) == 4
    assert [row["name"] for row in json.loads(json.dumps(swept.to_dict()))["rows"]] == [*settings]


def test_a_chat_model_continues_a_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = kf.pipeline("story-gpt2")
    (plain,) = kf.sweep(pipe, PROMPT, [{}], max_new_tokens=6).rows
    template = "Q: {{ messages[0]['content'] }}\nA:"
    monkeypatch.setattr(pipe.tokenizer, "chat_template", template)
    (raw,) = kf.sweep(pipe, PROMPT, [{}], max_new_tokens=6, raw=True).rows
    (chat,) = kf.sweep(pipe, PROMPT, [{}], max_new_tokens=6).rows
    assert (raw.texts, raw.log_probability) == (plain.texts, plain.log_probability)
    assert chat.log_probability != plain.log_probability


def test_an_encoder_decoder_and_a_picture(tmp_path: Path) -> None:
    pipe, text = kf.pipeline("summarizer-t5", "summarization"), "It rains in the north."
    swept = kf.sweep(pipe, text, [{}, {"num_beams": 2}], max_new_tokens=5)
    assert [row.name for row in swept.rows] == ["greedy", "num_beams=2"]
    for row, beams in zip(swept.rows, (1, 2), strict=True):
        options = {"max_new_tokens": 5, "min_new_tokens": 0, "num_beams": beams, "do_sample": False}
        (new,) = pipe(text, return_dict_in_generate=True, **options).sequences
        expected = kf.sequence_logprob(pipe, "summarize: " + text, target=new)
        assert row.num_tokens == len(new) and row.log_probability == pytest.approx(expected / len(new), abs=1e-4)
    swept.picture(tmp_path / "sweep.svg", "Beams", dark=True)
    assert (tmp_path / "sweep.svg").stat().st_size > 1000


def test_seeds() -> None:
    pipe = kf.pipeline(shared_bundle("gpt2-text-generation", "onnx"))
    settings = {"own seed": {"seed": 3, "temperature": 2.0}, "beams": {"num_beams": 2, "max_new_tokens": 3}}
    first, second = kf.sweep(pipe, PROMPT, settings, samples=2, max_new_tokens=4).rows
    options = {"do_sample": True, "temperature": 2.0, "max_new_tokens": 4, "return_full_text": False}
    expected = [pipe(PROMPT, seed=seed, **options)[0]["generated_text"] for seed in (3, 4)]
    assert list(first.texts) == expected and expected[0] != expected[1]
    assert second.settings == {"num_beams": 2, "max_new_tokens": 3} and second.num_tokens <= 3
    with pytest.raises(InputError, match="Expected: samples=. Received: num_return_sequences"):
        kf.sweep(pipe, PROMPT, [{"do_sample": True, "num_return_sequences": 2}])


def test_settings() -> None:
    assert SWEEP["greedy"] == {}
    with pytest.raises(InputError, match="at least one. Received: none"):
        kf.sweep("story-gpt2", PROMPT, [])
    with pytest.raises(InputError, match="given only once"):
        kf.sweep("story-gpt2", PROMPT, [{}, {}])
    with pytest.raises(GenerationError, match="top_p"):
        kf.sweep("story-gpt2", PROMPT, [{"top_p": 2}])
    with pytest.raises(InputError, match="models that generate. Received: a model for text-classification"):
        kf.sweep(shared_bundle("bert-text-classification", "onnx"), PROMPT)


def test_temperatures_of_the_next_token(tmp_path: Path) -> None:
    tokens = kf.next_token_distribution(shared_bundle("gpt2-text-generation", "onnx"), PROMPT)
    sharp = tokens.probabilities.astype("float64") ** 2
    np.testing.assert_allclose(tokens.at(0.5).probabilities, sharp / sharp.sum(), rtol=1e-4, atol=1e-9)
    tokens.temperatures(tmp_path / "temperatures.svg", (0.5, 2.0), top_k=3, count=5)
    assert (tmp_path / "temperatures.svg").stat().st_size > 1000
