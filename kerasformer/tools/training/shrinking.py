"""Models made small in one go: cut step by step, and after each cut distilled from the original.

Each step is a checkpoint in a work folder beside the destination. A run with the same settings continues where an
earlier one was stopped, also in the middle of a step's epochs, and reuses the steps that precede a changed setting.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Unpack

import keras
import numpy as np

from kerasformer.basics.command_options import CutOptions, ShrinkOptions
from kerasformer.basics.options import checked, documented
from kerasformer.basics.progress import StageProgress
from kerasformer.basics.tasks import FEATURE_EXTRACTION, SENTENCE_SIMILARITY, task_of_model
from kerasformer.bundle.recipes import RECIPES
from kerasformer.errors import CheckpointError, InputError
from kerasformer.export import find_format, matrices, num_bytes, read_texts
from kerasformer.files.reading import JsonObject, local_path, read_json
from kerasformer.files.sources import resolve
from kerasformer.models import PretrainedModel, variables_by_path
from kerasformer.pipelines import pipeline
from kerasformer.tokenization import TruncationWarning
from kerasformer.tools.evaluation import Example, check, evaluate, read_examples
from kerasformer.tools.evaluation.metrics import spearman
from kerasformer.tools.training.datasets import Dataset, dataset
from kerasformer.tools.training.distillation import (
    AttentionRelations,
    DistillationLoss,
    Distiller,
    EmbeddingTargets,
    HiddenCosine,
    LogitDistance,
    SoftTargets,
)
from kerasformer.tools.training.pruning import prune, unit_importance
from kerasformer.tools.training.quantization import quantization_aware
from kerasformer.tools.training.shapes import with_different_first
from kerasformer.tools.training.static_embeddings import load_teacher, static_embeddings
from kerasformer.tools.training.vocabulary_pruning import prune_vocabulary
from kerasformer.zoo import load

STEP_FILE = "step.json"
"""The file of a step's folder with its settings and figures."""

_CUTS = {"layers": ("layers", "decoder_layers"), "width": ("heads", "width"), "neurons": ("neurons",)}
"""The cuts in their order, by the name of the step, with the options that determine each."""
_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
"""Lengths to which batches are padded, so that few shapes are compiled."""
_MASKED = 0.15
_STATIC_WIDTH = 256
_COMPARED = 256
"""Number of texts whose similarities are compared with those of the original."""


@dataclass(frozen=True)
class Step:
    """A model after a step.

    Attributes:
        name: `original`, `vocab`, `layers`, `width`, `neurons`, `int8`, `int4` or `static`.
        parameters: Number of its parameters.
        int8_bytes: Size of its weights in a LiteRT file of the recipe `int8`, in bytes.
        milliseconds: Time that it takes for one of the held-out texts in Keras, in batches.
        figures: Quality on the held-out texts: `agreement`, the share of answers whose most probable choice is that of
            the original, and `divergence` from its distributions in nats, or `cosine`, the mean similarity of the
            outputs to those of the original; and with labels, the figures of `kerasformer.evaluate`. Tokens of another
            vocabulary cannot be compared: then the original is the model after the step `vocab`. Of a table of token
            vectors `spearman`, the rank correlation of the similarities of all pairs of texts with those of the
            original.
    """

    name: str
    parameters: int
    int8_bytes: int
    milliseconds: float
    figures: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> JsonObject:
        """Returns all fields."""
        return asdict(self)


@documented(ShrinkOptions, CutOptions)
def shrink(
    source: str | Path, destination: str | Path, data: str | Path | None = None, **options: Unpack[ShrinkOptions]
) -> list[Step]:
    """Cuts a model step by step, and distils it from the original after each cut.

        kf.training.shrink("bert-base", "small", "reviews.tsv", layers=6, neurons=1024, vocab=0.999)
        kf.training.shrink("MiniLM", "static", to="static")

    The steps are, as far as options ask for them: the vocabulary, the layers, heads and width, the neurons, and
    training with rounded weights. The work folder `DESTINATION.work` keeps their checkpoints; it can be removed
    afterwards.

    Args:
        source: What `zoo.load` accepts: a folder, a GGUF file, a preset or a hub id.
        destination: Folder to write, which must be empty or not exist.
        data: File of texts, with or without labels, see `kerasformer.tools.evaluation.read_examples`. An
            encoder-decoder learns to write the labels if they are texts, else the text itself. With `to="static"`, the
            texts only measure quality; sentences of this package by default.
        options: See `ShrinkOptions`.

    Returns:
        The original and the model after each step; the last one is in the destination, in float16, or in float32 if it
        was trained with rounded weights.

    Raises:
        InputError: there is nothing to cut or there are too few texts, or an option is out of range.
        CheckpointError: the destination is not empty.
        UnsupportedConfigError: the configuration cannot express the model; see `prune`.
    """
    chosen = checked(ShrinkOptions, options, "shrinking")
    destination = local_path(destination, CheckpointError)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise CheckpointError(f"An empty folder was expected, or none, in which to write. Received: {destination}")
    if "to" in chosen:
        return _to_static(source, destination, data, options, chosen)
    if data is None:
        raise InputError("A file of texts was expected, on which the model is distilled. Received: data=None")
    run = _Run(source, destination, local_path(data, InputError), chosen)
    steps = run.steps()
    # The export of rounded weights must find those of the training, bit for bit.
    run.model.save_pretrained(destination, dtype=None if "quantize" in chosen else "float16")
    return steps


def _to_static(
    source: str | Path, destination: Path, data: str | Path | None, passed: ShrinkOptions, chosen: ShrinkOptions
) -> list[Step]:
    """Distils a table of token vectors; arguments are those of `shrink`, and its options with defaults."""
    unused = sorted({*passed} - {"to", "width", "sif", "progress"})
    if unused:
        raise InputError(
            "to='static' has only the options width and sif, since nothing is cut or trained. "
            f"Received: {', '.join(unused)}"
        )
    report: StageProgress = chosen.get("progress") or (lambda stage, done, total: None)
    examples = [] if data is None else read_examples(local_path(data, InputError))
    texts = list(dict.fromkeys(part for example in examples for part in _parts(example))) or list(read_texts(None))
    report("load", 0, 0)
    teacher = load_teacher(source)
    student = static_embeddings(teacher, chosen.get("width") or _STATIC_WIDTH, chosen["sif"], report)
    student.save_pretrained(destination, dtype="float16")
    report("measure", 0, 0)
    vectors, steps = [], []
    for name, model in {"original": teacher, "static": student}.items():
        pipe = pipeline(model)
        start = time.perf_counter()
        vectors.append(pipe.encode(texts[:_COMPARED], normalize=True, truncation=True))
        seconds = time.perf_counter() - start
        figures = {} if name == "original" else {"spearman": _agreement(*vectors)}
        with suppress(InputError):  # there are no pairs with a score
            check(SENTENCE_SIMILARITY, examples)
            figures |= {f"{name} of scores": value for name, value in evaluate(pipe, examples).items()}
        steps.append(_step_of(name, model, 1000 * seconds / len(texts[:_COMPARED]), figures))
    return steps


def _agreement(expected: np.ndarray, received: np.ndarray) -> float:
    """Returns the rank correlation of the similarities of all pairs of texts, from embeddings of length 1 `(N, E)`."""
    pairs = np.triu_indices(len(expected), 1)
    return spearman(*((vectors @ vectors.T)[pairs] for vectors in (received, expected)))


def _step_of(name: str, model: PretrainedModel, milliseconds: float, figures: Mapping[str, float]) -> Step:
    """Returns a step with the sizes of a model."""
    size = num_bytes(model, matrices(model), RECIPES["int8"], find_format("tflite").layout(None, None))
    parameters = sum(math.prod(variable.shape) for variable in variables_by_path(model).values())
    return Step(name, parameters, size, milliseconds, figures)


class _Run:
    """The steps of one model.

    Args:
        source: As for `shrink`.
        destination: As for `shrink`.
        data: As for `shrink`.
        options: As for `shrink`, with defaults.
    """

    def __init__(self, source: str | Path, destination: Path, data: Path, options: ShrinkOptions) -> None:
        self.options, self.work = options, destination.with_name(f"{destination.name}.work")
        self.report: StageProgress = options.get("progress") or (lambda stage, done, total: None)
        self.plan = self._plan()
        examples = read_examples(data)
        held = max(1, int(len(examples) * options["held_out"])) if options["held_out"] else 0
        self.texts, self.held = examples[: len(examples) - held], examples[len(examples) - held :] or examples
        if not self.texts:
            raise InputError(f"At least two texts were expected, one of them to measure quality. Received: {data}")
        self.report("load", 0, 0)
        folder = resolve(source)
        self.model = self.teacher = load(source, options.get("task"))
        if self.model.tokenizer is None:
            raise InputError(f"A model with a tokenizer was expected. Received: {source}")
        if options["importance"] == "data" and not _is_distribution(self.model):
            raise InputError(
                "Importance on data needs a model that chooses classes or tokens. Expected: importance='weights'. "
                f"Received: importance='data' for {self.model.task}"
            )
        self.settings: list[Any] = [
            _digest(folder),
            _digest(data),
            options.get("task"),
            options["held_out"],
            options["max_length"],
        ]
        self.reference = self.model
        self.reference_batches = self._batches(self.held, shuffled=False)

    def steps(self) -> list[Step]:
        """Runs all steps that are not in the work folder."""
        steps = [self._measured("original")]
        for name, options in self.plan.items():
            self.settings = [*self.settings, name, options]
            steps.append(self._step(f"{len(steps)}-{name}", name, options))
            if name == "vocab":
                self.teacher = self.model
                if not _compares_texts(self.model):
                    self.reference, self.reference_batches = self.model, self._batches(self.held, shuffled=False)
        return steps

    def _plan(self) -> dict[str, JsonObject]:
        """Returns the options of each step, by its name."""
        options: dict[str, Any] = {**self.options}
        training = {
            name: options[name]
            for name in ("epochs", "learning_rate", "batch_size", "temperature", "hard_weight", "seed")
        }
        plan: dict[str, JsonObject] = {}
        if "vocab" in options:
            plan["vocab"] = {"coverage": options["vocab"]}
        for step, names in _CUTS.items():
            cut = {name: options[name] for name in names if name in options}
            if cut:
                plan[step] = {"cut": cut, "importance": options["importance"], **training}
        if "quantize" in options:
            plan[options["quantize"]] = {"format": options["format"], **training}
        if not plan:
            raise InputError(
                "Something to make smaller was expected. Received: none of layers, heads, width, neurons, vocab and "
                "quantize"
            )
        return plan

    def _step(self, folder_name: str, name: str, options: JsonObject) -> Step:
        """Returns the figures of a step, after which `model` is its result."""
        folder, settings = self.work / folder_name, json.loads(json.dumps(self.settings))
        if (folder / STEP_FILE).exists():
            content = read_json(folder / STEP_FILE)
            if content["settings"] == settings:
                self.report(f"{name}: read", 0, 0)
                self.model = load(folder, self.options.get("task"))
                return Step(**content["step"])
            shutil.rmtree(folder)
        backup = self.work / f"{folder_name}.backup"
        if not (backup / STEP_FILE).exists() or read_json(backup / STEP_FILE)["settings"] != settings:
            shutil.rmtree(backup, ignore_errors=True)
            backup.mkdir(parents=True)
            (backup / STEP_FILE).write_text(json.dumps({"settings": settings}), encoding="utf-8")
        self.report(name, 0, 0)
        aware = None
        if name == "vocab":
            texts = [part for example in self.texts for part in _parts(example)]
            self.model = prune_vocabulary(self.model, texts, coverage=options["coverage"]).model
        elif "cut" in options:
            self.model = prune(self.model, importance=self._importance(), **options["cut"])
            self._train(name, self.model, backup)
        else:
            if self.model is self.teacher:  # nothing was cut, and the student must be another model
                self.model = prune(self.model, layers=self.model.config.num_layers)
            aware = quantization_aware(self.model, name, options["format"])
            self._train(name, aware, backup)
        with nullcontext() if aware is None else aware.applied():
            step = self._measured(name)
        self.model.save_pretrained(folder, overwrite=True)
        # Written last: a folder without it is that of a killed process.
        content = {"settings": settings, "step": step.to_dict()}
        (folder / STEP_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")
        shutil.rmtree(backup, ignore_errors=True)
        return step

    def _importance(self) -> dict[str, np.ndarray]:
        if self.options["importance"] == "weights":
            return unit_importance(self.model)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return unit_importance(self.model, _WithAnswers(self._batches(self.texts), self.teacher), loss)

    def _train(self, name: str, student: keras.Model, backup: Path) -> None:
        """Distils a student from the original, from the last epoch that was completed before."""
        options, labelled = self.options, self._labelled()
        batches: keras.utils.PyDataset = self._batches(self.texts) if labelled is None else labelled
        losses = _losses(self.teacher, self.model, options["temperature"])
        hard_weight = 0.0 if labelled is None else options["hard_weight"]
        distiller = Distiller(self.teacher, student, losses, hard_weight=hard_weight, name="distiller")
        schedule = keras.optimizers.schedules.CosineDecay(
            options["learning_rate"], max(1, len(batches) * options["epochs"])
        )
        distiller.compile(keras.optimizers.AdamW(schedule), None if labelled is None else labelled.loss)
        keras.utils.set_random_seed(options["seed"])
        distiller(batches[0][0])  # an interrupted training is restored only in a model that is built
        distiller.optimizer.build(distiller.trainable_variables)

        def begin(epoch: int, logs: object) -> None:
            if labelled is not None:
                labelled.epoch = epoch  # of which `fit` knows nothing after a restart
            self.report(name, epoch, options["epochs"])

        callbacks = [
            keras.callbacks.BackupAndRestore(str(backup / "state"), delete_checkpoint=False),
            keras.callbacks.LambdaCallback(on_epoch_begin=begin),
            keras.callbacks.TerminateOnNaN(),
        ]
        # Not shuffled by `fit`, so that a training that was interrupted continues with the same batches.
        history = distiller.fit(
            batches, epochs=options["epochs"], callbacks=callbacks, shuffle=False, verbose=0
        ).history
        if not np.isfinite(history.get("loss", [0.0])).all():
            raise InputError(
                f"The loss of the step {name} is not finite. Expected: a lower learning_rate. "
                f"Received: learning_rate={options['learning_rate']}"
            )

    def _measured(self, name: str) -> Step:
        """Measures a model."""
        self.report(f"{name}: measure", 0, 0)
        model, batches = self.model, self._batches(self.held, shuffled=False)
        figures = {}
        if name != "original" and (name != "vocab" or _compares_texts(model)):
            expected = _outputs(self.reference, self.reference_batches)
            figures = _compared(expected, _outputs(model, batches), _is_distribution(model))
        figures |= self._evaluated()
        seconds = min(_seconds(model, batches) for _ in range(2))  # the first time, functions are traced
        return _step_of(name, model, 1000 * seconds / len(self.held), figures)

    def _evaluated(self) -> dict[str, float]:
        """Returns the figures of the model on labelled texts."""
        try:
            check(self.options.get("task") or self.model.task, self.held)
        except InputError:  # there are no labels, or the task has no metric
            return {}
        return evaluate(pipeline(self.model, self.options.get("task")), self.held)

    def _labelled(self) -> Dataset | None:
        """Returns the texts with their labels, or next tokens, as the model's task learns them; `None` without them."""
        model, options, texts = self.model, self.options, self.texts
        if not options["hard_weight"] or not _learns_labels(model, texts):
            return None
        length = _limit(model, options["max_length"])
        with _truncation():
            return dataset(
                model,
                texts,
                max_length=length,
                stride=length // 4,
                prefix=_prefix(model, options.get("task")),
                batch_size=options["batch_size"],
                seed=options["seed"],
                pad_to=_lengths_up_to(length),
            )

    def _batches(self, examples: Sequence[Example], *, shuffled: bool = True) -> _Batches:
        options = self.options
        seed = options["seed"] if shuffled else None
        return _Batches(self.model, examples, options["batch_size"], options["max_length"], seed, options.get("task"))


class _Batches(keras.utils.PyDataset):
    """Batches of texts of about the same length.

    Args:
        model: The model that reads them.
        examples: The texts.
        batch_size: Number of texts in a batch.
        max_length: Number of tokens to which texts are truncated.
        seed: Seed of the order of the batches and of the tokens that are masked; `None` for the order of the lengths.
        task: The task, whose prefix the texts get.
    """

    def __init__(
        self,
        model: PretrainedModel,
        examples: Sequence[Example],
        batch_size: int,
        max_length: int,
        seed: int | None,
        task: str | None,
    ) -> None:
        super().__init__()
        self.model, self.seed = model, seed
        self.max_length, self.prefix = _limit(model, max_length), _prefix(model, task)
        order = sorted(examples, key=lambda example: len(example.text))
        self.batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        if seed is not None:
            np.random.default_rng(seed).shuffle(self.batches)
        longest = [max(len(example.text) for example in batch) for batch in self.batches]
        self.batches = with_different_first(self.batches, np.reshape(longest, (-1, 1)))

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        batch, tokenizer = self.batches[index], self.model.tokenizer
        texts = [self.prefix + example.text for example in batch]
        seconds = [example.question or example.pair for example in batch]
        if all(second is None for second in seconds):
            encoded = self._encoded(tokenizer, texts)
        elif self.model.task == "question-answering":
            encoded = self._encoded(tokenizer, seconds, texts)
        else:
            encoded = self._encoded(tokenizer, texts, seconds)
        inputs = {name: encoded[name] for name in self.model.input_names if name in encoded}
        if self.model.is_encoder_decoder and self.model.generates:
            inputs |= self._decoder_inputs(batch)
        if self.model.task == "fill-mask" and tokenizer.mask_token_id is not None:
            random = np.random.default_rng([self.seed or 0, index])
            hidden = random.random(inputs["input_ids"].shape) < _MASKED
            hidden &= ~np.isin(inputs["input_ids"], tokenizer.all_special_ids)
            inputs["input_ids"] = np.where(hidden, tokenizer.mask_token_id, inputs["input_ids"])
        return (inputs,)

    def _encoded(self, tokenizer: Any, *texts: Any) -> Any:
        limits = {"truncation": True, "max_length": self.max_length}
        with _truncation():
            return tokenizer(*texts, **limits, padding_side="right", pad_to=_lengths_up_to(self.max_length))

    def _decoder_inputs(self, batch: Sequence[Example]) -> dict[str, np.ndarray]:
        """Returns what the decoder reads: the label, or the text itself, after the start token."""
        tokenizer = self.model.tokenizer
        writer = getattr(tokenizer, "target", None) or getattr(tokenizer, "writer", None) or tokenizer
        targets = [_reference(example) or example.text for example in batch]
        encoded = self._encoded(writer, targets)
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        shifted = np.asarray(self.model.backbone.shift_right(ids, mask))
        return {"decoder_input_ids": shifted, "decoder_attention_mask": mask}


def _lengths_up_to(longest: int) -> list[int]:
    return [*(length for length in _LENGTHS if length < longest), longest]


def _limit(model: PretrainedModel, max_length: int) -> int:
    return min(max_length, model.max_length or max_length)


def _prefix(model: PretrainedModel, task: str | None) -> str:
    return model.info(task).prefix


@contextmanager
def _truncation() -> Iterator[None]:
    """Truncates texts within the block without a warning, since the option `max_length` says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        yield


def _learns_labels(model: PretrainedModel, texts: Sequence[Example]) -> bool:
    """Whether the texts have what the output of a model is trained for."""
    if model.task == "text-generation":
        return True
    if model.is_encoder_decoder and model.generates:
        return all(_reference(example) is not None for example in texts)
    if model.task in (FEATURE_EXTRACTION, SENTENCE_SIMILARITY, "fill-mask"):
        return False
    scores = model.has_labels and model.config.num_labels == 1 and model.config.problem_type != "regression"
    return not scores and all(example.label is not None for example in texts)


def _reference(example: Example) -> str | None:
    """Returns the text that a model is to write."""
    label = example.label[0] if isinstance(example.label, list | tuple) and example.label else example.label
    return label if isinstance(label, str) else None


def _parts(example: Example) -> list[str]:
    """Returns all texts of an example."""
    label = example.label if isinstance(example.label, list | tuple) else [example.label]
    return [part for part in (example.text, example.question, example.pair, *label) if isinstance(part, str) and part]


def _losses(teacher: PretrainedModel, student: PretrainedModel, temperature: float) -> list[DistillationLoss]:
    """Returns the losses that suit the output of a model and the sizes of the student."""
    same_width = teacher.config.hidden_dim == student.config.hidden_dim
    if teacher.task in (FEATURE_EXTRACTION, SENTENCE_SIMILARITY):
        if same_width:
            return [EmbeddingTargets()]
        specs = [next(iter(model.attention_specs().values())) for model in (teacher, student)]
        heads = math.gcd(*(spec.num_key_value_heads * spec.head_dim for spec in specs))
        return [AttentionRelations(("query-query", "key-key", "value-value"), math.gcd(heads, specs[1].num_heads))]
    soft: DistillationLoss = LogitDistance() if _has_other_scores(teacher) else SoftTargets(temperature)
    return [soft, HiddenCosine()] if same_width else [soft]


def _has_other_scores(model: PretrainedModel) -> bool:
    """Whether the output of a model is not one distribution for each text or token."""
    other = model.has_labels and model.config.problem_type in ("regression", "multi_label_classification")
    return other or model.task == "question-answering" or (model.has_labels and model.config.num_labels == 1)


def _is_distribution(model: PretrainedModel) -> bool:
    """Whether the output is a distribution of classes or tokens, for each text or token."""
    return not _has_other_scores(model) and model.task not in (FEATURE_EXTRACTION, SENTENCE_SIMILARITY)


def _compares_texts(model: PretrainedModel) -> bool:
    """Whether the output is one vector for each text, which does not depend on how the text is divided into tokens."""
    return model.task in (task_of_model("text-classification"), SENTENCE_SIMILARITY)


def _seconds(model: PretrainedModel, batches: _Batches) -> float:
    """Returns the time in which a model answers all batches."""
    start = time.perf_counter()
    for _ in _outputs(model, batches):
        pass
    return time.perf_counter() - start


def _outputs(model: PretrainedModel, batches: _Batches) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yields the output for each batch, with which of its positions count, if not all do."""
    for index in range(len(batches)):
        inputs = batches[index][0]
        mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
        output = np.asarray(model.predict_on_batch(dict(inputs)), "float32")
        yield output, mask if output.ndim == 3 else None


def _compared(expected: Iterable[Any], received: Iterable[Any], distribution: bool) -> dict[str, float]:
    """Compares outputs with those of the original, batch by batch, since logits of tokens are large.

    Args:
        expected: Outputs of the original, see `_outputs`.
        received: Outputs of another model.
        distribution: Whether they are logits of classes or tokens.
    """
    measured: list[np.ndarray] = []
    for (before, mask), (after, _) in zip(expected, received, strict=True):
        rows = [x if mask is None else x[mask == 1] for x in (before, after)]
        if rows[0].shape != rows[1].shape:
            return {}  # embeddings of another width
        measured.append(_divergences(*rows) if distribution else _cosines(*rows))
    names = ("agreement", "divergence") if distribution else ("cosine",)
    return dict(zip(names, map(float, np.concatenate(measured).mean(0)), strict=True))


def _divergences(expected: np.ndarray, received: np.ndarray) -> np.ndarray:
    """Returns for logits `(N, V)` whether the choices are the same, and the divergences: `(N, 2)`."""
    logs = [rows - np.logaddexp.reduce(rows, axis=-1, keepdims=True) for rows in (expected, received)]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(-1)
    return np.stack([expected.argmax(-1) == received.argmax(-1), divergence], axis=-1)


def _cosines(expected: np.ndarray, received: np.ndarray) -> np.ndarray:
    """Returns the cosines of vectors `(N, E)`, `(N, 1)`."""
    lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(received, axis=-1)
    return ((expected * received).sum(-1) / np.maximum(lengths, 1e-12))[:, None]


class _WithAnswers(keras.utils.PyDataset):
    """Batches with the most probable classes or tokens of a model as labels, and with weights of 0 for padding.

    Args:
        batches: The batches.
        model: The model. It answers now, since on JAX its weights are not in its variables during `fit`.
    """

    def __init__(self, batches: _Batches, model: PretrainedModel) -> None:
        super().__init__()
        self.batches = batches
        self.answers = [(output.argmax(-1), mask) for output, mask in _outputs(model, batches)]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        labels, mask = self.answers[index]
        weights = np.ones(labels.shape) if mask is None else mask
        return self.batches[index][0], labels, weights.astype("float32")


def _digest(path: Path) -> str:
    """Returns a digest of the names, sizes and contents of a file, or of the files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
