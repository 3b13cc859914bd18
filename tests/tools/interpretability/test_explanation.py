"""Explanations of runs with known probabilities."""

from __future__ import annotations

import dataclasses
import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer.engines.distribution import softmax
from kerasformer.errors import GenerationError
from kerasformer.generation import Controls, GenerationConfig, generate
from kerasformer.generation.readable_tokens import readable_token, visible
from kerasformer.tools.interpretability.explanation import Explanation, Option, explanations
from tests import tiny_text
from tests.core.generation.engines import Toy

TOKENIZER = tiny_text.byte_pairs()
PROMPTS = [TOKENIZER.encode("The sea"), TOKENIZER.encode("It was")]
VOCAB = TOKENIZER.vocab_size


def explained(prompts: list[list[int]] = PROMPTS[:1], record: bool = True, **settings: Any) -> list[Explanation]:
    config = GenerationConfig(max_new_tokens=4, **settings)
    width = max(map(len, prompts))
    mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    ids = np.array([[0] * (width - len(row)) + row for row in prompts])
    output = generate(Toy(VOCAB), ids, mask, config, Controls(record=record))
    results = explanations(output, TOKENIZER, prompts)
    for explanation, sequence in zip(results, output.sequences, strict=True):
        assert [line.chosen.token for line in explanation.lines] == sequence.tolist()
    return results


def test_greedy_search_takes_the_first_choice() -> None:
    (explanation,) = explained()
    text = "The sea"
    row = np.array(PROMPTS[0])
    for line in explanation.lines:
        probabilities = softmax(Toy(VOCAB).of(row)[None])[0]
        best = np.argsort(-probabilities)[:5]
        assert line.input == text and line.num_allowed == VOCAB
        assert [option.token for option in line.options] == best.tolist()
        assert [option.probability for option in line.options] == pytest.approx(probabilities[best].tolist(), rel=1e-5)
        assert [option.chosen for option in line.options] == [True, False, False, False, False]
        assert all(option.allowed for option in line.options)
        row = np.append(row, best[0])
        text = TOKENIZER.decode(row, skip_special_tokens=True)
    assert explanation.text == text
    assert explanation.columns == ["Input", *(f"Choice {rank}" for rank in range(1, 6))]


def test_tokens_excluded_by_rules_are_marked() -> None:
    first = explained()[0].lines[0].options[0]
    (explanation,) = explained(suppress_tokens=[first.token])
    same = explanation.lines[0].options[0]
    assert same.token == first.token and same.probability == first.probability and not same.allowed
    assert explanation.lines[0].options[1].chosen and explanation.lines[0].num_allowed == VOCAB - 1
    assert "✗" in str(same) and "✗ excluded" in explanation.note and "✗" not in explained()[0].note


def test_tokens_excluded_by_filters_are_marked() -> None:
    (explanation,) = explained(top_k=2, seed=1)
    for line in explanation.lines:
        assert [option.allowed for option in line.options] == [True, True, False, False, False]
        assert line.num_allowed == 2
        assert line.chosen in line.options[:2]


def test_a_choice_outside_the_options_has_its_own_column() -> None:
    (explanation,) = explained(temperature=20.0, seed=4)
    assert explanation.columns[-1] == "Chosen"
    frame = explanation.to_frame()
    for line, cell in zip(explanation.lines, frame["Chosen"], strict=True):
        assert (cell == "") == (line.chosen in line.options) and cell in ("", str(line.chosen))
        assert line.chosen.chosen and line.chosen.allowed
    assert (frame["Chosen"] != "").any()


def test_every_sequence_is_explained() -> None:
    results = explained(PROMPTS, num_return_sequences=2, temperature=3.0, seed=1)
    assert [each.lines[0].input for each in results] == ["The sea", "The sea", "It was", "It was"]


def test_a_notebook_shows_the_whole_table_and_escapes_markup() -> None:
    (explanation,) = explained([TOKENIZER.encode("<b>The")])
    markup = Option(1, "</td>", 0.25, chosen=False, allowed=False)
    line = dataclasses.replace(explanation.lines[0], options=(markup, *explanation.lines[0].options[1:]))
    output = dataclasses.replace(explanation, lines=(line, *explanation.lines[1:]))._repr_html_()
    assert "<td>&lt;b&gt;The</td>" in output and output.count("<tr>") == 5
    assert "<td><s>✗ &lt;/td&gt; (25.00%)</s></td>" in output
    assert all(html.escape(str(option)) in output for option in line.options)


@pytest.mark.parametrize("name", ["picture", "tree"])
def test_pictures(tmp_path: Path, name: str) -> None:
    (explanation,) = explained(num_beams=3)
    getattr(explanation, name)(tmp_path / "a.png")
    getattr(explanation, name)(tmp_path / "b.png", dark=True)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG" != (tmp_path / "b.png").read_bytes()
    if name == "tree":
        with pytest.raises(GenerationError, match="num_beams above 1"):
            explained()[0].tree(tmp_path / "c.png")


def test_an_explanation_requires_a_record() -> None:
    with pytest.raises(GenerationError, match="explain=True"):
        explained(record=False)


def test_tokens_are_readable() -> None:
    ids = TOKENIZER.encode("The sea\n€")
    assert [readable_token(TOKENIZER, token) for token in ids][-3:] == [r"\xe2", r"\x82", r"\xac"]
    assert "⏎" in [readable_token(TOKENIZER, token) for token in ids]
    assert any(readable_token(TOKENIZER, token).startswith("␣") for token in ids)
    assert readable_token(TOKENIZER, TOKENIZER.eos_token_id) == "<|endoftext|>"
    assert readable_token(TOKENIZER, 99999) == "[99999]"
    pieces = tiny_text.pieces()
    first = readable_token(pieces, pieces.encode("The sea")[0])
    assert first.startswith("␣") and readable_token(pieces, pieces.eos_token_id) == "</s>"
    utf8 = tiny_text.utf8_bytes()
    parts = [readable_token(utf8, token) for token in utf8.encode("€a")]
    assert parts == [r"\xe2", r"\x82", r"\xac", "a", "</s>"]
    words = tiny_text.wordpiece()
    ending = next(token for token in words.get_vocab() if token.startswith("##"))
    assert readable_token(words, words.token_to_id(ending)) == ending
    assert visible("a\tb\u200b\x07") == r"a⇥b\u200b\x07"
