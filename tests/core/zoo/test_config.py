"""Reading and writing config.json: defaults, names, and values that raise errors, are ignored, or cause warnings."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from typing import Any

import pytest
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.generation import GenerationConfig
from kerasformer.models.config import ConfigWarning
from kerasformer.tools.testing import Case
from tests.core.zoo.cases import CASES, FIRST, GRANITE4
from tests.core.zoo.harness import with_entry


def config_type(case: Case | str) -> Any:
    model_type = case if isinstance(case, str) else case.model_type
    return next(iter(zoo.architecture(model_type).MODELS.values())).backbone_type.config_type


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_defaults_are_those_of_the_reference(case):
    reference = transformers.AutoConfig.for_model(case.model_type)
    ours = config_type(case)()
    for field in dataclasses.fields(ours):
        name = field.metadata["hf"][0]
        if name not in case.derived:
            expected = functools.reduce(lambda part, key: getattr(part, key, None), name.split("."), reference)
            assert getattr(ours, field.name) == expected, field.name
    assert ours.num_labels == reference.num_labels


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_an_empty_config_is_the_default(case):
    assert config_type(case).from_hf({"model_type": case.model_type}) == config_type(case)()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_key_that_the_reference_writes_is_known(case):
    written = transformers.AutoConfig.for_model(case.model_type, **case.settings, num_labels=5).to_dict()
    ours = config_type(case).from_hf(written)  # a warning would be an error
    assert config_type(case).from_hf(ours.to_hf()) == ours
    again = transformers.AutoConfig.for_model(**ours.to_hf()).to_dict()
    assert {name: again[name] for name in written} == written


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_an_unknown_key_is_named(case):
    with pytest.warns(ConfigWarning, match=f"{case.model_type} has unsupported keys.*mystery_scale, other_mystery"):
        config_type(case).from_hf({**case.settings, "mystery_scale": 2.0, "other_mystery": None})


REFUSED = [
    ("bert", "position_embedding_type", "relative_key"),
    ("bert", "pruned_heads", {"0": [1]}),
    ("roberta", "is_decoder", True),
    ("granitemoehybrid", "num_local_experts", 8),
    ("granitemoehybrid", "mamba_n_heads", 5),
    ("granitemoehybrid", "position_embedding_type", "alibi"),
    ("granitemoehybrid", "time_step_limit", [0.1, 1.0]),
    ("falcon_h1", "ssm_multipliers", [1.0] * 4),
    ("falcon_h1", "mamba_d_ssm", 55),
    ("falcon_h1", "projectors_bias", True),
    ("xlm-roberta", "add_cross_attention", True),
    ("albert", "num_hidden_groups", 99),
    ("electra", "is_decoder", True),
    ("mobilebert", "normalization_type", "batch_norm"),
    ("mobilebert", "num_feedforward_networks", 0),
    ("mpnet", "relative_attention_num_buckets", 16),
    ("big_bird", "attention_type", "sparse"),
    ("modernbert", "classifier_pooling", "max"),
    ("modernbert", "local_attention", 1),
    ("modernbert-decoder", "local_attention", 1),
    ("modernbert-decoder", "layer_types", ["chunked_attention"] * 4),
    ("nomic_bert", "prenorm", True),
    ("nomic_bert", "rotary_scaling_factor", 2.0),
    ("gte", "logn_attention_scale", True),
    ("gte", "layer_norm_type", "rms_norm"),
    ("eurobert", "classifier_pooling", "max"),
    ("eurobert", "num_key_value_heads", 0),
    ("eurobert", "is_decoder", True),
    ("deberta", "talking_head", True),
    ("xlm", "asm", True),
    ("xlm", "summary_type", "mean"),
    ("gpt2", "add_cross_attention", True),
    ("openai-gpt", "afn", "gelu_new"),
    ("gpt_bigcode", "add_cross_attention", True),
    ("xglm", "add_cross_attention", True),
    ("bloom", "apply_residual_connection_post_layernorm", True),
    ("gemma3_text", "attn_logit_softcapping", 50.0),
    ("gemma3_text", "sliding_window_pattern", 0),
    ("gemma2", "sliding_window", None),
    ("gemma2", "attn_logit_softcapping", -1.0),
    ("gemma2", "layer_types", ["chunked_attention"] * 3),
    ("gpt_neo", "attention_types", [[["global", "banded"], 2]]),
    ("gpt_neo", "attention_types", [[["global", "local"], 3]]),
    ("gpt_neo", "attention_types", [[["global", "local"], 10**12]]),
    ("gpt_neo", "window_size", 0),
    ("gptj", "rotary_dim", 5),
    ("gptj", "rotary_dim", 14),
    ("gptj", "scale_attn_weights", False),
    ("phi", "num_key_value_heads", 0),
    ("phi3", "attention_bias", True),
    ("cohere", "logit_scale", 0.0),
    ("lfm2", "layer_types", ["conv", "sliding_attention", "conv", "conv"]),
    ("granite", "residual_multiplier", 0.0),
    ("granite", "logits_scaling", -8.0),
    ("mpt", "no_bias", False),
    ("mpt", "attn_config", {"clip_qkv": 6.0}),
    ("falcon", "alibi", True),
    ("falcon", "num_ln_in_parallel_attn", 2),
    ("lfm2", "block_use_swiglu", False),
    ("phi3", "rope_parameters", {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0}),
    ("mbart", "normalize_before", False),
    ("m2m_100", "decoder_start_token_id", 0),
    ("m2m_100", "pad_token_id", 3),
    ("marian", "static_position_embeddings", False),
    ("t5", "is_decoder", True),
    ("t5", "feed_forward_proj", "doubly-gated-gelu"),
    ("umt5", "is_decoder", True),
    ("t5gemma", "tie_encoder_decoder", True),
    ("t5gemma", "encoder", ["gemma2"]),
    ("t5gemma2", "is_encoder_decoder", False),
    ("t5gemma2", "decoder", {"model_type": "gemma3_text"}),
    ("pegasus", "normalize_embedding", True),
    ("bigbird_pegasus", "attention_type", "sparse"),
    ("bigbird_pegasus", "num_random_blocks", 0),
    ("led", "attention_window", [4]),
]


@pytest.mark.parametrize(("model_type", "key", "value"), REFUSED)
def test_a_value_that_is_not_implemented_is_refused_by_name(model_type, key, value):
    case = next(case for case in FIRST if case.model_type == model_type)
    with pytest.raises(
        UnsupportedConfigError,
        match=f"(?s){key}.*Received: .*{re.escape(str(next(iter(value), '') if isinstance(value, dict) else value))}",
    ):
        config_type(case).from_hf({**case.settings, key: value})


def activation_key(case: Case) -> str | None:
    """Returns the key of config.json that names the activation, if any name is read."""
    fields = {field.name: field.metadata["hf"][0] for field in dataclasses.fields(config_type(case))}
    return fields.get("hidden_act") or fields.get("feed_forward")


@pytest.mark.parametrize("case", [case for case in FIRST if activation_key(case)], ids=str)
def test_an_unknown_activation_is_refused(case):
    config = config_type(case).from_hf(with_entry(case.settings, activation_key(case), "swoosh"))
    with pytest.raises(UnsupportedConfigError, match="Unknown activation.*gelu.*Received: 'swoosh'"):
        case.kind(case.tasks[0])(config)


@pytest.mark.parametrize("value", ["36", 36.5, True, [36]])
def test_a_value_of_the_wrong_type_is_refused_by_name(value):
    with pytest.raises(UnsupportedConfigError, match="hidden_size.*must be an integer.*Received"):
        config_type(FIRST[-1]).from_hf({"hidden_size": value})


def test_an_item_of_the_wrong_type_is_refused_by_its_place():
    case = next(case for case in FIRST if case.model_type == "gpt_neo")
    with pytest.raises(UnsupportedConfigError, match=r"attention_types\[0\]\[0\] must be a list.*Received: 'global'"):
        config_type(case).from_hf({**case.settings, "attention_types": [["global", "local"]]})


def test_types_of_layers_that_contradict_each_other_are_refused():
    case = next(case for case in FIRST if case.model_type == "gpt_neo")
    with pytest.raises(UnsupportedConfigError, match="attention_layers must list them.*'global'"):
        config_type(case).from_hf({**case.settings, "attention_layers": ["local", "global"] * 2})


@pytest.mark.parametrize(
    ("value", "expected"), [(-1, None), ([5], 5), ([5, 6], 5), ([-1], None)], ids=["none", "list", "lists", "nones"]
)
def test_the_forms_that_files_give_an_id(value, expected):
    config = config_type("t5").from_hf({"pad_token_id": value, "decoder_start_token_id": value, "eos_token_id": value})
    assert (config.pad_token_id, config.decoder_start_token_id) == (expected, expected)
    assert config.eos_token_id == (value if value in ([5], [5, 6]) else None)
    settings = {"suppress_tokens": [-1], "begin_suppress_tokens": [7, -1], "pad_token_id": value}
    ours = GenerationConfig.from_dict({**settings, "decoder_start_token_id": value})
    assert (ours.suppress_tokens, ours.begin_suppress_tokens) == ((), (7,))
    assert (ours.pad_token_id, ours.decoder_start_token_id) == (expected, expected)
    with pytest.raises(UnsupportedConfigError, match="pad_token_id must be .*Received: pad_token_id=-2"):
        config_type("t5").from_hf({"pad_token_id": -2})


def test_tokens_of_tokenizers_and_names_of_models_are_no_settings(recwarn):
    """Keys of any checkpoint that `transformers` wrote."""
    config_type("bert").from_hf({"_model_name_or_path": "x", "_commit_hash": "y", "unk_token_id": 3, "cls_token_id": 1})
    assert not recwarn.list


def test_names_of_older_files_are_read():
    gpt2, distilbert = (config_type(next(c for c in FIRST if c.model_type == name)) for name in ("gpt2", "distilbert"))
    assert gpt2.from_hf({"hidden_size": 48, "num_attention_heads": 4}) == gpt2.from_hf({"n_embd": 48, "n_head": 4})
    assert distilbert.from_hf({"hidden_size": 48}).hidden_dim == 48
    nomic, sizes = config_type("nomic_bert"), {"n_embd": 48, "n_head": 4, "n_inner": 60, "rotary_emb_base": 300}
    assert nomic.from_hf(sizes) == nomic.from_hf(
        {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 60, "rope_theta": 300}
    )
    assert gpt2.from_hf({"num_labels": 3}).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_config_from_our_names():
    model = zoo.build("gpt2", num_layers=1, hidden_dim=12, num_heads=3, vocab_size=11, max_length=16)
    assert model.config.intermediate_dim == 48 and model.count_params() == 12 * (11 + 16) + 12 * 12 * 12 + 13 * 12 + 24
    with pytest.raises(UnsupportedConfigError, match="Received: 'num_layer'. Did you mean 'num_layers'"):
        zoo.build("gpt2", num_layer=1)
    with pytest.raises(UnsupportedConfigError, match="Expected one of albert, bart, bert.*Received: 'gpt9'"):
        zoo.build("gpt9")


OF_DECODERS_ALONE = {"decoder_layer_types", "decoder_start_token_id", "decoder_max_length", "decoder_vocab_size"}


@pytest.mark.parametrize("model_type", zoo.architectures())
def test_sizes_of_both_stacks_change_together(model_type):
    create, default = config_type(model_type).create, config_type(model_type)()
    names = {field.name for field in dataclasses.fields(default)}
    for name in {name for name in names if "decoder" in name} - OF_DECODERS_ALONE:
        other = name.replace("decoder_", "")
        assert getattr(create(**{other: 2}), name) == 2
        changed = create(**{name: 3})
        assert (getattr(changed, name), getattr(changed, other)) == (3, getattr(default, other))


@pytest.mark.parametrize(
    ("model_type", "name", "other"),
    [
        ("gemma3_text", "score_scale", "head_dim"),
        ("qwen2", "num_key_value_heads", "num_heads"),
        ("qwen3", "num_key_value_heads", "num_heads"),
    ],
)
def test_a_field_whose_default_is_that_of_another_changes_with_it(model_type, name, other):
    ours = config_type(model_type)
    assert getattr(ours(), name) == getattr(ours(), other)
    assert getattr(ours.create(**{other: 64}), name) == 64
    content = ours.create(**{other: 64}).to_hf()
    assert ours.from_hf(content) == ours.create(**{other: 64})


def test_models_lists_every_file_and_its_tasks():
    models = zoo.models()
    # The first Transformer and static embeddings have no reference in `transformers`; they have tests of their own.
    assert {case.model_type for case in CASES} | {"transformer", "model2vec"} == set(models)
    assert "question-answering" in models["bert"] and "text-generation" in models["gpt2"]
    json.dumps(models)


def test_a_norm_before_the_gate_is_refused():
    with pytest.raises(UnsupportedConfigError, match="mamba_norm_before_gate=False. Received: .*=True"):
        config_type("falcon_h1").from_hf({"mamba_n_heads": 64, "mamba_rms_norm": True})


def test_types_of_layers_of_older_files():
    content = {**GRANITE4, "layer_types": ["mamba", "attention", "mamba"]}
    assert config_type("granitemoehybrid").from_hf(content).layer_types == GRANITE4["layer_types"]
