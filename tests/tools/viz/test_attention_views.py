"""Attention views: a token that is HTML stays text, every view is drawn in a page and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools.interpretability.attention import (
    Attention,
    LayerAttention,
    QueryKeys,
    StackAttention,
    TokenRow,
)
from kerasformer.tools.viz.attention import page_data
from kerasformer.tools.viz.canvas import DARK, LIGHT
from tests.tools.viz.test_pictures import share
from tests.tools.web.sites import Browser

HOSTILE = (
    '<img src=x onerror="window.hacked=1">', "</script><script>window.hacked=1</script>", "$x^2_{$", "{{data}}", "&lt;",
    "\u2028",
)  # fmt: skip
HEADS, SIZE = 3, 8


def row(tokens: tuple[str, ...], second: int = 0, written: tuple[str, ...] | None = None) -> TokenRow:
    """Returns tokens, of which the last `second` are those of the second text of a pair."""
    segments = np.arange(len(tokens)) >= len(tokens) - second
    return TokenRow(tokens, np.arange(len(tokens)), segments.astype("int32"), np.arange(len(tokens)) == 0, written)


def layer(index: int, queries: int, keys: int, causal: bool = False, heads: int = HEADS) -> LayerAttention:
    """Returns a layer whose weights follow from random queries and keys."""
    random = np.random.default_rng(index)
    states = [random.normal(size=(heads, count, SIZE)).astype("float32") for count in (queries, keys)]
    bias = np.where(np.tri(queries), 0, -1e9)[None].astype("float32") if causal else None
    complete = QueryKeys(*states, scale=0.5, bias=bias)
    return LayerAttention(index, complete.weights(), complete)


def encoder(tokens: tuple[str, ...] = HOSTILE, second: int = 2, indices: tuple[int, ...] = (0, 1)) -> Attention:
    text = row(tokens, second)
    layers = tuple(layer(index, len(tokens), len(tokens)) for index in indices)
    return Attention("<b>model</b>", "keras", ("<i>a</i>", "b"), (StackAttention("encoder", text, text, layers),))


def encoder_decoder() -> Attention:
    source, target = row(HOSTILE), row(("<s>", "ein", "<u>"), written=("ein", "<u>", "</s>"))
    stacks = (
        StackAttention("encoder", source, source, (layer(0, 6, 6),)),
        StackAttention("decoder", target, target, (layer(0, 3, 3, causal=True, heads=HEADS + 1),)),
        StackAttention("cross", target, source, (layer(0, 3, 6),)),
    )
    return Attention("translator", "onnx", ("a",), stacks)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_a_token_that_is_html_stays_text(chromium: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "view.html"
    encoder().views().save(path)
    chromium.open(path.as_uri(), width, 800, scheme=scheme)
    for view in ("heads", "model", "neurons", "rollout", "statistics"):
        chromium("click", at=f"[data-key='view-{view}']")
        assert chromium("run", script="document.documentElement.scrollWidth <= innerWidth"), view
        assert chromium("axe") == [], view
    assert chromium("run", script="document.querySelectorAll('img, i, u, main b:not(.kf-readout b)').length") == 0
    chromium("click", at="[data-key='view-heads']")
    words = chromium("run", script="[...document.querySelectorAll('.kf-queries .kf-word')].map((e) => e.textContent)")
    assert words[:5] == list(HOSTILE[:5])
    assert "<b>model</b>" in chromium("text", at="h1")
    assert chromium("run", script="window.hacked === undefined") and chromium("console") == []


def test_readers_choose_tokens_heads_layers_and_texts(chromium: Browser, tmp_path: Path) -> None:
    attention = encoder(("[CLS]", "time", "flies", "[SEP]", "fruit", "[SEP]"), indices=(0, 2))
    attention.heads(2, 1).save(tmp_path / "view.html")
    chromium.open((tmp_path / "view.html").as_uri(), 1280, 800)
    assert not chromium("visible", at="[data-key='view-heads']")  # one view needs no choice
    chromium("click", at="[data-key='queries-1']")
    weights = attention.encoder.weights(2, 1)[1]
    numbers = chromium("run", script="[...document.querySelectorAll('.kf-keys .kf-number')].map((e) => e.textContent)")
    assert numbers == [f"{round(100 * float(weight))} %" if weight >= 0.005 else "" for weight in weights]
    chromium("choose", at="[data-key='filter']", label="A → B")
    hidden = chromium("run", script="[...document.querySelectorAll('.kf-keys .kf-number')].map((e) => e.textContent)")
    assert hidden[:4] == [""] * 4 and hidden[4:] == numbers[4:]
    chromium("choose", at="[data-key='layer']", label="Layer 0")
    chromium("click", at="[data-key='head-all']")
    mean = attention.encoder.layer(0).weights.mean(axis=0)[1]
    assert f"fruit {round(100 * float(mean[4]))} %" in chromium("text", at=".kf-readout")
    chromium("press", key="Tab")
    assert chromium("run", script="document.activeElement.dataset.key") == "head-0"


def test_scores_of_hidden_keys_are_hidden_and_all_kinds_are_there(chromium: Browser, tmp_path: Path) -> None:
    attention = encoder_decoder()
    attention.views().save(tmp_path / "view.html")
    chromium.open((tmp_path / "view.html").as_uri(), 390, 800)
    chromium("click", at="[data-key='view-neurons']")
    chromium("choose", at="[data-key='kind']", label="Decoder")
    rows = chromium("run", script="[...document.querySelectorAll('.kf-neurons tbody tr')].map((e) => e.innerText)")
    states = attention.decoder.layers[0].states
    assert states is not None
    score = f"{states.scores()[0, 1, 0]:.2f}".replace("-", "−")
    assert score in rows[0] and "hidden" not in rows[1] and "hidden" in rows[2]
    chromium("click", at="[data-key='view-alignment']")
    names = chromium("run", script="[...document.querySelectorAll('.kf-row-heads > span')].map((e) => e.textContent)")
    assert names == ["ein", "<u>", "</s>"]
    assert chromium("axe") == []


def test_a_head_that_another_stack_does_not_have_becomes_all_heads(chromium: Browser, tmp_path: Path) -> None:
    encoder_decoder().views("heads", head=HEADS, kind="decoder").save(tmp_path / "view.html")
    chromium.open((tmp_path / "view.html").as_uri(), 390, 800)
    chromium("choose", at="[data-key='kind']", label="Encoder")
    assert chromium("run", script="document.querySelector('[data-key=\"head-all\"]').ariaPressed") == "true"
    assert chromium("run", script="document.querySelectorAll('.kf-panel svg path').length") > 0


def test_rollout_needs_every_layer() -> None:
    attention = encoder(indices=(0, 2))
    assert attention.views().names == ("heads", "model", "neurons", "statistics")
    assert "rollout" not in page_data(attention, ("rollout",))["kinds"][0]
    for compute in (attention.encoder.rollout, attention.rollout):
        with pytest.raises(InputError, match="Received: layers 0 or 2"):
            compute()


def test_the_query_of_a_text_of_one_token() -> None:
    attention = encoder(("a",), 0)
    assert attention.neurons().token == 0 and encoder().neurons().token == 1
    with pytest.raises(InputError, match="token must be .* from 0 to 0. Received: token=1"):
        attention.neurons(token=1)


PICTURES: dict[str, Any] = {
    "heads": lambda: encoder().heads(1),
    "head": lambda: encoder().heads(1, 1),
    "model": lambda: encoder().model(),
    "neurons": lambda: encoder_decoder().neurons(kind="decoder"),
    "alignment": lambda: encoder_decoder().alignment(),
    "rollout": lambda: encoder().rollout(),
    "statistics": lambda: encoder().statistics("within segment"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_view_is_a_picture_in_both_themes(name: str, tmp_path: Path) -> None:
    view = PICTURES[name]()
    for theme in (LIGHT, DARK):
        path = tmp_path / "view.png"
        view.save(path, dark=theme is DARK)
        assert share(path, theme.background) > 0.2 and share(path, theme.ink) > 0.0005
    assert [file.name for file in tmp_path.iterdir()] == ["view.png"]


def test_a_vector_picture_is_valid_whatever_the_tokens_contain(tmp_path: Path) -> None:
    encoder().heads().save(tmp_path / "view.svg")
    ElementTree.parse(tmp_path / "view.svg")


def test_a_notebook_shows_the_page_in_a_frame_without_access_to_it() -> None:
    element = encoder().heads()._repr_html_()
    assert element.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in element
    assert "<script" not in element and "<img" not in element


def test_a_page_loads_nothing(tmp_path: Path) -> None:
    page = encoder().views().html()
    assert "default-src 'none'" in page and page.count("</script>") == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page


def test_a_page_of_a_large_model_has_the_queries_and_keys_of_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = encoder()
    with_states = [["queries" in each for each in attention_data(attention)["kinds"][0]["layers"]]]
    monkeypatch.setattr("kerasformer.tools.viz.attention._MAX_STATES", 0)
    with_states.append(["queries" in each for each in attention_data(attention)["kinds"][0]["layers"]])
    assert with_states == [[True, True], [False, True]]


def attention_data(attention: Attention) -> dict[str, Any]:
    return page_data(attention, ("neurons",), layer=1)
