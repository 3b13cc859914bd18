"""Control of a worker: starts the process of a subject and exchanges messages with it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from kerasformer import errors
from kerasformer.bench.question import Facts, Question, Tokens
from kerasformer.bench.worker import Sample
from kerasformer.errors import KerasformerError


class Worker:
    """A process that runs `kerasformer.bench.worker.serve`; the constructor returns when the model is loaded.

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
        if self._child.stdin is None:
            raise KerasformerError(f"{self.name} has no standard input")
        with suppress(BrokenPipeError):  # the process has ended; `_read` reports it
            self._child.stdin.write(json.dumps(asdict(question)) + "\n")
            self._child.stdin.flush()
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
        if self._child.stdin is not None and not self._child.stdin.closed:
            try:
                self._child.stdin.close()
            except BrokenPipeError:
                pass  # the process has already ended
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
                f"{self.name}: its process ended with status {self._child.wait()} before it replied. "
                f"End of its log: {self._log_end()}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            kind = getattr(errors, reply["error"]["kind"], KerasformerError)
            raise kind(f"{self.name}: {_message(reply['error'])}")
        return reply

    def _log_end(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().split())[-500:] or "none"


def _message(error: dict[str, str]) -> str:
    """Returns the message of an error, preceded by its type if it is not an error of this package."""
    return error["message"] if hasattr(errors, error["kind"]) else f"{error['kind']}: {error['message']}"
