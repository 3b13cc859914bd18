"""Tiny checkpoints for each task, those of the pipelines."""

from tests.pipelines.conftest import checkpoint

__all__ = ["checkpoint"]
