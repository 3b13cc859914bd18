"""Figures are drawn, have the expected content, and leave no file after an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from kerasformer.errors import GenerationError, InputError
from kerasformer.generation import Controls, GenerationConfig, Record, generate
from kerasformer.tools.viz import draw_beam_tree, draw_distribution, draw_explanation
from kerasformer.tools.viz.canvas import DARK, LIGHT, canvas
from kerasformer.tools.viz.explanation import Cell
from tests.core.generation.engines import Toy

PROBABILITIES = np.random.default_rng(0).dirichlet(np.full(300, 0.2))


def share(path: Path, color: str) -> float:
    """Returns the share of pixels with exactly this colour."""
    pixels = imread(path)[..., :3]
    return float((np.abs(pixels - np.array(to_rgb(color))) < 1 / 512).all(axis=-1).mean())


def beams(**settings: Any) -> Record:
    config = GenerationConfig(**{"max_new_tokens": 4, "num_beams": 3, "eos_token_id": (2, 5), **settings})
    output = generate(Toy(), np.array([[3, 1]]), config=config, controls=Controls(record=True))
    assert output.record is not None
    return output.record


def table(path: Path, dark: bool = False, **marks: Any) -> None:
    head = [Cell("Input", head=True), Cell("Choice 1", head=True)]
    draw_explanation([head, [Cell("The sea"), Cell("␣is (50.00%)", 0.5, **marks)]], path, "note", dark=dark)


DRAWN = {
    "distribution": lambda path, dark: draw_distribution(PROBABILITIES, path, (("top-k", 20),), "Title", dark),
    "tree": lambda path, dark: draw_beam_tree(beams(), str, path, title="Title", dark=dark),
    "table": lambda path, dark: table(path, dark, chosen=True),
}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_has_the_colours_of_its_theme(tmp_path: Path, name: str, theme: Any) -> None:
    path = tmp_path / "picture.png"
    before = dict(matplotlib.rcParams)
    DRAWN[name](path, theme is DARK)
    assert share(path, theme.background) > 0.3 and share(path, theme.ink) > 0.001
    assert share(path, theme.second) > 0  # a cutoff, a finished hypothesis, the selected token
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_picture_is_the_same_file(tmp_path: Path, name: str) -> None:
    for file in ("one.svg", "two.svg"):
        DRAWN[name](tmp_path / file, False)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_trees_show_the_first_steps_and_one_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heights = []
    for steps in (2, 4):
        draw_beam_tree(beams(), str, tmp_path / "tree.png", steps=steps)
        heights.append(imread(tmp_path / "tree.png").shape[1])
    assert heights[0] < heights[1]
    written: list[str] = []
    text = Axes.text
    monkeypatch.setattr(Axes, "text", lambda self, x, y, s, **style: written.append(s) or text(self, x, y, s, **style))
    for steps, note in ((2, ["2 more\nsteps"]), (3, ["1 more\nstep"]), (4, [])):
        written.clear()
        draw_beam_tree(beams(eos_token_id=None, max_new_tokens=4), str, tmp_path / "tree.png", steps=steps)
        assert [line for line in written if "more" in line] == note
    spelled: list[int] = []
    record = generate(
        Toy(), np.array([[3], [4]]), config=GenerationConfig(num_beams=2, max_new_tokens=3),
        controls=Controls(record=True),
    ).record  # fmt: skip
    draw_beam_tree(record, lambda token: str(spelled.append(token)), tmp_path / "tree.png", prompt=1, output=1)
    assert sorted(spelled) == sorted(node.token for step in record.steps for node in step if node.prompt == 1)


def test_invalid_figures_raise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png or \.svg"):
        draw_distribution(PROBABILITIES, tmp_path / "a.jpg")
    with pytest.raises(InputError, match="folder of a picture must exist"):
        draw_distribution(PROBABILITIES, tmp_path / "missing" / "a.png")
    with pytest.raises(InputError, match="nothing was generated"):
        draw_explanation([[Cell("Input", head=True)]], tmp_path / "a.png")
    plain = generate(Toy(), np.array([[3]]), controls=Controls(record=True)).record
    with pytest.raises(InputError, match="steps must be an integer of at least 1"):
        draw_beam_tree(beams(), str, tmp_path / "a.png", steps=0)
    with pytest.raises(GenerationError, match="num_beams above 1"):
        draw_beam_tree(plain, str, tmp_path / "a.png")


def test_a_failed_picture_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), canvas(tmp_path / "a.png", 1, 1):
        raise RuntimeError
    assert not list(tmp_path.iterdir())
