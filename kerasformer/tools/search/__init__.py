"""Search for a quantization recipe within limits of size, latency and fidelity."""

from kerasformer.tools.search.candidates import Candidate, candidates, search

__all__ = ["Candidate", "candidates", "search"]
