"""Other libraries on the same checkpoints and questions, each in an environment and a process of its own.

`python -m benchmarks.peers setup` makes the environments, `python -m benchmarks.peers run` measures; see `__main__.py`.
A file for each library; `catalogue.py` lists what they offer.
"""
