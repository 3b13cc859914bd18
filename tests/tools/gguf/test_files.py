"""Block types, several parts, and files that cannot be used: each problem is named."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import CheckpointError, KerasformerError, SourceError, UnsupportedConfigError
from kerasformer.files import sources
from kerasformer.tools.gguf import GgufCheckpoint
from kerasformer.tools.gguf.blocks import read_entry
from kerasformer.tools.gguf.container import read
from tests.tools.gguf.writing import vocabulary, write

VALUES = {
    "context_length": 32, "embedding_length": 32, "block_count": 1, "feed_forward_length": 64,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
SHAPES = {
    "token_embd.weight": (96, 32), "output_norm.weight": (32,), "blk.0.attn_norm.weight": (32,),
    "blk.0.ffn_norm.weight": (32,), "blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32),
    "blk.0.attn_v.weight": (16, 32), "blk.0.attn_output.weight": (32, 32), "blk.0.ffn_gate.weight": (64, 32),
    "blk.0.ffn_up.weight": (64, 32), "blk.0.ffn_down.weight": (32, 64),
}  # fmt: skip


def tensors() -> dict[str, np.ndarray]:
    """Returns the tensors of a tiny model."""
    generator = np.random.default_rng(7)
    return {name: generator.standard_normal(shape).astype("float32") for name, shape in SHAPES.items()}


def llama(path: Path, values: dict[str, Any] | None = None, changes: dict[str, Any] | None = None) -> Path:
    """Writes a tiny LLaMA, with other values or tensors; those that are `None` are missing."""
    content = {**tensors(), **(changes or {})}
    content = {name: value for name, value in content.items() if value is not None}
    return write(path, "llama", {**VALUES, **vocabulary(96), **(values or {})}, content)


KINDS = [kind for kind in gguf.GGMLQuantizationType if not kind.name.startswith(("I8", "I16", "I32", "I64"))]


@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply:RuntimeWarning:gguf")  # scales that are NaN
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_types_of_blocks(kind: gguf.GGMLQuantizationType, tmp_path: Path) -> None:
    """Numbers are those of the library; they are quantized by it where it can, and are random bytes otherwise."""
    rows, size = 3, 512
    values = np.random.default_rng(3).standard_normal((rows, size)).astype("float32")
    elements, count = gguf.GGML_QUANT_SIZES[kind]
    try:
        data = gguf.quantize(values, kind)
    except NotImplementedError:
        data = np.frombuffer(random.Random(5).randbytes(rows * size // elements * count), np.uint8).reshape(rows, -1)
    written = data if kind.name in ("F32", "F16", "F64") else (np.ascontiguousarray(data).view(np.uint8), kind)
    if kind.name == "F64":
        written = values.astype("float64")
    entry = read(write(tmp_path / "x.gguf", "llama", {}, {"x.weight": written})).tensors["x.weight"]
    assert entry.type is kind and entry.shape == (rows, size)
    if kind.name == "F64":
        assert (read_entry(entry) == values).all()
        return
    try:
        expected = gguf.dequantize(data, kind).reshape(rows, size)
    except NotImplementedError:
        path = llama(tmp_path / "m.gguf", {}, {"blk.0.ffn_down.weight": None})
        path = llama(tmp_path / "m.gguf", changes={"output_norm.weight": (data.view(np.uint8), kind)})
        with pytest.raises(CheckpointError, match=f"{kind.name}, which the installed version of gguf"):
            zoo.load(path)
        return
    assert np.array_equal(read_entry(entry).astype("float32"), expected, equal_nan=True)


def test_parts(tmp_path: Path) -> None:
    """A model in several files is read from the first; the others are found by their names."""
    whole, names = llama(tmp_path / "whole.gguf"), list(SHAPES)
    expected = GgufCheckpoint(whole).tensors()
    count, parts = 3, np.array_split(names, 3)
    paths = [tmp_path / f"model-{index + 1:05}-of-{count:05}.gguf" for index in range(count)]
    for index, (path, part) in enumerate(zip(paths, parts, strict=True)):
        own = {"split.no": index, "split.count": count, "split.tensors.count": len(names)}
        values = {**VALUES, **vocabulary(96)} if index == 0 else {}
        write(path, "llama", {**values, **own}, {name: tensors()[name] for name in part})
    file = GgufCheckpoint(paths[0]).tensors()
    assert sorted(file) == sorted(expected)
    assert all((file.read(name) == expected.read(name)).all() for name in file)
    with pytest.raises(CheckpointError, match="Expected: the first part, model-00001-of-00003.gguf"):
        GgufCheckpoint(paths[1])
    with pytest.raises(CheckpointError, match="must be in one folder. Missing: model-00003-of-00003.gguf"):
        paths[2].rename(tmp_path / "elsewhere.gguf")
        GgufCheckpoint(paths[0])
    with pytest.raises(CheckpointError, match="found by their names. Expected: a name that ends"):
        paths[0].rename(tmp_path / "first.gguf")
        GgufCheckpoint(tmp_path / "first.gguf")


def changed(change: Callable[[bytearray], Any]) -> Callable[[Path], Path]:
    """Returns a function that writes a model whose bytes are changed."""

    def result(path: Path) -> Path:
        content = bytearray(llama(path).read_bytes())
        replacement = change(content)
        path.write_bytes(content if replacement is None else replacement)
        return path

    return result


def put(offset: int, code: str, value: int) -> Callable[[bytearray], None]:
    """Returns a function that writes a number."""
    return lambda content: struct.pack_into(code, content, offset, value)


def after(name: bytes, offset: int, code: str, value: int) -> Callable[[bytearray], None]:
    """Returns a function that writes a number after a name."""
    return lambda content: struct.pack_into(code, content, content.index(name) + len(name) + offset, value)


_MATRIX = b"blk.0.ffn_down.weight"
BAD_FILES: dict[str, tuple[Callable[[Path], Path], type[KerasformerError], str]] = {
    "empty": (changed(lambda content: b""), CheckpointError, "is not a GGUF file, which starts with b'GGUF'"),
    "version": (changed(put(4, "<I", 1)), CheckpointError, "must have version 2 or 3 .* Received: version 1"),
    "big-endian": (changed(put(4, ">I", 3)), CheckpointError, "is big-endian"),
    "values": (changed(put(16, "<Q", 2**62)), CheckpointError, "4611686018427387904 values and 11 tensors"),
    "array": (
        changed(after(b"tokenizer.ggml.tokens", 8, "<Q", 2**61)), CheckpointError, "has 2305843009213693952 strings",
    ),
    "shape": (changed(after(_MATRIX, 4, "<Q", 2**62)), CheckpointError, f"{_MATRIX.decode()!r} is at the bytes"),
    "block size": (changed(after(_MATRIX, 20, "<I", 12)), CheckpointError, "rows of blocks of Q4_K have a multiple"),
    "offset": (changed(after(_MATRIX, 24, "<Q", 2**40)), CheckpointError, f"tensor {_MATRIX.decode()!r} is at the b"),
    "truncated": (changed(lambda content: content[:-1]), CheckpointError, "is truncated or damaged: tensor"),
    "alignment": (
        lambda path: write(path, "llama", {"general.alignment": 24}, {}), CheckpointError, "must be a power of two",
    ),
    "architecture": (
        lambda path: write(path, "mamba", {}, {}), UnsupportedConfigError,
        "unsupported architecture. Expected one of bert, .* Received: general.architecture='mamba'",
    ),
    "missing key": (
        lambda path: llama(path, {"block_count": None}), CheckpointError, "no value for the key llama.block_count",
    ),
    "wrong type": (
        lambda path: llama(path, {"block_count": "many"}), CheckpointError, "llama.block_count .* must be an integer",
    ),
    "many layers": (
        lambda path: llama(path, {"block_count": 2**31}), CheckpointError, "block_count .* must be at most 11, the",
    ),
    "no table": (
        lambda path: llama(path, changes={"token_embd.weight": None}), CheckpointError, "no tensor token_embd.weight",
    ),
    "integers": (
        lambda path: llama(path, changes={"output_norm.weight": np.ones(32, "int32")}), CheckpointError,
        "type of model.norm.weight: .* received a tensor of type I32",
    ),
    "rotary factors": (
        lambda path: llama(path, changes={"rope_freqs.weight": np.ones(3, "float32")}), CheckpointError,
        "rope_freqs.weight .* must have 4 positive numbers",
    ),
    "rotary scaling": (
        lambda path: llama(path, {"rope.scaling.type": "longrope"}), UnsupportedConfigError,
        "rope.scaling.type .* must be 'none', 'linear' or 'yarn'",
    ),
    "rotated part": (
        lambda path: llama(path, {"rope.dimension_count": 4}), CheckpointError, "must be the size of a head, 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(name: str, tmp_path: Path) -> None:
    make, kind, message = BAD_FILES[name]
    with pytest.raises(kind, match=message):
        zoo.load(make(tmp_path / "model.gguf"))


def test_any_damage_has_an_error(tmp_path: Path) -> None:
    """Random bytes in the header, and every length: an error of this package, or a file that can be read."""
    content = llama(tmp_path / "model.gguf").read_bytes()
    header, generator = content.index(_MATRIX) + 60, random.Random(11)
    for index in range(120):
        damaged = bytearray(content if index % 3 else content[: generator.randrange(len(content))])
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(min(header, len(damaged)))] = generator.randrange(256) if damaged else 0
        path = tmp_path / "damaged.gguf"
        path.write_bytes(damaged)
        try:
            checkpoint = GgufCheckpoint(path)
            checkpoint.files(), checkpoint.tensors(), checkpoint.tokenizer_files()
        except KerasformerError:
            pass


def test_unread_keys_are_reported(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="unsupported keys, which are ignored: llama.expert_count"):
        zoo.load(llama(tmp_path / "model.gguf", {"expert_count": 8}))


def test_a_folder_with_files_is_named(tmp_path: Path) -> None:
    llama(tmp_path / "model.Q8_0.gguf")
    with pytest.raises(SourceError, match="Pass one of its files: model.Q8_0.gguf"):
        zoo.load(tmp_path)
    (tmp_path / "model.txt").write_text("text")
    with pytest.raises(SourceError, match="a file with the suffix .gguf, was expected"):
        sources.resolve(tmp_path / "model.txt")


def test_generation_settings(tmp_path: Path) -> None:
    values = {
        "tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 4, "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.eom_token_id": 4, "tokenizer.ggml.padding_token_id": 6, "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20, "general.sampling.top_p": 0.8, "general.sampling.penalty_repeat": 1.1,
        "general.license": "apache-2.0", "general.languages": ["en", "de"],
    }  # fmt: skip
    path = llama(tmp_path / "model.gguf", values)
    model = zoo.load(path)
    expected = {
        "bos_token_id": 3, "eos_token_id": [4, 5], "pad_token_id": 6, "do_sample": True, "temperature": 0.7,
        "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1,
    }  # fmt: skip
    assert {name: model.generation_config.to_dict()[name] for name in expected} == expected
    assert model.info().eos_token_id == (4, 5) and model.source == path
    assert GgufCheckpoint(path).facts() == {"license": "apache-2.0", "language": ["en", "de"]}
    json.dumps(GgufCheckpoint(path).settings)
