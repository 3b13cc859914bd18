"""Rounding to four bits with the inputs of products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from kerasformer import zoo
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.onnx.rounding import four_bit_scales
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.formats.tflite.storage import Form, best_scales
from kerasformer.export.quantization import calibration, compensation
from kerasformer.export.quantization.calibration import CalibratedKernel, _Observer, calibrate
from kerasformer.export.quantization.compensation import Grid, joined, nearest, round_kernel
from kerasformer.export.quantization.layouts import calibrated_kernels
from kerasformer.export.quantization.sample_inputs import as_inputs, batches, passages
from kerasformer.layers.primitives import lowering
from tests.core.export.text_models import ROWS

RANDOM = np.random.default_rng(0)
# Inputs that follow a few hidden factors, as those of a trained model do.
INPUTS = (RANDOM.normal(size=(400, 6)) @ RANDOM.normal(size=(6, 48)) + 0.1 * RANDOM.normal(size=(400, 48))).astype("f4")
KERNEL = RANDOM.normal(size=(40, 48)).astype("f4")
GRIDS = {
    "tflite, blocks": Grid(32, lambda rows, costs: best_scales(rows, Form("int4", 32), costs)),
    "tflite, channels": Grid(None, lambda rows, costs: best_scales(rows, Form("int4"), costs)),
    "onnx, blocks": Grid(16, four_bit_scales),
    "onnx, channels": Grid(None, four_bit_scales),
}


def error(values: np.ndarray, kernel: np.ndarray = KERNEL, inputs: np.ndarray = INPUTS) -> np.ndarray:
    """Returns the squared error of each output."""
    return np.square(inputs @ (values - kernel).T).sum(axis=0)


@pytest.mark.parametrize("name", GRIDS)
def test_errors_compensate_each_other(name):
    grid = GRIDS[name]
    rounded = round_kernel(KERNEL, INPUTS.T @ INPUTS, grid)
    assert error(rounded.values()).sum() < 0.3 * error(nearest(KERNEL, grid).values()).sum()
    assert rounded.levels.dtype == np.int8 and set(np.unique(rounded.levels)) <= set(range(-8, 8))
    block = grid.block or 48
    assert rounded.scales.shape == (40, -(-48 // block))
    spread = np.repeat(rounded.scales, block, axis=1)[:, :48]
    np.testing.assert_array_equal(rounded.values(), rounded.levels * spread)


def test_feedback_equals_that_of_the_inverse(monkeypatch):
    """GPTQ as published: each error is passed on by the inverse of the moments of the inputs that are left."""
    monkeypatch.setattr(compensation, "_DAMPING", 0.0)
    moments, scale = (INPUTS.T @ INPUTS).astype("f8"), np.float32(0.25)
    weights, levels = KERNEL.astype("f8"), np.empty(KERNEL.shape)
    for i in range(48):
        inverse = np.linalg.inv(moments[i:, i:])
        levels[:, i] = np.clip(np.rint(weights[:, i] / scale), -8, 7)
        passed = (weights[:, i] - levels[:, i] * scale) / inverse[0, 0]
        weights[:, i:] -= np.outer(passed, inverse[0])
    grid = Grid(48, lambda rows, costs: np.full(len(rows), scale))
    assert (round_kernel(KERNEL, moments, grid).levels == levels).mean() > 0.99  # a few are between two levels


def test_inputs_that_are_always_zero_and_many_outputs(monkeypatch):
    inputs = INPUTS * (np.arange(48) != 5)
    whole = round_kernel(KERNEL, inputs.T @ inputs, GRIDS["tflite, blocks"])
    monkeypatch.setattr(compensation, "_ROWS", 16)
    parts = round_kernel(KERNEL, inputs.T @ inputs, GRIDS["tflite, blocks"])
    assert np.isfinite(whole.values()).all()
    np.testing.assert_allclose(parts.values(), whole.values(), atol=0.2)
    assert (joined([whole, parts]).levels == np.concatenate([whole.levels, parts.levels])).all()
    silent = round_kernel(KERNEL, np.zeros((48, 48)), GRIDS["tflite, blocks"])
    np.testing.assert_array_equal(silent.levels, nearest(KERNEL, GRIDS["tflite, blocks"]).levels)


@pytest.mark.grid
def test_kernels_are_rounded_with_the_inputs_that_the_model_computes(monkeypatch):
    model = ROWS["gpt2-text-generation"].model()
    grid, paths = GRIDS["onnx, blocks"], [v.path for v in model.variables if "/layer_0/" in v.path]
    kernels = {v.path: v for v in model.variables if v.path in paths and v.path.endswith("kernel")}
    values = {path: np.asarray(variable.value).T for path, variable in kernels.items()}
    given = {path: CalibratedKernel(lambda path=path: values[path], values[path].shape[1], grid) for path in kernels}
    texts = ["The old man looked at the sea.", "A king and a queen."]
    inputs: dict[str, list[np.ndarray]] = {path: [] for path in kernels}
    for passage in batches(model, passages(model, texts, sampled=True)):
        observer = _Observer(kernels)
        with lowering(observer):
            model(as_inputs(passage), training=False)
        for path in kernels:
            inputs[path] += [np.asarray(x).reshape(-1, x.shape[-1]) for x in observer.inputs[path]]
    rows = {path: np.concatenate(parts) for path, parts in inputs.items()}
    expected = {path: round_kernel(values[path], rows[path].T @ rows[path], grid) for path in kernels}

    monkeypatch.setattr(calibration, "_TOKENS", 16)
    for memory, passes in ((1, 4), (1 << 30, 1)):  # q, k and v have the same inputs; the others, their own
        monkeypatch.setattr(calibration, "_MOMENT_BYTES", memory)
        done: list[tuple[int, int]] = []
        unused = {"another": CalibratedKernel(lambda: np.zeros((1, 1)), 1, grid)}
        found = calibrate(model, texts, lambda *counts, done=done: done.append(counts), given | unused)
        assert done == [(count, 2 * passes) for count in range(1, 2 * passes + 1)]
        rounded = {path: ranges.rounded for path, ranges in found.items() if ranges.rounded is not None}
        assert sorted(rounded) == sorted(kernels) and set(found) > set(kernels)
        for path, kernel in rounded.items():
            assert (kernel.levels == expected[path].levels).mean() > 0.99  # a few are between two levels
            assert not (kernel.levels == nearest(values[path], grid).levels).all()
    assert not any(ranges.rounded for ranges in calibrate(model, texts).values())


def test_no_more_threads_than_cores_round_kernels(monkeypatch):
    threads, rounded = [], calibration._rounded

    def observed(kernels, moments):
        threads.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return rounded(kernels, moments)

    monkeypatch.setattr(calibration, "_rounded", observed)
    kernels = {path: CalibratedKernel(lambda: KERNEL, 48, GRIDS["onnx, blocks"]) for path in ("a", "b")}
    for cores, memory, expected in ((2, 1 << 30, 1), (2, 1, 2)):
        monkeypatch.setattr(calibration.os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(calibration, "_MOMENT_BYTES", memory)
        sums = {path: calibration._Moments(48, 400) for path in kernels}
        for moments in sums.values():
            moments.add(INPUTS)
        assert len(list(calibration._in_threads(kernels, [("a",), ("b",)], sums))) == 2
        assert set(threads) == {expected}
        threads.clear()


@pytest.mark.parametrize("layout", [TfliteLayout(), OnnxLayout()], ids=["tflite", "onnx"])
@pytest.mark.grid
def test_a_tied_table_of_four_bits_is_rounded_for_both_of_its_uses(layout):
    model = ROWS["gpt2-text-generation"].model()
    assert not any(kernel.table for kernel in calibrated_kernels(model, RECIPES["int4"], layout).values())
    kernels = calibrated_kernels(model, replace(RECIPES["int4"], tables="int4"), layout)
    ((path, kernel),) = ((path, kernel) for path, kernel in kernels.items() if kernel.table)
    texts = ["The old man looked at the sea.", "A king and a queen."]
    tied, product = (
        calibrate(model, texts, kernels={path: replace(kernel, table=table)})[path].rounded for table in (True, False)
    )
    assert tied is not None and product is not None
    plain = [np.square(rounded.values() - kernel.value()).sum() for rounded in (tied, product)]
    assert plain[0] < 0.9 * plain[1], "rows that are looked up are no closer"


def test_samples_of_a_short_decoder_fit_into_it():
    sizes = {
        **dict.fromkeys(("num_layers", "num_decoder_layers"), 1),
        **dict.fromkeys(("num_heads", "decoder_num_heads"), 2),
        **dict.fromkeys(("hidden_dim", "intermediate_dim", "decoder_intermediate_dim"), 12),
    }
    arrays = passages(zoo.build("bart", vocab_size=60, max_length=40, **sizes), ["one", "another"], sampled=True)
    assert 0 < (arrays["decoder_tokens"] * arrays["attention_mask"]).sum(axis=1).max() <= 40


def test_sensitive_matrices_are_values_outputs_of_feed_forward_networks_and_outer_layers():
    def eight_bits(recipe: Recipe, stack: str, part: str) -> list[int]:
        paths = [f"a_model/{stack}/layer_{index}/{part}/kernel" for index in range(30)]
        return [index for index, path in enumerate(paths) if recipe.storage(path, (64, 64)) == "int8"]

    parts = "attention/query", "cross_attention/value", "feed_forward/up", "feed_forward/output"
    paths = [f"a_model/decoder/layer_{index}/{part}/kernel" for index in range(30) for part in parts]
    own = replace(RECIPES["int4_mixed"], layers=(("*/layer_9/feed_forward/*", "int4"),))
    for recipe in (RECIPES["int4_mixed"], own):
        resolved = recipe.resolved(["a_model/tokens/embeddings", *paths])
        assert eight_bits(resolved, "decoder", "attention/query") == [0, 1, 28, 29]  # a sixteenth of 30 is 1.9
        assert eight_bits(resolved, "decoder", "feed_forward/up") == [0, 1, 28, 29]
        assert eight_bits(resolved, "decoder", "cross_attention/value") == list(range(30))
        every = [index for index in range(30) if recipe is not own or index != 9]
        assert eight_bits(resolved, "decoder", "feed_forward/output") == every
        assert eight_bits(resolved, "encoder", "attention/query") == []
    few = RECIPES["int4_mixed"].resolved(path for path in paths if "layer_1/" in path or "layer_0/" in path)
    assert eight_bits(few, "decoder", "feed_forward/up") == [], "a sixteenth of two layers is none"
    assert own.resolved([]).layers[0] == own.layers[0], "the caller's exceptions come first"
    assert RECIPES["int4"].resolved(paths) is RECIPES["int4"]
