"""Measurement of speed, memory and size of bundles and Keras models, each in a separate process.

`worker.py` runs in the measured process and controls it; `rounds.py` measures several subjects in turns, and
`speed_figures.py` computes figures from the times. `own_models.py` adapts bundles and Keras models; benchmarks/peers/
in the repository adapts other libraries to the same interface.
"""

from kerasformer.tools.bench.run import BenchReport, bench

__all__ = ["BenchReport", "bench"]
