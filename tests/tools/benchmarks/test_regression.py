"""Verdicts of `benchmarks.regression`, which checks that a change makes no figure worse."""

from __future__ import annotations

import pytest

from benchmarks.inventory import compared, verdict


@pytest.mark.parametrize(
    ("rule", "old", "new", "expected"),
    [
        ("operators", 4, 5, "worse"),
        ("operators", None, 1, "worse"),
        ("operators", 4, None, "better"),
        ("bytes", 10_000, 10_010, "same"),
        ("bytes", 10_000, 10_011, "worse"),
        ("bytes", 10_000, 9_000, "better"),
        ("bytes", 10_000, None, "worse"),
        ("more", 1.0, 0.99, "worse"),
        ("more", 0.98, 0.99, "better"),
        ("error", 1e-6, 9e-6, "same"),
        ("error", 0.01, 0.011, "worse"),
        ("error", None, 0.01, "new"),
        ("fixed", 1.0, 1.00005, "same"),
        ("fixed", 1.0, 0.999, "worse"),
        ("fixed", "int32", "int64", "worse"),
    ],
)
def test_verdicts(rule, old, new, expected):
    assert verdict(rule, old, new) == expected


def test_a_missing_bundle_is_reported_once():
    figures = {"operators: model.tflite decode ADD": ("operators", 3), "file model.tflite": ("bytes", 9)}
    assert [(found.what, found.verdict) for found in compared("gpt2", figures, {})] == [("bundle", "worse")]
    assert [(found.what, found.verdict) for found in compared("gpt2", {}, figures)] == [("bundle", "new")]
