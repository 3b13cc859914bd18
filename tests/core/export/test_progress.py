"""Progress of an export: a bar on a terminal by default, a function, or none; also from a child process."""

from __future__ import annotations

import io
import re
import sys

import pytest

from kerasformer.bundle import recipes
from kerasformer.export import child_process as child
from kerasformer.export import progress_report as progress

pytestmark = pytest.mark.grid

STAGES = [
    ("answer with Keras", 0, 0),
    ("trace and convert", 0, 0),
    (progress.WRITE_WEIGHTS, 4_000_000, 16_000_000),
    (progress.WRITE_WEIGHTS, 16_000_000, 16_000_000),
    ("verify", 0, 0),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(given, stream, monkeypatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_reporter(given) as report:
        for stage in STAGES[:4]:
            report(*stage)
    return re.sub("\\x1b\\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


@pytest.mark.parametrize("given", [None, True])
def test_a_bar_on_a_terminal(given, monkeypatch):
    text = shown(given, Terminal(), monkeypatch)
    assert "write weights" in text and "80%" in text and "16.0 of 16.0 MB" in text


def test_no_bar_without_a_terminal_or_with_false(monkeypatch):
    assert shown(None, io.StringIO(), monkeypatch) == shown(False, Terminal(), monkeypatch) == ""


def test_lines_without_a_terminal_if_they_are_asked_for(monkeypatch):
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress_reporter(True) as report:
        for now[0], stage in zip((5.0, 20.0, 40.0, 45.0), STAGES, strict=False):
            report(*stage)
        now[0] = 50.0
    assert stream.getvalue().splitlines() == [
        "load: 5.0 s; next: answer with Keras, about 95 s left",
        "answer with Keras: 15.0 s; next: trace and convert, about 30 s left",
        "trace and convert: 20.0 s; next: write weights, about 15 s left",
        "write weights: 10.0 s; 50.0 s in all",
    ]


def test_the_share_grows_to_the_end():
    share = progress.Share()
    values = [share.after(*stage) for stage in [*STAGES, ("write weights", 1, 8), ("a stage of others", 1, 2)]]
    assert values == sorted(values) and 0 < values[0] and values[-1] < 1


def test_a_child_reports_its_stages():
    stages = []
    program = (
        "import sys; from kerasformer.export.progress_report import write_line; print('a table'); print('[1]');"
        f"[write_line(*each) for each in {STAGES!r}]; print('why', file=sys.stderr); sys.exit(3)"
    )
    status, log = child._run([sys.executable, "-c", program], {**child.os.environ}, lambda *stage: stages.append(stage))
    assert (status, stages) == (3, STAGES) and "why" in log


def test_a_function_that_fails_ends_the_child():
    def stop(*stage):
        raise KeyboardInterrupt

    program = "import json, time; print(json.dumps({'stage': 'a', 'done': 0, 'total': 0}), flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        child._run([sys.executable, "-c", program], {**child.os.environ}, stop)


def test_the_default_recipe_is_logged():
    line = recipes.recipe_line(recipes.RECIPES["none"].to_dict(), default=True)
    assert line.startswith("Recipe none (the default; int8 takes about a quarter of the size): matrices as float32.")
    assert "the default" not in recipes.recipe_line(recipes.RECIPES["int8"].to_dict())
