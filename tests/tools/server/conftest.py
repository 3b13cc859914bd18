"""Tiny checkpoints for each task, those of the pipelines."""

from tests.core.pipelines.conftest import checkpoint

__all__ = ["checkpoint"]
