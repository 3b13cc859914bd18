"""Tensors of the Open Inference Protocol, and those of each task that does not generate texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerasformer.pipelines import (
    FeatureExtractionPipeline,
    FillMaskPipeline,
    Label,
    QuestionAnsweringPipeline,
    SentenceSimilarityPipeline,
    TextClassificationPipeline,
    TokenClassificationPipeline,
    ZeroShotClassificationPipeline,
)
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.predictions import batches, zero_shot
from kerasformer.tools.server.served_model import ServedModel

BYTES, FP32, INT64 = "BYTES", "FP32", "INT64"
"""Data types: a text, a number, an index."""
Texts = Mapping[str, Sequence[str]]
"""The texts of a request by the names of its inputs."""
_OF_THE_SERVER = {
    "self",
    "inputs",
    "texts",
    "pair",
    "question",
    "context",
    "candidate_labels",
    "batch_size",
    "progress",
    # With small steps, a long text would become millions of chunks.
    "stride",
    "doc_stride",
    "chunk_length",
}
"""Arguments of pipelines that are no parameters of a request."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of an answer.

    Attributes:
        name: Its name.
        datatype: Data type of the protocol.
        shape: Its shape.
        data: Its values, row by row.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any]

    @property
    def body(self) -> dict[str, object]:
        """The tensor as JSON."""
        return {"name": self.name, "datatype": self.datatype, "shape": [*self.shape], "data": self.data}


@dataclass(frozen=True)
class Form:
    """Tensors of a task.

    Attributes:
        required: Names of the inputs, which are texts.
        optional: Names of further inputs.
        outputs: Data type and number of axes of each output.
        parameters: Names of the parameters, which are arguments of the pipeline.
        with_labels: Those of a request with `candidate_labels`.
        compute: Returns the outputs of a model.
    """

    required: tuple[str, ...]
    outputs: Mapping[str, tuple[str, int]]
    compute: Callable[[ServedModel, Texts, dict[str, Any], Job], list[Tensor]]
    optional: tuple[str, ...] = ()
    parameters: frozenset[str] = frozenset()
    with_labels: frozenset[str] = frozenset()

    def parameters_for(self, inputs: Collection[str]) -> frozenset[str]:
        """Returns the names of the parameters of a request with these inputs."""
        return self.with_labels if "candidate_labels" in inputs else self.parameters


def form_of(model: ServedModel) -> Form | None:
    """Returns the tensors of a model's task, or `None` for a model that generates texts."""
    return next((form for kind, form in _FORMS.items() if isinstance(model.pipe, kind)), None)


def _arguments(function: Callable[..., Any]) -> frozenset[str]:
    """Returns the names of the arguments of a pipeline that a request can set."""
    return frozenset(inspect.signature(function).parameters) - _OF_THE_SERVER


def _grid(name: str, datatype: str, rows: Sequence[Sequence[Any]]) -> Tensor:
    """Returns a tensor with two axes; rows have equal lengths."""
    return Tensor(name, datatype, (len(rows), len(rows[0]) if rows else 0), [value for row in rows for value in row])


def _column(name: str, datatype: str, values: Iterable[Any]) -> Tensor:
    data = [*values]
    return Tensor(name, datatype, (len(data),), data)


def _ranked(rows: Sequence[Sequence[Label]]) -> list[Tensor]:
    return [
        _grid("label", BYTES, [[each["label"] for each in row] for row in rows]),
        _grid("score", FP32, [[each["score"] for each in row] for row in rows]),
    ]


def _classified(model: ServedModel, texts: Texts, parameters: dict[str, Any], job: Job) -> list[Tensor]:
    if "candidate_labels" in texts:
        pipe, labels = zero_shot(model), list(texts["candidate_labels"])
        rankings = [
            each for part in batches(texts["text"], job, len(labels)) for each in pipe(part, labels, **parameters)
        ]
        return _ranked(
            [
                [{"label": label, "score": score} for label, score in zip(each["labels"], each["scores"], strict=True)]
                for each in rankings
            ]
        )
    items: list[Any] = [*zip(texts["text"], texts["pair"], strict=True)] if "pair" in texts else [*texts["text"]]
    results = [row for part in batches(items, job) for row in model.pipe(part, **parameters)]
    return _ranked([row if isinstance(row, list) else [row] for row in results])


def _entities(model: ServedModel, texts: Texts, parameters: dict[str, Any], job: Job) -> list[Tensor]:
    parameters = {"aggregation_strategy": "simple", **parameters}
    results = [row for part in batches(texts["text"], job) for row in model.pipe(part, **parameters)]
    found = [(row, each) for row, entities in enumerate(results) for each in entities]
    kind = "entity" if parameters["aggregation_strategy"] == "none" else "entity_group"
    return [
        _column("row", INT64, (row for row, _ in found)),
        _column("entity", BYTES, (each[kind] for _, each in found)),
        _column("score", FP32, (each["score"] for _, each in found)),
        _column("word", BYTES, (each["word"] for _, each in found)),
        _column("start", INT64, (each["start"] for _, each in found)),
        _column("end", INT64, (each["end"] for _, each in found)),
    ]


def _answers(model: ServedModel, texts: Texts, parameters: dict[str, Any], job: Job) -> list[Tensor]:
    count = parameters.get("top_k", 1)
    rows: list[list[dict[str, Any]]] = []
    for part in batches([*zip(texts["question"], texts["context"], strict=True)], job):
        asked = [{"question": question, "context": context} for question, context in part]
        rows += [row if isinstance(row, list) else [row] for row in model.pipe(asked, **parameters)]
    # A short context has fewer answers: empty ones keep the tensor rectangular.
    count = max((len(row) for row in rows), default=0) if count != 1 else 1
    empty = {"answer": "", "score": 0.0, "start": 0, "end": 0}
    rows = [row + [empty] * (count - len(row)) for row in rows]
    kinds = {"answer": BYTES, "score": FP32, "start": INT64, "end": INT64}
    return [_grid(name, kind, [[each[name] for each in row] for row in rows]) for name, kind in kinds.items()]


def _fillings(model: ServedModel, texts: Texts, parameters: dict[str, Any], job: Job) -> list[Tensor]:
    results = [row for part in batches(texts["text"], job) for row in model.pipe(part, **parameters)]
    gaps = [
        (row, choices)
        for row, result in enumerate(results)
        for choices in (result if isinstance(result[0], list) else [result])
    ]
    kinds = {"token": INT64, "token_str": BYTES, "score": FP32, "sequence": BYTES}
    return [
        _column("row", INT64, (row for row, _ in gaps)),
        *(_grid(name, kind, [[each[name] for each in choices] for _, choices in gaps]) for name, kind in kinds.items()),
    ]


def _embeddings(model: ServedModel, texts: Texts, parameters: dict[str, Any], job: Job) -> list[Tensor]:
    if isinstance(model.pipe, FeatureExtractionPipeline):
        parameters = {name: value for name, value in parameters.items() if value is not None}  # vectors, not matrices
        parameters = {"pooling": "mean", "normalize": True, **parameters}
    rows = [row.tolist() for part in batches(texts["text"], job) for row in model.pipe(part, **parameters)]
    return [_grid("embedding", FP32, rows)]


_FORMS: dict[type, Form] = {
    TextClassificationPipeline: Form(
        ("text",),
        {"label": (BYTES, 2), "score": (FP32, 2)},
        _classified,
        optional=("pair", "candidate_labels"),
        parameters=_arguments(TextClassificationPipeline.__call__),
        with_labels=_arguments(ZeroShotClassificationPipeline.__call__),
    ),
    ZeroShotClassificationPipeline: Form(
        ("text", "candidate_labels"),
        {"label": (BYTES, 2), "score": (FP32, 2)},
        _classified,
        with_labels=_arguments(ZeroShotClassificationPipeline.__call__),
    ),
    TokenClassificationPipeline: Form(
        ("text",),
        {"row": (INT64, 1), "entity": (BYTES, 1), "score": (FP32, 1), "word": (BYTES, 1)}
        | {"start": (INT64, 1), "end": (INT64, 1)},
        _entities,
        parameters=_arguments(TokenClassificationPipeline.__call__) - {"ignore_labels"},
    ),
    QuestionAnsweringPipeline: Form(
        ("question", "context"),
        {"answer": (BYTES, 2), "score": (FP32, 2), "start": (INT64, 2), "end": (INT64, 2)},
        _answers,
        parameters=_arguments(QuestionAnsweringPipeline.__call__),
    ),
    FillMaskPipeline: Form(
        ("text",),
        {"row": (INT64, 1), "token": (INT64, 2), "token_str": (BYTES, 2), "score": (FP32, 2), "sequence": (BYTES, 2)},
        _fillings,
        parameters=_arguments(FillMaskPipeline.__call__),
    ),
    SentenceSimilarityPipeline: Form(
        ("text",),
        {"embedding": (FP32, 2)},
        _embeddings,
        parameters=_arguments(SentenceSimilarityPipeline.encode) - {"precision", "ranges"},
    ),
    FeatureExtractionPipeline: Form(
        ("text",),
        {"embedding": (FP32, 2)},
        _embeddings,
        parameters=_arguments(FeatureExtractionPipeline.__call__),
    ),
}
