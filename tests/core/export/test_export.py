"""Whole exports: bundles of small models in every format and recipe, used like users would use them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
import safetensors.numpy
from ai_edge_litert import interpreter

import kerasformer as kf
from kerasformer import bundle, errors
from kerasformer.basics.tasks import PRETRAINING
from kerasformer.bundle.architectures import find
from kerasformer.bundle.manifest import _digest
from kerasformer.engines import ENGINES
from kerasformer.engines.fidelity.comparison import compare
from kerasformer.engines.fidelity.verification import verify
from kerasformer.errors import (
    BundleError,
    CapacityError,
    CheckpointError,
    ExportError,
    ExportMismatchError,
    InputError,
    TokenizerError,
)
from kerasformer.export import builder as artifact
from kerasformer.export import child_process as child
from kerasformer.export import reference_texts as texts
from kerasformer.export.formats.onnx import rounding as onnx_rounding
from kerasformer.export.formats.tflite import storage as tflite_storage
from kerasformer.export.options import cache_capacity
from kerasformer.tokenization.truncation import TruncationWarning
from tests.code_blocks import card_texts
from tests.core.export.other_backend import exported_on_jax
from tests.core.export.text_models import CAPACITY, LENGTHS, OTHERS, ROWS, shared_bundle, shared_model, size_options
from tests.core.pipelines.agreement import assert_same
from tests.core.zoo.cases import OPERATORS, RELATIVES
from tests.grids import grid, repeats
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_tokens

TEXTS = ["Rain is expected.", "The museum is closed on Mondays", "What a waste!", "A clumsy, cold film."]
GENERATING = [name for name, row in ROWS.items() if "generation" in row.task]
FORMATS = ["tflite", "onnx"]
IN_FLOAT32 = [*FORMATS, "saved-model"]

# Inputs of each task's pipeline: texts of unequal length, more than one batch.
CALLS: dict[str, Callable[..., Any]] = {
    "text-classification": lambda pipe: pipe(TEXTS, top_k=None, batch_size=3),
    "token-classification": lambda pipe: [
        pipe(TEXTS, aggregation_strategy=way, batch_size=3, ignore_labels=()) for way in ("none", "first")
    ],
    "question-answering": lambda pipe: pipe(
        question=["Who plays?", "When?"], context=[texts.READING[0], TEXTS[1]], top_k=3, doc_stride=4
    ),
    "fill-mask": lambda pipe: pipe(
        [
            text.replace("[MASK]", pipe.tokenizer.mask_token)
            for text in ("The [MASK] is closed.", "What [MASK] is [MASK]?")
        ],
        top_k=3,
    ),
    "feature-extraction": lambda pipe: [
        pipe(TEXTS, pooling="mean", normalize=True).ravel().tolist(),
        [states.ravel().tolist() for states in pipe(TEXTS[:2])],
    ],
    "sentence-similarity": lambda pipe: [
        pipe.encode(TEXTS, batch_size=3).ravel().tolist(),
        pipe.encode_query(TEXTS[0], truncate_dim=9).tolist(),
        pipe.similarity(TEXTS[0], TEXTS)[0].tolist(),
    ],
    "text-generation": lambda pipe: [
        pipe(TEXTS, max_new_tokens=8, batch_size=3),
        pipe(TEXTS[:2], max_new_tokens=6, num_beams=3, num_return_sequences=2, return_full_text=False),
        "".join(pipe.stream(TEXTS[0], max_new_tokens=8)),
        pipe(TEXTS[1], max_new_tokens=8, temperature=0.8, seed=5),
    ],
    "text2text-generation": lambda pipe, batch_size=3: [
        pipe(TEXTS, max_new_tokens=8, batch_size=batch_size),
        pipe(TEXTS[:2], max_new_tokens=6, num_beams=3, num_return_sequences=2, batch_size=batch_size),
        "".join(pipe.stream(TEXTS[0], max_new_tokens=8)),
    ],
}


def call(name: str, pipe: Any) -> Any:
    """Returns the answers of a pipeline, text by text if those of the model depend on the batch (BigBird-Pegasus)."""
    alone = getattr(shared_model(name).backbone, "batch_dependent", False)
    return CALLS[pipe.task](pipe, **({"batch_size": 1} if alone else {}))


@pytest.fixture(scope="module")
def answers() -> Callable[[str], Any]:
    """Returns a function from the name of a row to the answers of Keras."""
    made: dict[str, Any] = {}

    def answer(name: str) -> Any:
        if name not in made:
            made[name] = call(name, keras_pipeline(shared_model(name)))
        return made[name]

    return answer


TRIO = ("bert-text-classification", "gpt2-text-generation", "t5-text2text-generation")
"""An encoder, a decoder and an encoder-decoder, which run without marks in both formats, in float32 and in int8."""
FIRST = list({row.model_type: name for name, row in reversed(ROWS.items()) if row.model_type not in RELATIVES}.values())
"""One row of each architecture with layers of its own."""
EXPORTS = [("tflite", "int8"), ("onnx", "none"), ("tflite", "none"), ("onnx", "int8")]
CHOSEN = {
    (name, *EXPORTS[number % len(EXPORTS)])
    for number, name in enumerate(name for name in FIRST if ROWS[name].model_type not in OPERATORS)
}
"""What CI exports: each architecture with operators of its own once, in all formats and recipes in turn."""
FOUR_BITS = {(name, format, "int4") for name in TRIO for format in FORMATS}
"""What CI exports in four bits, for a recipe sees matrices and not architectures."""
SAVED_MODELS = {"gpt2-text-generation", "t5-text2text-generation", "bert-sentence-similarity"}
"""Plain SavedModels that CI runs here; tests/foreign/test_saved_model.py runs all layers before a release."""


def before_a_release(name: str, format: str, quantize: str = "none") -> bool:
    """Whether a bundle waits for a release, since CI exports its parts in other combinations."""
    if format == "saved-model":
        return name not in SAVED_MODELS
    return (name, format, quantize) not in CHOSEN | FOUR_BITS


def always(name: str, format: str, quantize: str = "none") -> bool:
    """Whether a bundle is also exported without marks."""
    return name in TRIO and format in FORMATS and quantize in ("none", "int8")


FLOAT32 = grid(ROWS, IN_FLOAT32, always=always, release=before_a_release)


@pytest.mark.bundles(quantize="none")
@pytest.mark.parametrize(("name", "format"), FLOAT32)
def test_f32_answers_are_those_of_keras(name, format, answers):
    folder = shared_bundle(name, format)
    figures = bundle.read(folder).fidelity
    assert figures["max_error"] <= 1e-4
    assert figures["agreement"] == 1.0 and figures["answers"] >= 32
    assert figures["generated"] == (1.0 if name in GENERATING else None)
    pipe = kf.pipeline(folder)
    assert (pipe.task, pipe.engine) == (ROWS[name].task, ENGINES[format])
    assert_same(call(name, pipe), answers(name))


HEADS = [(row.task, find(row.model_type).branch) for row in (*ROWS.values(), *OTHERS.values())]
"""The head of each row, on an encoder, a decoder or both; the layers are those of the rows of the architecture."""
REPEATED_HEADS = {name for name, repeated in zip((*ROWS, *OTHERS), repeats(zip(HEADS)), strict=True) if repeated}


@pytest.mark.bundles(format=FORMATS, quantize="none")
@pytest.mark.parametrize(
    "name",
    grid(OTHERS, always=("albert-question-answering", "llama-text-classification"), release=REPEATED_HEADS),
)
@pytest.mark.grid
def test_every_other_head(name, tmp_path):
    model = OTHERS[name].model()
    expected = CALLS[model.task](keras_pipeline(model)) if model.task in CALLS else None
    for format in FORMATS:
        # As long as the model's texts, which Keras and the file then read in the same chunks.
        lengths = (min(model.max_length or 96, 96),)
        folder = kf.export.export(model, tmp_path / format, format, **size_options(model, format, lengths, 64))
        assert bundle.read(folder).fidelity["max_error"] <= 1e-4
        if expected is not None:
            assert_same(CALLS[model.task](kf.pipeline(folder)), expected)
    assert expected is not None or model.task in PRETRAINING


# Embeddings have the matrices of their encoder; one row tests their gate, since random weights give no cosine to judge.
QUANTIZED = [name for name in ROWS if not name.endswith("sentence-similarity")]
IN_EIGHT_OR_FOUR_BITS = grid(QUANTIZED, FORMATS, ["int8", "int4"], always=always, release=before_a_release)


@pytest.mark.bundles()
@pytest.mark.parametrize(
    ("name", "format", "quantize"),
    [
        *IN_EIGHT_OR_FOUR_BITS,
        *grid(
            ["gpt2-text-generation"],
            FORMATS,
            ["int4_channel"],
            always=(),
            others="release",
        ),
        *grid(["llama-text-generation"], FORMATS, ["int4_mixed"], always=()),
        pytest.param("bert-sentence-similarity", "tflite", "int8", marks=pytest.mark.grid),
    ],
)
def test_a_quantized_bundle_is_small_and_faithful(name, format, quantize):
    folder, model = shared_bundle(name, format, quantize), shared_model(name)
    manifest, recipe = bundle.read(folder), ROWS[name].recipe(quantize)
    assert manifest.recipe["name"] == quantize
    assert manifest.fidelity["max_error"] <= recipe.tolerance
    assert manifest.fidelity["agreement"] >= recipe.min_agreement
    assert manifest.fidelity["max_error"] > 1e-4, "nothing was quantized"
    assert model_bytes(folder) < 0.8 * 4 * model.count_params(), "with the graph, a large part of these small files"
    if "classification" in name:  # otherwise agreement would be meaningless
        indices = bundle.read_references(folder)["output.logits.indices"][..., 0]
        assert len(np.unique(indices)) > 1
    pipe = kf.pipeline(folder)
    if always(name, format, quantize):  # the export compared every bundle like this
        again = compare(pipe.model, bundle.read_references(folder))
        assert again.agreement == manifest.fidelity["agreement"]
        assert again.max_error == pytest.approx(manifest.fidelity["max_error"], rel=1e-3)
        CALLS[model.task](pipe)
    # Each token is the best one of Keras, but for the measured effect of rounding; 4-bit random weights have near ties.
    if model.generates and quantize == "int8":
        greedy = {"do_sample": False, "max_new_tokens": 8}
        outputs = [pipe(text, return_dict_in_generate=True, **greedy) for text in TEXTS]
        prompts = [model.tokenizer.encode(text) for text in TEXTS]
        check_tokens(model, folder, prompts, [output.sequences[0].tolist() for output in outputs], 8, greedy)


def model_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx"))


# Names and shapes, as third-party runtimes expect them. D: head size.


def caches(name: str, length: int, heads: int = 3, size: int = 24) -> dict[str, tuple[int, ...]]:
    return {f"{name}_{kind}_{layer}": (1, heads, length, size) for layer in (0, 1) for kind in "kv"}


def tflite_encoder_decoder(vocab_size: int, heads: int, size: int) -> dict[str, Any]:
    """Returns the signatures of an encoder-decoder in a TFLite file."""
    own, cross = caches("kv_cache", CAPACITY, heads, size), caches("cross", LENGTHS[-1], heads, size)
    step = {"tokens": (1, 1), "input_pos": (1,), "encoder_mask": (1, LENGTHS[-1])}
    read = {f"encode_{n}": ({"input_ids": (1, n), "attention_mask": (1, n)}, cross) for n in LENGTHS}
    return {**read, "decode": ({**step, **own, **cross}, {"logits": (1, 1, vocab_size), **own})}


TFLITE: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "bert-text-classification": {
        f"forward_{n}": (
            {"input_ids": (1, n), "attention_mask": (1, n), "token_type_ids": (1, n)},
            {"logits": (1, 5)},
        )
        for n in LENGTHS
    },
    "bert-question-answering": {
        f"forward_{n}": (
            {"input_ids": (1, n), "attention_mask": (1, n), "token_type_ids": (1, n)},
            {"start_logits": (1, n), "end_logits": (1, n)},
        )
        for n in LENGTHS
    },
    "gpt2-text-generation": {
        **{
            f"prefill_{n}": (
                {"tokens": (1, n), "input_pos": (n,), **caches("kv_cache", CAPACITY)},
                caches("kv_cache", CAPACITY),
            )
            for n in (8, 64)
        },
        "decode": (
            {"tokens": (1, 1), "input_pos": (1,), **caches("kv_cache", CAPACITY)},
            {"logits": (1, 1, 320), **caches("kv_cache", CAPACITY)},
        ),
    },
    "bart-text2text-generation": tflite_encoder_decoder(320, heads=4, size=18),
}


ROWS_AT_ONCE = 8


def together(inputs: dict[str, Any], outputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the signature of a step for several rows: a cache for each row, and all other tensors with these rows."""

    def rows(tensors: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, shape in tensors.items():
            if name.startswith(("kv_cache", "cross")):
                found |= {f"{name}_row_{row}": shape for row in range(ROWS_AT_ONCE)}
            else:
                alike = name == "input_pos" and "encoder_mask" in tensors  # all rows have the same position
                found[name] = shape if alike else (ROWS_AT_ONCE, *shape[1:])
        return found

    return rows(inputs), rows(outputs)


def read_ahead(inputs: dict[str, Any], outputs: dict[str, Any], count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the signature of a step for several tokens: only tokens, positions and logits are longer."""
    more = {"tokens": (1, count), "input_pos": (count,)}
    return {**inputs, **more}, {**outputs, "logits": (1, count, outputs["logits"][-1])}


for signatures in TFLITE.values():
    if "decode" in signatures:
        signatures[f"decode_rows_{ROWS_AT_ONCE}"] = together(*signatures["decode"])
        signatures |= {f"verify_{count}": read_ahead(*signatures["decode"], count) for count in (4, 8)}


@pytest.mark.parametrize(("name", "quantize"), [*((name, "none") for name in TFLITE), ("gpt2-text-generation", "int8")])
@pytest.mark.grid
def test_signatures_of_the_tflite_file(name, quantize):
    model = interpreter.Interpreter(str(shared_bundle(name, "tflite", quantize) / "model.tflite"))
    assert set(model.get_signature_list()) == set(TFLITE[name])
    for signature, (inputs, outputs) in TFLITE[name].items():
        runner = model.get_signature_runner(signature)
        for details, expected in ((runner.get_input_details(), inputs), (runner.get_output_details(), outputs)):
            assert {key: tuple(value["shape"].tolist()) for key, value in details.items()} == expected
            for key, value in details.items():
                whole = key in ("tokens", "input_pos", "encoder_mask") or key.endswith(("_ids", "attention_mask"))
                assert value["dtype"] == (np.int32 if whole else np.float32), key


def past(prefix: str, parts: dict[str, str], heads: int = 3, size: int = 24) -> dict[str, tuple[Any, ...]]:
    return {
        f"{prefix}.{layer}{part}.{kind}": ("batch_size", heads, length, size)
        for layer in (0, 1)
        for part, length in parts.items()
        for kind in ("key", "value")
    }


def onnx_encoder_decoder(hidden: int, vocab_size: int, **cache: int) -> dict[str, Any]:
    """Returns the inputs and outputs of the two files of an encoder-decoder."""
    read, step = ("batch_size", "encoder_sequence_length"), ("batch_size", "decoder_sequence_length")
    before = {".decoder": "past_decoder_sequence_length", ".encoder": "past_encoder_sequence_length"}
    after = {".decoder": "present_decoder_sequence_length", ".encoder": "encoder_sequence_length"}
    inputs = {"encoder_attention_mask": read, "input_ids": step, "encoder_hidden_states": (*read, hidden)}
    return {
        "encoder_model": (dict.fromkeys(("input_ids", "attention_mask"), read), {"last_hidden_state": (*read, hidden)}),
        "decoder_model_merged": (
            {**inputs, **past("past_key_values", before, **cache)},
            {"logits": (*step, vocab_size), **past("present", after, **cache)},
        ),
    }


READ = ("batch_size", "sequence_length")
ONNX: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "bert-text-classification": {
        "model": (
            {"input_ids": READ, "attention_mask": READ, "token_type_ids": READ},
            {"logits": ("batch_size", 5)},
        )
    },
    "bert-token-classification": {
        "model": ({"input_ids": READ, "attention_mask": READ, "token_type_ids": READ}, {"logits": (*READ, 5)})
    },
    "gpt2-text-generation": {
        "model": (
            {
                "input_ids": READ,
                "attention_mask": ("batch_size", "total_sequence_length"),
                "position_ids": READ,
                **past("past_key_values", {"": "past_sequence_length"}),
            },
            {"logits": ("batch_size", "logits_length", 320), **past("present", {"": "total_sequence_length"})},
        )
    },
    "bart-text2text-generation": onnx_encoder_decoder(72, 320, heads=4, size=18),
}


def declared(values: Any) -> dict[str, tuple[Any, ...]]:
    return {value.name: tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim) for value in values}


@pytest.mark.parametrize(("name", "quantize"), [*((name, "none") for name in ONNX), ("gpt2-text-generation", "int8")])
@pytest.mark.grid
def test_inputs_and_outputs_of_the_onnx_files(name, quantize):
    folder = shared_bundle(name, "onnx", quantize) / "onnx"
    suffix = {"none": "", "int8": "_quantized"}[quantize]
    assert {path.name for path in folder.iterdir()} == {f"{part}{suffix}.onnx" for part in ONNX[name]}
    for part, (inputs, outputs) in ONNX[name].items():
        graph = onnx.load(str(folder / f"{part}{suffix}.onnx")).graph
        optional = {tensor.name for tensor in graph.initializer}
        needed = [value for value in graph.input if value.name not in optional]
        assert list(declared(needed).items()) == list(inputs.items())  # optimum relies on the order
        assert declared(graph.output) == outputs
        for value in (*needed, *graph.output):
            whole = value.name.endswith(("_ids", "attention_mask"))
            expected = onnx.TensorProto.INT64 if whole else onnx.TensorProto.FLOAT
            assert value.type.tensor_type.elem_type == expected, value.name
        domains = {node.domain for node in graph.node}
        assert domains <= {"", "ai.onnx", "com.microsoft"}
        assert not {"If", "Loop", "Scan"} & {node.op_type for node in graph.node}


# Content of a bundle.


@pytest.mark.parametrize("format", grid(IN_FLOAT32, always=FORMATS))
def test_a_bundle_is_complete(format):
    folder, model = shared_bundle("t5-text2text-generation", format), shared_model("t5-text2text-generation")
    manifest = bundle.read(folder)
    assert {"config.json", "generation_config.json", "tokenizer.json", "references.npz", "README.md"} <= set(
        manifest.files
    )
    assert set(manifest.files) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {"kerasformer.json"}
    assert (manifest.capacity, manifest.encoder_capacity, manifest.info.max_length) == (CAPACITY, 64, 64)
    assert manifest.info.decoder_start_token_id == 0 and manifest.info.eos_token_id == (1,)
    assert {"kerasformer", "keras", "tensorflow"} <= set(manifest.versions)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [model.architecture] and config["d_kv"] == 24


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("format", FORMATS)
def test_signatures_of_earlier_versions_are_ignored(format, version, tmp_path):
    """Bundles for vocabulary shortlists had steps that return states, and a function that reads a list of ids."""
    original = shared_bundle("t5-text2text-generation", format)
    folder = shutil.copytree(original, tmp_path / "out")
    content = json.loads((folder / bundle.MANIFEST).read_text())
    step = next(each for each in content["signatures"].values() if each["role"] == "decode")
    caches = {name: info for name, info in step["outputs"].items() if name != "logits"}
    states = {"shape": [1, 1, 64], "dtype": "float32", "kind": "output_states"}
    ids = {"shape": [256], "dtype": "int32", "kind": "ids"}
    rows = {"shape": [256, 64], "dtype": "float32", "kind": "output_row"}
    lookup = {"inputs": {"input_ids": ids}, "outputs": {"output_rows": rows}, "rows": None, "tokens": None}
    content["signatures"] |= {
        "states": {**step, "role": "states", "outputs": {"output_states": states, **caches}},
        "output_rows": {**step, **lookup, "role": "output_rows"},
    }
    if version == 1:
        for signature in content["signatures"].values():
            for side in ("inputs", "outputs"):
                infos = signature[side].items()
                signature[side] = {name: {key: info[key] for key in ("shape", "dtype")} for name, info in infos}
            signature["role"] = None
    content["format_version"] = version
    del content["manifest_sha256"]
    content["manifest_sha256"] = _digest(content)
    (folder / bundle.MANIFEST).write_text(json.dumps(content))
    bundles = [kf.pipeline(each) for each in (original, folder)]
    expected, actual = (pipe(TEXTS, max_new_tokens=6, num_beams=2) for pipe in bundles)
    assert actual == expected
    manifest = bundle.read(folder)
    found = verify(bundles[1].model, manifest, bundle.read_references(folder))
    assert not found.failed(manifest.promise)


@pytest.mark.parametrize("name", ["bert-text-classification", "gpt2-text-generation", "t5-text2text-generation"])
@pytest.mark.parametrize("format", grid(IN_FLOAT32, always=FORMATS))
@pytest.mark.grid
def test_the_card_lists_files_signatures_and_tensors(name, format):
    folder = shared_bundle(name, format)
    card, manifest = card_texts(folder), bundle.read(folder)
    for signature_name, signature in manifest.signatures.items():
        assert f"`{signature_name}`" in card and f"in `{signature.file}`" in card
        for tensor in (*signature.inputs, *signature.outputs):
            if not [part for part in tensor.replace(".", "_").split("_") if part.isdigit() and part != "0"]:
                assert f"| `{tensor.removesuffix('_row_0')}` | " in card
    assert f'kf.pipeline("path/to/this/folder", "{manifest.info.task}"' in card
    assert f"% of {manifest.fidelity['answers']} " in card
    code = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder))
    exec(compile(code, "card", "exec"), {})


def test_texts_of_the_user(tmp_path):
    model = shared_model("bert-feature-extraction")
    own = ["Rain.", "Rain, rain and wind from the sea, and then the end."]
    folder = kf.export.export(model, tmp_path / "own", "tflite", lengths=(8,), texts=own)
    references = bundle.read_references(folder)
    rows = [
        ids[mask > 0].tolist()
        for ids, mask in zip(references["input.input_ids"], references["input.attention_mask"], strict=True)
    ]
    assert rows == [model.tokenizer.encode(text)[:8] for text in own]
    assert len(rows[0]) < len(rows[1]) == 8


@pytest.mark.grid
def test_a_checkpoint_becomes_a_summarizer(tmp_path):
    model = shared_model("t5-text2text-generation")
    source = model.save_pretrained(tmp_path / "checkpoint")
    stages: list[str] = []
    folder = kf.export.export(
        source, tmp_path / "out", "onnx", task="summarization", capacity=32, lengths=(24,),
        progress=lambda stage, done, total: stages.append(stage),
    )  # fmt: skip
    assert list(dict.fromkeys(stages)) == ["answer with Keras", "trace and convert", "write weights", "verify"]
    pipe = kf.pipeline(source=folder)
    assert pipe.task == "summarization"
    assert list(pipe(TEXTS[0], max_new_tokens=3)[0]) == ["summary_text"]


def test_a_model_without_tokenizer(tmp_path):
    model = ROWS["bert-text-classification"].model()
    model.tokenizer = None
    folder = kf.export.export(model, tmp_path / "bare", "onnx")
    assert bundle.read(folder).fidelity["answers"] == len(texts.READING)
    with pytest.raises(TokenizerError):
        kf.pipeline(folder)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["bert-text-classification", "t5-text2text-generation"])
def test_texts_longer_than_the_bundle(name, format):
    pipe = kf.pipeline(shared_bundle(name, format), num_threads=1)
    long = " ".join(texts.READING[:6])
    with pytest.warns(TruncationWarning):
        cut = pipe([TEXTS[0], long], truncation=True)
    if name in GENERATING:
        with pytest.raises(CapacityError, match="at most 64 tokens"):
            pipe([TEXTS[0], long])
    else:  # read in overlapping segments
        whole = pipe([TEXTS[0], long])
        assert whole[0] == cut[0] and whole[1]["score"] != cut[1]["score"]


# Refusals.


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.grid
def test_a_wrong_scale_is_refused_and_nothing_is_written(format, tmp_path, monkeypatch):
    """Stores one matrix of the model with a quarter of the right scale."""
    corrupted = []

    def wrong_content(matrix: np.ndarray, form: Any, scale: Any = None) -> Any:
        if scale is not None and matrix.shape == (288, 72) and not corrupted:
            corrupted.append(matrix.shape)
            scale = 4 * scale
        return content(matrix, form, scale)

    def wrong_quantize(matrix: np.ndarray, pairs: bool) -> Any:
        levels, scales = quantize(matrix, pairs)
        if matrix.shape == (288, 72) and not corrupted:
            corrupted.append(matrix.shape)
            levels = levels // 4
        return levels, scales

    content, quantize = tflite_storage.content, onnx_rounding.in_channels
    monkeypatch.setattr(tflite_storage, "content", wrong_content)
    monkeypatch.setattr(onnx_rounding, "in_channels", wrong_quantize)
    with pytest.raises(ExportMismatchError, match=r"agreement .* of \d+ answers; .*largest error 0\.\d+ of the scale"):
        kf.export.export(shared_model("gpt2-text-classification"), tmp_path / "out", format, "int8")
    assert corrupted == [(288, 72)]
    assert not list(tmp_path.iterdir())


def test_damaged_shards_are_named_and_nothing_is_written(tmp_path, monkeypatch):
    """Whether a file is incomplete from the start, or changes after it was loaded."""
    source = shared_model("gpt2-text-classification").save_pretrained(tmp_path / "source")
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    files = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(tensors)}
    for file in set(files.values()):
        safetensors.numpy.save_file({n: tensor for n, tensor in tensors.items() if files[n] == file}, source / file)
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    shard = source / "model-1.safetensors"
    complete = shard.read_bytes()
    write = artifact.BundleBuilder.write

    def truncate_and_write(builder: artifact.BundleBuilder, recipe: Any) -> int:
        shard.write_bytes(complete[:-100])
        return write(builder, recipe)

    shard.write_bytes(complete[:-100])
    with pytest.raises(CheckpointError, match=f"{shard} is not a complete safetensors file.*Download or copy it again"):
        kf.export.export(source, tmp_path / "out", "onnx", "int8")
    shard.write_bytes(complete)
    monkeypatch.setattr(artifact.BundleBuilder, "write", truncate_and_write)
    with pytest.raises(CheckpointError, match=f"{shard} was changed after it was opened. Expected: .* values of"):
        kf.export.export(source, tmp_path / "out", "onnx", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_the_destination(tmp_path, monkeypatch):
    model = shared_model("gpt2-text-classification")
    folder = shutil.copytree(shared_bundle("gpt2-text-classification", "onnx"), tmp_path / "out")
    before = bundle.checksums(folder)
    with pytest.raises(BundleError, match="overwrite"):
        kf.export.export(model, folder, "onnx")
    with monkeypatch.context() as broken, pytest.raises(ExportMismatchError):
        broken.setattr(artifact, "verify", _refuse)
        kf.export.export(model, folder, "onnx", overwrite=True)
    assert bundle.checksums(folder) == before
    kf.export.export(model, folder, "onnx", "int8", overwrite=True)
    assert bundle.read(folder).recipe["name"] == "int8"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear friend")
    with pytest.raises(BundleError):
        kf.export.export(model, other, "onnx", overwrite=True)
    assert [path.name for path in other.iterdir()] == ["letter.txt"]


def _refuse(*arguments: Any, **options: Any) -> None:
    raise ExportMismatchError("refused")


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    (
        "bert-text-classification",
        {"format": "coreml"},
        ExportError,
        "tflite, onnx, saved-model, litert, saved_model. Received: 'coreml'",
    ),
    (
        "bert-text-classification",
        {"quantize": "int3"},
        ExportError,
        "int4_channel, int8_trained, int4_trained. Received: 'int3'",
    ),
    ("bert-text-classification", {"task": "fill-mask"}, InputError, "is text-classification. Received: task="),
    ("bert-text-classification", {"lengths": (0, 16)}, InputError, "lengths must be .*from 1"),
    ("bert-text-classification", {"lengths": 16}, InputError, "lengths must be .*Received: lengths=16"),
    ("bert-text-classification", {"target": 3}, InputError, "target must be a string"),
    ("bert-text-classification", {"task": 3}, InputError, "task must be a string"),
    ("bert-text-classification", {"overwrite": "no"}, InputError, "overwrite must be True or False"),
    ("bert-text-classification", {"progress": 3}, InputError, "progress must be .*a function"),
    ("bert-text-classification", {"quantize": ["int8"]}, ExportError, r"Unknown .*recipe.*Received: \['int8'\]"),
    ("t5-text2text-generation", {"capacity": 10**9}, InputError, "capacity must be an integer from 1 to 65536"),
    ("t5-text2text-generation", {"lengths": [10**9]}, InputError, "lengths must be .*from 1 to 65536"),
    ("gpt2-text-generation", {"capacity": True}, InputError, "capacity must be an integer"),
    ("bert-text-classification", {"lengths": (16, 65)}, InputError, r"between 1 and 64. Received: \[16, 65\]"),
    ("bert-text-classification", {"texts": "Rain."}, InputError, "A file of texts was expected"),
    ("bert-text-classification", {"texts": []}, InputError, "list of at least one text"),
    ("gpt2-text-generation", {"capacity": 97}, InputError, "between 2 and 96. Received: capacity=97"),
    ("gpt2-text-generation", {"task": "summarization"}, InputError, "is text-generation"),
]


@pytest.mark.parametrize(("name", "options", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_invalid_options(name, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kf.export.export(shared_model(name), tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("requested", "limit", "expected"),
    [(None, 1024, 1024), (None, 2048, 1024), (None, None, 1024), (None, 1000, 960), (None, 40, 40), (70, 96, 70)],
)
def test_the_cache_is_a_multiple_of_the_longest_prefill_by_default(requested, limit, expected):
    assert cache_capacity(requested, limit) == expected


def test_invalid_models(tmp_path):
    for source in (keras.Sequential([keras.layers.Dense(2)]), 3):
        with pytest.raises(ExportError, match=f"Received: {type(source).__name__}"):
            kf.export.export(source, tmp_path / "out")
    with pytest.raises(errors.SourceError):
        kf.export.export(tmp_path / "nothing", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", grid(IN_FLOAT32, always=FORMATS))
def test_a_changed_bundle_is_refused(format, tmp_path):
    folder = shutil.copytree(shared_bundle("gpt2-text-generation", format), tmp_path / "changed")
    manifest = bundle.read(folder)
    for name in ("tokenizer.json", manifest.signatures[next(iter(manifest.signatures))].file):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
        with pytest.raises(BundleError, match=f"{name} must have sha256"):
            kf.pipeline(folder)
        (folder / name).write_bytes(content)
    assert kf.pipeline(folder)(TEXTS[0], max_new_tokens=2)
    (folder / "README.md").unlink()
    with pytest.raises(BundleError, match=r"README\.md is missing"):
        kf.pipeline(folder)


def test_the_wrong_task_for_a_bundle():
    with pytest.raises(InputError, match="for text-generation"):
        kf.pipeline(shared_bundle("gpt2-text-generation", "onnx"), "summarization")
    assert kf.pipeline(shared_bundle("t5-text2text-generation", "onnx"), "translation").task == "translation"


# Keras on another backend: a child process does the export.


@pytest.mark.grid
def test_export_under_another_backend():
    manifest = bundle.read(exported_on_jax("tflite"))
    assert set(manifest.signatures) == {"forward_16", "forward_32"}
    # Only the two texts; the one that is made up for the longer signature is not compared.
    assert (manifest.recipe["name"], manifest.fidelity["answers"]) == ("int8", 2)
    assert manifest.info.max_length == 32


def test_a_childs_error_keeps_its_type():
    log = "Traceback …\n  raise\nkerasformer.errors.ExportMismatchError: The file differs. Received: 3\n"
    error = child._child_error(log)
    assert type(error) is ExportMismatchError and str(error) == "The file differs. Received: 3"
    assert "Killed" in str(child._child_error("Killed\n")) and type(child._child_error("Killed")) is ExportError
