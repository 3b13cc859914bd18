"""The page about tools: each of its programs runs, with the real package, and finds what it should."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from tests import shared
from tests.code_blocks import blocks
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
CAT = "A cat sleeps on the sofa."
CHECKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "kerasformer.tools.integrations.transformers_exporters": lambda names: (
        names["exported"].program.fidelity["agreement"] > 0.95 and names["exported"](**names["inputs"]).logits[0, 1] > 1
    ),
    "kerasformer.tools.integrations.lm_eval": lambda names: (
        -100 < names["loglikelihood"] < 0 and names["results"]["model"] is names["lm"]
    ),
    "kerasformer.tools.integrations.mteb": lambda names: (
        names["results"][0] is names["encoder"] and len(names["results"][1]) == 2
    ),
    "sentence_transformers": lambda names: names["scores"].argmax() == 1,
    "sentence_transformers.sentence_transformer.evaluation": lambda names: (
        names["figures"]["spearman_cosine"] == pytest.approx(1)
    ),
    "kerasformer.tools.integrations.langchain": lambda names: (
        names["found"].page_content == CAT and names["story"] and "." not in names["story"] and names["answer"].content
    ),
    "kerasformer.tools.integrations.llama_index": lambda names: names["node"].text == CAT,
    "kerasformer.tools.integrations.haystack": lambda names: names["best"].content == CAT,
    "keybert": lambda names: len(names["keywords"]) == 2,
    "txtai": lambda names: names["best"]["text"] == CAT,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of the programs, with the bundles that they name."""
    need("lm_eval")
    need("mteb")
    folder = tmp_path_factory.mktemp("tools")
    for name, preset in (("embedder", "embedder-bert"), ("stories", "story-gpt2")):
        made = shared.once(f"tools-{name}", lambda out, preset=preset: kf.export.export(preset, out, "tflite"))
        (folder / name).symlink_to(made)
    kf.load("sentiment-bert").save_pretrained(folder / "reviews")
    (folder / "chat").symlink_to(shared_chat("tflite"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
        # The tasks would be downloaded.
        patch.setattr("lm_eval.simple_evaluate", lambda **arguments: arguments)
        patch.setattr("mteb.evaluate", lambda *arguments: arguments)
        yield folder


@pytest.mark.grid
@pytest.mark.parametrize("tool", CHECKS)
def test_the_program_of_a_tool(folder: Path, tool: str) -> None:
    name = tool.removeprefix("kerasformer.tools.integrations.").split(".")[0]
    need({"langchain": "langchain_core", "transformers_exporters": "transformers"}.get(name, name))
    [program] = [block for block in blocks(PAGE, "python") if re.search(rf"^from {tool} import", block, re.MULTILINE)]
    names: dict[str, Any] = {}
    exec(compile(program, f"{PAGE.name}: {tool}", "exec"), names)
    assert CHECKS[tool](names)


def test_every_program_is_run() -> None:
    assert len(blocks(PAGE, "python")) == len(CHECKS)
