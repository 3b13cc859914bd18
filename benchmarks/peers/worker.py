"""Worker of a variant: `python -m benchmarks.peers.worker prepare|serve VARIANT SHAPE CHECKPOINT FOLDER [THREADS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.catalogue import LIBRARIES, Job, library_of
from benchmarks.shapes import SHAPES
from kerasformer.bench.worker import reserve_stdout, serve


def main() -> None:
    """Prepares the files of a variant, or answers questions with it."""
    replies = reserve_stdout()
    work, variant, shape, checkpoint, folder, *threads = sys.argv[1:]
    peer = LIBRARIES[library_of(variant)].model(Job(variant, SHAPES[shape], Path(checkpoint), Path(folder)))
    if work == "prepare":
        peer.prepare()
    else:
        serve(peer, int(threads[0]) if threads else None, sys.stdin, replies)


if __name__ == "__main__":
    main()
