"""The page with its own worker and runtimes: answers of `kf.pipeline` on both engines, with and without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.web.site import build
from tests.foreign.cases import Case, cases, tiny
from tests.foreign.environments import need
from tests.web.sites import browser, served

pytestmark = pytest.mark.foreign("web")

TEXT = "A film about a boat, and a warm one."
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def chromium():
    need("chromium")
    with browser() as opened:
        yield opened


@cases(
    tiny("bert", "text-classification"),
    tiny("gpt2", "text-generation"),
    Case("sentiment-bert", "int8"),
    Case("story-gpt2", "int8"),
    Case("summarizer-t5", "int8"),
)
def test_both_engines_answer_as_the_pipeline(case, chromium, tmp_path):
    model = case.model()
    bundles = {format: case.export(tmp_path / format, model, format=format) for format in ("tflite", "onnx")}
    site = build([f"Model={each}" for each in bundles.values()], tmp_path / "site", runtime_files=need("web"))
    with served(site) as url:
        chromium.open(url)
        chromium.ready()
        for place, bundle in enumerate(bundles.values()):
            chromium("click", at=f"#engine-options .option:nth-child({place + 1})")
            chromium("until", script="document.getElementById('state').textContent.startsWith('Not loaded')")
            assert_same(answer_of(chromium), expected(case.task, bundle))
        chromium("until", script="document.getElementById('state').textContent.includes('works offline')")
    chromium("reload")  # the server is gone
    chromium.ready()
    chromium("click", at="#engine-options .option:first-child")
    assert_same(answer_of(chromium), expected(case.task, bundles["tflite"]))


def answer_of(page) -> str:
    """What the page answers to the text, greedily."""
    if page("visible", at="#settings"):
        page("run", script="document.getElementById('settings').open = true")
        page("click", at="#settings .option:first-child")
        page("fill", at="#set-max_new_tokens", text=str(NEW_TOKENS))
    page("fill", at="#field-text", text=TEXT)
    page("click", at="#run")
    page.answered()
    return str(page("run", script="document.querySelector('#result .text, #result .bars').innerText"))


def expected(task: str, bundle: Path) -> str:
    """The same of the pipeline, as the page shows it."""
    pipe = kf.pipeline(task, bundle)
    if task == "text-classification":
        return "\n".join(f"{each['label']}\n{100 * each['score']:.1f} %" for each in pipe(TEXT, top_k=None))
    (written,) = pipe(TEXT, max_new_tokens=NEW_TOKENS, do_sample=False)
    return next(iter(written.values()))


def assert_same(received: str, wanted: str) -> None:
    """Words are equal; a share may round to its other neighbour."""
    numbers = r"\d+\.\d(?= %)"
    assert re.sub(numbers, "#", received).strip() == re.sub(numbers, "#", wanted).strip()
    pairs = zip(re.findall(numbers, received), re.findall(numbers, wanted), strict=True)
    assert all(abs(float(one) - float(other)) < 0.11 for one, other in pairs)
