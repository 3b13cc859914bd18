"""Conversations in Chromium: texts and tokens of chat templates, and answers, are those of the Python package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.errors import KerasformerError
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.web.site import build
from tests.core.tokenization.chat_templates.chat_model import save_model, save_tokenizer
from tests.core.tokenization.chat_templates.conversations import CASES, TEMPLATES
from tests.core.tokenization.chat_templates.test_limits import DOUBLED
from tests.foreign.environments import need
from tests.tools.web.sites import Browser, browser, served

pytestmark = pytest.mark.foreign("web")

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
  const read = bundle.engine.read;
  let positions;
  bundle.engine.read = (...args) => {
    const [tokens, state] = args.filter((each) => typeof each === "object");
    positions.push(...tokens.map((_, index) => (state.position ?? state.length) + index));
    return read.apply(bundle.engine, args);
  };
  const answers = [];
  for (const [inputs, settings] of calls) {
    const pieces = [];
    positions = [];
    const { result, figures } = await bundle.run(inputs, settings, { onToken: (piece) => pieces.push(piece) });
    answers.push({ result, streamed: pieces.join(""), reused: figures.reused_tokens, positions });
  }
  bundle.close();
  return answers;
}"""
"""Also returns the positions of all tokens that the engine reads."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name: str, page: Browser, tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    ours, template = Tokenizer.load(tmp_path), TEMPLATES[name]
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
        if "name" in received and LACKING in template:
            continue  # refused, not rendered differently
        assert received == {"text": text, "ids": ours.encode(text, add_special_tokens=False)}


LIMITS = {
    "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}": "2 seconds",
    "{% macro f(n) %}{{ f(n - 1) }}{% endmacro %}{{ f(30) }}": "failed",
    "{% for i in range(10 ** 12) %}a{% endfor %}": "100,000 items",
    "{% for i in range(99999) %}" + "a" * 40 + "{% endfor %}": "2,000,000 characters",
    DOUBLED + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}": "2,000,000 characters",
    DOUBLED + "{% set ns.l = ns.l + ns.l %}{% endfor %}": "2,000,000 characters",
    DOUBLED + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}": "2,000,000 characters",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}": "2,000,000 characters",
    "{% set a %}{% for i in range(9999) %}"
    + "a" * 80
    + "{% endfor %}{% endset %}{{ a.replace('a', a) }}": "string length",
    "{{ messages[0].unknown | tojson }}": "undefined value",
}


def test_limits(page: Browser, tmp_path: Path) -> None:
    """Templates that compute without end or fill the memory are refused."""
    save_tokenizer(tmp_path)
    Tokenizer.load(tmp_path).save(tmp_path)
    files = [json.loads((tmp_path / file).read_text()) for file in ("tokenizer.json", "tokenizer_config.json")]
    for template, message in LIMITS.items():
        (received,) = page.call(RENDER, *files, template, [[MESSAGES, {}]])
        assert received.get("name") == "InputError" and message in received["message"], (template, received)


@pytest.mark.parametrize("engine", ["tflite", "onnx", pytest.param("window", marks=pytest.mark.release)])
def test_turns(engine: str, page: Browser, site: Path, tmp_path: Path) -> None:
    """Each reads only the tokens that differ from those of the last one, with the answers of a new conversation."""
    save_model(tmp_path / "model", window=8 if engine == "window" else None)
    model = kf.zoo.load(tmp_path / "model")
    chatml = TEMPLATES["chatml"]
    model.tokenizer.chat_template = {"default": chatml, "tool_use": "{{ tools | tojson }}" + chatml}
    bundle = site / "models" / engine
    # The caches of a window have fewer slots than a conversation has tokens.
    kf.export.export(model, bundle, "tflite" if engine == "window" else engine, capacity=128)
    pipe, greedy = kf.pipeline(bundle), {"max_new_tokens": 12, "do_sample": False}
    second = [*pipe(MESSAGES, **greedy)[0]["generated_text"], {"role": "user", "content": "Is it late?"}]
    changed = [MESSAGES[0], {"role": "user", "content": "Who was it?"}]
    calls = [
        (MESSAGES, greedy),
        (second, greedy),
        (changed, greedy),
        (second, {**greedy, "num_beams": 2}),
        (second, greedy),
        (MESSAGES, {**greedy, "tools": [{"name": "look"}]}),
    ]
    pipe.conversation_cache = kf.generation.PrefixCache(max_bytes=0)  # the page keeps the last text only
    received = page.call(RUN, f"/models/{engine}/", calls)
    for (messages, settings), each in zip(calls, received, strict=True):
        answer = pipe(messages, **settings)[0]["generated_text"]
        assert each["result"] == [{"generated_text": answer}] and each["streamed"] == answer[-1]["content"]
        assert each["reused"] == pipe.conversation_cache.reused
        if each["reused"]:
            (alone,) = page.call(RUN, f"/models/{engine}/", [(messages, settings)])
            assert (alone["result"], alone["reused"]) == (each["result"], 0)
        length = pipe.conversation_cache.reused + pipe.conversation_cache.read + 1
        assert {position for position in each["positions"] if position < length} == set(range(each["reused"], length))
    reused = [each["reused"] for each in received]
    assert reused[1] > len(MESSAGES) and (reused[2] == 0) == (engine == "window")


def test_the_page_keeps_the_conversation(tmp_path: Path) -> None:
    need("chromium")
    save_model(tmp_path / "model")
    bundle = kf.export.export(kf.zoo.load(tmp_path / "model"), tmp_path / "out", "tflite", capacity=128)
    site = build([f"Chat={bundle}"], tmp_path / "site", runtime_files=need("web"))
    pipe, greedy = kf.pipeline(bundle), {"max_new_tokens": 12, "do_sample": False}
    messages = [{"role": "system", "content": "Be brief."}]
    shown = "[...document.querySelectorAll('#result .turn')].map((each) => each.lastChild.textContent)"
    with browser() as page, served(site) as url:
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
        long = "late " * 400  # fails, and comes back to its field
        page("fill", at="#field-text", text=long)
        page("click", at="#run")
        assert "too long" in page.problem()
        assert page("run", script="document.getElementById('field-text').value") == long
        assert page("run", script=shown) == [message["content"] for message in messages[1:]]
        page("click", at="#fresh")
        page("fill", at="#field-text", text="Who is it?")
        page("click", at="#run")
        page.answered()
        assert len(page("run", script=shown)) == 2
