"""Part of the grid; GRID_CASES=400 runs more cases."""

from __future__ import annotations

import os

import pytest

from tests.core.generation import grid

pytestmark = pytest.mark.filterwarnings("ignore:.*sequences are empty")

CASES = int(os.environ.get("GRID_CASES", "63"))


@pytest.mark.parametrize("number", range(CASES))
def test_the_tokens_of_transformers(number: int) -> None:
    of = grid.case(number)
    assert grid.compare(of) in grid.OUTCOMES, of


def test_the_cases_include_every_method() -> None:
    methods = {method for number in range(36) for method in grid.case(number).methods}
    assert methods == set(grid.METHODS)
    assert {grid.case(number).model[1] for number in range(36)} >= {1, 2, 61}


def test_copies_do_not_close_a_prompt() -> None:
    """With more beams than tokens, the copies that fill the beams must not count as finished."""
    settings = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "eos_token_id": 0, "max_new_tokens": 15}
    assert grid.compare(grid.Case(0, ("t5", 3, 0, 0.0), ((2, 0),), settings, ())) in ("equal", "tie")


@pytest.mark.parametrize("beams", [1, 3])
def test_ours_raises_if_all_tokens_are_forbidden(beams: int) -> None:
    settings = {"num_beams": beams, "max_new_tokens": 4, "suppress_tokens": list(range(5))}
    of = grid.Case(0, ("gpt2", 5, 0, 0.0), ((1, 2),), settings, ())
    assert grid.compare(of) == "no token left"
    assert grid.Theirs(of).result
