"""`python -m benchmarks.peers setup [NAME…]` and `python -m benchmarks.peers run [SHAPE…]`.

`setup` makes an environment for each library, once. `run` makes what is not there yet (checkpoints, bundles, converted
models; it keeps them in `--folder`), then asks all in turn: everyone answers once in each round. A library that cannot
do a model is a row that says why. `--out` gets a table for each work, all figures as JSON, and a picture.
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


def main() -> None:
    """Parses, sets up or runs."""
    wanted = _arguments()
    if wanted.command == "setup":
        for name in wanted.names or LIBRARIES:
            print(f"{name}: {environments.setup(name, LIBRARIES[name], wanted.envs)}")
        return
    settings = Run(wanted.folder.resolve(), wanted.envs, wanted.rounds, wanted.threads, wanted.fresh)
    results = report.Results(settings.rounds, settings.threads)
    wanted.out.mkdir(parents=True, exist_ok=True)
    for shape in wanted.shapes or ("gpt2", "t5", "bert"):
        peers = [name for name in peers_for(shape) if wanted.peers is None or name in wanted.peers]
        results.add(shape, *run(settings, shape, [*peers, *wanted.ours]))
        results.write(wanted.out)  # after each shape: what was measured is not lost
    print((wanted.out / "peers.md").read_text())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="make the environments")
    setup.add_argument("names", nargs="*", choices=[*LIBRARIES, []], help=", ".join(LIBRARIES))
    measure = commands.add_parser("run", help="measure")
    measure.add_argument("shapes", nargs="*", choices=[*SHAPES, []], help=", ".join(SHAPES))
    measure.add_argument("--ours", nargs="*", choices=OURS, default=list(OURS), help="ours; all by default")
    peers = sorted({variant for shape in SHAPES for variant in peers_for(shape)})
    measure.add_argument("--peers", nargs="*", choices=peers, help="theirs; all by default")
    measure.add_argument("--rounds", type=int, default=5, help="answers of each")
    measure.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads")
    measure.add_argument("--folder", type=Path, default=Path("benchmark-models"), help="keeps what is made")
    measure.add_argument("--fresh", action="store_true", help="makes our bundles again")
    measure.add_argument("--out", type=Path, default=Path("bench"), help="folder of the results")
    for command in (setup, measure):
        command.add_argument("--envs", type=Path, default=environments.default_folder(), help="the environments")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
