"""Marian: forbidden padding, tables of sinusoids, and two vocabularies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import kerasformer as kf
from kerasformer import generation, zoo
from kerasformer.engines import open_engine
from kerasformer.errors import CheckpointError, ExportError, InputError, UnsupportedConfigError
from kerasformer.layers import sinusoids
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, make_inputs, run
from kerasformer.tools.testing.generation import prompts, theirs
from tests.core.export.text_models import size_options
from tests.core.tokenization.test_marian import checkpoint
from tests.core.zoo.cases import CASES
from tests.grids import grid

pytestmark = pytest.mark.grid

MARIAN = next(case for case in CASES if case.name == "marian")
WRITES = "text2text-generation"
SIZES = {
    "vocab_size": 60, "decoder_vocab_size": 75, "shared": False, "hidden_dim": 24, "num_layers": 1, "num_heads": 3,
    "num_decoder_layers": 1, "decoder_num_heads": 3, "intermediate_dim": 20, "decoder_intermediate_dim": 20,
    "max_length": 32, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
"""A model with two vocabularies."""


def change_tensors(folder: Path, **tensors: np.ndarray) -> None:
    """Adds tensors to a checkpoint."""
    path = folder / "model.safetensors"
    safetensors.numpy.save_file({**safetensors.numpy.load_file(path), **tensors}, path, {"format": "pt"})


def copy_of(it: Loaded, folder: Path) -> Path:
    return Path(shutil.copytree(it.folder, folder / "checkpoint"))


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_padding_is_never_written(loaded, tmp_path, file):
    """The output bias makes the padding token the best one after a few others."""
    it = loaded((MARIAN, WRITES))
    folder = copy_of(it, tmp_path)
    bias = it.reference.final_logits_bias
    bias[0, 0] += 6
    try:
        change_tensors(folder, final_logits_bias=bias.numpy())
        ids, mask = prompts(it)
        free = theirs(it, ids, mask).sequences[:, 1:].numpy()
        expected = theirs(it, ids, mask, bad_words_ids=[[0]]).sequences[:, 1:].numpy()
    finally:
        bias[0, 0] -= 6
    assert (free == 0).any() and not (expected == 0).any()
    if file == "config.json":
        (folder / "generation_config.json").unlink()
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, "bad_words_ids": [[0]]}))
    model = zoo.load(folder)
    assert model.generation_config.bad_words_ids == ((0,),)
    ours = model.generate(ids, attention_mask=mask, max_new_tokens=12, jit_compile=False)
    assert [row.tolist() for row in ours] == [
        row[: len(mine)].tolist() for row, mine in zip(expected, ours, strict=True)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tables_of_sinusoids_are_compared(loaded, tmp_path, dtype):
    it = loaded((MARIAN, WRITES))
    folder, name = copy_of(it, tmp_path), "model.decoder.embed_positions.weight"
    table = sinusoids(53, 36, interleaved=False)
    change_tensors(folder, **{name: table.astype(dtype)})
    inputs = make_inputs(it)
    assert_same_outputs(inputs, run(Loaded(MARIAN, WRITES, folder, None, zoo.load(folder)), inputs), run(it, inputs))
    table[7, 5] += 0.01
    change_tensors(folder, **{name: table.astype(dtype)})
    with pytest.raises(CheckpointError, match=rf"{name}: expected a table of sinusoids.*differ by up to 0\.01"):
        zoo.load(folder)
    change_tensors(folder, **{name: table[1:].astype(dtype)})
    with pytest.raises(CheckpointError, match=r"shape of model.decoder.embed_positions.weight: expected \(53, 36\)"):
        zoo.load(folder)


def test_an_odd_size_is_refused():
    with pytest.raises(InputError, match="hidden_dim must be even.*hidden_dim=15"):
        zoo.build("marian", vocab_size=20, hidden_dim=15, num_heads=3, decoder_num_heads=3)


def two_vocabularies(folder: Path) -> Any:
    """A small model with two vocabularies, and the tokenizers of both."""
    tokenizer = Tokenizer.load(checkpoint(folder, separate=True))
    sizes = {"vocab_size": tokenizer.vocab_size, "decoder_vocab_size": tokenizer.target.vocab_size}
    tokens = {"pad_token_id": tokenizer.target.pad_token_id, "decoder_start_token_id": tokenizer.target.pad_token_id}
    model = zoo.build("marian", WRITES, **SIZES | sizes | tokens)
    random = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.4, variable.shape) + (variable.path.endswith("scale")))
    model.set_tokenizer(tokenizer)
    return model


@pytest.mark.parametrize("format", grid(["tflite", "onnx", "saved-model"], always=["tflite"]))
def test_two_vocabularies_in_bundles(tmp_path, format):
    model = two_vocabularies(tmp_path)
    kf.export.export(model, tmp_path / "bundle", format, **size_options(model, format, (16,), 24))
    step, tokenizer = open_engine(tmp_path / "bundle"), model.tokenizer
    assert (step.input_vocab_size, step.vocab_size) == (tokenizer.vocab_size, tokenizer.target.vocab_size)
    assert step.input_vocab_size < step.vocab_size
    ids = np.random.default_rng(5).integers(3, step.input_vocab_size, (3, 9)).astype("int32")
    config = model.generation_config.replace(max_new_tokens=10)
    received = [row.tolist() for row in generation.generate(step, ids, None, config).sequences]
    expected = [row.tolist() for row in model.generate(ids, max_new_tokens=10, jit_compile=False)]
    assert received == expected and max(map(max, expected)) >= step.input_vocab_size
    ids[1, 2] = step.input_vocab_size
    with pytest.raises(InputError, match=f"from 0 to {step.input_vocab_size - 1}. Received: "):
        generation.generate(step, ids, None, config)
    texts = ["Alice was tired", "Oh dear!"]
    written = model.generate(texts, max_new_tokens=10, jit_compile=False)
    answers = kf.pipeline(tmp_path / "bundle")(texts, max_new_tokens=10)
    assert [answer["generated_text"] for answer in answers] == written
    encoded = tokenizer(texts)
    rows = model.generate(
        encoded.input_ids, attention_mask=encoded.attention_mask, max_new_tokens=10, jit_compile=False
    )
    assert written == [tokenizer.target.decode(row, skip_special_tokens=True) for row in rows]
    chosen = model.generate(texts[0], choices=["tired", "Rabbit"], max_new_tokens=10, jit_compile=False)
    assert chosen in ("tired", "Rabbit")


def test_targets_that_read_one_vocabulary(tmp_path):
    model = two_vocabularies(tmp_path)
    for target in ("optimum", "transformers.js"):
        with pytest.raises(ExportError, match="reads and writes texts with one vocabulary.*separate vocabularies of"):
            kf.export.export(model, tmp_path / "bundle", "onnx", target=target)
    assert not (tmp_path / "bundle").exists()


def test_features_need_one_vocabulary():
    with pytest.raises(UnsupportedConfigError, match="Features need one vocabulary"):
        zoo.build("marian", "feature-extraction", **SIZES)
