"""Exports and blocks without native logs leave all other output of the process as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.core.export.text_models import shared_bundle

PROGRAM = """
import os, sys, threading
from kerasformer.process import hidden_native_logs
before = sys.stderr, os.fstat(2).st_ino
logs = [b"INFO: [environment.cc:36] Creating", b"I0000 00:00:1795555880.074164   10314 port.cc:153] oneDNN"]

def block(number):
    with hidden_native_logs():
        for log in logs:
            os.write(2, log + b"\\n")
        os.write(2, b"native %d\\nINFO: of an application\\nERROR: [a.cc:1] serious\\n" % number)
        print("Python", number, file=sys.stderr)

threads = [threading.Thread(target=block, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
try:
    with hidden_native_logs():
        os.write(2, b"without an end")
        raise KeyError
except KeyError:
    os.write(2, logs[0])
print(before == (sys.stderr, os.fstat(2).st_ino), len(os.listdir("/proc/self/fd")))
print(len(os.listdir("/proc/self/fd")))
"""


def test_only_native_logs_are_hidden() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same, *counts = done.stdout.split()
    assert same == "True" and len(set(counts)) == 1
    lines = [f"{who} {number}" for who in ("Python", "native") for number in range(3)]
    lines += ["INFO: of an application", "ERROR: [a.cc:1] serious"] * 3
    end = "without an endINFO: [environment.cc:36] Creating"
    assert sorted(done.stderr.splitlines()) == sorted([*lines, end])


RUN = "import sys, kerasformer as kf; print(kf.pipeline(sys.argv[1])('The museum is closed.'))"
LOAD = "import kerasformer as kf; print(kf.load('sentiment-bert').task)"


def quiet(code: str, *arguments: object) -> list[str]:
    """Returns what a program without settings writes to standard error, except at its end."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    code += "; print('<end>', file=sys.stderr)" if "import sys" in code else ""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.split("<end>")[0].splitlines()


def test_opening_and_running_a_bundle_logs_nothing() -> None:
    assert quiet(RUN, shared_bundle("bert-text-classification", "tflite")) == []


@pytest.mark.grid
def test_loading_a_model_logs_nothing_about_gpus() -> None:
    assert quiet(LOAD) == []
