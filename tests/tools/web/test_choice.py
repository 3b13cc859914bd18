"""The page checks and measures the engines of a model before its first use, in Chromium."""

from __future__ import annotations

import json

import pytest

from kerasformer.tools.web.site import build, check_site
from tests.foreign.cases import embedder, tiny
from tests.foreign.environments import need
from tests.tools.web.sites import SPY, Browser, served, write_bundle, write_runtimes, write_site

pytestmark = pytest.mark.foreign("web")

LOADED = (
    "posted.filter(({type}) => type === 'load').map(({base}) => base.split('/').at(-2))"
    ".filter((each, index, all) => each !== all[index - 1])"
)
"""The opened bundles; one that was opened with several numbers of threads occurs once."""
STATES = """
globalThis.states = [];
addEventListener("DOMContentLoaded", () => {
  const state = document.getElementById("state");
  new MutationObserver(() => states.push(state.textContent)).observe(state, { childList: true });
});
"""
AGREES = "agrees with 2 reference answers"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A site whose models have two engines; the mock of the worker reads their names."""
    root = tmp_path_factory.mktemp("choices")
    bundles = []
    for name in ("reviews", "wrong", "broken"):
        bundles += [f"{name}={write_bundle(root / f'{name}-{kind}', format=kind)}" for kind in ("tflite", "onnx")]
    with served(write_site(root / "site", *bundles)) as address:
        yield address


def shown(page: Browser) -> list[str]:
    """Returns the sentence about the choice, and the line of each engine."""
    lines = "[...document.querySelectorAll('#choice p, #choice li')].map((each) => each.textContent)"
    return page("run", script=lines)


def example(page: Browser, model: str | None = None) -> list[str]:
    """Waits for the answer to the first example, which the page gives when it opens."""
    if model:
        page("choose", at="#model", label=model)
        page("click", at="#examples button")
    page.answered()
    return shown(page)


def test_the_fastest_engine_is_chosen_and_kept(chromium, url):
    unmetered = "Object.defineProperty(Navigator.prototype, 'connection', {get: () => ({type: 'wifi'})})"
    chromium.open(url, 1280, 844, scripts=[SPY, STATES, unmetered])
    chromium.ready()
    expected = [
        "ONNX Runtime int8 was chosen: it is the fastest of the engines with the right answers in this browser.",
        f"LiteRT.js int8: 200 ms; {AGREES}",
        f"ONNX Runtime int8: 4.10 ms; {AGREES}",
    ]
    assert example(chromium) == expected
    assert chromium("run", script=LOADED) == ["litert-int8", "onnx-int8"]
    states = chromium("run", script="states")
    assert "Trying engine 1 of 2: preparing the model" in states
    assert not [state for state in states if state.startswith(("download", "compile"))], states
    assert chromium("axe") == []
    assert not chromium("run", script="document.documentElement.scrollWidth > document.documentElement.clientWidth")
    chromium("reload")
    chromium.ready()
    assert example(chromium) == expected
    assert chromium("run", script=LOADED) == ["onnx-int8"]
    chromium("click", at="#measure")
    chromium(
        "until", script=f"{LOADED}.includes('litert-int8') && document.getElementById('run').textContent === 'Run'"
    )
    assert shown(chromium) == expected


def test_large_downloads_are_not_compared(chromium, url):
    """The page then prefers LiteRT.js, which is usually faster, unless ONNX Runtime needs a much smaller download."""
    plan = """(litert, onnx, metered) => import("./choice.js").then(({ plan }) => {
      const bytes = { onnx: 1e6 * onnx, litert: 1e6 * litert };
      const sizes = Object.keys(bytes).map((engine) => ({ engine: { engine }, bytes: bytes[engine] }));
      return plan(sizes, { metered }).tried.map(({ engine }) => engine);
    })"""
    cases = {
        "140, 120, false": ["litert"],
        "200, 120, false": ["onnx"],
        "0, 140, false": ["litert"],
        "20, 30, false": ["litert", "onnx"],
        "30, 25, true": ["litert"],
    }
    chromium.open(url)
    assert {sizes: chromium("run", script=f"({plan})({sizes})") for sizes in cases} == cases


def test_a_manual_choice_is_kept(chromium, url):
    chromium.open(url, 1280, scripts=[SPY])
    chromium.ready()
    example(chromium)
    chromium("click", at="#engine-options .option:nth-child(2)")
    chromium("reload")
    chromium.ready()
    assert example(chromium)[0] == "LiteRT.js int8 was selected by hand or by a link."
    assert chromium("run", script=LOADED) == ["litert-int8"]
    chromium("click", at="#engine-options .option:first-child")
    chromium("until", script="document.getElementById('choice-reason').textContent.includes('it is the fastest')")
    assert chromium("run", script=LOADED) == ["litert-int8"]


def test_a_click_while_the_model_changes_is_answered(chromium, url):
    chromium.open(url, 1280)
    chromium.ready()
    change = """(index) => {
      document.getElementById("model").value = index;
      document.getElementById("model").dispatchEvent(new Event("change", { bubbles: true }));
      document.querySelector("#examples button").click();
    }"""
    for index in ("1", "0"):  # the first engine is being compared, and then an engine is open
        chromium("run", script=f"({change})('{index}')")
        chromium.answered()


def test_an_engine_with_wrong_answers_is_discarded(chromium, url):
    chromium.open(url, 1280, scripts=[SPY])
    chromium.ready()
    difference = "scores differ by up to 40.0 %, where 10.0 % are allowed"
    assert example(chromium, "wrong") == [
        "ONNX Runtime int8 was chosen: it is the only one with the right answers in this browser.",
        f"LiteRT.js int8: discarded, because it answers differently from the original model: {difference}",
        f"ONNX Runtime int8: 4.10 ms; {AGREES}",
    ]
    chromium("click", at="#engine-options .option:nth-child(2)")  # the user may still choose it
    example(chromium, "wrong")
    assert "its answers are not those of the original model" in chromium("text", at="#state")
    chromium("choose", at="#model", label="broken")
    chromium("click", at="#examples button")
    assert "In this browser, the model answers differently" in chromium.problem() and difference in chromium.problem()
    assert "The answer appears here" in chromium("text", at="#result")


@pytest.mark.parametrize("saver", [False, True])
def test_data_saving_and_engines_that_fail(chromium, tmp_path, saver):
    bundles = [f"reviews={write_bundle(tmp_path / kind, format=kind)}" for kind in ("tflite", "onnx")]
    site = write_site(tmp_path / "site", *bundles)
    if not saver:
        (site / "models/reviews/litert-int8/model.tflite").write_bytes(b"damaged")
    connection = (
        f"Object.defineProperty(Navigator.prototype, 'connection', {{get: () => ({{saveData: {str(saver).lower()}}})}})"
    )
    with served(site, plain=True) as url:
        chromium.open(url, 1280, scripts=[SPY, connection])
        chromium("until", script="globalThis.crossOriginIsolated")
        chromium.ready()
        chromium("click", at="#examples button")
        chromium.answered()
        lines = shown(chromium)
        if saver:
            reason = "it needs a small download, and others were not compared with it."
            assert lines[0] == f"LiteRT.js int8 was chosen: {reason}"
            assert lines[2] == "ONNX Runtime int8: not tried, to save a download of 0.1 MB"
            chromium("click", at="#measure")
            chromium(
                "until",
                script=f"{LOADED}.includes('onnx-int8') && document.getElementById('run').textContent === 'Run'",
            )
            assert "it is the fastest" in shown(chromium)[0]
        else:
            assert lines[0] == "ONNX Runtime int8 was chosen: it is the only one that works in this browser."
            assert lines[1].startswith("LiteRT.js int8: could not be used: the bundle was changed after its export")


def test_references_of_given_texts_are_copied_on_request_only(tmp_path):
    runtimes = write_runtimes(tmp_path / "runtimes")
    given = write_bundle(tmp_path / "given", given_texts=True)
    for permitted in (False, True):
        site = build([given], tmp_path / f"site-{permitted}", runtime_files=runtimes, given_texts=permitted)
        [engine] = check_site(site)["models"][0]["engines"]
        assert (engine["references"] is not None) == permitted == any(site.rglob("references*"))
    references = json.loads((site / engine["references"]).read_text())
    assert references["texts"][0] == {
        "ids": [1, 2],
        "segments": [0, 0],
        "asked": [0, 1],
        "outputs": {"logits": {"values": [[0.25, -0.5]], "indices": [[1, 0]], "per_token": False}},
    }
    assert {key: references[key] for key in ("distribution", "scale", "tolerance")} == {
        "distribution": "softmax",
        "scale": 2.0,
        "tolerance": 0.1,
    }


DAMAGED = """
async (base, path) => {
  const { openBundle } = await import("./library/index.js");
  const bundle = await openBundle(base);
  const references = await (await fetch(path)).json();
  const verdicts = [await bundle.check(references)];
  const other = ({ values, mean, ...rest }) => (mean
    ? { mean: mean.map((value, index) => (index % 2 ? value : -value)) }
    : { ...rest, values: values.map((row) => row.map((value) => value + 0.5 * references.scale)) });
  for (const { outputs } of references.texts) for (const name in outputs) outputs[name] = other(outputs[name]);
  verdicts.push(await bundle.check(references));
  bundle.close();
  return verdicts;
}
"""


CHECKED = [
    tiny("bert", "text-classification"),
    tiny("gpt2", "text-generation"),
    tiny("t5", "text2text-generation"),
    embedder("bert"),
]
METERED = "Object.defineProperty(Navigator.prototype, 'connection', {get: () => ({saveData: true})})"


@pytest.mark.grid
def test_real_engines_are_checked(chromium, tmp_path):
    """Both engines agree with the references that their bundles contain, and disagree with changed ones."""
    bundles = [f"{case.task}={case.shared(format)}" for case in CHECKED for format in ("tflite", "onnx")]
    site = build(bundles, tmp_path / "site", runtime_files=need("web"))
    engines = [engine for entry in check_site(site)["models"] for engine in entry["engines"]]
    assert len(engines) == len(bundles)
    with served(site) as url:
        chromium.open(url, 1280, scripts=[METERED])
        for engine in engines:
            right, changed = chromium("run", script=f"({DAMAGED})('{engine['base']}', '{engine['references']}')")
            assert right["agrees"] and right["same"] == right["decided"], right
            assert right["decided"] > 0 and right["error"] < 1e-4
            assert not changed["agrees"], changed
