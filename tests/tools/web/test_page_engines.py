"""The page with the real worker and runtimes gives the answers of `kf.pipeline` on both engines, also offline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.tools.web.site import build, check_site
from tests.core.export.text_models import SpanRow
from tests.foreign.cases import Case, cases, tiny
from tests.foreign.environments import need
from tests.tools.web.sites import served

pytestmark = pytest.mark.foreign("web")

TYPES = "city, person"
TEXT = "A film about a boat, and a warm one."
LONG = " ".join([TEXT, "Loud, chaotic and largely unfunny."] * 60)
NEW_TOKENS = 12
SAMPLING = {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "seed": 3}


@cases(
    tiny("bert", "text-classification"),
    tiny("gpt2", "text-generation"),
    Case(SpanRow()),
    by_task=True,
)
def test_both_engines_answer_as_the_pipeline(case, chromium, tmp_path):
    bundles = {format: case.shared(format) for format in ("tflite", "onnx")}
    site = build([f"Model={each}" for each in bundles.values()], tmp_path / "site", runtime_files=need("web"))
    task = check_site(site)["models"][0]["task"]
    with served(site) as url:
        chromium.open(url)
        chromium.ready()
        for index, bundle in enumerate(bundles.values()):
            chromium("click", at=f"#engine-options .option:nth-child({index + 2})")
            chromium("until", script="document.getElementById('state').textContent.startsWith('Not loaded')")
            assert_same(answer_of(chromium), expected(task, bundle))
            lines = chromium("text", at="#choice-rows").split("\n")
            assert re.search("agrees with [1-9][0-9]* reference answers", lines[index]), lines
            if case.task == "text-classification":
                assert_same(answer_of(chromium, LONG), expected(task, bundle, LONG))
                note = str(chromium("run", script="document.querySelector('#result .small').innerText"))
                assert re.fullmatch("The text is longer .* It was read in [2-9][0-9]* overlapping parts.", note), note
            if case.task == "text-generation":
                assert_same(answer_of(chromium, sampled=True), expected(task, bundle, do_sample=True, **SAMPLING))
        chromium("until", script="document.getElementById('state').textContent.includes('works offline')")
    chromium("reload")  # the server has stopped
    chromium.ready()
    chromium("click", at="#engine-options .option:nth-child(2)")
    assert_same(answer_of(chromium), expected(task, bundles["tflite"]))


def answer_of(page, text: str = TEXT, sampled: bool = False) -> str:
    """The page's answer to a text, with greedy search or sampling."""
    if page("visible", at="#settings"):
        page("run", script="document.getElementById('settings').open = true")
        page("click", at=f"#settings .option:{'last' if sampled else 'first'}-child")
        page("fill", at="#set-max_new_tokens", text=str(NEW_TOKENS))
        for name, value in SAMPLING.items() if sampled else ():
            page("fill", at=f"#set-{name}", text=str(value))
    page("fill", at="#field-text", text=text)
    shown = "#result .text, #result .bars"
    if page("visible", at="#field-labels"):
        page("fill", at="#field-labels", text=TYPES)
        shown = "#result .bars"
    page("click", at="#run")
    page.answered()
    return str(page("run", script=f"document.querySelector('{shown}').innerText"))


def expected(task: str, bundle: Path, text: str = TEXT, do_sample: bool = False, **settings: float) -> str:
    """The pipeline's answer, in the form that the page shows."""
    pipe = kf.pipeline(bundle, task)  # that of the page, because the page uses the prefix of that task
    if task == ZERO_SHOT_TOKENS:
        found = pipe(text, TYPES)
        return "\n".join(f"{each['word']} – {each['entity_group']}\n{100 * each['score']:.1f} %" for each in found)
    if task == "text-classification":
        return "\n".join(f"{each['label']}\n{100 * each['score']:.1f} %" for each in pipe(text, top_k=None))
    (written,) = pipe(text, max_new_tokens=NEW_TOKENS, do_sample=do_sample, num_beams=1, **settings)
    return next(iter(written.values()))


def assert_same(received: str, expected: str) -> None:
    """Checks that words are equal; percentages may differ by rounding."""
    numbers = r"\d+\.\d(?= %)"
    assert re.sub(numbers, "#", received).strip() == re.sub(numbers, "#", expected).strip()
    pairs = zip(re.findall(numbers, received), re.findall(numbers, expected), strict=True)
    assert all(abs(float(one) - float(other)) < 0.11 for one, other in pairs)
