from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import transformers

import kerasformer as kf
from kerasformer.errors import CapacityError, InputError
from kerasformer.tokenization.truncation import TruncationWarning
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

TEXTS = ["The train", "Rain.", "A film"]
LABELS = ["rain", "train", "a film"]
NAMES = ["CONTRADICTION", "neutral", "Entailment", "x", "y"]


def named(folder, target, names):
    """Copies a checkpoint with other names of classes."""
    shutil.copytree(folder, target)
    content = json.loads((target / "config.json").read_text())
    content |= {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    (target / "config.json").write_text(json.dumps(content))
    return target


@pytest.mark.parametrize("names", [NAMES, ["entailment", "b", "c", "d", "not_entailment"]], ids=["last", "first"])
@pytest.mark.parametrize("model", ["classes", "compared"])
def test_results_are_those_of_transformers(checkpoint, tmp_path, names, model):
    folder = named(checkpoint(model), tmp_path / "model", names)
    theirs = transformers.pipeline("zero-shot-classification", str(folder), device="cpu")
    pipe = kf.pipeline(folder, "zero-shot-classification")
    for options in (
        {},
        {"multi_label": True},
        {"hypothesis_template": "It is {}!"},
        {"hypothesis_template": "{}", "multi_label": True},
    ):
        expected = theirs(TEXTS, candidate_labels=LABELS, **options)
        assert_same(pipe(TEXTS, LABELS, **options, batch_size=2), expected)
        assert_same(pipe(TEXTS[1], LABELS, **options), expected[1])
    assert_same(pipe(TEXTS[0], "rain, train"), theirs(TEXTS[0], candidate_labels="rain, train"))
    assert_same(pipe(TEXTS[0], ["rain"]), theirs(TEXTS[0], candidate_labels=["rain"]))
    assert_same(list(pipe((text for text in TEXTS), LABELS)), pipe(TEXTS, LABELS))


def test_a_long_text_is_cut_on_request_and_the_class_is_not(checkpoint, tmp_path):
    folder = named(checkpoint("classes"), tmp_path / "model", NAMES)
    pipe, long = kf.pipeline(folder, "zero-shot-classification"), " ".join(CORPUS[:8])
    with pytest.warns(TruncationWarning):
        received = pipe(long, LABELS, truncation=True)
    theirs = transformers.pipeline("zero-shot-classification", str(folder), device="cpu")
    theirs.tokenizer.model_max_length = 48
    assert_same(received, theirs(long, candidate_labels=LABELS))


@pytest.mark.parametrize(("multi_label", "combine"), [(False, "mean"), (True, "max")])
def test_a_long_text_is_split_into_chunks_and_the_class_is_not(checkpoint, tmp_path, multi_label, combine):
    """The expected logit of a class is computed with PyTorch from those of the chunks."""
    folder, long = named(checkpoint("classes"), tmp_path / "model", NAMES), " ".join(CORPUS[:8])
    pipe = kf.pipeline(folder, "zero-shot-classification")
    options = {"hypothesis_template": "It is {}!", "multi_label": multi_label, "combine": combine}
    received = pipe([TEXTS[0], long], LABELS, **options, stride=5)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer, expected = transformers.AutoTokenizer.from_pretrained(folder), []
    for label in LABELS:
        chunks = tokenizer(
            long, f"It is {label}!", truncation="only_first", max_length=48, stride=5, padding=True,
            return_overflowing_tokens=True, return_tensors="pt",
        )  # fmt: skip
        chunks.pop("overflow_to_sample_mapping")
        weights = [chunks.sequence_ids(row).count(0) for row in range(len(chunks.input_ids))]
        logits = model(**chunks).logits.detach().numpy()
        rows = logits[:, 2] - logits[:, 0] if multi_label else logits[:, 2]
        assert len(rows) > 4 and len(set(weights)) == 2
        expected.append(rows.max() if combine == "max" else np.average(rows, weights=weights))
    powers = np.exp(np.array(expected))
    scores = powers / (1 + powers) if multi_label else powers / powers.sum()
    assert dict(zip(received[1]["labels"], received[1]["scores"], strict=True)) == pytest.approx(
        dict(zip(LABELS, scores, strict=True)), abs=2e-5
    )
    assert_same(received[0], pipe(TEXTS[0], LABELS, **options))
    with pytest.raises(CapacityError, match="leave no space for a text. Expected: fewer than 48 tokens. Received: "):
        pipe(TEXTS[0], LABELS, hypothesis_template="rain " * 46 + "{}")


def test_wrong_input(checkpoint, tmp_path):
    with pytest.raises(InputError, match="starts with 'entail'.*Received: the classes O, B-PER"):
        kf.pipeline(checkpoint("classes"), "zero-shot-classification")
    pipe = kf.pipeline(named(checkpoint("classes"), tmp_path / "model", NAMES), "zero-shot-classification")
    with pytest.raises(InputError, match="At least one class"):
        pipe(TEXTS, " , ")
    with pytest.raises(InputError, match="candidate_labels must be"):
        pipe(TEXTS, [1])
    for template in ("This is it.", "{} and {}", "{name}", "{", "{:>999999999}", "{0.upper}", "{!r}"):
        with pytest.raises(InputError, match="hypothesis_template must contain {}"):
            pipe(TEXTS, LABELS, hypothesis_template=template)
