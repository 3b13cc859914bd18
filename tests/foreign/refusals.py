"""Which of the small models each target refuses, with the reason."""

from __future__ import annotations

from collections import defaultdict

from kerasformer.errors import ExportError
from kerasformer.export.formats.registry import find_format
from kerasformer.export.options import resolve_options
from kerasformer.export.targets import TARGETS
from tests.core.export.text_models import shared_model
from tests.core.export.ticks import ALL

Refusals = dict[str, dict[str, list[str]]]
"""Model types by the reason why they are refused, and by task."""


def try_to_export(target: str, name: str, functions: bool = True) -> None:
    """Runs all checks of an export before the first file is written.

    Args:
        target: Name of the target.
        name: Name of the small model.
        functions: Whether to define the functions too, which takes most of the time.

    Raises:
        ExportError: the target refuses the model.
    """
    runtime = TARGETS[target]
    format = find_format(runtime.format)
    format.check({}, "none")
    job = resolve_options(shared_model(name), {}, format, runtime)
    runtime.check(job)
    if functions and not runtime.functions(job, format.functions(job)):
        raise AssertionError(f"{target} has no function of {name}")


def reason(error: ExportError) -> str:
    """Returns why a model is refused: the message without what was received."""
    return str(error).partition(" Received: ")[0].rstrip(".")


def collect() -> dict[str, Refusals]:
    """Returns the refusals of each target, except those by its functions; creates all small models, in a minute."""
    found: dict[str, Refusals] = {}
    for target in TARGETS:
        refused: Refusals = defaultdict(lambda: defaultdict(list))
        for name, row in ALL.items():
            try:
                try_to_export(target, name, functions=False)
            except ExportError as error:
                refused[reason(error)][row.task].append(row.model_type)
        found[target] = {
            why: {task: sorted(set(types)) for task, types in sorted(tasks.items())}
            for why, tasks in sorted(refused.items())
        }
    return found
