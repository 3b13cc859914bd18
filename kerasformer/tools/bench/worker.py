"""Process that measures a single subject: loads the model, runs batches on request, and reports times and memory.

The protocol has one JSON object per line. The worker writes `{"import_s", "load_s", "runtime_mb", "facts"}` once, then
`{"seconds", "tokens", "marks", "peak_mb"}` for each batch, or `{"error": {"kind", "message"}}`. It reads a `Question`
for each batch, and exits at the end of its input, or if the model cannot be loaded. It requires only NumPy, so that it
runs in the environments of other libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import IO, Any

from kerasformer import errors, telemetry
from kerasformer.errors import InputError, KerasformerError
from kerasformer.tools.bench.machine import peak_mb, reset_peak
from kerasformer.tools.bench.question import Facts, Question, Subject, Tokens

Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"elapsed": time.perf_counter, "processor": time.process_time}
"""Clocks by name: elapsed time, and processor time of all threads of this process."""


@dataclass(frozen=True)
class Sample:
    """Measurement of a batch.

    Attributes:
        seconds: Time in seconds.
        tokens: Number of input and generated tokens.
        marks: Time in seconds from the start to each generated token; empty if the library does not report tokens.
    """

    seconds: float
    tokens: Tokens
    marks: tuple[float, ...] = ()


def timed(subject: Subject, question: Question, clock: Clock = time.perf_counter) -> Sample:
    """Runs and measures a batch."""
    marks: list[float] = []
    start = clock()
    tokens = subject.answer(question, lambda: marks.append(clock()))
    seconds = clock() - start
    return Sample(seconds, tokens, tuple(mark - start for mark in marks))


def serve(
    subject: Subject,
    threads: int | None,
    questions: IO[str],
    replies: IO[str],
    clock: Clock = time.perf_counter,
    opening: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Loads the subject and runs batches until the input ends. Errors are reported.

    Args:
        subject: Subject to measure.
        threads: Number of CPU threads; the subject's default if `None`.
        questions: Input stream with a line of JSON for each batch.
        replies: Output stream for a line of JSON after loading and after each batch.
        clock: Clock in seconds.
        opening: Context that is active while the subject is loaded.
    """
    try:
        start = clock()
        subject.import_runtime()
        imported = clock()
        reset_peak()
        runtime_mb = peak_mb()
        before = clock()
        with opening():
            facts = subject.load(threads)
        loaded = clock()
        times = {"import_s": imported - start, "load_s": loaded - before, "runtime_mb": runtime_mb}
        _reply(replies, {**times, "facts": asdict(facts)})
    except Exception as error:  # any error of a library is sent to the controlling process, which raises it
        _reply(replies, _described(error))
        return
    for line in questions:
        fields = json.loads(line)
        try:
            sample = timed(subject, Question(**{**fields, "texts": tuple(fields["texts"])}), clock)
            _reply(replies, {**asdict(sample), "peak_mb": peak_mb()})
        except Exception as error:  # likewise; the subject may be able to run other batches
            _reply(replies, _described(error))


class Worker:
    """Control of a process that runs `serve`; the constructor returns when the model is loaded.

    Args:
        name: Name for messages.
        command: Command that starts the process.
        environment: Additional environment variables.

    Attributes:
        import_s: Time to import the runtime, in seconds.
        load_s: Time to load the model after that, in seconds.
        runtime_mb: Resident memory after the import, in 10^6 bytes.
        peak_mb: Peak resident memory so far, in 10^6 bytes.
        facts: Properties of the model.

    Raises:
        KerasformerError: the process ended, or an error was raised in it; errors of this package keep their type.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._stdin: Any = self._child.stdin
        self._stdout: Any = self._child.stdout
        try:
            reply = self._read()
        except BaseException:
            self.close()
            raise
        self.import_s: float = reply["import_s"]
        self.load_s: float = reply["load_s"]
        self.runtime_mb: float = reply["runtime_mb"]
        self.peak_mb = self.runtime_mb
        self.facts = Facts(**reply["facts"])

    def answer(self, question: Question) -> Sample:
        """Runs a batch; times are measured in the worker.

        Raises:
            KerasformerError: as for the class, or the number of generated tokens differs from the requested one.
        """
        with suppress(BrokenPipeError):  # the process has ended; `_read` reports it
            print(json.dumps(asdict(question)), file=self._stdin, flush=True)
        reply = self._read()
        sample = Sample(reply["seconds"], Tokens(*reply["tokens"]), tuple(reply["marks"]))
        if sample.tokens.written != question.write * question.batch:
            raise KerasformerError(
                f"{self.name} must generate {question.write} tokens for each of {question.batch} inputs, so that times "
                f"are comparable. Received: {sample.tokens.written} tokens in total"
            )
        self.peak_mb = reply["peak_mb"]
        return sample

    def close(self) -> None:
        """Ends the process."""
        with suppress(BrokenPipeError):  # the process has already ended
            self._stdin.close()
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._stdout.close()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        line = self._stdout.readline()
        if not line:
            raise KerasformerError(
                f"{self.name}: its process ended with status {self._child.wait()} before it replied. "
                f"End of its log: {self._log_end()}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            kind, message = reply["error"]["kind"], reply["error"]["message"]
            if not hasattr(errors, kind):
                raise KerasformerError(f"{self.name}: {kind}: {message}")
            raise getattr(errors, kind)(f"{self.name}: {message}")
        return reply

    def _log_end(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().split())[-500:] or "none"


def clock_of(name: str) -> Clock:
    """Returns the clock of this name.

    Raises:
        InputError: it does not exist, or is too coarse on this system for the time of a token.
    """
    if name not in CLOCKS:
        raise InputError(f"The clock must be one of {', '.join(CLOCKS)}. Received: {name!r}")
    if name == "processor" and sys.platform == "win32":  # whatever `time.get_clock_info` tells
        raise InputError(
            "Windows counts processor time in steps of about 16 ms, which is too coarse. Measure elapsed time instead, "
            "or use Linux or macOS"
        )
    return CLOCKS[name]


def _described(error: Exception) -> dict[str, object]:
    return {"error": {"kind": type(error).__name__, "message": str(error)}}


def reserve_stdout() -> IO[str]:
    """Returns a stream to standard output for replies, and redirects the output of libraries to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


def _reply(replies: IO[str], content: dict[str, object]) -> None:
    print(json.dumps(content), file=replies, flush=True)


def main() -> None:
    """Entry point of `python -m kerasformer.tools.bench.worker SOURCE [THREADS [CLOCK]] [--engine NAME]`."""
    telemetry.switch_off()
    replies = reserve_stdout()
    from kerasformer.files import sources
    from kerasformer.process import compact_loading
    from kerasformer.tools.bench.other_engines import ENGINES
    from kerasformer.tools.bench.own_models import Source

    parser = argparse.ArgumentParser(prog="python -m kerasformer.tools.bench.worker")
    parser.add_argument("source")
    parser.add_argument("threads", nargs="?", type=int)
    parser.add_argument("clock", nargs="?", default="elapsed", choices=CLOCKS)
    parser.add_argument("--engine", choices=ENGINES)
    options = parser.parse_args()
    clock = clock_of(options.clock)
    other = ENGINES.get(options.engine)
    subject: Subject = Source(options.source) if other is None else other.open(sources.resolve(options.source))
    serve(subject, options.threads, sys.stdin, replies, clock, opening=compact_loading)


if __name__ == "__main__":
    main()
