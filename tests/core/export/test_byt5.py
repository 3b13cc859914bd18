"""Bundles with the tokenizer of ByT5, which is written to `tokenizer.json`."""

from __future__ import annotations

import pytest

import kerasformer as kf
from tests import tiny_text
from tests.core.export.text_models import Row
from tests.grids import grid

pytestmark = pytest.mark.grid

SIZES = {"hidden_dim": 32, "head_dim": 12, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 3}
TEXTS = ["Rain is expected.", "Où est le café ? 🙂"]


@pytest.mark.parametrize("format", grid(["onnx", "tflite"], always=("onnx",)))
def test_texts_are_those_of_keras(format, tmp_path):
    settings = {**SIZES, "intermediate_dim": 40, "feed_forward": "gated-gelu", "decoder_start_token_id": 0}
    model = Row("t5", "text2text-generation", settings, tiny_text.utf8_bytes).model()
    folder = kf.export.export(model, tmp_path / "bundle", format, capacity=32, lengths=(64,))
    pipe, options = kf.pipeline(folder), {"max_new_tokens": 20}
    assert pipe.tokenizer.encode(TEXTS[1]) == [*(byte + 3 for byte in TEXTS[1].encode()), 1]
    assert pipe(TEXTS, **options) == kf.pipeline(model, "text2text-generation")(TEXTS, **options)
    assert pipe.tokenizer.decode([byte + 3 for byte in b"a\xe2\x82"]) == "a"
