"""`python -m benchmarks.peers setup [NAME…]` and `python -m benchmarks.peers run [SHAPE…]`.

`setup` creates an environment for each library. `run` creates missing checkpoints, bundles and converted models in
`--folder` and then measures all variants in alternating rounds. For a model that a library does not support, the reason
is reported. Tables, all figures as JSON and a picture of each shape are written to `--out`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import environments
from benchmarks.peers.catalogue import LIBRARIES, OURS, peers_for
from benchmarks.peers.running import run
from benchmarks.shapes import SHAPES
from kerasformer.errors import KerasformerError, MissingExtraError
from kerasformer.tools.bench import BenchReport
from kerasformer.tools.bench.picture import draw, panels_of
from kerasformer.tools.bench.report import markdown, note, tables
from kerasformer.tools.bench.worker import CLOCKS, clock_of


def text(report: BenchReport) -> str:
    """Returns the tables of a report in Markdown, with a row for each variant."""
    parts = [f"{note(report)}. {str(report.settings['clock']).capitalize()} time.\n"]
    for title, heads, rows in tables(report):
        (_, *names), (_, *units), *columns = zip(heads, *rows, strict=True)
        figures = [f"{name}, {unit}" if unit else name for name, unit in zip(names, units, strict=True)]
        parts.append(markdown(title, ["", *figures], columns))
        missing = {one.name: one.failures[title] for one in report.subjects if title in one.failures}
        parts += [f"- {name} is missing: {reason}\n" for name, reason in missing.items()]
    parts += [f"- {name} is not supported: {reason}\n" for name, reason in report.not_measured.items()]
    return "\n".join(parts)


def main() -> None:
    options = _arguments()
    if options.command == "setup":
        for name in options.names or LIBRARIES:
            print(f"{name}: {environments.setup(name, LIBRARIES[name], options.envs)}")
        return
    clock_of(options.clock)
    options.folder = options.folder.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    for shape in options.shapes or ("gpt2", "t5", "bert"):
        peers = [name for name in peers_for(shape) if options.peers is None or name in options.peers]
        report = run(options, shape, [*peers, *options.ours])
        report.write(options.out / f"{shape}.json")
        (options.out / f"{shape}.md").write_text(text(report), encoding="utf-8")
        print(text(report), flush=True)
        try:
            draw(SHAPES[shape].title, panels_of(report), options.out / f"{shape}.png", note(report))
        except MissingExtraError as error:
            print(error, file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="create the environments")
    setup.add_argument("names", nargs="*", choices=[*LIBRARIES, []], help=", ".join(LIBRARIES))
    measure = commands.add_parser("run", help="measure")
    measure.add_argument("shapes", nargs="*", choices=[*SHAPES, []], help=", ".join(SHAPES))
    measure.add_argument("--ours", nargs="*", choices=OURS, default=list(OURS), help="our variants; all by default")
    peers = sorted({variant for shape in SHAPES for variant in peers_for(shape)})
    measure.add_argument("--peers", nargs="*", choices=peers, help="variants of other libraries; all by default")
    measure.add_argument("--rounds", type=int, default=5, help="number of rounds")
    measure.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="number of CPU threads")
    what = "processor time of all threads depends less on other programs; use it with --threads 1"
    measure.add_argument("--clock", choices=CLOCKS, default="elapsed", help=what)
    measure.add_argument("--folder", type=Path, default=Path("benchmark-models"), help="folder of the models")
    measure.add_argument("--fresh", action="store_true", help="export our bundles again")
    measure.add_argument("--out", type=Path, default=Path("bench"), help="folder of the results")
    for command in (setup, measure):
        command.add_argument("--envs", type=Path, default=environments.default_folder(), help="their folder")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, KerasformerError) as error:
        sys.exit(str(error))
