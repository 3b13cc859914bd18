"""Comparison with other libraries on the same checkpoints and questions, each in its own environment and process.

`python -m benchmarks.peers setup` creates the environments and `python -m benchmarks.peers run` measures; see
`__main__.py`. There is one module for each library; `catalogue.py` lists their variants.
"""
