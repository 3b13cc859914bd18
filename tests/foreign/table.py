"""Generates the tables of docs/runtimes.md and `kerasformer/bundle/tested.json` from the tests.

python -m tests.foreign.table [--write]        without --write, only reports whether they are up to date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from kerasformer.bundle import tested
from kerasformer.bundle.tested import Tested
from kerasformer.export.targets import TARGETS
from tests.core.export import test_export
from tests.core.export import ticks as exports
from tests.core.export.text_models import Row
from tests.core.zoo import test_checkpoints
from tests.foreign import refusals
from tests.foreign.environments import HERE
from tests.foreign.ticks import OWN, collect, in_order

ROOT = HERE.parents[1]
JSON = ROOT / "kerasformer/bundle/tested.json"
PAGE = ROOT / "docs" / "runtimes.md"
_BEGIN, _END = "<!-- from the tests: python -m tests.foreign.table --write -->", "<!-- end -->"


def ticks(runtimes: Sequence[Tested]) -> str:
    """Returns a table with a column for each runtime, and a row for the models of a task that have the same cells."""
    rows = dict.fromkeys((task, model) for each in runtimes for task in each.bundles for model in each.bundles[task])
    models: dict[tuple[str, ...], list[str]] = {}
    for task, model in sorted(rows):
        found = [[each.get(task, {}).get(model, []) for each in (row.bundles, row.in_ci)] for row in runtimes]
        models.setdefault((task, *(_cell(*recipes) for recipes in found)), []).append(model)
    lines = [["task", "models", *(each.name for each in runtimes)], ["---"] * 2 + [":-:"] * len(runtimes)]
    lines += [[task, ", ".join(names), *cells] for (task, *cells), names in models.items()]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _cell(recipes: list[str], in_ci: list[str]) -> str:
    """Returns a tick, with the recipes that were tested in addition to `none`; in brackets what CI does not run."""
    tick = ["✓" if in_ci else "(✓)"] if recipes else []
    named = [name for name in recipes if name != "none"]
    return " ".join(tick + [name if name in in_ci or not in_ci else f"({name})" for name in named])


def versions(runtimes: Sequence[Tested]) -> str:
    """Returns a table of the runtimes: how their bundles are exported and which version was tested."""
    lines = [["runtime", "export", "tested", "what it is"], ["---"] * 4]
    lines += [[each.name, f"`{each.option}`", each.version, each.summary] for each in runtimes]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(text: str, runtimes: Sequence[Tested]) -> str:
    """Returns the page with its generated part updated."""
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE} must have the lines {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n{versions(runtimes)}\n\n{ticks(runtimes)}\n{_END}{after}"


def formats(runtimes: Sequence[Tested]) -> dict[str, tested.Bundles]:
    """Returns the bundles that were compared with Keras, by format, in this package or in a third-party runtime."""
    own = {name: option.split()[-1] for name, (option, _) in OWN.items()}
    written_for = own | {name: target.format for name, target in TARGETS.items()}

    def claims() -> Iterator[exports.Claim]:
        yield from exports.claims(test_export)
        for each in runtimes:
            for task, models in each.bundles.items():
                for model_type, recipes in models.items():
                    yield from ((written_for[each.name], Row(model_type, task), recipe) for recipe in recipes)

    return {format: in_order(bundles) for format, bundles in exports.collect(claims()).items()}


def checkpoints() -> dict[str, list[str]]:
    """Returns the published checkpoints whose configuration is tested, by model type."""
    found: dict[str, list[str]] = {}
    for row in test_checkpoints.ROWS:
        found.setdefault(test_checkpoints.model_type(row), []).append(row["checkpoint"])
    return dict(sorted(found.items()))


def content(runtimes: Sequence[Tested]) -> str:
    """Returns the content of `tested.json`."""
    listed = {
        "formats": formats(runtimes),
        "checkpoints": checkpoints(),
        "runtimes": [asdict(each) for each in runtimes],
    }
    text = json.dumps(listed, indent=1, ensure_ascii=False)
    # A list of names takes one line.
    flat = re.sub(r"\[\n *([^][{}]*?)\n *\]", lambda found: "[" + re.sub(r",\n *", ", ", found[1]) + "]", text)
    return flat + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes or compares both files; returns the exit status.

    Refusals are collected only to be written: `test_targets.py` compares the listed ones with those that it gets.
    """
    write = "--write" in arguments
    refused = refusals.collect() if write else {name: each.refused for name, each in tested.runtimes().items()}
    runtimes = collect(refused)
    texts = {JSON: content(runtimes), PAGE: page(PAGE.read_text(encoding="utf-8"), runtimes)}
    differing = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in differing:
        if write:
            path.write_text(texts[path], encoding="utf-8")
        print(f"{'written' if write else 'out of date'}: {path.relative_to(ROOT)}")
    return 0 if write else len(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
