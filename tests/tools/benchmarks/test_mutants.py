"""The mutants of `benchmarks.mutants` apply to the source as it is."""

from __future__ import annotations

import pytest

from benchmarks.mutants import MUTANTS, Mutant, named, problems


def test_forty_mutants_apply_once_and_compile():
    assert len(named()) == sum(map(len, MUTANTS.values())) == 40
    assert not problems(named().values())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("x + 1", "x - 1", "must contain the text 'x \\+ 1' once. Received: 2"),
        ("y", "(y", "cannot be compiled"),
        ("# a comment", "# another", "is the same program"),
    ],
)
def test_a_mutant_that_does_not_apply_is_named(before, after, message):
    mutant = Mutant("slip", "file.py", before, after, "", ())
    with pytest.raises(ValueError, match=f"slip: .*{message}"):
        mutant.applied("x + 1; x + 1; y  # a comment")
