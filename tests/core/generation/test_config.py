from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from kerasformer.basics.options import declared
from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 0}, {"max_new_tokens": 1.5}, {"max_new_tokens": True}, {"min_length": -1}, {"num_beams": 0},
        {"temperature": -1e-9}, {"temperature": -1.0}, {"temperature": 1e-40}, {"temperature": float("nan")},
        {"temperature": "hot"},
        {"top_p": 1.1}, {"top_p": -0.1}, {"top_k": -1}, {"top_k": 2.5}, {"min_p": 2}, {"repetition_penalty": 0},
        {"early_stopping": "always"}, {"eos_token_id": -1}, {"eos_token_id": [3, None]}, {"bad_words_ids": [[]]},
        {"bad_words_ids": [3]}, {"sequence_bias": [[[], 1.0]]}, {"stop_strings": ""}, {"seed": -1}, {"seed": "x"},
        {"sequence_bias": [[[1], float("nan")]]}, {"exponential_decay_length_penalty": [1]},
        {"prefix_allowed_tokens_fn": 3}, {"exponential_decay_length_penalty": [-1, 2.0]}, {"top_h": 2}, {"uniform": 1},
        {"length_penalty": float("inf")}, {"do_sample": "yes"}, {"no_repeat_ngram_size": -2},
        {"num_beams": 5000}, {"num_return_sequences": 10**9}, {"eos_token_id": 2**31}, {"pad_token_id": 2**40},
        {"suppress_tokens": [1, 2**32 + 5]},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_values_are_named(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(GenerationError, match=f"{name} must be .*Received: {name}="):
        GenerationConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"num_return_sequences": 2}, {"num_beams": 2, "num_return_sequences": 3},
     {"num_beams": 2, "num_return_sequences": 3, "do_sample": True}],
    ids=str,
)  # fmt: skip
def test_more_sequences_than_hypotheses(settings: dict[str, Any]) -> None:
    with pytest.raises(GenerationError, match="num_return_sequences must not exceed num_beams"):
        GenerationConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "samples"),
    [({}, False), ({"top_p": 0.9}, True), ({"temperature": 0.7}, True), ({"top_k": 5}, True), ({"seed": 1}, True),
     ({"top_k": 5, "do_sample": False}, False), ({"num_beams": 3, "seed": 1}, False),
     ({"num_beams": 3, "top_k": 4}, True), ({"temperature": 0}, False), ({"temperature": 0.0, "top_p": 0.9}, False),
     ({"temperature": 0, "do_sample": True, "seed": 1}, False), ({"repetition_penalty": 2.0}, False)],
    ids=str,
)  # fmt: skip
def test_sampling_settings_enable_sampling(settings: dict[str, Any], samples: bool) -> None:
    assert GenerationConfig(**settings).do_sample is samples
    assert GenerationConfig.from_dict({}).replace(**settings).do_sample is samples


def test_a_file_enables_sampling_only_with_do_sample() -> None:
    assert GenerationConfig.from_dict({"top_p": 0.9}).do_sample is False
    assert GenerationConfig.from_dict({"top_p": 0.9, "do_sample": True}).do_sample is True
    assert GenerationConfig.from_dict({"do_sample": False}).replace(top_p=0.9).do_sample is True


def test_a_call_takes_precedence_over_the_file() -> None:
    file = GenerationConfig.from_dict({"max_new_tokens": 5, "min_new_tokens": 3})
    assert file.replace(max_length=30).max_new_tokens is None
    assert file.replace(min_length=2).min_new_tokens is None
    assert file.replace(max_new_tokens=None).max_new_tokens is None
    assert file.replace(top_p=None).top_p == 1


def test_numpy_numbers_and_single_ids_are_accepted() -> None:
    config = GenerationConfig(eos_token_id=7, max_new_tokens=np.int64(3), suppress_tokens=np.array([1, 2]))
    assert config.eos_token_id == (7,)
    assert config.suppress_tokens == (1, 2)
    assert json.loads(json.dumps(config.to_dict())) == {
        "max_new_tokens": 3, "suppress_tokens": [1, 2], "eos_token_id": 7,
    }  # fmt: skip


def test_round_trip_of_every_setting() -> None:
    values: dict[str, Any] = {
        "bad_words_ids": [[1, 2], [3]], "sequence_bias": {(4, 5): -1.5}, "suppress_tokens": [1], "seed": 4,
        "begin_suppress_tokens": [2, 3], "forced_eos_token_id": 2, "eos_token_id": [1, 2], "stop_strings": "end",
        "early_stopping": "never", "do_sample": True, "temperature": 0.5, "top_p": 0.5, "typical_p": 0.5,
        "epsilon_cutoff": 0.5, "eta_cutoff": 0.5, "min_p": 0.5, "top_h": 0.5, "uniform": True, "length_penalty": -1.0,
        "repetition_penalty": 1.5, "remove_invalid_values": True, "renormalize_logits": True,
        "exponential_decay_length_penalty": [4, 1.5],
    }  # fmt: skip
    names = {name for name, (_, option) in declared(GenerationConfig).items() if option.in_shell}
    for name in names:
        values.setdefault(name, 4)
    config = GenerationConfig(**values)
    again = GenerationConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert set(config.to_dict()) == names


def test_unsupported_fields_warn_unless_they_are_disabled() -> None:
    with pytest.warns(UserWarning, match="not implemented.*: dola_layers='high', penalty_alpha=0.6"):
        GenerationConfig.from_dict({"dola_layers": "high", "penalty_alpha": 0.6, "use_cache": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        neutral = {"guidance_scale": 1.0, "renormalize_logits": False, "max_time": None, "num_beam_groups": 1}
        GenerationConfig.from_dict({**neutral, "_from_model_config": True, "transformers_version": "5.23.0"})


def test_a_function_is_not_saved() -> None:
    config = GenerationConfig(prefix_allowed_tokens_fn=lambda prompt, tokens: [1], top_k=3)
    assert config.to_dict() == {"do_sample": True, "top_k": 3}
    assert config.replace(top_p=0.5).prefix_allowed_tokens_fn is config.prefix_allowed_tokens_fn
    assert config.replace(prefix_allowed_tokens_fn=None).prefix_allowed_tokens_fn is None


def test_transformers_loads_saved_files(tmp_path: Path) -> None:
    GenerationConfig(eos_token_id=[1, 2], sequence_bias={(4, 5): -1.5}, num_beams=3, max_new_tokens=9).save(tmp_path)
    theirs = transformers.GenerationConfig.from_pretrained(tmp_path)
    assert (theirs.eos_token_id, theirs.sequence_bias, theirs.num_beams) == ([1, 2], [[[4, 5], -1.5]], 3)
    theirs.update(num_beams=2, repetition_penalty=1.5)
    theirs.save_pretrained(tmp_path)
    ours = GenerationConfig.load(tmp_path)
    assert (ours.num_beams, ours.repetition_penalty, ours.max_new_tokens) == (2, 1.5, 9)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "cannot be read"), (b"\xff\xfe", "cannot be read"), (b"[1]", "must contain a JSON object.*list"),
     (b'{"top_p": 3}', "top_p must be a number"), (b'{"eos_token_id": "x"}', "eos_token_id must be a token"),
     (b'{"min_length": 2, "min_length": NaN}', "has the name 'min_length' twice"),
     (None, "cannot be read.*is missing")],
    ids=str,
)  # fmt: skip
def test_errors_contain_the_name_of_the_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_bytes(content)
    with pytest.raises(GenerationError, match=f"generation_config.json.*{message}"):
        GenerationConfig.load(tmp_path)


def test_settings_in_the_model_config_of_old_checkpoints() -> None:
    model_config = {"eos_token_id": 2, "num_beams": 4, "hidden_size": 8, "max_length": 12}
    config = GenerationConfig.from_dict({"eos_token_id": 3, "num_beams": None}, model_config)
    assert (config.eos_token_id, config.num_beams, config.max_length) == ((3,), 4, 12)
    assert GenerationConfig.from_dict({}, {"max_length": 20}).max_length is None
    assert GenerationConfig.from_dict({"max_length": 20}, {"max_length": 20}).max_length == 20


def test_defaults_are_those_of_transformers() -> None:
    theirs = transformers.GenerationConfig._get_default_generation_params()
    ours = GenerationConfig()
    for name in {field.name for field in dataclasses.fields(GenerationConfig)} & set(theirs):
        # top_k differs, see the docstring; max_length is DEFAULT_NEW_TOKENS; unset num_assistant_tokens means the same.
        if name not in ("top_k", "max_length", "num_assistant_tokens"):
            assert (getattr(ours, name) or None) == (theirs[name] or None), name
