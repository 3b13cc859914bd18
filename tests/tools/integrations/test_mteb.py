"""Scores of the Massive Text Embedding Benchmark on bundles equal those of sentence-transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer

import kerasformer as kf
from kerasformer.errors import InputError
from tests import shared, tiny_text
from tests.core.pipelines.sentence_folders import write
from tests.extras import need
from tests.keras_pipelines import keras_pipeline

mteb = need("mteb")
need("datasets")
from datasets import Dataset, DatasetDict
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import CrossEncoderProtocol, EncoderProtocol
from mteb.types import PromptType

from kerasformer.tools.integrations.mteb import KerasformerCrossEncoder, KerasformerEncoder

PRESET = Path(kf.zoo.__file__).parent / "presets" / "embedder-bert"
DOCUMENTS = {
    "cat": "A cat sleeps on the sofa.",
    "rain": "It has rained all day in the valley.",
    "train": "The train to Vienna leaves at nine.",
    "bread": "Bake the bread for forty minutes." + " It is late." * 200,  # longer than the model permits
}
QUERIES = {"animal": "Where does the cat sleep?", "weather": "rain in the valley", "journey": "When does the train go?"}
RELEVANT = {"animal": {"cat": 1}, "weather": {"rain": 1}, "journey": {"train": 1}}
PAIRS = [
    ("A cat sleeps.", "A cat is asleep.", 5.0),
    ("The train leaves at nine.", "The train departs at nine.", 4.5),
    ("It rains.", "Bread is baked at home.", 0.5),
    ("She reads a book.", "He reads a newspaper.", 2.5),
]


def metadata(kind: str, name: str, score: str) -> TaskMetadata:
    return TaskMetadata(
        type=kind, name=name, main_score=score, description="Texts made here.", reference=None,
        dataset={"path": "NA", "revision": "NA"}, category="t2t", eval_splits=["test"], eval_langs=["eng-Latn"],
        date=("2026-01-01", "2026-01-01"), domains=[], task_subtypes=[], license="cc-by-4.0",
        annotations_creators="derived", dialect=[], modalities=["text"], sample_creation="created", bibtex_citation="",
    )  # fmt: skip


class Similarity(AbsTaskSTS):
    metadata = metadata("STS", "TinySTS", "cosine_spearman")
    min_score, max_score = 0, 5

    def load_data(self, *_: Any, **__: Any) -> None:
        first, second, scores = zip(*PAIRS, strict=True)
        rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores})
        self.dataset, self.data_loaded = DatasetDict({"test": rows}), True


def rows(texts: dict[str, str]) -> Dataset:
    return Dataset.from_list([{"id": name, "text": text} for name, text in texts.items()])


class Retrieval(AbsTaskRetrieval):
    metadata = metadata("Retrieval", "TinyNanoBEIR", "ndcg_at_10")

    def load_data(self, *_: Any, **__: Any) -> None:
        split = RetrievalSplitData(
            queries=rows(QUERIES), corpus=rows(DOCUMENTS), relevant_docs=RELEVANT, top_ranked=self.candidates()
        )
        self.dataset, self.data_loaded = {"default": {"test": split}}, True

    def candidates(self) -> Any:
        return None


class Reranking(Retrieval):
    metadata = metadata("Reranking", "TinyReranking", "map_at_1000")

    def candidates(self) -> Any:
        return {query: list(DOCUMENTS) for query in QUERIES}


def scores(model: Any, *tasks: Any) -> dict[str, dict[str, Any]]:
    found = mteb.evaluate(model, list(tasks), cache=None, show_progress_bar=False, co2_tracker=False)
    return {result.task_name: result.scores["test"][0] for result in found.task_results}


@pytest.fixture(scope="module")
def embedder() -> str:
    return str(shared.once("tools-embedder", lambda out: kf.export.export("embedder-bert", out, "tflite")))


# MTEB calls functions of sentence-transformers, and of its own, by older names.
@pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning:mteb")
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning:mteb")
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
def test_embeddings_score_as_in_sentence_transformers(embedder: str) -> None:
    ours = KerasformerEncoder(embedder)
    assert isinstance(ours, EncoderProtocol)
    received = scores(ours, Similarity(), Retrieval())
    theirs = SentenceTransformer(str(PRESET), device="cpu", model_kwargs={"dtype": "float32"})
    expected = scores(theirs, Similarity(), Retrieval())
    assert received.keys() == expected.keys() == {"TinySTS", "TinyNanoBEIR"}
    for task, values in expected.items():
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        assert {name: received[task][name] for name in numbers} == pytest.approx(numbers, abs=1e-5, nan_ok=True)
    assert received["TinyNanoBEIR"]["ndcg_at_10"] > 0.8


@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
def test_rankings_score_as_in_sentence_transformers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    tokenizer = tiny_text.wordpiece()
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=64, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    ours = KerasformerCrossEncoder(keras_pipeline(tmp_path, "text-ranking"))
    assert isinstance(ours, CrossEncoderProtocol)
    received, expected = scores(ours, Reranking()), scores(CrossEncoder(str(tmp_path), device="cpu"), Reranking())
    numbers = {name: each for name, each in expected["TinyReranking"].items() if isinstance(each, float)}
    assert {name: received["TinyReranking"][name] for name in numbers} == pytest.approx(numbers, abs=1e-6, nan_ok=True)
    with pytest.raises(InputError, match="Each query needs a document"):
        ours.predict([{"text": ["a", "b"]}], [{"text": ["a"]}])


def test_prompts_are_chosen_as_by_the_benchmark(tmp_path: Path) -> None:
    prompts = {"query": "rain: ", "document": "text: ", "STS": "same: "}
    write(tmp_path / "model", prompts=prompts)
    encoder = KerasformerEncoder(keras_pipeline(tmp_path / "model", "sentence-similarity"))
    for task, kind, prompt in (
        (Retrieval, PromptType.query, "rain: "),
        (Retrieval, PromptType.document, "text: "),
        (Similarity, None, "same: "),
        (Retrieval, None, ""),
    ):
        received = encoder.encode([{"text": ["Rain.", "It is late."]}], task_metadata=task.metadata, prompt_type=kind)
        expected = encoder.pipe.encode(["Rain.", "It is late."], prompt=prompt)
        np.testing.assert_allclose(received, expected, atol=1e-6)
    (similarity,) = encoder.similarity_pairwise(received[:1], received[1:])
    # A product of matrices adds the 32 terms in another order than a sum, with roundings of 6e-8 each.
    assert encoder.similarity(received, received)[0, 1] == pytest.approx(similarity, abs=1e-6)


ALONE = """
import sys
from kerasformer.tools.integrations.mteb import KerasformerEncoder
class Metadata:
    name, type = "STSBenchmark", "STS"
vectors = KerasformerEncoder(sys.argv[1]).encode([{"text": ["A cat sleeps."]}], task_metadata=Metadata)
print(vectors.shape, {"torch", "keras", "tensorflow", "transformers"} & {*sys.modules})
"""


def test_a_bundle_is_encoded_without_torch(embedder: str) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, embedder], capture_output=True, text=True)
    assert done.stdout == "(1, 384) set()\n", done.stderr[-3000:]
