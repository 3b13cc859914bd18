"""The anatomy of every architecture: drawn from its configuration, with all parameters, in the order of its code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import kerasformer as kf
from kerasformer.cli import app
from kerasformer.errors import InputError
from kerasformer.tools.interpretability.anatomy import INPUT, Anatomy, Block
from kerasformer.tools.interpretability.costs import costs
from tests.core.zoo.cases import CASES, FIRST
from tests.core.zoo.test_lfm2 import SETTINGS as LFM2
from tests.grids import grid

SVG = "{http://www.w3.org/2000/svg}"
DISTINCT = {"deberta-v2", "mobilebert", "big_bird", "longformer", "bloom", "gemma3_text", "transformer", "led", "xlm"}
"""Models whose parts or connections differ from those of the tests below; CI draws one of each architecture."""
SMALL_GPT2 = {"model_type": "gpt2", "vocab_size": 50, "n_positions": 20, "n_embd": 12, "n_layer": 3, "n_head": 3}


def described(folder: Path, settings: dict[str, Any], task: str | None = None) -> Anatomy:
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    return kf.anatomy(path, task)


def of_case(folder: Path, name: str) -> Anatomy:
    case = next(case for case in CASES if case.name == name)
    return described(folder, {"model_type": case.model_type, **case.settings}, case.tasks[0])


def layer(anatomy: Anatomy, index: int = 0) -> list[tuple[str, list[str]]]:
    """Returns the blocks of a layer, each with the titles of those that it reads."""
    blocks = anatomy.stacks[-1].layers[index].blocks
    return [
        (block.title, ["input" if source == INPUT else blocks[source].title for source in block.inputs])
        for block in blocks
    ]


def unused(case: Any) -> int:
    """Returns the parameters that a task does not use: XLM adds a language only where one is passed."""
    languages = case.settings.get("n_langs", 1) if case.settings.get("use_lang_emb", True) else 1
    return languages * case.settings["emb_dim"] if case.model_type == "xlm" and languages > 1 else 0


def parameters(blocks: Iterable[Block]) -> int:
    return sum(block.parameters for block in blocks)


@pytest.mark.parametrize(
    "case", grid(CASES, always=lambda case: case.name in DISTINCT, release=lambda case: case not in FIRST), ids=str
)
def test_every_architecture_is_drawn_with_all_its_parameters(case: Any, tmp_path: Path) -> None:
    found = described(tmp_path, {"model_type": case.model_type, **case.settings}, case.tasks[0])
    drawn = sum(parameters(stack.embeddings) + parameters(stack.final) for stack in found.stacks)
    drawn += sum(group.parameters for stack in found.stacks for group in stack.layers) + parameters(found.head)
    assert drawn == found.parameters - unused(case) and found.unused_parameters == unused(case)
    assert found.bytes["none"] == 4 * found.parameters
    assert all(block.inputs for stack in found.stacks for group in stack.layers for block in group.blocks)
    root = ElementTree.fromstring(found.svg)
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"Encoder", "Decoder"} & texts and "Feed-forward" in texts and float(root.attrib["width"]) == 390
    for rectangle in root.iter(f"{SVG}rect"):
        x, width = float(rectangle.get("x", 0)), float(rectangle.attrib["width"])
        assert x >= 0 and width > 0 and x + width <= 390


def test_norms_stand_where_the_code_has_them(tmp_path: Path) -> None:
    after = ["Self-attention", "Sum", "Layer norm", "Feed-forward", "Sum", "Layer norm"]
    before = ["Layer norm", "Masked self-attention", "Sum", "Layer norm", "Feed-forward", "Sum"]
    assert [title for title, _ in layer(of_case(tmp_path, "bert"))] == after
    assert [title for title, _ in layer(of_case(tmp_path, "gpt2"))] == before
    both = ["RMS norm", "Masked self-attention", "RMS norm", "Sum", "RMS norm", "Feed-forward", "RMS norm", "Sum"]
    assert [title for title, _ in layer(of_case(tmp_path, "gemma2"))] == both


def test_parallel_parts_read_the_same_input(tmp_path: Path) -> None:
    shared = dict(layer(of_case(tmp_path, "gptj")))
    assert shared["Masked self-attention"] == shared["Feed-forward"] == ["Layer norm"]
    own = layer(of_case(tmp_path, "gpt_neox"))
    assert [inputs for title, inputs in own if title == "Layer norm"] == [["input"], ["input"]]
    convolved = dict(layer(of_case(tmp_path, "deberta-v2")))
    assert convolved["Convolution"] == ["input"]


def test_both_stacks_and_what_the_decoder_reads(tmp_path: Path) -> None:
    found = of_case(tmp_path, "t5")
    encoder, decoder = found.stacks
    assert (encoder.num_layers, decoder.num_layers) == (2, 3)
    assert [block.title for group in decoder.layers for block in group.blocks if block.reads_memory] == [
        "Cross-attention"
    ]
    assert "shared weights" in decoder.embeddings[0].details and decoder.embeddings[0].parameters == 0
    assert {"encoded text", "text so far"} <= {
        text.text for text in ElementTree.fromstring(found.svg).iter(f"{SVG}text")
    }


def test_layers_of_several_kinds(tmp_path: Path) -> None:
    windows = of_case(tmp_path, "modernbert").stacks[0].layers
    assert [group.indices for group in windows] == [(0,), (1, 2), (3,)]
    assert [any("window" in text for block in group.blocks for text in block.details) for group in windows] == [
        False,
        True,
        False,
    ]
    albert = of_case(tmp_path, "albert").stacks[0].layers
    assert [(len(group.indices), group.num_weights) for group in albert] == [(10, 4)]
    convolutions, attention = described(tmp_path, {"model_type": "lfm2", **LFM2}).stacks[0].layers
    assert convolutions.indices == (0, 2, 3) and attention.indices == (1,)
    assert "Short convolution" in [block.title for block in convolutions.blocks]
    feed_forward = next(block for block in convolutions.blocks if block.title == "Feed-forward")
    assert "gated, silu" in feed_forward.details


def test_the_figures_follow_from_the_sizes(tmp_path: Path) -> None:
    found = described(tmp_path, SMALL_GPT2)
    size, layers, tokens, vocabulary = 12, 3, 20, 50
    matrices = 12 * size**2
    vectors = (4 + 5) * size + 4 * size  # biases of attention and feed-forward network, scale and shift of two norms
    assert found.stacks[0].layers[0].parameters == layers * (matrices + vectors)
    assert found.parameters == (vocabulary + tokens) * size + layers * (matrices + vectors) + 2 * size
    assert found.macs == layers * matrices + vocabulary * size
    assert found.attention_macs == 2 * layers * size and found.cache_bytes == 4 * 2 * layers * size
    blocks = {block.title: block for block in found.stacks[0].layers[0].blocks}
    assert blocks["Masked self-attention"].macs == 4 * size**2
    assert blocks["Masked self-attention"].attention_macs == 2 * size
    assert blocks["Feed-forward"].macs == 8 * size**2 and blocks["Feed-forward"].shape == "(B, T, 12)"


def test_bytes_of_recipes() -> None:
    """Matrices of `sentiment-bert` in int8: a byte for each value, and a scale for each output; vectors in float32."""
    found = kf.anatomy("sentiment-bert")
    size, inner, layers = 384, 640, 4
    tables = [(5561, size), (128, size)]  # the segments and the classes are too small to be quantized
    matrices = [*tables, (size, size), *layers * [*4 * [(size, size)], (inner, size), (size, inner)]]
    quantized = sum(rows * columns for rows, columns in matrices)
    assert found.bytes["int8"] == 4 * (found.parameters - quantized) + quantized + 4 * sum(rows for rows, _ in matrices)
    assert found.bytes["int4"] < found.bytes["int8"] < found.bytes["fp16"] < found.bytes["none"]


def test_windows_are_counted_for_each_layer(tmp_path: Path) -> None:
    """Layers of equal weights whose windows differ do not cost the same."""
    found = of_case(tmp_path, "modernbert")
    by_kind = [
        len(group.indices) * sum(block.attention_macs for block in group.blocks) for group in found.stacks[0].layers
    ]
    assert by_kind[1] / 2 < by_kind[0] == by_kind[2]
    assert found.attention_macs == pytest.approx(sum(by_kind), abs=2)
    assert costs(tmp_path, "fill-mask").attention_macs == found.attention_macs


def test_a_model_in_memory_stays_as_it_is() -> None:
    model = kf.load("story-gpt2")
    found = kf.anatomy(model)
    assert found.parameters == model.count_params()
    assert not any("call" in vars(part) for part in model._flatten_layers())
    for function in (kf.anatomy, costs):
        assert function(model, "text-generation").task == "text-generation"
        with pytest.raises(InputError, match="one task: text-generation. Received: task='fill-mask'"):
            function(model, "fill-mask")


def test_files(tmp_path: Path) -> None:
    found = described(tmp_path, SMALL_GPT2)
    assert found.save(tmp_path / "model.svg").read_text() == found._repr_svg_() == found.svg
    assert "Masked self-attention, 3 heads of 4" in found.save(tmp_path / "model.txt").read_text()
    assert json.loads(found.save(tmp_path / "model.json").read_text())["parameters"] == found.parameters
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.json", "model.svg", "model.txt"]
    with pytest.raises(InputError, match=r"must end in one of \.svg, \.txt, \.json\. Received: .*model\.png"):
        found.save(tmp_path / "model.png")
    with pytest.raises(InputError, match="folder of an anatomy must exist"):
        found.save(tmp_path / "missing" / "model.svg")


def test_a_size_is_not_taken_for_the_number_of_tokens(tmp_path: Path) -> None:
    labels = {str(index): f"LABEL_{index}" for index in range(64)}
    found = described(tmp_path, {**SMALL_GPT2, "n_positions": 100, "id2label": labels}, "text-classification")
    assert found.head[-1].shape == "(B, 64)"


def test_a_name_with_markup_stays_text(tmp_path: Path) -> None:
    folder = tmp_path / "<b>&model"
    folder.mkdir()
    assert "&lt;b&gt;&amp;model" in described(folder, SMALL_GPT2).svg


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_GPT2))
    done = CliRunner().invoke(app, ["info", str(tmp_path), "--out", str(tmp_path / "model.svg")])
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert ["decoder, 3 layers", "Feed-forward, 12 → 48 → 12, gelu_new", "(B, T, 12)", "1,212", "1,152"] in rows
    assert ["bytes of the cache for each token", "288"] in rows
    assert (tmp_path / "model.svg").read_text().startswith("<svg")
    done = CliRunner().invoke(app, ["info", str(tmp_path), "--out", str(tmp_path / "model.gif")])
    assert done.exit_code == 1 and "must end in one of" in done.stderr
    done = CliRunner().invoke(app, ["info", str(tmp_path), "--anatomy", "--json"])
    assert json.loads(done.stdout)["stacks"][0]["layers"][0]["indices"] == [0, 1, 2]
