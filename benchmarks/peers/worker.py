"""Worker of a variant.

`python -m benchmarks.peers.worker prepare|serve VARIANT SHAPE CHECKPOINT FOLDER [THREADS CLOCK]`
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.catalogue import LIBRARIES, Job, library_of
from benchmarks.shapes import SHAPES
from kerasformer.tools.bench.worker import clock_of, reserve_stdout, serve


def main() -> None:
    replies = reserve_stdout()
    work, variant, shape, checkpoint, folder, *settings = sys.argv[1:]
    peer = LIBRARIES[library_of(variant)].model(Job(variant, SHAPES[shape], Path(checkpoint), Path(folder)))
    if work == "prepare":
        peer.prepare()
    else:
        threads, clock = settings
        serve(peer, int(threads), sys.stdin, replies, clock_of(clock))


if __name__ == "__main__":
    main()
