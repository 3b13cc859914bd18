"""The base class of errors."""

from __future__ import annotations

import pickle

import pytest

from kerasformer.errors import CapacityError, MissingExtraError


@pytest.mark.parametrize("kind", [CapacityError, MissingExtraError])
def test_errors_of_two_bases_keep_their_message(kind):
    error = pickle.loads(pickle.dumps(kind("what is wrong")))
    assert str(error) == "what is wrong" and error.args == (str(error),)
    assert str(kind()) == ""
