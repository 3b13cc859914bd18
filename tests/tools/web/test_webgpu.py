"""Bundles for a GPU run with WebGPU in Chromium, on its driver in software, and give the answers of the CPU."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kerasformer.tools.web.site import build, check_site
from tests.foreign.cases import Case, cases, tiny
from tests.foreign.environments import need
from tests.tools.web.sites import Browser, browser, served, served_folder
from tests.tools.web.test_library import run
from tests.tools.web.test_page_engines import answer_of, assert_same, expected

pytestmark = pytest.mark.foreign("web")

TEXT = "A film about a boat, and a warm one."
KEYS = ("label", "score")
# A decoder with a sliding window, whose slots are constant integers.
MODELS = (tiny("bert", "text-classification"), tiny("gemma3_text", "text-generation"))


@pytest.fixture(scope="module")
def gpu_browser() -> Iterator[Browser]:
    need("chromium")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERASFORMER_BROWSER", "webgpu")
            opened = stack.enter_context(browser())
        yield opened


def exported(case: Case, folder: Path) -> Path:
    lengths = {"capacity": 64} if case.task == "text-generation" else {"lengths": (32,)}
    return case.export(folder, format="tflite", accelerator="gpu", **lengths)


@cases(*MODELS)
def test_the_library_answers_on_webgpu_as_on_the_cpu(case, gpu_browser, site, tmp_path):
    name = f"gpu-{case.task}"
    shutil.copytree(exported(case, tmp_path / "gpu"), site / "models" / name)
    settings = {"max_new_tokens": 12, "do_sample": False} if case.task == "text-generation" else {"top_k": 3}
    with served_folder(site) as url:
        gpu_browser.open(url)
        calls = [(text, settings) for text in (TEXT, "Why?")]
        on_cpu, on_gpu = (run(gpu_browser, name, calls, accelerator=each) for each in ("cpu", "webgpu"))
    for one, other in zip(on_cpu, on_gpu, strict=True):
        if case.task == "text-generation":
            assert one["result"] == other["result"]
        else:
            labels, scores = ([[each[key] for each in answer["result"]] for answer in (one, other)] for key in KEYS)
            assert labels[0] == labels[1] and scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_webgpu_is_refused_without_a_gpu_and_for_a_bundle_of_the_cpu(page, gpu_browser, site, tmp_path):
    """Also for ONNX Runtime Web, which has no such option here."""
    case = MODELS[0]
    bundles = {"gpu": exported(case, tmp_path / "gpu"), "cpu": case.shared("tflite"), "onnx": case.shared("onnx")}
    for name, folder in bundles.items():
        shutil.copytree(folder, site / "models" / f"refused-{name}")
    opened = """async (base) => {
      const { openBundle } = await import("/library/index.js");
      return openBundle(base, { accelerator: "webgpu" }).then(() => 0, String);
    }"""
    message = page.call(opened, "/models/refused-gpu/")
    assert re.match('RuntimeError: accelerator: "webgpu" needs a browser with WebGPU.*Use "cpu"', message)
    with served_folder(site) as url:
        gpu_browser.open(url)
        message = gpu_browser.call(opened, "/models/refused-cpu/")
        assert re.match(
            "BundleError: a model that was exported for a GPU was expected.*Received: .* in forward_", message
        )
        message = gpu_browser.call(opened, "/models/refused-onnx/")
        assert re.match('InputError: accelerator must be "cpu", or "webgpu" for LiteRT.js.*for onnx', message)


@cases(*MODELS)
def test_the_page_tries_the_gpu_and_says_so(case, gpu_browser, tmp_path):
    bundle = exported(case, tmp_path / "gpu")
    site = build([f"Model={bundle}"], tmp_path / "site", runtime_files=need("web"))
    (model,) = check_site(site)["models"]
    assert model["engines"][0]["gpu"]
    with served(site) as url:
        gpu_browser.open(url)
        gpu_browser.ready()
        assert_same(answer_of(gpu_browser, TEXT), expected(model["task"], bundle, TEXT))
        row = str(gpu_browser("text", at="#choice-rows"))
    # In software, either may be faster; it was opened, and its answers are those of the original model.
    assert re.search(r"on the GPU( slower|; agrees)", row), row
