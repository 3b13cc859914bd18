"""Each combination of a grid has the mark of the group that runs it."""

from __future__ import annotations

from types import SimpleNamespace

from tests.grids import grid, on_jax, repeats, wait_for_release


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


def test_listed_files_functions_and_rows_wait_for_a_release():
    ids = ["tests/a.py::one[x[1]-y]", "tests/a.py::one[z]", "tests/a.py::two[z]", "tests/b.py::one", "tests/c.py::one"]
    marked = []
    items = [SimpleNamespace(nodeid=node, add_marker=lambda mark, node=node: marked.append(node)) for node in ids]
    lines = ["# a comment", "", "a.py::one[x[1]-y]", "a.py::two", "b.py", "a.py::one[w]", "d.py"]
    assert wait_for_release(items, lines) == ["a.py::one[w]", "d.py"]
    assert marked == [ids[0], ids[2], ids[3]]
