from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kerasformer.basics.arguments import (
    BOOLEAN,
    FUNCTION,
    STRING,
    Kind,
    check,
    integer,
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
