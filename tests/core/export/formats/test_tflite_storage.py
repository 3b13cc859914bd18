"""Quantization and packing of matrices, compared with independent formulas."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.export.formats.tflite.storage import Form, as_stored, content, scales

FORMS = [Form("float32"), Form("float16"), Form("int8"), Form("int4"), Form("int4", 32)]
MATRIX = np.random.default_rng(0).standard_t(4, (70, 96)).astype("float32")


def packed(matrix: np.ndarray, form: Form) -> np.ndarray:
    scale = scales(matrix, form) if form.integer else None
    return np.frombuffer(b"".join(content(matrix, form, scale)), np.uint8)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_number_of_bytes(form: Form) -> None:
    assert packed(MATRIX, form).size == form.num_bytes(MATRIX.shape)
    assert (scales(MATRIX, form).nbytes if form.integer else 0) == form.scale_bytes(MATRIX.shape)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_portions_make_no_difference(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, values = packed(MATRIX, form), as_stored(MATRIX, form)
    monkeypatch.setattr("kerasformer.export.formats.tflite.storage._STEP", 500)
    assert np.array_equal(packed(MATRIX, form), whole)
    assert np.array_equal(as_stored(MATRIX.T.copy().T, form), values)


def test_the_first_of_two_levels_is_in_the_lower_half() -> None:
    matrix = np.array([[1, -2, 7, -8]], "float32")
    scale = np.ones(1, "float32")
    assert list(content(matrix, Form("int4"), scale)) == [bytes([0xE1, 0x87])]


def test_eight_bits_use_all_levels_with_an_error_of_half_a_level() -> None:
    scale, values = scales(MATRIX, Form("int8"))[:, None], as_stored(MATRIX, Form("int8"))
    assert np.allclose(scale[:, 0], np.abs(MATRIX).max(axis=1) / 127)
    assert np.abs(values / scale).max() == pytest.approx(127)
    assert np.all(np.abs(values - MATRIX) <= 0.5001 * scale)


@pytest.mark.parametrize("block", [None, 32])
def test_four_bits_have_a_smaller_error_than_scales_of_the_largest_value(block: int | None) -> None:
    rows = MATRIX.reshape(-1, block or 96)
    plain = np.abs(rows).max(axis=1, keepdims=True) / 7
    before = np.square(np.rint(rows / plain) * plain - rows).sum(axis=1)
    after = np.square(as_stored(MATRIX, Form("int4", block)) - MATRIX).reshape(rows.shape).sum(axis=1)
    # A block's scale has eight significant bits, which adds a relative error of 1/256 to each entry.
    assert np.all(np.sqrt(after) <= 1.0001 * np.sqrt(before) + (0 if block is None else 1 / 256) * np.abs(rows).max())
    assert after.sum() < (0.8 if block is None else 0.9) * before.sum()


def test_scales_of_blocks_are_the_same_in_float16_and_bfloat16() -> None:
    tiny = MATRIX * np.logspace(-9, 3, 70, dtype="float32")[:, None]
    scale = scales(tiny, Form("int4", 32))
    assert scale.dtype == np.float16
    assert not np.any(scale.astype("float32").view(np.uint32) & 0xFFFF)
    assert np.all(scale >= np.float16(2.0**-14)), "a normal number"


@pytest.mark.parametrize("form", [form for form in FORMS if form.integer], ids=str)
def test_zeros_stay_zeros(form: Form) -> None:
    matrix = MATRIX.copy()
    matrix[3], matrix[5, :32] = 0, 0
    assert np.all(np.isfinite(scales(matrix, form)) & (scales(matrix, form) > 0))
    assert not np.any(as_stored(matrix, form)[matrix == 0])
