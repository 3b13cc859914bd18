"""What a run of the tests prints beside pytest's own lines: failures at once, and where the time went."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest

SECONDS = "KERASFORMER_TEST_SECONDS"
"""The environment variable with the seconds after which a run stops with a summary of what it has done."""


class Reporting:
    """Names a test when it fails, stops a run that takes too long, and adds up seconds by folder.

    A run that is stopped from outside has no summary.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self.end = time.monotonic() + float(os.environ.get(SECONDS, "inf"))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a phase of a test; in the process that starts the workers."""
        row = self.seconds["/".join(PurePath(report.nodeid.partition("::")[0]).parent.parts[:3])]
        row[0] += report.when == "call"
        row[1] += report.duration
        row[2] += getattr(report, "processor_seconds", 0.0)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f" {report.nodeid}", red=True)
        if time.monotonic() > self.end:
            session = self.config.pluginmanager.get_plugin("dsession") or self.config.pluginmanager.get_plugin(
                "session"
            )
            session.shouldstop = f"stopped after {os.environ[SECONDS]} seconds ({SECONDS})"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the table, where durations are asked for."""
        if not self.config.getoption("durations"):
            return
        terminalreporter.section("seconds by folder")
        terminalreporter.write_line(f"{'tests':>6} {'seconds':>9} {'processor':>9}  folder")
        for folder, (count, seconds, processor) in sorted(self.seconds.items(), key=lambda row: -row[1][1]):
            terminalreporter.write_line(f"{count:6.0f} {seconds:9.1f} {processor:9.1f}  {folder}")


class ProcessorTime:
    """Adds to each report the processor seconds since the one before, in the process that runs the tests."""

    def __init__(self) -> None:
        self.last = time.process_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Called for each phase of a test."""
        report = yield
        now = time.process_time()
        report.processor_seconds, self.last = now - self.last, now
        return report
