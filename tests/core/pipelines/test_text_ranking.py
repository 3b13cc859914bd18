from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import CapacityError, InputError
from kerasformer.tokenization.truncation import TruncationWarning
from tests.tiny_text import CORPUS

pytestmark = pytest.mark.grid

QUERY, DOCUMENTS = "rain", [" ".join(text.split()[:4]) for text in (*CORPUS[:9], "Rain.")]
IDENTITY = "torch.nn.modules.linear.Identity"


def changed(folder, target, **entries):
    shutil.copytree(folder, target)
    content = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**content, **entries}))
    return target


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.0.1"}},
        {"sbert_ce_default_activation_function": IDENTITY},
    ],
    ids=["sigmoid", "identity", "older"],
)
def test_ranking_is_that_of_sentence_transformers(checkpoint, tmp_path, entries):
    folder = changed(checkpoint("one-class"), tmp_path / "model", **entries)
    pipe = kf.pipeline(folder, "text-ranking")
    saved = zoo.load(folder).save_pretrained(tmp_path / "saved")
    for source in (folder, saved):
        theirs = CrossEncoder(str(source), device="cpu").rank(QUERY, DOCUMENTS, return_documents=True)
        received = pipe.rank(QUERY, DOCUMENTS, return_documents=True, batch_size=3)
        assert [row["corpus_id"] for row in received] == [row["corpus_id"] for row in theirs]
        assert [row["text"] for row in received] == [row["text"] for row in theirs]
        assert [row["score"] for row in received] == pytest.approx([row["score"] for row in theirs], abs=2e-5)
    assert (max(row["score"] for row in received) <= 1) == (not entries)
    assert kf.pipeline(folder).rank(QUERY, DOCUMENTS, top_k=2) == [
        {name: row[name] for name in ("corpus_id", "score")} for row in pipe.rank(QUERY, DOCUMENTS)[:2]
    ]


def test_a_folder_of_the_newest_version(checkpoint, tmp_path):
    theirs = CrossEncoder(str(checkpoint("one-class")), device="cpu", activation_fn=torch.nn.Identity())
    theirs.save_pretrained(str(tmp_path / "model"))
    received = kf.pipeline(tmp_path / "model").rank(QUERY, DOCUMENTS)
    expected = theirs.rank(QUERY, DOCUMENTS)
    assert [row["score"] for row in received] == pytest.approx([row["score"] for row in expected], abs=2e-5)
    assert received[0]["score"] > 1 or received[-1]["score"] < 0


def test_a_class_of_several_ranks(checkpoint):
    pipe = kf.pipeline(checkpoint("compared"), "reranking")
    scores = CrossEncoder(str(checkpoint("compared")), device="cpu").predict([(QUERY, text) for text in DOCUMENTS])
    received = pipe.rank(QUERY, DOCUMENTS, label="B-LOC")
    assert [row["corpus_id"] for row in received] == np.argsort(-scores[:, 3]).tolist()
    assert received[0]["score"] == pytest.approx(scores[:, 3].max(), abs=2e-5)
    with pytest.raises(InputError, match="label=…, one of O, B-PER.*Received: label=None"):
        pipe.rank(QUERY, DOCUMENTS)
    with pytest.raises(InputError, match="Received: label='C'"):
        pipe.rank(QUERY, DOCUMENTS, label="C")


@pytest.mark.parametrize("combine", ["max", "mean"])
def test_a_long_document_is_split_into_chunks(checkpoint, combine):
    """The expected score is computed with PyTorch from those of the chunks, each with the whole query."""
    folder, long = checkpoint("one-class"), " ".join(CORPUS[:9])
    pipe = kf.pipeline(folder)
    received = pipe.rank(QUERY, [DOCUMENTS[0], long], combine=combine, chunk_length=30, stride=4, batch_size=3)
    chunks = transformers.AutoTokenizer.from_pretrained(folder)(
        QUERY, long, truncation="only_second", max_length=30, stride=4, padding=True, return_overflowing_tokens=True,
        return_tensors="pt",
    )  # fmt: skip
    chunks.pop("overflow_to_sample_mapping")
    weights = [chunks.sequence_ids(row).count(1) for row in range(len(chunks.input_ids))]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = model(**chunks).logits.sigmoid().detach().numpy()[:, 0]
    expected = scores.max() if combine == "max" else np.average(scores, weights=weights)
    by_document = {row["corpus_id"]: row["score"] for row in received}
    alone = pipe.rank(QUERY, DOCUMENTS[:1])[0]["score"]
    assert len(scores) > 4
    assert [by_document[0], by_document[1]] == pytest.approx([alone, expected], abs=2e-5)
    assert pipe.rank(QUERY, [long])[0]["score"] != pytest.approx(expected, abs=1e-4)
    with pytest.warns(TruncationWarning):
        assert len(pipe.rank(QUERY, [long], truncation=True)) == 1


def test_wrong_input(checkpoint, tmp_path):
    pipe = kf.pipeline(checkpoint("one-class"))
    with pytest.raises(CapacityError, match="leave no space for a text"):
        pipe.rank("rain " * 50, DOCUMENTS)
    assert len(pipe.rank(QUERY, [])) == 0
    with pytest.raises(InputError, match="A query or a list of them"):
        pipe.rank(["a"], DOCUMENTS)
    entries = {"sentence_transformers": {"activation_fn": "own.Function"}}
    strange = kf.pipeline(changed(checkpoint("one-class"), tmp_path / "model", **entries))
    with pytest.raises(InputError, match="Expected: torch.nn.modules.linear.Identity or.*Received: 'own.Function'"):
        strange.rank(QUERY, DOCUMENTS)
    assert strange(DOCUMENTS[0])[0]["label"] == "LABEL_0"
