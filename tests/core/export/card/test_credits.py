"""A bundle contains the checkpoint's card, licence and notices."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import yaml

from kerasformer import bundle, zoo
from kerasformer.export import api as build
from kerasformer.export import export
from kerasformer.export.card.credits import CARD, Credits
from kerasformer.export.targets import Target
from tests.core.export.card.test_card import decoder, written

README = """---
license: cc-by-4.0
language:
- en
- de
datasets: polarity
base_model: someone/base
tags: [anything]
---

# The model

Reads films.

## Limits

Not for poems.

```python
load("somewhere")
```

## Figures

| set | accuracy |
|---|---|
| dev | 82.1 % |
"""


def checkpoint(folder: Path, readme: str = README) -> Path:
    folder.mkdir()
    (folder / "README.md").write_text(readme, encoding="utf-8")
    for name in ("LICENSE", "NOTICE.txt", "license-data.md"):
        (folder / name).write_text(f"{name}: all of it")
    (folder / "noticeboard.py").write_text("no legal text")
    return folder


def card_of(tmp_path: Path, source: Path) -> tuple[str, Path]:
    folder = tmp_path / "bundle"
    folder.mkdir()
    manifest = decoder()
    written(folder, manifest)
    build.write_card(folder, manifest, Target(), Credits.of(source))
    return (folder / "README.md").read_text(encoding="utf-8"), folder


def test_the_card_has_licence_data_limits_and_accuracy(tmp_path):
    card, folder = card_of(tmp_path, checkpoint(tmp_path / "films-bert"))
    front = yaml.safe_load(card.split("---")[1])
    assert front == {
        "library_name": "kerasformer",
        "pipeline_tag": "text-generation",
        "license": "cc-by-4.0",
        "base_model": "someone/base",
        "datasets": "polarity",
        "language": ["en", "de"],
    }
    assert "# films-bert: gpt2 for text-generation" in card
    assert "The weights are from `films-bert`; licence: cc-by-4.0; base model: someone/base" in card
    assert "include `LICENSE` and `NOTICE.txt` and `license-data.md` and `MODEL_CARD.md`." in card
    assert "[MODEL_CARD.md](MODEL_CARD.md) describes the model" in card
    assert "Reads films." not in card, "a program there loads the checkpoint, not the bundle"
    assert (folder / CARD).read_text() == README
    assert {path.name for path in folder.glob("*") if path.is_file()} >= {"LICENSE", "NOTICE.txt", "license-data.md"}
    assert not (folder / "noticeboard.py").exists()


@pytest.mark.parametrize(
    "readme",
    [
        "---\nlicense: [a, {b: c}\n---\ntext",
        "---\nlicense: &a [*a]\n---\ntext",
        "---\n- a list\n---\ntext",
        'no front matter\n```python\nimport os; os.abort()\n~~~\nprint("open")',
        "---\nlicense: |\n  a\n  ---\n  evil: true\nlanguage: 7\n---\n",
        "\ufeff---\r\nlicense: mit\r\n---\r\nlines",
    ],
)
def test_a_card_of_any_form(tmp_path, readme):
    card, _ = card_of(tmp_path, checkpoint(tmp_path / "m`x`*", readme))
    assert "evil" not in (yaml.safe_load(card.split("\n---\n")[0]) or {})
    assert "os.abort" not in card and "include `LICENSE`" in card


def test_a_checkpoint_without_licence(tmp_path):
    (tmp_path / "bare").mkdir()
    assert "It does not specify a licence: ask its authors." in Credits.of(tmp_path / "bare").summary()
    assert Credits.of(None) == Credits.of(tmp_path / "gone") == Credits()
    hub = tmp_path / "models--owner--name" / "snapshots" / "0123"
    hub.mkdir(parents=True)
    assert Credits.of(hub).name == "owner/name"


@pytest.mark.grid
def test_a_preset_keeps_its_credits_and_passes_them_on(tmp_path):
    folder = export("sentiment-bert", tmp_path / "films", "onnx", lengths=None)
    card = (folder / "README.md").read_text()
    for words in ("sentiment-bert", "apache-2.0", "sentence\\_polarity"):
        assert words in card
    for words in ("Lillian Lee", "Out of scope", "85.7 %"):
        assert words in (folder / CARD).read_text()
    assert CARD in bundle.read(folder).files
    assert '"kerasformer[onnx]' not in card and 'py3-none-any.whl[onnx]"' in card


@pytest.mark.grid
def test_a_fine_tuned_model_names_its_base(tmp_path):
    source = checkpoint(tmp_path / "films-bert")
    model = zoo.load("sentiment-bert")
    model.source = source
    model.save_pretrained(tmp_path / "same")
    assert (tmp_path / "same" / "README.md").read_text(encoding="utf-8") == README
    assert (tmp_path / "same" / "LICENSE").read_text() == "LICENSE: all of it"

    batch = model.tokenizer(["A film.", "No film."])
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batch, np.array([0, 1]), verbose=0)
    model.save_pretrained(tmp_path / "tuned")
    direct, saved = Credits.of_model(model), Credits.of_model(zoo.load(tmp_path / "tuned"))
    front = yaml.safe_load((tmp_path / "tuned" / "README.md").read_text(encoding="utf-8").split("---")[1])
    expected = {
        "base_model": "films-bert",
        "base_model_relation": "finetune",
        "base_model_license": "cc-by-4.0",
        "pipeline_tag": "text-classification",
    }
    assert front == {"library_name": "transformers", **expected}
    for credits in (direct, saved):
        assert yaml.safe_load(credits.front_matter(model.task).split("---")[1]) == {
            "library_name": "kerasformer",
            **expected,
        }
        assert credits.card == "" and credits.legal.keys() == {"LICENSE", "NOTICE.txt", "license-data.md"}
    assert direct.summary() == saved.summary()
    assert "fine-tuned from `films-bert`, whose licence is cc-by-4.0." in direct.summary()
    assert "polarity" not in direct.summary() and CARD not in direct.summary()

    # What somebody has written about the model stays, and is the card of its bundles.
    (tmp_path / "tuned" / "README.md").write_text("---\nlicense: mit\nbase_model: a/b\n---\nMine.", encoding="utf-8")
    model.save_pretrained(tmp_path / "tuned")
    mine = Credits.of_model(zoo.load(tmp_path / "tuned"))
    assert mine.facts == {"license": ["mit"], "base_model": ["a/b"]} and "Mine." in mine.card


@pytest.mark.parametrize("change", ["new head", "adapter", "assignment"])
def test_changes_of_weights_are_noticed(change):
    model = zoo.load("sentiment-bert", **({"labels": ["a", "b", "c"]} if change == "new head" else {}))
    if change == "adapter":
        model.enable_lora(rank=1)
    elif change == "assignment":
        bias = model.weights[-1]
        bias.assign(bias + 1)
    assert Credits.of_model(model).based_on == "sentiment-bert"
    assert Credits.of_model(zoo.load("sentiment-bert")).based_on == ""
