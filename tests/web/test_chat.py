"""Conversations in Chromium: texts and tokens of chat templates, and answers, are those of the Python package."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.errors import KerasformerError
from kerasformer.tokenization import load_tokenizer
from kerasformer.web.site import build
from kerasformer.web.vendor import vendor
from tests.chat_templates.chat_model import save_model, save_tokenizer
from tests.chat_templates.conversations import CASES, TEMPLATES
from tests.foreign.environments import need
from tests.web.pages import Page, chromium, served
from tests.web.sites import browser
from tests.web.sites import served as served_site
from tests.web.test_library import PAGE

pytestmark = pytest.mark.foreign("web")

FOLDER = os.environ.get("KERASFORMER_CHAT_TEMPLATES")
_PUBLISHED = {path.stem: path.read_text("utf-8") for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is it?"}]

LACKING = ".format("
"""Method that the JavaScript library lacks."""

RENDER = """async (content, settings, template, cases) => {
  const { Tokenizer } = await import("/library/tokenization/tokenizer.js");
  const { ChatTemplate } = await import("/library/tokenization/chat_template.js");
  const tokenizer = new Tokenizer(await import("/vendor/tokenizers/tokenizers.min.mjs"), content, settings);
  const jinja = await import("/vendor/jinja/index.js");
  return cases.map(([messages, options]) => {
    try {
      const text = new ChatTemplate(jinja, template, tokenizer).render(messages, options);
      return { text, ids: new ChatTemplate(jinja, template, tokenizer).encode(text) };
    } catch ({ name, message }) {
      return { name, message };
    }
  });
}"""
RUN = """async (base, calls) => {
  const { openBundle } = await import("/library/index.js");
  const bundle = await openBundle(base, { task: "conversation" });
  const answers = [];
  for (const [inputs, settings] of calls) {
    const pieces = [];
    const { result } = await bundle.run(inputs, settings, { onToken: (piece) => pieces.push(piece) });
    answers.push({ result, streamed: pieces.join("") });
  }
  bundle.close();
  return answers;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("chromium")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PAGE / "library", folder / "library")
    vendor(folder / "vendor", ["litert", "onnx"], need("web").parent)
    (folder / "index.html").write_text("<!doctype html><title>library</title>")
    return folder


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Page]:
    with chromium() as opened, served(site) as url:
        opened.open(url)
        yield opened


@pytest.mark.parametrize("name", [*TEMPLATES, *_PUBLISHED])
def test_templates(name: str, page: Page, tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    ours, template = load_tokenizer(tmp_path), {**TEMPLATES, **_PUBLISHED}[name]
    ours.save(tmp_path)
    content, settings = (
        json.loads((tmp_path / file).read_text()) for file in ("tokenizer.json", "tokenizer_config.json")
    )
    cases = [case for case in CASES.values() if "continue_final_message" not in case[1]]
    answers = page.call(RENDER, content, settings, template, cases)
    for (messages, options), received in zip(cases, answers, strict=True):
        try:
            text = ours.apply_chat_template(messages, chat_template=template, tokenize=False, **options)
        except KerasformerError:
            assert "name" in received
            continue
        if "name" in received and (name in _PUBLISHED or LACKING in template):
            continue  # refused, not rendered differently
        assert received == {"text": text, "ids": ours.encode(text, add_special_tokens=False)}


@pytest.mark.parametrize("engine", ["tflite", "onnx"])
def test_answers(engine: str, page: Page, site: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    model = kf.zoo.load(tmp_path / "model")
    kf.export.export(model, site / "models" / engine, engine, capacity=128)
    pipe = kf.pipeline(None, site / "models" / engine)
    settings = {"max_new_tokens": 12, "do_sample": False}
    first = pipe(MESSAGES, **settings)[0]["generated_text"]
    second = [*first, {"role": "user", "content": "Is it late?"}]
    answer = pipe(second, **settings)[0]["generated_text"]
    received = page.call(RUN, f"/models/{engine}/", [[MESSAGES, settings], [second, settings]])
    for messages, whole in zip((MESSAGES, second), (first, answer), strict=True):
        each = received.pop(0)
        assert each == {"result": [{"generated_text": whole}], "streamed": whole[-1]["content"]}, messages


def test_the_page_keeps_the_conversation(tmp_path: Path) -> None:
    need("chromium")
    save_model(tmp_path / "model")
    bundle = kf.export.export(kf.zoo.load(tmp_path / "model"), tmp_path / "out", "tflite", capacity=128)
    site = build([f"Chat={bundle}"], tmp_path / "site", runtime_files=need("web"))
    pipe, greedy = kf.pipeline(None, bundle), {"max_new_tokens": 12, "do_sample": False}
    messages = [{"role": "system", "content": "Be brief."}]
    shown = "[...document.querySelectorAll('#result .turn')].map((each) => each.lastChild.textContent)"
    with browser() as page, served_site(site) as url:
        page.open(url)
        page.ready()
        page("fill", at="#field-system", text="Be brief.")
        page("run", script="document.getElementById('settings').open = true")
        page("fill", at="#set-max_new_tokens", text="12")
        for text in ("Who is it?", "Is it late?"):
            page("fill", at="#field-text", text=text)
            page("click", at="#run")
            page.answered()
            messages = pipe([*messages, {"role": "user", "content": text}], **greedy)[0]["generated_text"]
            assert page("run", script=shown) == [message["content"] for message in messages[1:]]
            assert page("run", script="document.getElementById('field-text').value") == ""
        page("click", at="#fresh")
        page("fill", at="#field-text", text="Who is it?")
        page("click", at="#run")
        page.answered()
        assert len(page("run", script=shown)) == 2
