"""Levels and scales that are learned by distillation: better than the first ones, and exactly those of the files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.errors import ExportError, InputError
from kerasformer.export import calibrated_job
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization import learned_rounding
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.learned_rounding import learning_windows
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from tests import tiny_text
from tests.core.export.quantization.test_quantization_aware import stored

LOOSE = replace(RECIPES["int4_distilled"], tolerance=9.0, max_divergence=9.0, max_divergence_p99=9.0)
TEXTS = ["\n".join(tiny_text.CORPUS)] * 8


def decoder() -> Any:
    """Returns a model whose feed-forward network is no multiple of the blocks."""
    keras.utils.set_random_seed(0)
    tokenizer = tiny_text.byte_pairs()
    sizes = {"hidden_dim": 64, "num_layers": 2, "num_heads": 4, "inner_dim": 104, "max_length": 128}
    model = zoo.build("gpt2", "text-generation", **sizes, vocab_size=tokenizer.vocab_size)
    for variable in model.trainable_variables:  # larger than initial ones, so that logits are not almost equal
        variable.assign(variable * 2)
    model.tokenizer = tokenizer
    return model


def divergence(model: Any, recipe: Recipe, calibration: Calibration, windows: np.ndarray) -> float:
    """Returns the mean divergence from the model when its variables of four bits have the rounded values."""

    def log_probabilities() -> np.ndarray:
        return np.asarray(keras.ops.log_softmax(model({"input_ids": windows}, training=False)))

    expected = log_probabilities()
    parts = [part for part in matrices(model, calibration) if part.rounded is not None and in_four_bits(recipe, part)]
    originals = [np.asarray(part.variable) for part in parts]
    for part in parts:
        part.variable.assign(part.in_keras(part.rounded.values()))
    received = log_probabilities()
    for part, original in zip(parts, originals, strict=True):
        part.variable.assign(original)
    return float((np.exp(expected) * (expected - received)).sum(axis=-1).mean())


def in_four_bits(recipe: Recipe, part: ModelMatrix) -> bool:
    return recipe.storage(part.path, part.rows, part.table) == "int4"


@pytest.mark.parametrize(
    ("format", "recipe", "way", "share", "most"),
    [
        ("litert", LOOSE, 0.37, 0.9, 0.0040),
        ("onnx", LOOSE, 55.0, 1.0, 0.0037),  # far too fast: what becomes worse is dropped
        pytest.param("litert", replace(LOOSE, tables="int4", budget=None), 0.37, 0.9, 0.0057, marks=pytest.mark.grid),
    ],
    ids=["litert", "onnx", "litert-tables"],
)
def test_files_have_what_was_learned(
    monkeypatch: Any, tmp_path: Any, format: str, recipe: Recipe, way: float, share: float, most: float
) -> None:
    """Which lower the divergence on held-out windows, by a share and to a number of nats."""
    calls: list[tuple[Recipe, Calibration, Calibration, np.ndarray]] = []
    learn_rounding, stages = calibrated_job.learn_rounding, []

    def recorded(model: Any, recipe: Recipe, first: Calibration, windows: np.ndarray, report: Any) -> Calibration:
        calls.append((recipe, first, learn_rounding(model, recipe, first, windows, report), windows))
        return calls[0][2]

    monkeypatch.setattr(calibrated_job, "learn_rounding", recorded)
    monkeypatch.setattr(learned_rounding, "_FEWEST", 1024)
    monkeypatch.setattr(learned_rounding, "_WAY", way)
    monkeypatch.setattr(learned_rounding, "_OF_SCALES", 1.0)  # there are few steps
    model = decoder()
    options: dict[str, Any] = {"calibration": TEXTS, "progress": lambda *stage: stages.append(stage), "capacity": 32}
    options |= {"texts": tiny_text.CORPUS[:2]}
    if format == "litert":
        options |= {"prefill_lengths": [8], "cache_lengths": [], "batch_sizes": [2], "verify_lengths": [2]}
    bundle = model.export(tmp_path / "bundle", format, recipe, **options)
    ((chosen, first, learned, windows),) = calls
    held_out = windows[:: learned_rounding._HELD_OUT]
    start, end = (divergence(model, chosen, each, held_out) for each in (first, learned))
    assert end < min(share * start, most)
    read, changed = stored(model, format, bundle.path), []
    for part in matrices(model, learned):
        if part.rounded is None or not in_four_bits(chosen, part):
            continue
        path, after = part.path, part.rounded
        before = first[path].rounded
        assert before is not None and after.levels.min() >= -8 and after.levels.max() <= 7
        changed.append(np.mean(before.levels != after.levels))
        assert np.all(before.scales * after.scales > 0) and not np.array_equal(before.scales, after.scales)
        np.testing.assert_array_equal(read[below_model(path)], after.values(), err_msg=path)
    assert way > 1 or 0 < np.mean(changed) < 0.2
    steps = (len(windows) - len(held_out)) // 2
    assert ("learn rounding, 0 min left", steps, steps) in stages
    assert bundle.manifest.recipe["rounding"] == "distilled"
    assert bundle.manifest.recipe["calibration"]["texts"] == len(TEXTS)


def test_scales_stay_normal_numbers(monkeypatch: Any) -> None:
    model, smallest = decoder(), np.float32(2.0**-14)
    rounded = learned_rounding.RoundedKernel(np.ones((1, 64), np.int8), np.array([[smallest, -smallest / 4]]), 32)
    kernel = learned_rounding._Kernel(rounded, rounded.values())
    kernel.change.assign([[-50.0, -50.0]])
    np.testing.assert_array_equal(kernel.rounded().scales, rounded.scales)
    assert learning_windows(model, TEXTS * 8).shape == (512, 128)  # of more tokens


def test_errors_come_before_the_first_stage(monkeypatch: Any, tmp_path: Any) -> None:
    stages: list[tuple[str, int, int]] = []

    def refused(model: Any, texts: Any, error: type[Exception], message: str) -> None:
        options = {} if texts is None else {"calibration": texts}
        with pytest.raises(error, match=message):
            model.export(tmp_path / "out", "onnx", LOOSE, progress=lambda *stage: stages.append(stage), **options)

    model = decoder()
    refused(model, None, InputError, "at least 32,768 tokens.*Received: 0 tokens in 0 texts")
    refused(model, ["a few words"], InputError, "tokens in 1 texts. Pass more")
    encoder = zoo.build("bert", "text-classification", hidden_dim=64, num_layers=1, num_heads=4, vocab_size=99)
    refused(encoder, TEXTS, ExportError, "decoder for text generation with a tokenizer. Received: BertTextClass")
    monkeypatch.setattr(learned_rounding, "_available", lambda: 2.0**20)
    refused(model, TEXTS * 4, ExportError, "needs about .* GiB of memory.*Received: 0.0 GiB")
    assert not stages and not (tmp_path / "out").exists()
