"""The page that explains a model: its numbers are those of the model and its bundles, and it opens from a file."""

from __future__ import annotations

import base64
import copy
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer.engines.distribution import softmax
from kerasformer.errors import CapacityError, ExportError, InputError, TokenizerError
from kerasformer.files.reading import JsonObject
from kerasformer.generation import GenerationConfig
from kerasformer.generation.samplers import sampling_of
from kerasformer.tools.interpretability.explainer import page as pages
from kerasformer.tools.interpretability.explainer import record, recording, write_site
from kerasformer.tools.interpretability.explainer.answers import Continued
from kerasformer.tools.interpretability.explainer.packing import packed_ids, script_json
from kerasformer.tools.interpretability.explainer.precision import opened_bundle
from tests.core.cli.test_cli import main as run_command
from tests.core.export.text_models import shared_bundle, shared_model
from tests.tools.interpretability.bundles import attention_bundle
from tests.tools.web.sites import Browser

DECODER, CLASSIFIER, WRITER = "gpt2-text-generation", "bert-text-classification", "t5-text2text-generation"
HOSTILE = "</script><img src=x onerror=alert(1)> rain"
TEXTS = {
    DECODER: ["The rain fell", HOSTILE],
    CLASSIFIER: ["The rain fell on the roof.", ("The sun is out.", HOSTILE)],
    WRITER: ["The rain fell on the roof.", HOSTILE],
}
BUNDLES = {DECODER: ("none", "int8"), CLASSIFIER: (), WRITER: ("int8",)}
TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "f4": "<f4"}


@cache
def recorded(name: str) -> JsonObject:
    """The record of a tiny model with its bundles."""
    bundles = {recipe: shared_bundle(name, "tflite", recipe) for recipe in BUNDLES[name]}
    return record(shared_model(name), TEXTS[name], bundles=bundles)


def unpacked(array: JsonObject) -> np.ndarray:
    """Returns an array of the record."""
    values = np.frombuffer(base64.b64decode(array["data"]), TYPES[array["type"]])
    return values.reshape(array["shape"])


def words(name: str, array: JsonObject) -> list[str]:
    """Returns the words of an array of their indices."""
    return [recorded(name)["words"][index][0] for index in unpacked(array).ravel().tolist()]


def logits(name: str, index: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of a continued text of the decoder, and the logits that the Keras model has for them."""
    rows = recorded(name)["words"]
    ids = np.array([[rows[word][1] for word in unpacked(recorded(name)["texts"][index]["written"]).tolist()]])
    return ids, keras.ops.convert_to_numpy(shared_model(name)({"input_ids": ids[:, :-1]}))[0]


@pytest.mark.grid
def test_attention_and_layers_are_those_of_the_model() -> None:
    ids, scores = logits(DECODER)
    text = recorded(DECODER)["texts"][0]
    states = shared_model(DECODER)({"input_ids": ids[:, :-1]}, return_attention=True)
    (attention,) = text["attention"]
    expected = np.stack([keras.ops.convert_to_numpy(weights)[0] for weights in states["attentions"]])
    assert np.abs(unpacked(attention["weights"]) / 255 - expected).max() <= 0.5 / 255 + 1e-6
    lens = kf.logit_lens(shared_model(DECODER), "The rain fell")
    length = len(lens.tokens)
    shown = unpacked(text["lens"]["words"])[:, :length]
    assert [[recorded(DECODER)["words"][word][1] for word in row] for row in shown[..., 0]] == lens.ids[..., 0].tolist()
    np.testing.assert_allclose(unpacked(text["lens"]["shares"])[:, :length], lens.probabilities, atol=1e-5)
    assert unpacked(text["choices"]["scores"]).shape == (len(scores), 200)


@pytest.mark.grid
def test_stacks_of_an_encoder_decoder() -> None:
    text = recorded(WRITER)["texts"][0]
    stacks = {each["stack"]: each["weights"]["shape"] for each in text["attention"]}
    source, target = text["read"]["shape"][0], text["written"]["shape"][0] - 1
    assert {name: shape[2:] for name, shape in stacks.items()} == {
        "encoder": [source, source], "decoder": [target, target], "cross": [target, source],
    }  # fmt: skip
    for each in text["attention"]:
        np.testing.assert_allclose(unpacked(each["weights"]).sum(axis=-1), 255, atol=source)


def test_masked_tokens_are_those_of_the_pipeline() -> None:
    model = shared_model("bert-fill-mask")
    result = record(model, ["The rain [MASK] on."], recipes=())
    text, table = result["texts"][0], result["words"]
    place = text["choices"]["places"].index(text["gap"])
    best = kf.pipeline(model)("The rain [MASK] on.", top_k=3)
    chosen = [table[word][1] for word in unpacked(text["choices"]["words"])[place][:3]]
    assert chosen == [each["token"] for each in best]
    np.testing.assert_allclose(
        softmax(unpacked(text["choices"]["scores"]))[place][:3], [each["score"] for each in best], rtol=1e-4
    )  # the vocabulary has fewer tokens than the page has candidates
    np.testing.assert_allclose(unpacked(text["lens"]["shares"])[-1, place, :3], [e["score"] for e in best], rtol=1e-4)


@pytest.mark.parametrize("name", [CLASSIFIER, DECODER])
def test_reasons_are_those_of_the_attribution(name: str) -> None:
    text = recorded(name)["texts"][0]
    expected = kf.attribute(shared_model(name), text["text"], text["pair"])
    assert text["reason"]["title"] == expected.title
    parts = [(text, 0.0 if share is None else share) for text, share in expected.pieces()]
    assert [part for part, _ in text["reason"]["parts"]] == [part for part, _ in parts]
    shares = [share or 0.0 for _, share in text["reason"]["parts"]]
    np.testing.assert_allclose(shares, [share for _, share in parts], atol=1e-3)


def test_layers_are_left_out_of_a_large_page(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_model(CLASSIFIER)
    whole = record(model, ["rain"], recipes=())["texts"][0]["attention"][0]
    monkeypatch.setattr(recording, "ATTENTION_BYTES", unpacked(whole["weights"]).size - 1)
    part = record(model, ["rain"], recipes=())["texts"][0]["attention"][0]
    assert (whole["layers"], whole["total"], part["layers"], part["total"]) == ([0, 1], 2, [1], 2)
    assert np.array_equal(unpacked(part["weights"])[0], unpacked(whole["weights"])[1])


def test_samples_are_shortened() -> None:
    """A sample text that is too long loses sentences, and a model that reads no sentence is refused."""
    text = record(shared_model("gpt2-question-answering"), recipes=())["texts"][0]
    assert text["pair"] == "The lighthouse was built in 1874 by Ada Berg on a small island north of the harbour."


def test_precisions_are_those_of_real_bundles() -> None:
    ids, scores = logits(DECODER)
    text = recorded(DECODER)["texts"][0]
    reference, *others = text["comparison"]
    reference_logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    for recipe, other in zip(BUNDLES[DECODER], others, strict=True):
        pipe = kf.pipeline(shared_bundle(DECODER, "tflite", recipe))
        state, rows = pipe.model.start(ids[:, :1], np.ones((1, 1), np.int32)), []
        for position in range(ids.shape[1] - 1):
            step, state = pipe.model.step(ids[:, position : position + 1].astype(np.int32), state)
            rows.append(step[0, -1])
        logs = np.log(softmax(np.stack(rows)))
        expected = (np.exp(reference_logs) * (reference_logs - logs)).sum(axis=1)
        np.testing.assert_allclose(unpacked(other["divergence"]), expected, atol=1e-4)
        assert words(DECODER, other["best"]) == _words_of(np.stack(rows).argmax(axis=1))
        prompt = "The rain fell"
        greedy = pipe(prompt, do_sample=False, max_new_tokens=48, repetition_penalty=1.0)[0]["generated_text"]
        tokens = [recorded(DECODER)["words"][word][1] for word in unpacked(other["written"]).tolist()]
        assert pipe.tokenizer.decode(tokens, skip_special_tokens=True) == greedy[len(prompt) :]
    assert unpacked(reference["divergence"]).max() == 0
    assert unpacked(others[1]["divergence"]).mean() > 100 * unpacked(others[0]["divergence"]).mean()


def _words_of(ids: np.ndarray) -> list[str]:
    known = {token: word for word, token in recorded(DECODER)["words"]}
    return [known[token] for token in ids.tolist()]


def test_json_cannot_end_its_element() -> None:
    value = {HOSTILE: ["<!--", "&amp;\u2028"]}
    assert not re.search("[<>&\u2028]", script_json(value))
    assert json.loads(script_json(value)) == value


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["rain " * 200], CapacityError, r"Expected: at most \d+ tokens. Received: \d+"),
        ([], InputError, r"a non-empty list.* Received: texts=\[\]"),
        ([""], InputError, "at least one token was expected. Received: ''"),
    ],
)
def test_bad_texts(texts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        record(shared_model(CLASSIFIER), texts, recipes=())


def test_bad_sources(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no tokenizer"):
        record(kf.zoo.build("gpt2", num_layers=1, hidden_dim=12, num_heads=2, vocab_size=20), recipes=())
    with pytest.raises(InputError, match="A bundle of the same model was expected"):
        record(shared_model(CLASSIFIER), ["rain"], bundles={"other": shared_bundle(DECODER, "tflite", "int8")})
    for wrong, error in (({"recipes": ("int9",)}, ExportError), ({"format": "keras"}, InputError)):
        with pytest.raises(error, match="Received"):
            record(shared_model(CLASSIFIER), ["rain"], **wrong)
    (tmp_path / "index.html").write_text("<p>mine</p>")
    with pytest.raises(InputError, match="Choose another name"):
        write_site(shared_model(CLASSIFIER), tmp_path, recipes=())
    assert (tmp_path / "index.html").read_text() == "<p>mine</p>"
    (tmp_path / "folder.html").mkdir()
    for name, received in (("index.html/site", "is a file"), ("folder.html", "which is a folder")):
        with pytest.raises(InputError, match=received):
            write_site(shared_model(CLASSIFIER), tmp_path / name, recipes=())


def test_numbers_are_no_choices() -> None:
    sizes = {"num_layers": 1, "hidden_dim": 12, "num_heads": 2, "vocab_size": 180, "num_labels": 1}
    identity = "torch.nn.modules.linear.Identity"
    for settings, received in (
        ({"problem_type": "regression"}, "a model for regression"),
        ({"score_activation": identity}, f"a cross-encoder whose scores are its logits after {identity}"),
    ):
        model = kf.zoo.build("bert", "text-classification", **settings, **sizes)
        model.set_tokenizer(shared_model(CLASSIFIER).tokenizer)
        with pytest.raises(InputError, match=f"{received}, which returns numbers"):
            record(model, ["rain"], recipes=())


def test_answers_stand_in_the_context() -> None:
    model = shared_model("bert-question-answering")
    question, context = "The rain?", "The sun is out."
    choices = record(model, [(question, context)], recipes=())["texts"][0]["choices"]
    encoded = model.tokenizer(question, context)
    allowed = np.flatnonzero(encoded.sequence_ids[0] == 1)
    count = (unpacked(choices["scores"]) > -1000).sum(axis=1)
    assert count.tolist() == [len(allowed) + 1] * 2


def test_a_short_cache_is_left_out() -> None:
    precision = opened_bundle(shared_bundle(DECODER, "tflite", "int8"))
    capacity = precision.opened.model.capacity
    for written, is_open in ((1, True), (2, False)):
        text = Continued(None, np.zeros(capacity - 1, "int32"), np.zeros(written, "int32"))
        result = recording._unless_short(precision, [recording._Item(text, None)])
        assert (result.opened is not None) is is_open and bool(result.note) is not is_open


def test_bundle(tmp_path: Path) -> None:
    """A bundle is compared with those beside it, and says what it cannot show."""
    for recipe in BUNDLES[DECODER]:
        shutil.copytree(shared_bundle(DECODER, "tflite", recipe), tmp_path / recipe)
    result = record(tmp_path / "int8", ["The rain fell"])
    assert [each["name"] for each in result["precisions"]] == ["int8", "float32"]
    assert result["texts"][0]["attention"] == [] and result["texts"][0]["lens"] is None
    assert result["texts"][0]["beams"]["steps"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared_bundle(DECODER, "tflite", "int8")
    site = "explain", str(folder), "--site", str(tmp_path / "out")
    assert run_command(*site, "The rain", "--text", "The sun", "--bundle", str(folder)) == 0
    assert "index.html: 0." in capsys.readouterr().out
    content = (tmp_path / "out" / "index.html").read_text()
    assert '"The rain"' in content and '"The sun"' in content
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]
    assert run_command(*site, "--layer", "1") == run_command("explain", str(folder), "--text", "rain") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" cannot")[0] for line in lines] == ["Error: --layer", "Error: --text"]


@pytest.mark.grid
@pytest.mark.parametrize("name", [WRITER, DECODER, CLASSIFIER, "mbart-question-answering"])
def test_attention_of_a_bundle(name: str) -> None:
    """A bundle that was exported with attention weights shows them, those of the Keras model."""
    text = ("Rain?", "The rain fell.") if name.endswith("answering") else "The rain fell."
    (of_bundle,), (of_keras,) = (
        record(source, [text], recipes=(), bundles={})["texts"]
        for source in (attention_bundle(name, "onnx"), shared_model(name))
    )
    stacks = [[each["stack"] for each in text["attention"]] for text in (of_bundle, of_keras)]
    assert stacks[0] == stacks[1] != []
    for first, second in zip(of_bundle["attention"], of_keras["attention"], strict=True):
        for key in ("layers", "queries", "keys"):
            assert first[key] == second[key]
        differences = np.abs(unpacked(first["weights"]).astype(int) - unpacked(second["weights"]).astype(int))
        assert differences.max() <= 1


# ---- the page in Chromium ----

SHARES = "[...document.querySelectorAll('#choice-bars .value')].map((each) => each.textContent)"
PANELS = "[...document.querySelectorAll('.panel h2')].map((title) => title.lastChild.textContent)"
READY = "document.documentElement.dataset.ready === '{}'"


def opened(chromium: Browser, folder: Path, content: JsonObject, **settings: Any) -> None:
    """Writes a page and opens the file."""
    file = folder / "explained.html"
    file.write_text(pages.rendered(content), encoding="utf-8")
    assert file.stat().st_size < pages.MAX_BYTES
    chromium.open(file.as_uri(), **settings)
    chromium("until", script=READY.format(0))


def slide(chromium: Browser, name: str, value: float) -> None:
    """Moves a slider."""
    chromium(
        "run",
        script=f"""(() => {{
            const labels = [...document.querySelectorAll('.slider')];
            const input = labels.find((each) => each.firstChild.textContent === '{name}').querySelector('input');
            input.value = {value};
            input.dispatchEvent(new Event('input'));
        }})()""",
    )


def checked(chromium: Browser) -> None:
    """Checks that nothing was requested but the file, that nothing failed, and the rules of accessibility."""
    assert [address[:7] for address in chromium("requests")] == ["file://"]
    assert chromium("console") == []
    assert chromium("axe") == []
    assert chromium("run", script="document.documentElement.scrollWidth <= innerWidth")
    assert chromium("run", script="document.querySelectorAll('img, iframe').length") == 0


def test_page_of_a_decoder(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, recorded(DECODER))
    assert chromium("run", script=PANELS)[:3] == ["Why this answer", "Tokens", "Attention"]
    assert chromium("run", script=PANELS)[4:] == ["The next token", "Beams", "float32, none, int8"]
    assert chromium("text", at="#absent") == ""
    ids, scores = logits(DECODER)
    start = recorded(DECODER)["texts"][0]["start"] - 1
    for settings in ({}, {"temperature": 0.5}, {"temperature": 1.7, "top_k": 9}, {"temperature": 0.9, "top_p": 0.7}):
        slide(chromium, "Temperature", settings.get("temperature", 1))
        slide(chromium, "top-k", settings.get("top_k", 201))
        slide(chromium, "top-p", settings.get("top_p", 1))
        kept = sampling_of(GenerationConfig().replace(**settings)).filtered(scores[start : start + 1])[0]
        best = np.argsort(-scores[start], kind="stable")[:12]
        expected = softmax(kept)
        shown = [0.0 if "<" in each else float(each.split()[0]) for each in chromium("run", script=SHARES)]
        np.testing.assert_allclose(shown[:12], 100 * expected[best], atol=0.11)
        np.testing.assert_allclose(shown[12], 100 * (1 - expected[best].sum()), atol=0.11)
    checked(chromium)
    chromium("run", script="document.querySelectorAll('.pill input')[1].click()")
    chromium("until", script=READY.format(1))
    assert HOSTILE in chromium("text", at="#texts")
    checked(chromium)


def test_page_marks_where_texts_part(chromium: Browser, tmp_path: Path) -> None:
    changed = copy.deepcopy(recorded(DECODER))
    first, same, other = changed["texts"][0]["comparison"]
    written = unpacked(first["written"]).copy()
    same["written"] = first["written"]
    written[5] = (written[5] + 1) % 3
    other["written"] = packed_ids(written)
    opened(chromium, tmp_path, changed)
    verdicts = chromium("run", script="[...document.querySelectorAll('.texts small')].map((each) => each.textContent)")
    texts = [word for word, _ in changed["words"]]
    words_there = texts[written[5]], texts[unpacked(first["written"])[5]]
    assert verdicts == ["the same text", "parts at token 6: {} instead of {}".format(*words_there)]
    assert chromium("text", at=".texts mark") == words_there[0]
    assert chromium("run", script="document.querySelectorAll('.texts .after').length") == len(written) - 6


@pytest.mark.grid
@pytest.mark.parametrize(
    ("name", "panels", "absent"),
    [(CLASSIFIER, 5, ["An encoder writes no text", "There is nothing to compare"]), (WRITER, 7, [])],
)
def test_page_of_others(chromium: Browser, tmp_path: Path, name: str, panels: int, absent: list[str]) -> None:
    opened(chromium, tmp_path, recorded(name), scheme="dark", width=1280)
    assert len(chromium("run", script=PANELS)) == panels
    assert all(reason in chromium("text", at="#absent") for reason in absent)
    checked(chromium)
    chromium("run", script="document.querySelectorAll('.pill input')[1].click()")
    chromium("until", script=READY.format(1))
    checked(chromium)
