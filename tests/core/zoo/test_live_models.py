"""Models, tokenizers and data of other libraries in memory, which go in without files of the user's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.files.sources import resolve
from tests.extras import need

TEXTS = ["A warm and funny film.", "Dull."]


@pytest.fixture(scope="module")
def theirs():
    folder = resolve("story-gpt2")
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.transformer.ln_f.bias += 0.1  # so that it is not what any file has
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def _logits(model, tokenizer, texts=("The old man looked",)):
    with torch.no_grad():
        return model(**tokenizer(list(texts), return_tensors="pt")).logits.numpy()


def _assert_equal(mine, theirs):
    np.testing.assert_allclose(mine, theirs, atol=1e-5 * np.abs(theirs).max(), rtol=0)


def test_a_model_and_its_tokenizer(theirs, tmp_path, capfd):
    model, tokenizer = theirs
    mine = kf.load(model, tokenizer=tokenizer)
    _assert_equal(mine(mine.tokenizer(["The old man looked"])), _logits(model, tokenizer))
    assert mine.task == "text-generation" and mine.source is None
    assert mine.generate("The old man", max_new_tokens=3, do_sample=False).startswith("The old man")
    assert "Writing" not in capfd.readouterr().err
    assert kf.load(model).tokenizer is None
    assert kf.load("story-gpt2", tokenizer=tokenizer).tokenizer.encode("The old") == tokenizer.encode("The old")
    with pytest.raises(InputError, match="Tokenizer.load"):
        mine.set_tokenizer(tokenizer)
    # Its weights are in no file, and an export frees those that are.
    from kerasformer.models.variables import release_weights

    release_weights(mine)
    _assert_equal(mine(mine.tokenizer(["The old man looked"])), _logits(model, tokenizer))


def test_a_pipeline_with_another_tokenizer(theirs):
    pipe = kf.pipeline("story-gpt2", tokenizer=theirs[1])
    assert pipe.tokenizer.encode("The old man") == theirs[1].encode("The old man")


def test_a_model_with_an_adapter(theirs):
    peft = need("peft")
    model, tokenizer = theirs
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    adapted = peft.get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight += 0.3
    expected = _logits(adapted, tokenizer)
    assert np.abs(expected - _logits(model, tokenizer)).max() > 0.1
    merged = kf.load(adapted, tokenizer=tokenizer)
    batch = merged.tokenizer(["The old man looked"])
    _assert_equal(merged(batch), expected)
    np.testing.assert_array_equal(_logits(adapted, tokenizer), expected)  # it has its adapter still

    base = kf.load(model, tokenizer=tokenizer)
    base.load_adapter(adapted)
    _assert_equal(base(batch), expected)
    base.unload_adapter()
    _assert_equal(base(batch), _logits(model, tokenizer))


def test_data_sets():
    datasets = need("datasets")
    kinds = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["positive", "negative"])}
    )
    data = datasets.Dataset.from_dict({"sentence": [*TEXTS, "?"], "label": [0, 1, -1]}, features=kinds)
    model = kf.load("sentiment-bert")  # whose classes are in the other order
    known = data.select(range(2))
    assert kf.evaluate(model, known)["accuracy"] == 1.0
    assert kf.evaluate(model, known, text_column="sentence", label_column="label")["accuracy"] == 1.0
    assert kf.evaluate(model, known["sentence"], ["positive", "negative"])["accuracy"] == 1.0
    batch, targets = kf.training.dataset(model, known, shuffle=False)[0]
    expected = kf.training.dataset(model, TEXTS, ["positive", "negative"], shuffle=False)[0]
    np.testing.assert_array_equal(targets, expected[1])
    np.testing.assert_array_equal(batch["input_ids"], expected[0]["input_ids"])
    with pytest.raises(InputError, match="A label for each text"):
        kf.training.dataset(model, data)
    with pytest.raises(InputError, match=r"data\['train'\]"):
        kf.evaluate(model, datasets.DatasetDict(train=known))
    with pytest.raises(InputError, match="IterableDataset"):
        kf.evaluate(model, known.to_iterable_dataset())

    words = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("string")),
            "ner_tags": datasets.List(datasets.ClassLabel(names=["PER", "O"])),
        }
    )
    tagged = datasets.Dataset.from_dict({"tokens": [["Anna", "sleeps"]], "ner_tags": [[0, 1]]}, features=words)
    tagger = kf.load("sentiment-bert", "token-classification", labels=["O", "PER"], new_head=True)
    _, labels = kf.training.dataset(tagger, tagged)[0]
    assert [label for label in labels[0] if label >= 0] == [1, 0]
    numbered = kf.load("sentiment-bert", num_labels=2, id2label={0: "LABEL_0", 1: "LABEL_1"}, new_head=True)
    assert kf.training.dataset(numbered, known, shuffle=False)[0][1].tolist() in ([0, 1], [1, 0])
