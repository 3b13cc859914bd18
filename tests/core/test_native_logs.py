"""Exports and blocks without native logs leave all other output of the process as it is."""

from __future__ import annotations

import subprocess
import sys

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
