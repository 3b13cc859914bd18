"""Metrics of each task, with engines that return given answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.bundle import SENTENCE_EMBEDDING, EmbeddingInfo, ModelInfo
from kerasformer.errors import BundleError, InputError, MissingExtraError
from kerasformer.pipelines.quality import QUALITY, compare_quality, pipeline_of, record_quality
from kerasformer.tools.evaluation import TaskEvaluation, evaluate, examples, outcome, task_evaluation
from tests import tiny_text
from tests.core.export.text_models import shared_model
from tests.core.generation.engines import Toy
from tests.core.pipelines.copying import copying_pipeline
from tests.keras_pipelines import keras_pipeline

TOKENIZER = tiny_text.wordpiece()


class Knowing:
    """Returns given logits for each text, with a row for each token if `per_token` is set."""

    def __init__(self, answers: Mapping[str, Any], name: str = "logits") -> None:
        self.answers = {tuple(TOKENIZER.encode(text)): np.asarray(row, "float32") for text, row in answers.items()}
        self.name = name

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = []
        for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True):
            row = self.answers[tuple(ids[mask > 0].tolist())]
            rows.append(np.pad(row, [(0, len(ids) - len(row)), (0, 0)]) if row.ndim == 2 else row)
        return {self.name: np.stack(rows)}


def info(task: str, **fields: Any) -> ModelInfo:
    return ModelInfo(task, input_names=("input_ids", "attention_mask"), max_length=40, **fields)


TEXTS = ["The museum is closed.", "What a waste!", "It made me laugh.", "Slow, loud."]


def classifier(best: list[int], problem: str | None = None) -> Any:
    logits = {text: np.eye(3)[index] * 4 - 1 for text, index in zip(TEXTS, best, strict=True)}
    return pipeline_of(
        Knowing(logits), info("text-classification", labels=("bad", "good", "odd"), problem_type=problem), TOKENIZER
    )


@pytest.mark.parametrize("labels", [[0, 1, 1, 2], ["bad", "good", "GOOD", "odd"], ["0", "1", "1", "2"]])
def test_classes_by_name_and_by_id(labels):
    progress: list[tuple[int, int]] = []
    figures = evaluate(
        classifier([0, 1, 0, 2]), examples(TEXTS, labels), progress=lambda done, total: progress.append((done, total))
    )
    assert figures["accuracy"] == 0.75
    assert figures["f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert progress == [(4, 4)]


def test_independent_classes():
    pipe = classifier([0, 1, 0, 2], "multi_label_classification")
    figures = evaluate(pipe, examples(TEXTS, [["bad"], ["good", "odd"], [0], ["odd"]]))
    assert figures["accuracy"] == 0.75
    assert figures["f1"] == pytest.approx((1 + 1 + 2 / 3) / 3)


@pytest.mark.parametrize("label", ["fine", 3, "3", -1, None])
def test_an_unknown_or_missing_label_raises(label):
    with pytest.raises(InputError, match="text 2 of 4 has none" if label is None else "one of bad, good, odd"):
        evaluate(classifier([0, 1, 0, 2]), examples(TEXTS, [0, label, 1, 1]))


def test_regression():
    """The outputs for the four texts are 1, 3, 2 and 9."""
    logits = {text: [value] for text, value in zip(TEXTS, [1, 3, 2, 9], strict=True)}
    pipe = pipeline_of(
        Knowing(logits), info("text-classification", labels=("score",), problem_type="regression"), TOKENIZER
    )
    found = outcome(pipe, examples(TEXTS, [1, "2", 3.5, 4]))
    assert found.figures == pytest.approx({"pearson": np.corrcoef([1, 3, 2, 9], [1, 2, 3.5, 4])[0, 1], "spearman": 0.8})
    assert found.losses == pytest.approx([0, 1, 2.25, 25])
    with pytest.raises(InputError, match="A number was expected.*'good'.*text 2"):
        evaluate(pipe, examples(TEXTS, [1, "good", 3.5, 4]))


def test_similarity_of_pairs():
    """Three pairs with the angles 0, 60 and 90 degrees; the scores of the last two are in the wrong order."""
    vectors = {"rain": [1, 0], "sun": [0.5, 3**0.5 / 2], "snow": [0, 1]}
    engine = Knowing(vectors, SENTENCE_EMBEDDING)
    pipe = pipeline_of(engine, info("sentence-similarity", embedding=EmbeddingInfo(2)), TOKENIZER)
    rows = [{"text": "rain", "pair": pair} for pair in ("rain", "sun", "snow")]
    figures = evaluate(pipe, examples(rows, [5, 1, 2.5]))
    assert figures["pearson"] == pytest.approx(np.corrcoef([1, 0.5, 0], [5, 1, 2.5])[0, 1])
    assert figures["spearman"] == pytest.approx(0.5)
    with pytest.raises(InputError, match="pairs of texts with a score"):
        evaluate(pipe, examples(["rain"], [1]))


def test_losses_and_classes():
    """The loss of a text is the negative log-likelihood of its class."""
    found = outcome(classifier([0, 1, 0, 2]), examples(TEXTS, [0, 1, 1, 2]))
    likelihood = np.exp(3) / (np.exp(3) + 2 * np.exp(-1))
    wrong = np.exp(-1) / (np.exp(3) + 2 * np.exp(-1))
    assert found.losses == pytest.approx(-np.log([likelihood, likelihood, wrong, likelihood]), rel=1e-5)
    assert found.answers == ("bad", "good", "bad", "odd") and found.expected == ("bad", "good", "good", "odd")
    assert found.confusion is not None
    assert found.confusion.counts.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    evaluation = TaskEvaluation("text-classification", examples(TEXTS, [0, 1, 1, 2]))
    system = evaluation.add_model("one", classifier([0, 1, 0, 2]))
    assert [row["text"] for row in evaluation.errors(system, 1)] == ["It made me laugh."]
    assert evaluation.errors(system, 1)[0]["expected"] == "good"
    evaluation.add_baselines()
    evaluation.add_baselines(examples(TEXTS[:3], [2, 2, 0]))
    assert [each.figures["accuracy"] for each in evaluation.systems] == [0.75, 0.5, 0.25]
    assert evaluation.systems[1].figures["matthews"] == 0
    assert evaluation.rows()[2] == {
        "text": "It made me laugh.",
        "references": ["good"],
        "generated": {"one": "bad", "majority": "2"},
    }


@pytest.mark.parametrize(
    ("name", "labels", "figures"),
    [
        ("cola", ["0", "1", "1", "0"], {"matthews": 0}),
        ("sst2", ["0", "1", "1", "1"], {"accuracy": 0.75}),
        ("mrpc", ["0", "1", "1", "1"], {"accuracy": 0.75, "f1": 0.8}),
    ],
)
def test_glue(tmp_path, name, labels, figures):
    """Classes of the model without their names; of MRPC, F1 is that of the second class."""
    logits = {text: np.eye(2)[index] for text, index in zip(TEXTS, [0, 1, 0, 1], strict=True)}
    header = {"cola": None, "sst2": "sentence\tlabel", "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"}[name]
    forms = {"cola": "gj04\t{0}\t\t{1}", "sst2": "{1}\t{0}", "mrpc": "{0}\t1\t2\t{1}\tslow"}
    rows = [forms[name].format(*row) for row in zip(labels, TEXTS, strict=True)]
    (tmp_path / "dev.tsv").write_text("\n".join([*([header] if header else []), *rows]))

    class First(Knowing):
        def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            ends = [int(np.flatnonzero(ids == TOKENIZER.sep_token_id)[0]) + 1 for ids in inputs["input_ids"]]
            rows = [self.answers[tuple(ids[:end].tolist())] for ids, end in zip(inputs["input_ids"], ends, strict=True)]
            return {"logits": np.stack(rows)}

    pipe = pipeline_of(First(logits), info("text-classification", labels=("LABEL_0", "LABEL_1")), TOKENIZER)
    assert evaluate(pipe, tmp_path / "dev.tsv", glue=name) == pytest.approx(figures)


class Writer:
    """A pipeline from text to text with given answers."""

    task, engine, info = "text2text-generation", "keras", ModelInfo("text2text-generation", is_encoder_decoder=True)

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def __call__(self, texts: list[str], *, batch_size: int, truncation: bool, prefix: str) -> list[dict[str, str]]:
        assert prefix == "" and truncation
        return [{"generated_text": self.answers[text]} for text in texts]


@pytest.mark.parametrize(
    ("name", "rows", "figures"),
    [
        (
            "mnli",
            [("p1", "h1", 0, "entailment"), ("p2", "h2", "neutral", " Neutral "), ("p3", "h3", 2, "maybe")],
            {"accuracy": 2 / 3},
        ),
        ("stsb", [("p1", "h1", 3.8, "3.8"), ("p2", "h2", 1.0, "1"), ("p3", "h3", 0.0, "none")], {"spearman": 1.0}),
        ("cb", [("p1", "h1", 1, "contradiction"), ("p2", "h2", 0, "neutral")], {"accuracy": 0.5, "macro_f1": 1 / 3}),
        ("boolq", [("p1", "h1", 1, "True"), ("p2", "h2", 0, "true")], {"accuracy": 0.5}),
    ],
)
def test_answers_to_glue_that_are_texts(name, rows, figures, monkeypatch):
    """Those of T5: names of classes and numbers; another text is wrong."""
    forms = {
        "mnli": "mnli hypothesis: {1} premise: {0}",
        "stsb": "stsb sentence1: {0} sentence2: {1}",
        "cb": "cb hypothesis: {1} premise: {0}",
        "boolq": "boolq passage: {0} question: {1}",
    }
    pipe = Writer({forms[name].format(*row): row[3] for row in rows})
    read = examples([{"text": text, "pair": pair, "label": label} for text, pair, label, _ in rows])
    found = task_evaluation._text_to_class(pipe, read, {"glue": name, "batch_size": 2})
    assert {key: found.figures[key] for key in figures} == pytest.approx(figures)
    if name == "mnli":
        assert found.answers == ("entailment", "neutral", "no class") and found.losses == (0, 0, 1)
        with pytest.raises(InputError, match="A pair of texts was expected, 'mnli hypothesis"):
            task_evaluation._text_to_class(pipe, examples(["alone"], [0]), {"glue": name, "batch_size": 2})


def test_glue_of_an_encoder_decoder():
    """Whole: texts in T5's form are answered, or the likeliest of the names of the classes is the answer."""
    pipe = keras_pipeline(shared_model("t5-text2text-generation"))
    words = ["unacceptable", "acceptable"]
    forms = ["cola sentence: " + text for text in TEXTS[:3]]
    best = [words.index(row[0]["label"]) for row in kf.choose(pipe, forms, words)]
    assert evaluate(pipe, TEXTS[:3], best, glue="cola", choices=words).keys() == {"matthews"}
    found = outcome(pipe, TEXTS[:3], best, glue="cola", choices=words)
    assert found.losses == (0, 0, 0)
    assert set(outcome(pipe, TEXTS[:3], best, glue="cola", settings={"max_new_tokens": 3}).answers) == {"no class"}
    with pytest.raises(InputError, match="names of the classes unacceptable, acceptable, in their order"):
        evaluate(pipe, TEXTS[:3], best, glue="cola", choices=["a", "b", "c"])


def test_glue_of_another_kind_of_model():
    rows = [{"text": text, "pair": "slow", "label": 3.5} for text in TEXTS]
    with pytest.raises(InputError, match="STS-B has scores. Expected: a regression model"):
        evaluate(classifier([0, 1, 0, 2]), examples(rows), glue="STS-B")
    with pytest.raises(InputError, match="glue: only for text-classification.*task fill-mask"):
        evaluate(pipeline_of(Knowing({}), info("fill-mask"), TOKENIZER), examples(rows), glue="stsb")


TAGS = ("O", "B-PER", "I-PER")


def test_entities_of_words_with_several_tokens():
    """The first token of a word decides; the other tokens of the word are ignored."""
    words = ["neighbour", "grows", "villain", "tomatoes"]
    counts = [len(TOKENIZER.encode(word, add_special_tokens=False)) for word in words]
    assert max(counts) > 1
    tags = [1, 0, 1, 2]
    rows = [np.zeros(3), *(row for tag, n in zip(tags, counts, strict=True) for row in [np.eye(3)[tag]] + [[0, 0, 9]] * (n - 1))]  # fmt: skip  # noqa: E501
    engine = Knowing({" ".join(words): [*rows, np.zeros(3)]})
    pipe = pipeline_of(engine, info("token-classification", labels=TAGS), TOKENIZER)
    right = examples([words], [["B-PER", "O", "B-PER", "I-PER"]])
    assert evaluate(pipe, right) == {"accuracy": 1, "f1": 1}
    wrong = examples([words], [[1, 0, 1, 0]])
    assert evaluate(pipe, wrong) == {"accuracy": 0.75, "f1": 0.5}
    with pytest.raises(InputError, match="4 words and 3 labels in text 1"):
        evaluate(pipe, examples([words], [[1, 0, 1]]))
    with pytest.raises(InputError, match="0 words"):
        evaluate(pipe, examples([" ".join(words)], [[1, 0, 1, 0]]))


class Span:
    """Returns the same span for every question."""

    def __init__(self, first: int, last: int) -> None:
        self.span = first, last

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shape = inputs["input_ids"].shape
        scores = {}
        for name, position in zip(("start_logits", "end_logits"), self.span, strict=True):
            scores[name] = np.full(shape, -9, "float32")
            scores[name][:, position] = 9
        return scores


@pytest.mark.parametrize(("label", "figures"), [("a rain", (1, 1)), (["x", "rain is"], (0, 2 / 3)), ([], (0, 0))])
def test_answers_to_questions(label, figures):
    question, context = "what?", "rain is rare"
    start = len(TOKENIZER.encode(question))
    end = start + len(TOKENIZER.encode("rain", add_special_tokens=False)) - 1
    pipe = pipeline_of(Span(start, end), info("question-answering"), TOKENIZER)
    row = {"question": question, "context": context}
    received = evaluate(pipe, examples([row], [label]))
    assert (received["exact_match"], received["f1"]) == (figures[0], pytest.approx(figures[1]))
    with pytest.raises(InputError, match="without question"):
        evaluate(pipe, examples([context], [label]))


def test_fill_mask():
    text = "The [MASK] is closed."
    logits = np.zeros((len(TOKENIZER.encode(text)), TOKENIZER.vocab_size))
    logits[:, TOKENIZER.token_to_id("the")] = 5
    pipe = pipeline_of(Knowing({text: logits}), info("fill-mask"), TOKENIZER)
    assert evaluate(pipe, examples([text, text], ["the", "museum"])) == {"accuracy": 0.5}
    with pytest.raises(InputError, match=r"one \[MASK\]"):
        evaluate(pipe, examples(["no gap"], ["the"]))


def writer(say: Callable[[np.ndarray], np.ndarray], task: str, **fields: Any) -> Any:
    toy = Toy(vocab_size=TOKENIZER.vocab_size, of=say)
    return pipeline_of(toy, info(task, vocab_size=TOKENIZER.vocab_size, **fields), TOKENIZER)


def test_perplexity_of_texts_of_different_lengths():
    """Every token has a known probability; a text that exceeds the cache is split into chunks."""
    table = np.random.default_rng(0).normal(size=(TOKENIZER.vocab_size,) * 2)
    table -= np.log(np.exp(table).sum(axis=1, keepdims=True))
    pipe = writer(lambda row: table[row[-1]], "text-generation")
    texts = ["Slow.", "It made me laugh, it made me think, and the music is wonderful. " * 3, "Rain is expected"]
    expected = []
    for text in texts:
        ids = TOKENIZER.encode(text)
        for start in range(0, len(ids), pipe.model.capacity):
            piece = ids[start : start + pipe.model.capacity]
            expected += [-table[first, second] for first, second in zip(piece, piece[1:], strict=False)]
    assert len(TOKENIZER.encode(texts[1])) > pipe.model.capacity
    figures = evaluate(pipe, examples(texts))
    assert figures["perplexity"] == pytest.approx(np.exp(np.mean(expected)), rel=1e-5)


def test_generated_texts(monkeypatch):
    expected = examples(["the museum is closed"], [["nothing", "the museum is open"]])
    figures = evaluate(copying_pipeline("summarization"), expected)
    assert figures == pytest.approx({"rouge1": 0.75, "rouge2": 2 / 3, "rougeL": 0.75, "rougeLsum": 0.75})
    same = examples(["the museum is closed"], ["the museum is closed"])
    for task, names in [
        ("translation", "bleu chrf"),
        ("text2text-generation", "rouge1 rouge2 rougeL rougeLsum bleu chrf"),
    ]:
        assert evaluate(copying_pipeline(task), same) == pytest.approx(dict.fromkeys(names.split(), 1))
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match=r'pip install -e "\.\[metrics\]"'):
        evaluate(copying_pipeline("translation"), same)


def test_tasks_without_metric():
    pipe = pipeline_of(Knowing({}), info("feature-extraction"), TOKENIZER)
    with pytest.raises(InputError, match="no metric for feature-extraction"):
        evaluate(pipe, examples(["a"], [1]))


def test_recorded_quality():
    labelled = examples(TEXTS, [0, 1, 1, 2])
    references = record_quality(classifier([0, 1, 1, 2]), labelled)
    found = compare_quality(classifier([0, 1, 0, 2]), references)
    assert found["accuracy"] == {"keras": 1.0, "bundle": 0.75}
    assert not any(array.dtype.hasobject for array in references.values())
    with pytest.raises(BundleError, match="cannot be read.*Export the model again"):
        compare_quality(classifier([0, 1, 0, 2]), {**references, QUALITY: np.array("{")})


def test_a_source_and_texts_or_a_file(tmp_path):
    file = tmp_path / "texts.tsv"
    file.write_text("text\tlabel\nA warm and funny film.\tpositive\nLoud and largely unfunny.\tnegative\n")
    texts, labels = ["A warm and funny film.", "Loud and largely unfunny."], ["positive", "negative"]
    expected = kf.evaluate("sentiment-bert", file)
    assert expected["accuracy"] == 1
    assert kf.evaluate(kf.load("sentiment-bert"), texts, labels, task="sentiment-analysis") == expected
