"""`python -m benchmarks.peers setup [NAME…]` and `python -m benchmarks.peers run [SHAPE…]`.

`setup` creates an environment for each library. `run` creates missing checkpoints, bundles and converted models in
`--folder` and then measures all variants in alternating rounds. For a model that a library does not support, the reason
is reported. A table for each workload, all figures as JSON, and a picture are written to `--out`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import environments, report
from benchmarks.peers.catalogue import LIBRARIES, OURS, peers_for
from benchmarks.peers.running import Run, run
from benchmarks.shapes import SHAPES
from kerasformer.bench.worker import clock_of
from kerasformer.errors import KerasformerError


def main() -> None:
    """Runs the command line."""
    arguments = _arguments()
    if arguments.command == "setup":
        for name in arguments.names or LIBRARIES:
            print(f"{name}: {environments.setup(name, LIBRARIES[name], arguments.envs)}")
        return
    clock = "processor" if arguments.processor_time else "elapsed"
    clock_of(clock)
    folder, envs = arguments.folder.resolve(), arguments.envs
    settings = Run(folder, envs, arguments.rounds, arguments.threads, arguments.fresh, clock)
    results = report.Results(settings.rounds, settings.threads, clock)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for shape in arguments.shapes or ("gpt2", "t5", "bert"):
        peers = [name for name in peers_for(shape) if arguments.peers is None or name in arguments.peers]
        results.add(shape, *run(settings, shape, [*peers, *arguments.ours]))
        results.write(arguments.out)  # after each shape, so that no results are lost
    print((arguments.out / "peers.md").read_text())


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
    what = "measure processor time of all threads, which depends less on other programs; use it with --threads 1"
    measure.add_argument("--processor-time", action="store_true", help=what)
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
