"""A subject's own process: it opens the model, then answers as often as it is asked, and tells times and memory.

One JSON object a line. To the other end: `{"import_s", "load_s", "runtime_mb", "facts"}` once, then `{"seconds",
"tokens", "marks", "peak_mb"}` for each answer, or `{"error": {"kind", "message"}}`. From it: a `Question`; the end of
the input ends the process. Needs nothing but NumPy, so that other libraries' environments can run it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import IO, Any

from kerasformer.bench.process_memory import forget_peak, peak_mb
from kerasformer.bench.question import Question, Subject, Tokens

Clock = Callable[[], float]


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        seconds: From the question to the whole answer.
        tokens: What was read and written.
        marks: Seconds from the question to each token; empty where the library does not tell.
    """

    seconds: float
    tokens: Tokens
    marks: tuple[float, ...] = ()


def timed(subject: Subject, question: Question, clock: Clock = time.perf_counter) -> Sample:
    """Measures one answer."""
    marks: list[float] = []
    begin = clock()
    tokens = subject.answer(question, lambda: marks.append(clock()))
    seconds = clock() - begin
    return Sample(seconds, tokens, tuple(mark - begin for mark in marks))


def serve(
    subject: Subject,
    threads: int | None,
    questions: IO[str],
    replies: IO[str],
    clock: Clock = time.perf_counter,
    opening: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Opens the subject and answers until the questions end. An error is a reply, and the last one.

    Args:
        subject: What is measured.
        threads: CPU threads, or `None` for the subject's own choice.
        questions: A line of JSON for each.
        replies: Where a line of JSON goes for the opening and for each answer.
        clock: Seconds.
        opening: Settings of the process while the subject is opened.
    """
    try:
        begin = clock()
        subject.import_runtime()
        imported = clock()
        forget_peak()
        runtime_mb = peak_mb()
        before = clock()
        with opening():
            facts = subject.load(threads)
        loaded = clock()
        times = {"import_s": imported - begin, "load_s": loaded - before, "runtime_mb": runtime_mb}
        _reply(replies, {**times, "facts": asdict(facts)})
        for line in questions:
            fields = json.loads(line)
            sample = timed(subject, Question(**{**fields, "texts": tuple(fields["texts"])}), clock)
            _reply(replies, {**asdict(sample), "peak_mb": peak_mb()})
    except Exception as error:  # whatever a library raises is an answer, which the other end reports
        _reply(replies, {"error": {"kind": type(error).__name__, "message": str(error)}})


def own_replies() -> IO[str]:
    """Standard output for replies alone: what libraries print goes to standard error from now on."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


def _reply(replies: IO[str], content: dict[str, Any]) -> None:
    print(json.dumps(content), file=replies, flush=True)


def main() -> None:
    """Serves one source: `python -m kerasformer.bench.worker SOURCE [THREADS]`."""
    replies = own_replies()
    from kerasformer.bench.own_models import Source
    from kerasformer.process import compact_loading

    source, *threads = sys.argv[1:]
    serve(Source(source), int(threads[0]) if threads else None, sys.stdin, replies, opening=compact_loading)


if __name__ == "__main__":
    main()
