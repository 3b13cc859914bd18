import csv
import json
from contextlib import nullcontext

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import CheckpointError, InputError
from kerasformer.tools.training import recipe as module
from kerasformer.tools.training.pretraining import OBJECTIVES
from kerasformer.tools.training.recipe import Recipe, train

STORIES = {
    "model": {
        "architecture": "gpt2",
        "config": {"num_layers": 2, "hidden_dim": 32, "num_heads": 2, "max_length": 32},
        "generation": {"max_new_tokens": 5},
    },
    "tokenizer": {"algorithm": "bpe", "vocab_size": 300},
    "data": {"train": ["texts.txt"], "validation": "texts.txt", "batch_size": 4, "max_length": 32, "pack": True},
    "training": {"epochs": 3, "learning_rate": 1e-3, "seed": 3},
}


@pytest.fixture
def folder(tmp_path):
    lines = [f"The {animal} number {index} sleeps all day." for index in range(8) for animal in ("fox", "owl", "bear")]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    rows = [{"text": line, "label": "positive" if "fox" in line else "negative"} for line in lines]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.mark.grid
def test_a_killed_training_continues_with_the_same_curve(folder, monkeypatch):
    stories = Recipe.create("stories", STORIES)
    whole = train(stories, folder, folder / "whole", verbose=0).history
    assert whole["loss"][-1] < whole["loss"][0]

    class Killed(module.Resume):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            if epoch == 1:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "Resume", Killed)
        with pytest.raises(KeyboardInterrupt):
            train(stories, folder, folder / "again", verbose=0)
    assert not (folder / "again").exists()
    other = Recipe.create("stories", STORIES | {"data": {**STORIES["data"], "prefix": "Story: "}})
    with pytest.raises(CheckpointError, match="prefix"):
        train(other, folder, folder / "again", verbose=0)
    assert train(stories, folder, folder / "again", verbose=0).history == whole
    names = {path.name for path in (folder / "again").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "training.csv"} <= names
    assert not (folder / "again.training").exists()
    table = list(csv.DictReader((folder / "again" / "training.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(row["loss"]) for row in table] == whole["loss"] and [row["epoch"] for row in table] == list("123")
    model = kf.load(folder / "again")
    assert model.generation_config.max_new_tokens == 5
    assert model.generate("The fox", do_sample=False)
    with pytest.raises(InputError, match="which exists"):
        train(stories, folder, folder / "again")


def test_an_adapter_is_loaded_with_its_base_model(folder):
    tables = {
        "model": {"source": "sentiment-bert", "labels": ["negative", "positive"], "new_head": True},
        "data": {"train": ["rows.jsonl"], "max_length": 32, "pad_to": [32]},
        "lora": {"rank": 2},
        "training": {"epochs": 1, "learning_rate": 1e-3},
    }
    train(Recipe.create("sentiment", tables), folder, folder / "out", verbose=0)
    assert (folder / "out" / "adapter_model.safetensors").stat().st_size < 200_000
    loaded = kf.load(folder / "out")
    assert loaded.new_variables == () and loaded.config.labels == ("negative", "positive")
    base = kf.load("sentiment-bert")
    base.load_adapter(folder / "out")
    batch = base.tokenizer(["The fox sleeps.", "An owl"])
    np.testing.assert_allclose(loaded(batch), base(batch), atol=1e-5)
    assert np.abs(np.asarray(loaded(batch)) - np.asarray(kf.load("sentiment-bert")(batch))).max() > 1e-2

    other = kf.load(folder / "out", "token-classification", labels=["O", "PER", "LOC"])
    assert set(other.new_variables) == {"head/output/kernel", "head/output/bias"}

    settings = json.loads((folder / "out" / "adapter_config.json").read_text())
    (folder / "out" / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": "../base"}))
    with pytest.raises(kf.errors.SourceError, match="a preset or a hub id"):
        kf.load(folder / "out")


TINY = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 24}
GPT2 = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2}
ELECTRA = {**TINY, "hidden_dim": 32, "num_heads": 4, "embedding_dim": 16}
# Objective, architecture, its further settings, algorithm of the vocabulary; None for a source.
PRETRAINED = [
    ("masked", "bert", TINY, "wordpiece"),
    ("masked", "bert", TINY, "bpe"),
    ("causal", "gpt2", GPT2, "wordpiece"),
    ("denoising", "bart", TINY, "bpe"),
    ("deshuffling", "t5", {**TINY, "head_dim": 8}, "unigram"),
    ("document_rotation", "t5", {**TINY, "head_dim": 8}, "bpe"),
    ("gap_sentences", "t5", {**TINY, "head_dim": 8}, "unigram"),
    ("next_sentence", "bert", TINY, "bpe"),
    ("prefix_lm", "gpt2", GPT2, "bpe"),
    ("replaced_tokens", "electra", ELECTRA, "wordpiece"),
    ("sentence_order", "albert", {**TINY, "embedding_dim": 8}, "unigram"),
    ("sentence_permutation", "bart", TINY, "unigram"),
    ("span_boundary", "bert", TINY, "bpe"),
    ("span_corruption", "t5", {**TINY, "head_dim": 8}, "unigram"),
    ("span_corruption", "summarizer-t5", None, None),
    ("text_infilling", "summarizer-t5", None, None),
    ("text_infilling", "bart", TINY, "wordpiece"),
    ("token_deletion", "t5", {**TINY, "head_dim": 8}, "unigram"),
    ("translation", "t5", {**TINY, "head_dim": 8}, "unigram"),
    ("translation_lm", "xlm", {**GPT2, "n_languages": 2}, "bpe"),
]
SMOKE = [("next_sentence", "bpe"), ("span_corruption", None)]
IN_CI = [
    ("masked", "bpe"), ("prefix_lm", "bpe"), ("replaced_tokens", "wordpiece"), ("sentence_order", "unigram"),
    ("text_infilling", "wordpiece"), ("translation_lm", "bpe"),
]  # fmt: skip
"""One objective of each form of texts, and of each branch; the others are trained before a release."""


def _pretraining_cases():
    for name, architecture, config, algorithm in PRETRAINED:
        kind = (name, algorithm)
        marks = () if kind in SMOKE else pytest.mark.grid if kind in IN_CI else pytest.mark.release
        yield pytest.param(name, architecture, config, algorithm, marks=marks, id=f"{name}-{architecture}-{algorithm}")


def test_every_objective_has_a_recipe():
    assert {name for name, *_ in PRETRAINED} == set(OBJECTIVES)


@pytest.mark.parametrize(
    ("tables", "prefix_lm"),
    [({}, True), ({"objective": {"name": "causal"}}, True), ({"objective": {"name": "prefix_lm"}, "lora": {}}, None)],
)
def test_recipes_after_which_prompts_would_be_read_in_other_directions(tables, prefix_lm):
    recipe = Recipe.create("raw", {"model": {"source": "x"}, "data": {"train": ["x"]}, **tables})
    model = kf.zoo.build("gpt2", task="text-generation", vocab_size=9, prefix_lm=prefix_lm, **GPT2)
    with pytest.raises(InputError, match="prefix language model"):
        module._check_prefixes(recipe, model)


@pytest.mark.parametrize(("name", "architecture", "config", "algorithm"), [*_pretraining_cases()])
def test_raw_texts_pretrain(folder, name, architecture, config, algorithm):
    # 33 documents, of which the last batch has one, and a line of a single word.
    lines = [f"Fox {n} sleeps. It wakes at {n}! Then it finds {n + 3} hens." for n in range(33)]
    (folder / "raw.txt").write_text("\n".join([*lines, "Oh"]), encoding="utf-8")
    (folder / "pairs.tsv").write_text("\n".join(f"{line}\t{line.upper()}" for line in lines), encoding="utf-8")
    tables = {
        "model": {"source": architecture},
        "data": {"train": ["pairs.tsv" if name.startswith("translation") else "raw.txt"], "max_length": 48},
        "objective": {"name": name},
        "training": {"epochs": 1, "learning_rate": 1e-3},
    }
    if config is not None:
        tables["model"] = {"architecture": architecture, "config": config}
        tables["tokenizer"] = {"algorithm": algorithm, "vocab_size": 420}
    short = name in ("gap_sentences", "next_sentence", "prefix_lm", "sentence_order")
    with pytest.warns(UserWarning, match="1 of .* texts were left out") if short else nullcontext():
        history = train(Recipe.create("raw", tables), folder, folder / "out", verbose=0).history
    assert np.isfinite(history["loss"]).all()
    model = kf.load(folder / "out")
    assert model.task in OBJECTIVES[name].tasks and model.new_variables == ()
    assert bool(model.config.prefix_lm) == (name == "prefix_lm" and not model.is_encoder_decoder)
    if OBJECTIVES[name].mask:
        assert model.tokenizer.mask_token_id in model.tokenizer.all_special_ids
    if model.generates:
        assert not model.tokenizer("The fox").input_ids[0, -1] == model.generation_config.eos_token_id or (
            model.is_encoder_decoder
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {}}, "either source or architecture"),
        ({"tokenizer": None}, r"needs the table \[tokenizer\]"),
        ({"data": {"train": ["texts.txt"], "batchsize": 3}}, "Did you mean batch_size"),
        ({"optimiser": {}}, "Received: optimiser"),
        ({"lora": {"rank": 2}, "training": {"monitor": "val_loss"}}, "an adapter is saved after the last epoch"),
        *(
            ({"objective": {"name": "causal"}, "data": {"train": ["texts.txt"], key: value}}, f"{key} of .* no effect")
            for key, value in (
                ("class_weights", True),
                ("pad_to", [16]),
            )
        ),
    ],
)
def test_recipes_are_checked(changes, message):
    tables = {name: table for name, table in (STORIES | changes).items() if table is not None}
    with pytest.raises(InputError, match=message):
        Recipe.create("stories", tables)


def test_files_and_changes_are_read(folder):
    (folder / "words.toml").write_text('[model]\nsource = "sentiment-bert"\n[data]\ntrain = ["bad.jsonl"]\n')
    (folder / "bad.jsonl").write_text('{"text": "good", "label": 1}\n{"text": 3}\n')
    read = Recipe.read(folder / "words.toml", {"training.epochs": 2})
    assert read.name == "words" and read.training["epochs"] == 2
    with pytest.raises(InputError, match="line 2"):
        train(read, folder, folder / "out")
    (folder / "words.toml").write_text("[model")
    with pytest.raises(InputError, match="A recipe in TOML"):
        Recipe.read(folder / "words.toml")
