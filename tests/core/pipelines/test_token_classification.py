from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from kerasformer.bundle import ModelInfo
from kerasformer.errors import InputError
from kerasformer.pipelines import pipeline
from kerasformer.pipelines.quality import pipeline_of
from kerasformer.tokenization import TruncationWarning
from kerasformer.tools.evaluation import metrics
from tests import tiny_text
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

TEXTS = ["The waiter from Vienna, and Zoltan!", CORPUS[6], "Two engineers unbelievably forgives.", CORPUS[25]]
STRATEGIES = ["none", "simple", "first", "average", "max"]


@pytest.fixture(scope="module")
def pipes(checkpoint):
    folder = checkpoint("entities")
    theirs = transformers.pipeline("token-classification", str(folder))
    theirs.tokenizer.model_max_length = 48
    return pipeline(folder, "token-classification"), theirs


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ignored", [("O",), (), ("PER", "O", "B-LOC")])
def test_entities_equal_those_of_transformers(pipes, strategy, ignored):
    ours, theirs = pipes
    expected = theirs(TEXTS, aggregation_strategy=strategy, ignore_labels=list(ignored))
    received = ours(TEXTS, aggregation_strategy=strategy, ignore_labels=ignored)
    # transformers returns tokens with their marks and in lower case; here it is the text at the offsets.
    assert_same(received, expected, ignored=("word",))
    assert any(expected)
    for text, entities in zip(TEXTS, received, strict=True):
        assert all(entity["word"] == text[entity["start"] : entity["end"]] for entity in entities)


IOB, BIOES = ("O", "B-PER", "I-PER"), ("O", "B-PER", "I-PER", "E-PER", "S-PER", "S-LOC")
BILOU, OTHER = ("O", "B-PER", "I-PER", "L-PER", "U-PER"), ("O", "B-PER", "I-PER", "E-MAIL", "X-PER")


@pytest.mark.parametrize("strategy", ["simple", "first", "max"])
@pytest.mark.parametrize(
    ("labels", "tags", "expected"),
    [
        (IOB, "B-PER I-PER I-PER O I-PER B-PER", ["0-2 PER", "4-4 PER", "5-5 PER"]),
        (BIOES, "B-PER E-PER O S-PER", ["0-1 PER", "3-3 PER"]),
        (BIOES, "B-PER I-PER E-PER E-PER S-PER S-PER", ["0-2 PER", "3-3 PER", "4-4 PER", "5-5 PER"]),
        (BIOES, "S-LOC S-LOC I-PER E-PER B-PER", ["0-0 LOC", "1-1 LOC", "2-3 PER", "4-4 PER"]),
        (BILOU, "B-PER I-PER L-PER I-PER U-PER U-PER", ["0-2 PER", "3-3 PER", "4-4 PER", "5-5 PER"]),
        (("B-X", "M-X", "E-X", "S-X"), "B-X M-X M-X E-X S-X S-X", ["0-3 X", "4-4 X", "5-5 X"]),
        (OTHER, "B-PER E-MAIL E-MAIL X-PER I-PER", ["0-0 PER", "1-2 E-MAIL", "3-3 X-PER", "4-4 PER"]),
        (("E-MAIL", "O"), "E-MAIL E-MAIL O", ["0-1 E-MAIL"]),
    ],
)
def test_schemes_of_labels_are_those_of_the_evaluation(strategy, labels, tags, expected):
    tokenizer, text = tiny_text.wordpiece(), "the the the the the the"[: 4 * len(tags.split()) - 1]
    row = np.array([labels.index(tag) for tag in ["O" if "O" in labels else "B-X", *tags.split()] + [tags.split()[0]]])
    engine = SimpleNamespace(run=lambda inputs: {"logits": np.eye(len(labels), dtype="float32")[None, row] * 9})
    info = ModelInfo("token-classification", input_names=("input_ids", "attention_mask"), max_length=40, labels=labels)
    found = pipeline_of(engine, info, tokenizer)(text, aggregation_strategy=strategy)
    assert [f"{each['start'] // 4}-{each['end'] // 4} {each['entity_group']}" for each in found] == expected
    evaluated = sorted(metrics.entities(tags.split(), labels), key=lambda entity: entity[1])
    assert [f"{start}-{end} {kind}" for kind, start, end in evaluated] == expected


LONG = " ".join(CORPUS[:6])
HARD = f"{LONG} Zoë\u0301 🙂👩‍👩‍👧 in Wien,   {CORPUS[6]} e\u0301e\u0301 {CORPUS[7]} 🙂"


@pytest.mark.parametrize("stride", [0, 11])
@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_entities_of_chunks_equal_those_of_transformers(pipes, strategy, stride):
    """Overlapping entities are chosen as by `transformers` with `stride`, in a batch with a short text."""
    ours, theirs = pipes
    for ignored in (("O",), ()):
        options = {"aggregation_strategy": strategy, "ignore_labels": ignored, "stride": stride}
        expected = [theirs(text, **{**options, "ignore_labels": list(ignored)}) for text in (TEXTS[0], HARD)]
        received = ours([TEXTS[0], HARD], **options, combine="entities")
        assert_same(received, expected, ignored=("word",))
        assert all(entity["word"] == HARD[entity["start"] : entity["end"]] for entity in received[1])
    by_tokens = ours(HARD, aggregation_strategy=strategy, stride=stride)
    assert by_tokens and all(entity["word"] == HARD[entity["start"] : entity["end"]] for entity in by_tokens)


def test_invalid_options(pipes):
    with pytest.raises(InputError, match="'none', 'simple', 'first', 'average' or 'max'"):
        pipes[0]("Vienna", aggregation_strategy="last")
    with pytest.raises(InputError, match="combine='entities' needs an aggregation strategy other than 'none'"):
        pipes[0](LONG, combine="entities")
    with pytest.raises(InputError, match="combine must be 'tokens' or 'entities'"):
        pipes[0](LONG, combine="mean")


def test_a_long_text_is_combined_from_chunks(pipes):
    """Each token is classified in the chunk with the most context; offsets are those of the whole text."""
    ours, theirs = pipes
    received = ours(LONG, ignore_labels=(), chunk_length=24, stride=8)
    whole = ours.tokenizer(LONG)
    text = whole.special_tokens_mask[0] == 0
    assert [entity["index"] for entity in received] == np.flatnonzero(text).tolist()
    assert [[entity["start"], entity["end"]] for entity in received] == whole.offsets[0][text].tolist()
    chunks = theirs.tokenizer(
        LONG,
        truncation=True,
        max_length=24,
        stride=8,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    chunks.pop("overflow_to_sample_mapping")
    scores = theirs.model(**chunks).logits.detach().softmax(-1).numpy()
    first, last = 0, len(received) - 1
    for index, entity in enumerate(received):
        options = []  # for each chunk, the context around the token and its scores
        for row in range(len(scores)):
            start = row * (22 - 8)
            end = min(start + 22, len(received)) - 1
            if start <= index <= end:
                margin = min(index - start if start > first else 999, end - index if end < last else 999)
                options.append((margin, -row, scores[row, 1 + index - start]))
        margin, _, best = max(options, key=lambda option: option[:2])
        assert entity["score"] == pytest.approx(float(best.max()), abs=2e-5)
        assert entity["entity"] == ours.info.labels[best.argmax()]
    for strategy in STRATEGIES[1:]:
        for entity in ours(LONG, aggregation_strategy=strategy, ignore_labels=()):
            assert entity["word"] == LONG[entity["start"] : entity["end"]]
    assert ours([TEXTS[0], LONG], batch_size=1) == [ours(TEXTS[0]), ours(LONG)]
    with pytest.warns(TruncationWarning):
        assert len(ours(LONG, ignore_labels=(), truncation=True)) == 46
