"""The mutants of `benchmarks.mutants` apply to the source as it is."""

from __future__ import annotations

from benchmarks.mutants import MUTANTS, named, problems


def test_forty_mutants_apply_once_and_compile():
    assert len(named()) == sum(map(len, MUTANTS.values())) == 40
    assert not problems(named().values())
