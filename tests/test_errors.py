"""Arguments in error messages, formatted for Python and for the command line."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

from kerasformer.arguments import check, integer
from kerasformer.cli.command import in_shell
from kerasformer.errors import CapacityError, InputError, MissingExtraError, argument

OPTIONS = {"overwrite": "--overwrite", "num_threads": "--threads", "lengths": "--lengths", "set_": "--set"}


@pytest.mark.parametrize(
    ("given", "python", "shell"),
    [
        (("overwrite", True), "overwrite=True", "--overwrite"),
        (("overwrite",), "overwrite", "--overwrite"),
        (("overwrite", False), "overwrite=False", "no --overwrite"),
        (("num_threads", None), "num_threads=None", "no --threads"),
        (("num_threads", 0), "num_threads=0", "--threads 0"),
        (("num_threads", ...), "num_threads=…", "--threads …"),
        (("lengths", (16, 32)), "lengths=(16, 32)", "--lengths 16 --lengths 32"),
        (("num_threads", "a b"), "num_threads='a b'", "--threads 'a b'"),
        (("do_sample", True), "do_sample=True", "--set do_sample=true"),
        (("dtype", "float32"), "dtype='float32'", "dtype='float32'"),
    ],
)
def test_arguments_are_formatted_for_python_and_the_shell(given, python, shell):
    error = pickle.loads(pickle.dumps(InputError(f"Take {argument(*given)}, or [another].")))
    assert str(error) == f"Take {python}, or [another]."
    assert error.args == (str(error),)
    assert error.message_in(partial(in_shell, OPTIONS)) == f"Take {shell}, or [another]."


@pytest.mark.parametrize("kind", [CapacityError, MissingExtraError])
def test_errors_of_two_bases_keep_their_message(kind):
    assert str(kind("what is wrong")) == "what is wrong"
    assert str(kind()) == ""


def test_errors_of_check_use_the_style():
    with pytest.raises(InputError, match=r"^num_threads must be an integer.* Received: num_threads=0$") as raised:
        check("num_threads", 0, integer(1))
    message = raised.value.message_in(partial(in_shell, OPTIONS))
    assert message == "--threads must be an integer of at least 1. Received: --threads 0"
