"""Opening bundles and exporting models does not change the process: streams, settings, memory allocator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = r'''
import atexit, ctypes, gc, locale, logging, os, random, signal, sys, threading, time, warnings
from pathlib import Path

libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.__cxa_atexit(libc.perror, ctypes.c_void_p(libc.strdup(b"last words of native code")), None)
atexit.register(lambda: print("last words of Python", file=sys.stderr))

# Changes that these packages make on import are ignored.
import absl.logging, keras, numpy as np, onnxruntime, tensorflow as tf, tf2onnx.convert, tf2onnx.optimizer
from ai_edge_litert import compiled_model, environment, interpreter, options
import kerasformer as kf
from kerasformer import engines


def loggers():
    every = [logging.root, *(each for each in logging.root.manager.loggerDict.values() if hasattr(each, "level"))]
    return {
        f"logger {each.name}": (each.level, each.disabled, each.propagate, list(each.handlers), list(each.filters))
        for each in every
    }


def process():
    return {
        "descriptors": [(os.readlink(f"/proc/self/fd/{n}"), os.fstat(n).st_ino) for n in range(3)],
        "streams": [sys.stdin, sys.stdout, sys.stderr, sys.__stderr__],
        "hooks": [sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, warnings.showwarning],
        "warnings": list(warnings.filters),
        **loggers(),
        "absl": absl.logging.get_verbosity(),
        "environment": dict(os.environ),
        "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
        "numpy": np.geterr(),
        "random": [random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2:]],
        "keras": [keras.config.floatx(), keras.config.dtype_policy().name, keras.config.epsilon()],
        "tensorflow": [tf.config.functions_run_eagerly(), tf.config.threading.get_intra_op_parallelism_threads()],
        "tf2onnx": dict(tf2onnx.optimizer._optimizers),
        "interpreter": [gc.isenabled(), sys.getrecursionlimit(), sys.getswitchinterval(), os.getcwd(), list(sys.path)],
        "locale": locale.setlocale(locale.LC_ALL),
    }


class Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc's malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def mapped(megabytes):
    """Returns whether glibc allocates a block of this size from the system rather than from its heap."""
    libc.mallinfo2.restype, libc.malloc.restype = Mallinfo, ctypes.c_void_p
    before = libc.mallinfo2().hblks
    block = libc.malloc(ctypes.c_size_t(megabytes << 20))
    after = libc.mallinfo2().hblks
    libc.free(ctypes.c_void_p(block))
    return after > before


def mark():
    """Output of another part of the program in the meantime, in C and in Python."""
    while not done.is_set():
        written.append(f"<mark {len(written)}>")
        os.write(2, written[-1].encode())
        print(written[-1], file=sys.stderr, flush=True)
        time.sleep(0.002)


written, done = [], threading.Event()
writer = threading.Thread(target=mark)
small = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 40}
encoder = kf.zoo.build("bert", "text-classification", intermediate_dim=32, **small)
decoder = kf.zoo.build("gpt2", "text-generation", **small)
before = process()
writer.start()
folder = Path(sys.argv[1])
kf.export.export(encoder, folder / "encoder", "tflite", lengths=(8,), progress=False)
kf.export.export(encoder, folder / "saved-model", "saved-model", progress=False)
kf.export.export(decoder, folder / "decoder", "onnx", capacity=16, progress=False)
print("<exported>", file=sys.stderr, flush=True)
ids = np.ones((1, 4), "int32")
for path in folder.iterdir():
    engine = engines.open_engine(path)
    engine.step(ids[:, -1:], engine.start(ids, ids)) if path.name == "decoder" else engine.run({"input_ids": ids})
done.set()
writer.join()
after = process()
print("changed:", *(f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name]))
if hasattr(libc, "mallinfo2"):
    # By default, glibc maps a large block; after one was freed, blocks up to its size are allocated from the heap.
    print("allocator:", mapped(31), mapped(30))
else:
    print("allocator: True False")
print("marks:", " ".join(written))
'''


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.grid
def test_bundles_of_all_formats_do_not_change_the_process(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    assert lines["changed"].strip() == ""
    assert lines["allocator"].strip() == "True False"
    marks = lines["marks"].strip().replace("> <", ">\n<").splitlines()
    assert len(marks) > 100
    assert [mark for mark in marks if done.stderr.count(mark) != 2] == []
    of_exports = done.stderr.split("<exported>")[0]
    assert not [line for line in of_exports.splitlines() if "INFO: [" in line or "XNNPACK" in line]
    assert "last words of Python" in done.stderr and "last words of native code" in done.stderr


OWNER = """
import ctypes, sys
from kerasformer.process import compact_loading, keep_memory, silence_native_logs
silence_native_logs()
libc = ctypes.CDLL(None)
libc.perror(b"native")
print("Python", file=sys.stderr)
class Statistics(ctypes.Structure):  # glibc's mallinfo2
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
libc.mallinfo2.restype, libc.malloc.restype = Statistics, ctypes.c_void_p
def mapped(megabytes):  # whether it is a separate block of the system, returned to it when freed
    before = libc.mallinfo2().hblks
    block = libc.malloc(ctypes.c_size_t(int(megabytes * 2**20)))
    after = libc.mallinfo2().hblks
    libc.free(ctypes.c_void_p(block))
    return after > before
with compact_loading():
    print([mapped(megabytes) for megabytes in (8, 2, 0.5)])
print(mapped(64))
with keep_memory():
    kept = libc.mallinfo2().arena
    print(mapped(64), libc.mallinfo2().arena - kept > 60 * 2**20)  # the heap keeps what was freed
print(mapped(64), libc.mallinfo2().arena - kept > 60 * 2**20)  # until the block ends
"""


@linux
def test_an_application_may_silence_native_logs_and_return_or_keep_memory() -> None:
    done = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True)
    printed = "[True, True, False]\nTrue\nFalse True\nTrue False\n"
    assert (done.returncode, done.stderr, done.stdout) == (0, "Python\n", printed)
