"""The other end of a worker: a subject in a process of its own, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kerasformer import errors
from kerasformer.bench.question import Facts, Question, Tokens
from kerasformer.bench.worker import Sample
from kerasformer.errors import KerasformerError


class Worker:
    """A process that runs `kerasformer.bench.worker.serve`. The model is open when this returns.

    Args:
        name: In messages.
        command: That starts it.
        environment: Variables beside those of this process.

    Attributes:
        import_s: Seconds to import the runtime.
        load_s: Seconds to open the model, after that.
        runtime_mb: Memory resident after the import.
        peak_mb: Most memory resident so far.
        facts: Of the model.

    Raises:
        KerasformerError: it ended, or its model raised an error; an error of ours keeps its type.
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
        try:
            told = self._read()
        except BaseException:
            self.close()
            raise
        self.import_s: float = told["import_s"]
        self.load_s: float = told["load_s"]
        self.runtime_mb: float = told["runtime_mb"]
        self.peak_mb = self.runtime_mb
        self.facts = Facts(**told["facts"])

    def answer(self, question: Question) -> Sample:
        """One answer, measured inside.

        Raises:
            KerasformerError: as for the class, or the answer has another length than was asked for.
        """
        if self._child.stdin is None:
            raise KerasformerError(f"{self.name} has no standard input")
        self._child.stdin.write(json.dumps(asdict(question)) + "\n")
        self._child.stdin.flush()
        told = self._read()
        sample = Sample(told["seconds"], Tokens(*told["tokens"]), tuple(told["marks"]))
        if sample.tokens.written != question.write * question.batch:
            raise KerasformerError(
                f"{self.name} must write {question.write} tokens for each of {question.batch} inputs, or its time says "
                f"nothing. Received: {sample.tokens.written} tokens in all"
            )
        self.peak_mb = told["peak_mb"]
        return sample

    def close(self) -> None:
        """Ends the process."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            try:
                self._child.stdin.close()
            except BrokenPipeError:
                pass  # it has ended already
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise KerasformerError(
                f"{self.name}: its process ended with status {self._child.wait()} before it had answered. "
                f"Its last words: {self._last_words()}"
            )
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            kind = getattr(errors, told["error"]["kind"], KerasformerError)
            raise kind(f"{self.name}: {_named(told['error'])}")
        return told

    def _last_words(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().split())[-500:] or "none"


def _named(error: dict[str, str]) -> str:
    """Errors of ours say all in their message; those of others begin with their type."""
    return error["message"] if hasattr(errors, error["kind"]) else f"{error['kind']}: {error['message']}"
