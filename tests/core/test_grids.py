"""Each combination of a grid has the mark of the group that runs it."""

from __future__ import annotations

from tests.grids import grid, on_jax, repeats


def marks(parameters):
    """Returns the names of the marks by the values of a parameter."""
    return {each.values: [mark.name for mark in each.marks] for each in parameters}


def test_the_groups_of_a_grid():
    found = marks(grid("ab", "xy", always={("a", "x")}, release=lambda first, second: first == "b"))
    expected = {("a", "x"): [], ("a", "y"): ["grid"], ("b", "x"): ["release"], ("b", "y"): ["release"]}
    assert found == expected
    assert marks(grid("abc", always="a", release="ab")) == {("a",): [], ("b",): ["release"], ("c",): ["grid"]}


def test_the_second_backend_has_what_is_chosen_and_the_rest_before_a_release():
    found = marks(on_jax("ab", "xy", chosen=[("a", "y")]))
    assert found == {(a, b): ["jax" if (a, b) == ("a", "y") else "jax_release"] for a in "ab" for b in "xy"}


def test_a_combination_repeats_what_earlier_ones_have():
    assert repeats([("bert", "none"), ("bert", "int8"), ("gpt2", "none"), ("gpt2", "int8")]) == [False] * 3 + [True]
