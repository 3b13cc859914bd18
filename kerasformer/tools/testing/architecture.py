"""All checks of one architecture, in one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from transformers.utils import logging

from kerasformer import zoo
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.architectures import DECODER, ENCODER, find
from kerasformer.errors import InputError
from kerasformer.models import registry
from kerasformer.tools.testing import generation, parity, round_trip
from kerasformer.tools.testing.case import Case
from kerasformer.tools.testing.comparison import Loaded

_AUTO_CLASSES = {
    "text-generation": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "text2text-generation": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "fill-mask": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "text-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "token-classification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "question-answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
}
"""Tables of `transformers` with the class of each architecture for a task."""
_BRANCHES = {"text-generation": DECODER, "fill-mask": ENCODER}
"""Kinds of architectures that a task is limited to."""


@dataclass(frozen=True)
class ArchitectureReport:
    """Result of `check_architecture`.

    Attributes:
        model_type: The architecture.
        tasks: The tasks that were checked.
        errors: Largest error of each check, relative to the largest magnitude of the reference.
        support: For `"gpu"`, the GPU of a phone, and for each third-party runtime: `"exported"` or `"accepted"`, or
            the reason of the refusal. Empty without exports.
    """

    model_type: str
    tasks: tuple[str, ...]
    errors: dict[str, float] = field(default_factory=dict)
    support: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.model_type}: {', '.join(self.tasks)}"]
        lines += [f"{name}: {error:.1e}" for name, error in self.errors.items()]
        return "\n".join(lines + [f"{name}: {result}" for name, result in self.support.items()])


def check_architecture(
    architecture: ModuleType | type | str,
    settings: Mapping[str, object],
    *,
    tasks: Sequence[str] = (),
    without: Sequence[str] = (),
    exports: bool = True,
    progress: StageProgress | None = None,
    **options: Any,
) -> ArchitectureReport:
    """Checks an architecture: parity with `transformers`, generation, saved files and exports.

        from kerasformer.tools.testing import check_architecture

        print(check_architecture(my_package.my_model, {"vocab_size": 97, "hidden_size": 36, …}))

    Args:
        architecture: A module like those of `kerasformer.zoo`, which is registered for this process if it is from
            another package; one of its model classes; or a `model_type`.
        settings: Content of the `config.json` of a tiny model, with unusual sizes and values other than the defaults.
            `transformers` creates the reference from it.
        tasks: Tasks to check; all tasks of the architecture by default.
        without: Tasks that `transformers` has for the architecture and that it does without.
        exports: Whether to export the first task in both formats, in float32 and int8, and for GPUs and targets, which
            takes about a minute; needs the extra `export`.
        progress: Called with the name of each check, its index and the number of checks, which is 0 if unknown.
        options: Further fields of `Case`, such as `std`.

    Raises:
        AssertionError: a check failed; the message names the check, the task and the file of the architecture.
        InputError: the architecture cannot be registered, or has no such task.
    """
    model_type = _registered(architecture)
    case = Case(model_type, model_type, dict(settings), only=tuple(tasks), **options)
    unknown = [task for task in case.tasks if task not in registry.architecture(model_type).MODELS]
    if unknown:
        known = ", ".join(registry.architecture(model_type).MODELS)
        raise InputError(f"{model_type} has no such task. Expected: {known}. Received: {', '.join(unknown)}")
    report = ArchitectureReport(model_type, case.tasks)
    with _named(case, "heads", "all tasks"):
        check_heads(case, without)
    with _quiet_transformers(), TemporaryDirectory(prefix="kerasformer-") as folder:
        for task in case.tasks:
            path = Path(folder, task, "checkpoint")
            with _named(case, "loading", task):
                it = Loaded.of(case, task, path)
            for name, check in _checks(it, path.parent):
                _run(report, case, task, name, check, progress)
        if exports:
            _check_exports(report, case, Path(folder), progress)
    return report


def check_heads(case: Case, without: Sequence[str] = ()) -> None:
    """Checks that an architecture has a head for each task for which `transformers` has a class.

    Only decoders need one for text generation and only encoders one for masked tokens, although `transformers` also
    has such classes for others, which are of no use.

    Args:
        case: The case.
        without: Tasks that the architecture does without.
    """
    from transformers.models.auto import modeling_auto

    models = registry.architecture(case.model_type).MODELS
    theirs = {task: getattr(modeling_auto, table).get(case.model_type) for task, table in _AUTO_CLASSES.items()}
    branch = find(case.model_type).branch
    theirs = {task: name for task, name in theirs.items() if _BRANCHES.get(task, branch) == branch}
    missing = [f"{task} ({name})" for task, name in theirs.items() if name and task not in (*models, *without)]
    if missing:
        raise AssertionError(
            f"MODELS has no head for tasks of which transformers has a class: {', '.join(missing)}. Add a head, or "
            "pass the tasks as `without`"
        )


def _registered(architecture: ModuleType | type | str) -> str:
    if isinstance(architecture, str):
        return architecture
    module: Any = sys.modules.get(architecture.__module__) if isinstance(architecture, type) else architecture
    return zoo.register(module)


def _checks(it: Loaded, folder: Path) -> Iterator[tuple[str, Callable[[], float | None]]]:
    """Yields the names and functions of the checks of a task."""
    yield "class", partial(parity.check_class, it)
    for side in (None, "right", "left"):
        yield f"outputs with {side or 'no'} padding", partial(parity.check_outputs, it, side)
    if it.task == it.case.tasks[0]:
        yield "hidden states and attention", partial(parity.check_hidden_states_and_attention, it)
        yield "positions", partial(parity.check_positions, it)
    yield "alone and in a batch", partial(parity.check_alone_and_in_a_batch, it)
    yield "content of padding", partial(parity.check_padding_is_ignored, it)
    yield "saving for transformers", partial(round_trip.check_transformers_reads_it, it, folder / "theirs")
    yield "saving and loading", partial(round_trip.check_it_reads_itself, it, folder / "ours")
    yield "tensors", partial(round_trip.check_tensors, it, folder / "tensors")
    yield "the .keras file", partial(round_trip.check_keras_file, it, folder)
    yield "summary", partial(round_trip.check_summary, it)
    yield "configuration of the backbone", partial(round_trip.check_backbone_config, it)
    if it.model.generates:
        for name, settings in generation.SETTINGS.items():
            yield f"tokens ({name})", partial(generation.check_tokens, it, settings)
        yield "declared caches", partial(generation.check_declared_caches, it)
        yield "cache", partial(generation.check_cache, it)
        if generation.has_windows(it):
            yield "caches that wrap", partial(generation.check_caches_that_wrap, it)


def _check_exports(report: ArchitectureReport, case: Case, folder: Path, progress: StageProgress | None) -> None:
    from kerasformer.tools.testing import exports

    task = case.tasks[0]
    with _named(case, "loading", task):
        model = exports.text_model(case, task, Loaded.of(case, task, folder / "exported").model.config)
    for format, quantize in product(exports.FORMATS, exports.RECIPES):
        name, path = f"export to {format} with quantize={quantize!r}", folder / f"{format}-{quantize}"
        _run(report, case, task, name, partial(exports.check_export, model, path, format, quantize), progress)
    with _named(case, "export for a GPU", task):
        report.support["gpu"] = exports.check_gpu(model, folder / "gpu")
    with _named(case, "targets", task):
        report.support.update(exports.check_targets(model))


def _run(
    report: ArchitectureReport,
    case: Case,
    task: str,
    name: str,
    check: Callable[[], float | None],
    progress: StageProgress | None,
) -> None:
    """Runs a check and records its error, the largest of all tasks."""
    if progress is not None:
        progress(f"{task}: {name}", len(report.errors), 0)
    with _named(case, name, task):
        error = check()
    if error is not None:
        report.errors[name] = max(error, report.errors.get(name, 0.0))


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Hides the progress bars and the reports of `transformers`."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _named(case: Case, check: str, task: str) -> Iterator[None]:
    """Adds the check, the task and the file of the architecture to the message of an error."""
    try:
        yield
    except Exception as error:
        raise AssertionError(
            f"{case.model_type} fails the check {check!r} of {task}. {type(error).__name__}: {error}\n"
            f"Architecture: {case.module}"
        ) from error
