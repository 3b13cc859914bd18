"""Tokenizers of checkpoints, as in the tests of tokenization."""

from tests.core.tokenization.conftest import checkpoint, copied

__all__ = ["checkpoint", "copied"]
