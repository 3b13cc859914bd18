from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from kerasformer.basics.arguments import (
    BOOLEAN,
    FUNCTION,
    STRING,
    Kind,
    check,
    integer,
    kind_of,
    number,
    one_of,
    optional,
    sequence,
)
from kerasformer.errors import GenerationError, InputError

HUGE = 10**5000
NAN, INFINITY = float("nan"), float("inf")


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("not today")


KINDS: list[tuple[Kind, str, list[Any], list[Any]]] = [
    (integer(), "an integer", [0, -5, np.int8(3), np.array(7), HUGE], [True, 1.0, "1", None, np.bool_(True), [1]]),
    (integer(1), "an integer of at least 1", [1, np.uint64(2)], [0, -HUGE, np.array([1, 2]), np.float32(2)]),
    (integer(high=4), "an integer of at most 4", [4, -9], [5, HUGE]),
    (integer(1, 4), "an integer from 1 to 4", [1, 4], [0, 5, NAN]),
    (number(), "a finite number", [1, -2.5, np.float32(0.5)], [NAN, INFINITY, np.float64("nan"), True, "1", 1j, HUGE]),
    (number(0, 1), "a number from 0 to 1", [0, 1, 0.5], [1.1, -0.1, NAN, HUGE]),
    (number(above=0), "a number above 0", [1e-9, 3], [0, -1, INFINITY]),
    (BOOLEAN, "True or False", [True, np.bool_(False)], [1, 0, "yes", None]),
    (STRING, "a string", ["", "a", np.str_("b")], [b"a", 1, None, ["a"]]),
    (FUNCTION, "a function", [len, Unshown], [1, "len", Unshown()]),
    (one_of("gpu", "npu"), "'gpu' or 'npu'", ["gpu", np.str_("npu")], ["GPU", None, ["gpu"], 1]),
    (one_of(True, False, "never"), "True, False or 'never'", [True, "never", np.bool_(False)], [1, 0, "always"]),
    (optional(integer(1)), "an integer of at least 1, or None", [None, 1], [0, "None"]),
    (
        sequence(integer(1), least=1),
        "a non-empty list, each item an integer of at least 1",
        [[1, 2], (3,), range(1, 3), np.array([4])],
        [[], [0], 1, "12", {1: 2}, [[1]], np.array(1), [1, None]],
    ),
    (sequence(STRING), "a list, each item a string", [[], ["a"], iter(["b"])], ["a", ["a", 1], None]),
    (number(above=0, high=1), "a number above 0, up to 1", [0.5, 1], [0, 1.5, NAN]),
    (kind_of(bool), "True or False", [True], [1, "true", None]),
    (kind_of(Annotated[int, integer(1)] | str), "an integer of at least 1 or a string", [1, "a"], [0, True, None]),
    (kind_of(Literal["a", 1] | None), "'a' or 1, or None", ["a", 1, None], [True, "b"]),
    (kind_of(tuple[int, ...]), "a list, each item an integer", [[1], []], [1, "12", {1: 2}, None]),
    (kind_of(dict[int, str]), "an object, each value a string", [{}, {0: "a"}], [[], "a", None]),
]


@pytest.mark.parametrize(("kind", "expected", "right", "wrong"), KINDS, ids=[row[1] for row in KINDS])
def test_accepted_values_of_each_kind(kind: Kind, expected: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        plain = check("size", value, kind)
        assert not isinstance(plain, np.generic | np.ndarray | list)
    for value in wrong:
        with pytest.raises(InputError, match=f"size must be {re.escape(expected)}. Received: size="):
            check("size", value, kind)


def test_values_are_returned_in_plain_form() -> None:
    assert check("n", np.array([1, 2]), sequence(integer())) == (1, 2)
    assert type(check("n", np.int64(3), integer())) is int
    assert type(check("x", np.float32(0.5), number())) is float
    assert check("early", np.bool_(True), one_of(True, False, "never")) is True


@dataclass(frozen=True)
class Point:
    x: float
    names: tuple[str, ...] = ()


def test_an_annotation_converts_the_content_of_a_file() -> None:
    points = check("", {"a": {"x": 1, "names": ["b"]}}, kind_of(dict[str, Point]))
    assert points == {"a": Point(1.0, ("b",))} and type(points["a"].x) is float


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": {"x": 1, "names": ["b", 2]}}, r"a.names\[1\] must be a string. Received: 2"),
        ({"a": {"x": "1"}}, "a.x must be a finite number. Received: '1'"),
        ({"a": {}}, "a.x must be present: a finite number"),
        ({"a": {"x": 1, "z": 2}}, "a.z must be left out: the fields are x, names. Received: 2"),
        ({"a": 5}, "a must be an object. Received: a=5"),
        ({1: {"x": 1}}, "1 must be a string. Received: 1"),
        (5, "its content must be an object, each value an object. Received: 5"),
    ],
)
def test_an_error_names_the_item_that_is_wrong(content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check("", content, kind_of(dict[str, Point]))


def test_error_type_and_advice() -> None:
    with pytest.raises(GenerationError, match=r"n must be an integer. Received: n='x'. Leave it out\.$"):
        check("n", "x", integer(), error=GenerationError, advice="Leave it out.")


@pytest.mark.parametrize("value", [HUGE, -HUGE, Unshown(), "x" * 10**6, [HUGE], "a\nb"], ids=range(6))
def test_any_value_can_be_shown(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        check("n", value, integer(0, 5))
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_a_converter_may_raise_a_specific_error() -> None:
    def convert(value: Any) -> Any:
        raise GenerationError("more")

    with pytest.raises(GenerationError, match="^more$"):
        check("n", 1, Kind("a thing", convert))
