"""Speed, memory and size of bundles and Keras models: each in a process of its own, several of them in turn.

`worker.py` is the measured process, `process.py` its other end; `rounds.py` asks several of them in turn, `figures.py`
makes numbers of the times. `sources.py` is what `kerasformer bench` measures; benchmarks/peers/ of the repository gives
other libraries the same interface.
"""

from kerasformer.bench.run import BenchReport, bench

__all__ = ["BenchReport", "bench"]
