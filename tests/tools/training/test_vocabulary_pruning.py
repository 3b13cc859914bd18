"""Models with a pruned vocabulary compute what the original does for the tokens that remain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import transformers

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import GenerationError, InputError, UnsupportedConfigError
from kerasformer.generation import GenerationConfig
from kerasformer.models.variables import release_weights, variables_by_path
from kerasformer.tools.testing.comparison import run_reference
from tests import tiny_text
from tests.core.export.text_models import OTHERS, ROWS
from tests.grids import grid

pytestmark = pytest.mark.grid

TEXTS = tiny_text.CORPUS[:4]
# One head of each architecture.
MODELS = {
    **ROWS,
    **{name: row for name, row in OTHERS.items() if row.model_type not in {each.model_type for each in ROWS.values()}},
}
FEW = (
    "bert-fill-mask",
    "camembert-fill-mask",
    "gpt2-text-generation",
    "mbart-text2text-generation",
    "m2m_100-text2text-generation",
)
"""Vocabularies of three kinds; outputs with a bias, `final_logits_bias` or none; positions that follow padding."""
SIZES = {"hidden_dim": 12, "num_layers": 1, "num_heads": 2, "intermediate_dim": 16}


def arrays(model: Any, texts: list[str]) -> dict[str, np.ndarray]:
    """Returns the inputs of a model for texts, which its decoder also reads, if it has one."""
    encoded = model.tokenizer(texts)
    inputs = {name: encoded.inputs[name] for name in model.input_names if name in encoded}
    if "decoder_input_ids" in model.input_names:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    return inputs


@pytest.mark.parametrize(
    "name",
    grid([name for name, row in MODELS.items() if "marian" not in name], always=FEW, release=MODELS, others="release"),
)
def test_outputs_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    model = MODELS[name].model()
    pruned = zoo.prune_vocabulary(model, TEXTS)
    small, size = pruned.model, model.config.vocab_size
    assert type(small) is type(model) and small.config.vocab_size == len(pruned.ids) < size
    assert pruned.parameters_after < pruned.parameters_before == model.count_params()
    assert pruned.to_dict()["parameters_after"] == pruned.parameters_after
    again = zoo.load(small.save_pretrained(tmp_path), model.task)
    texts = list(TEXTS)
    before = {key: np.asarray(value) for key, value in model.named_outputs(**arrays(model, texts)).items()}
    for each in (small, again):
        inputs = arrays(each, texts)
        assert pruned.ids[inputs["input_ids"]].tolist() == arrays(model, texts)["input_ids"].tolist()
        for key, value in each.named_outputs(**inputs).items():
            expected = before[key]
            if expected.shape[-1] == size:
                expected = expected[..., pruned.ids]
            scale = np.abs(expected).max()
            np.testing.assert_allclose(np.asarray(value), expected, rtol=0, atol=1e-6 * scale, err_msg=key)
    if small.in_transformers and model.task in ("fill-mask", "text-generation", "text2text-generation"):
        theirs = getattr(transformers, small.architecture).from_pretrained(tmp_path).eval()
        alone = arrays(small, texts[:1])  # there, the answer of MobileBERT depends on padding
        received = run_reference(theirs, alone).logits.numpy()
        expected = np.asarray(small.named_outputs(**alone)["logits"])
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "settings"),
    grid(
        [name for name, row in ROWS.items() if "generation" in name and "marian" not in name],
        [{}, {"num_beams": 3}],
        always=lambda name, settings: name in FEW[-1:],
        release=lambda name, settings: name not in FEW,
        others="release",
    ),
)
def test_generated_tokens_are_those_of_the_original(name: str, settings: dict[str, Any]) -> None:
    """If the original cannot generate the tokens that were removed."""
    model = ROWS[name].model()
    pruned = zoo.prune_vocabulary(model, TEXTS)
    removed = sorted(set(range(model.config.vocab_size)) - set(pruned.ids.tolist()))
    options = {"max_new_tokens": 6, "jit_compile": False, **settings}
    for text in TEXTS[:2]:
        # The probabilities of beams are those among the tokens that remain.
        among = {"suppress_tokens": removed, "renormalize_logits": True}
        expected = model.generate(np.array([model.tokenizer.encode(text)]), **among, **options)
        received = pruned.model.generate(np.array([pruned.model.tokenizer.encode(text)]), **options)
        assert pruned.ids[np.asarray(received[0])].tolist() == np.asarray(expected[0]).tolist()


@pytest.mark.grid
@pytest.mark.parametrize(("name", "format"), [("bert-fill-mask", "tflite"), ("m2m_100-text2text-generation", "onnx")])
def test_exports(name: str, format: str, tmp_path: Path) -> None:
    """Bundles keep the characters that were removed, and the languages that were kept."""
    model = ROWS[name].model()
    options = {"languages": ["eng_Latn", "deu_Latn"]} if "m2m" in name else {}
    small = zoo.prune_vocabulary(model, [*TEXTS, *tiny_text.CORPUS[4:12]], **options).model
    kf.export.export(small, tmp_path / "out", format, "int8", texts=list(TEXTS))
    pipe = kf.pipeline(tmp_path / "out")
    assert pipe.tokenizer.dropped_characters == small.tokenizer.dropped_characters
    assert sorted(pipe.tokenizer.languages) == sorted(options.get("languages", ()))


def test_settings_name_the_new_ids() -> None:
    tokenizer = tiny_text.byte_pairs_in_texts()
    ids = {token: tokenizer.token_to_id(token) for token in ("Ġthe", "ing")}
    assert None not in ids.values()
    model = zoo.build(
        "bart",
        **{name: size for name, size in SIZES.items() if name != "num_heads"},
        num_heads=2,
        decoder_num_heads=2,
        num_decoder_layers=1,
        decoder_intermediate_dim=16,
        vocab_size=tokenizer.vocab_size + 9,
        eos_token_id=[2, ids["Ġthe"]],
        decoder_start_token_id=ids["ing"],
        forced_bos_token_id=tokenizer.vocab_size + 3,  # a row of the embeddings that belongs to no token
        task_specific_params={
            "summarization": {"prefix": "a", "num_beams": 2},
            "translation_en_to_de": {"decoder_start_token_id": tokenizer.token_to_id("Ġhe"), "prefix": "b"},
        },
    )
    model.tokenizer = tokenizer
    removed = tokenizer.token_to_id("Ġof")
    model.generation_config = model.generation_config.replace(
        suppress_tokens=[ids["Ġthe"], removed],
        bad_words_ids=[[ids["ing"], 2], [2, removed]],
        sequence_bias=[([ids["ing"]], 2.0), ([removed, 2], 1.0)],
    )
    pruned = zoo.prune_vocabulary(model, ["A text."])
    small, new = pruned.model, {int(old): index for index, old in enumerate(pruned.ids)}
    assert removed not in new and small.tokenizer.token_to_id("Ġthe") == new[ids["Ġthe"]] != ids["Ġthe"]
    assert small.config.eos_token_id == [2, new[ids["Ġthe"]]]
    assert small.config.decoder_start_token_id == new[ids["ing"]]
    assert small.config.forced_bos_token_id == small.config.vocab_size - 1 == small.tokenizer.vocab_size
    assert small.config.task_specific_params == {
        "summarization": {"prefix": "a", "num_beams": 2},
        "translation_en_to_de": {"decoder_start_token_id": small.tokenizer.token_to_id("Ġhe"), "prefix": "b"},
    }
    settings = small.generation_config
    assert settings.eos_token_id == (2, new[ids["Ġthe"]]) and settings.pad_token_id == 1
    assert settings.suppress_tokens == (new[ids["Ġthe"]],)
    assert settings.bad_words_ids == ((new[ids["ing"]], 2),)
    assert settings.sequence_bias == (((new[ids["ing"]],), 2.0),)
    original, table = (variables_by_path(each)["backbone/tokens/embeddings"] for each in (model, small))
    np.testing.assert_array_equal(np.asarray(table), np.asarray(original)[pruned.ids])


def test_a_function_of_tokens_cannot_be_renumbered() -> None:
    settings = GenerationConfig(prefix_allowed_tokens_fn=lambda batch, tokens: [1])
    with pytest.raises(GenerationError, match="refers to the ids of the original"):
        settings.with_vocabulary({1: 0})


def test_padding_keeps_its_id_where_positions_start_after_it() -> None:
    tokenizer = tiny_text.pieces_in_texts()
    model = zoo.build(
        "roberta", "fill-mask", vocab_size=172, num_positions=140, pad_token_id=100, num_segments=1, **SIZES
    )
    model.tokenizer = tokenizer
    pruned = zoo.prune_vocabulary(model, ["rain"], coverage=0.0)
    assert pruned.ids[:101].tolist() == list(range(101)) and pruned.model.config.pad_token_id == 100
    other = zoo.build("bert", "fill-mask", vocab_size=172, pad_token_id=100, **SIZES)
    other.tokenizer = tokenizer
    assert zoo.prune_vocabulary(other, ["rain"], coverage=0.0).model.config.pad_token_id < 100


def test_half_precision_and_low_rank_matrices_are_kept(tmp_path: Path) -> None:
    model = ROWS["bert-fill-mask"].model()
    model.save_pretrained(tmp_path, dtype="bfloat16")
    half = zoo.load(tmp_path, keep_dtype=True)
    release_weights(half)
    small = zoo.prune_vocabulary(half, TEXTS).model
    before, after = variables_by_path(half), variables_by_path(small)
    assert {path: value.dtype for path, value in after.items()} == {path: value.dtype for path, value in before.items()}
    model.backbone.embeddings.tokens.enable_lora(2)
    model.backbone.embeddings.tokens.lora_b.assign(keras.random.normal((2, 72), seed=1))
    pruned = zoo.prune_vocabulary(model, TEXTS)
    name = "backbone/embeddings/tokens/embeddings"
    expected = np.asarray(model.backbone.embeddings.tokens.merged())[pruned.ids]
    np.testing.assert_allclose(np.asarray(variables_by_path(pruned.model)[name]), expected, atol=1e-6)


def test_wrong_models() -> None:
    bare = zoo.build("bert", vocab_size=97, **SIZES)
    few = zoo.build("bert", vocab_size=97, **SIZES)
    few.tokenizer = tiny_text.wordpiece()
    writer = ROWS["gpt2-text-generation"].model()
    everything = [writer.tokenizer.decode([index]) for index in range(writer.config.vocab_size)]
    for wrong, texts, message in (
        (bare, TEXTS, "A model with a tokenizer was expected.*a model without tokenizer"),
        ("bert-base", TEXTS, "such as of zoo.load. Received: str"),
        (few, tiny_text.CORPUS, "tokens that the model lacks. Expected: ids below 97"),
        (writer, everything, "need the whole vocabulary of 320 tokens"),
        (ROWS["marian-text2text-generation"].model(), TEXTS, "cannot be pruned"),
    ):
        with pytest.raises(InputError, match=message):
            zoo.prune_vocabulary(wrong, texts)


def test_a_shape_that_depends_on_the_vocabulary_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ROWS["bert-fill-mask"].model()
    kind = type(model).backbone_type
    original = kind.make_embeddings

    def padded(self: Any, **options: Any) -> Any:
        layer = original(self, **options)
        layer.tokens.input_dim += self.config.vocab_size % 2
        return layer

    monkeypatch.setattr(kind, "make_embeddings", padded)
    with pytest.raises(UnsupportedConfigError, match="depends on the size of the vocabulary in an unknown way"):
        for texts in (TEXTS, TEXTS[:3], TEXTS[:2], TEXTS[:1]):
            zoo.prune_vocabulary(model, texts)
