"""Steps that see only the first positions of a cache, steps of several rows, and the host's choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle, zoo
from kerasformer.decoding import GenerationConfig, generate
from kerasformer.export import DecoderSignatures, TFLite, export, verify
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.quantization import recipes
from kerasformer.export.quantization.recipes import RECIPES, Recipe
from kerasformer.models.keras_engine import KerasStep
from kerasformer.runtime import open_engine

pytest.importorskip("ai_edge_litert")

WINDOW, CAPACITY, READ, ROWS = 8, 24, 16, (3, 6)
SIZES = {
    "gpt2": {"vocab_size": 60, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "max_length": 32},
    "t5": {
        "vocab_size": 60,
        "hidden_dim": 12,
        "num_layers": 1,
        "num_decoder_layers": 2,
        "num_heads": 3,
        "head_dim": 4,
        "intermediate_dim": 24,
    },
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(("gpt2", "none"), marks=pytest.mark.grid), ("gpt2", "int8"), ("t5", "none")],
    ids="-".join,
)
def exported(request: Any, tmp_path_factory: Any) -> Any:
    name, recipe = request.param
    model = zoo.build(name, **SIZES[name])
    lengths = [4, READ] if model.is_encoder_decoder else None
    # The second length is not below the capacity: the whole cache stands for it.
    steps = DecoderSignatures(cache_lengths=(WINDOW, CAPACITY), rows=ROWS)
    format = TFLite(capacity=CAPACITY, lengths=lengths, signatures=steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "MIN_QUANTIZED", 64)
        folder = tmp_path_factory.mktemp("windows") / name
        return model, export(model, folder, format, loose(recipe))


def loose(name: str) -> Recipe:
    """A recipe whose fidelity is no question here: a model of random weights has no clear answers."""
    return replace(RECIPES[name], tolerance=0.5, min_agreement=0.0)


def ran(engine: Any) -> list[str]:
    """The signatures that the engine runs from now on."""
    names: list[str] = []
    run = engine._engine.run

    def spy(name: str, *arguments: Any) -> Any:
        names.append(name)
        return run(name, *arguments)

    engine._engine.run = spy
    return names


@pytest.mark.parametrize("length", [3, 12])
def test_short_texts_take_the_window_and_answer_as_keras_does(exported: Any, length: int) -> None:
    model, folder = exported
    engine, keras_engine = open_engine(folder), KerasStep(model, CAPACITY, jit_compile=False)
    ids = np.random.default_rng(0).integers(2, 60, (1, length), "int32")
    states = [each.start(ids, np.ones_like(ids)) for each in (engine, keras_engine)]
    names = ran(engine)
    begin = 0 if model.is_encoder_decoder else length - 1
    for position in range(begin, CAPACITY - 1):
        token = np.array([[5 + position % 7]], "int32")
        logits, states[0] = engine.step(token, states[0])
        expected, states[1] = keras_engine.step(token, states[1])
        if bundle.read(folder).recipe["name"] == "none":
            np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
        long = position + 1 > WINDOW or (model.is_encoder_decoder and length > WINDOW)
        assert names[-1] == ("decode" if long else f"decode_{WINDOW}")


@pytest.mark.parametrize("length", [3, 12])
def test_several_tokens_take_the_window_while_all_of_them_are_in_it(exported: Any, length: int) -> None:
    model, folder = exported
    engine = open_engine(folder)
    ids = np.random.default_rng(0).integers(2, 60, (1, length), "int32")
    state, names = engine.start(ids, np.ones_like(ids)), ran(engine)
    begin = 0 if model.is_encoder_decoder else length - 1
    for position in range(begin, CAPACITY - 3, 3):
        _, state = engine.step(ids[:, [0, 1, 2, 0]], state)
        state = engine.rewind(state, 1)
        long = position + 4 > WINDOW or (model.is_encoder_decoder and length > WINDOW)
        assert names == ["verify_4" if long else f"verify_4_{WINDOW}"]
        names.clear()


def test_each_kind_of_step_is_verified_on_one_loaded_file(exported: Any, monkeypatch: Any) -> None:
    model, folder = exported
    opened = []

    def spy(folder: Any, manifest: Any, *rest: Any) -> Any:
        engine = open_engine(folder, manifest, *rest)
        opened.append(ran(engine))
        return engine

    monkeypatch.setattr(verify, "open_engine", spy)
    manifest = bundle.read(folder)
    verify.verify(folder, manifest, loose(manifest.recipe["name"]))
    (names,) = opened
    assert {"decode", "verify_4", "verify_8", *(f"decode_rows_{rows}" for rows in ROWS)} <= set(names)
    assert model.is_encoder_decoder or any(name.endswith(f"_{WINDOW}") for name in names)  # its texts are longer


def test_a_limited_engine_runs_what_it_is_told(exported: Any) -> None:
    _, folder = exported
    engine = open_engine(folder)
    names = ran(engine)
    for allowed in ({"decode"}, {f"decode_{WINDOW}"}):
        others = {name for name in bundle.read(folder).signatures if not name.startswith("decode")}
        limited = engine.limited_to(others | allowed)
        names.clear()
        state = limited.start(np.array([[3, 4, 5]], "int32"), np.ones((1, 3), "int32"))
        limited.step(np.array([[5]], "int32"), state)
        assert set(names) - others == allowed


def test_no_window_is_as_large_as_the_cache() -> None:
    model = zoo.build("gpt2", **SIZES["gpt2"])
    names = [function.name for function in tflite_functions(model, CAPACITY, None, ())]
    assert names == ["prefill_8", "verify_4", "verify_8", "decode_rows_8", "decode"]


def prompts(count: int, width: int, left: bool) -> tuple[np.ndarray, np.ndarray]:
    """Texts of unequal lengths, padded on either side."""
    generator = np.random.default_rng(count)
    ids, mask = generator.integers(2, 60, (count, width), "int32"), np.zeros((count, width), "int32")
    for row, length in enumerate(generator.integers(1, width + 1, count)):
        mask[row, width - length if left else 0 :][:length] = 1
    mask[0] = 1
    return ids * mask, mask


def stepped(engine: Any, state: Any, tokens: np.ndarray) -> Iterator[np.ndarray]:
    """Logits `(N, V)` of each column of tokens, and of a step that a row has to itself after each."""
    for column in tokens.T:
        logits, state = engine.step(column[:, None], state)
        yield logits[:, 0]


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, ["decode"]),
        (2, ["decode_rows_3"]),
        (3, ["decode_rows_3"]),
        (4, ["decode_rows_6"]),
        (7, ["decode_rows_6", "decode"]),
        (8, ["decode_rows_6", "decode_rows_3"]),
    ],
)
def test_rows_together_answer_exactly_as_rows_alone(exported: Any, count: int, names: list[str]) -> None:
    model, folder = exported
    engine = open_engine(folder)
    ids, mask = prompts(count, 11, left=not model.is_encoder_decoder)
    tokens = np.random.default_rng(9).integers(2, 60, (count, 10), "int32")
    taken = ran(engine)
    together = list(stepped(engine, engine.start(ids, mask), tokens))
    steps = [name for name in taken if name.startswith("decode")][-len(names) :]
    assert sorted(name.removesuffix(f"_{WINDOW}") for name in steps) == sorted(names)
    for row in range(count):
        own = slice(row, row + 1)
        alone = list(stepped(engine, engine.start(ids[own], mask[own]), tokens[own]))
        assert np.array_equal(np.stack(together)[:, row], np.stack(alone)[:, 0])


def test_rows_leave_and_are_copied(exported: Any) -> None:
    model, folder = exported
    engine = open_engine(folder)
    ids, mask = prompts(6, 9, left=not model.is_encoder_decoder)
    before, after = np.random.default_rng(3).integers(2, 60, (2, 6, 4), "int32")
    for rows in ([4, 1], [0, 0, 5, 5, 5, 2, 3], [3]):
        state = engine.start(ids, mask)
        for column in before.T:
            _, state = engine.step(column[:, None], state)
        following = np.resize(after, (len(rows), 4))
        together = list(stepped(engine, engine.reorder(state, np.array(rows)), following))
        for place, row in enumerate(rows):
            own = slice(row, row + 1)
            alone = engine.start(ids[own], mask[own])
            for column in before[own].T:
                _, alone = engine.step(column[:, None], alone)
            received = list(stepped(engine, alone, following[place : place + 1]))
            assert np.array_equal(np.stack(together)[:, place], np.stack(received)[:, 0])


def test_beams_are_those_of_single_steps(exported: Any) -> None:
    model, folder = exported
    engine = open_engine(folder)
    single = engine.limited_to({name for name in bundle.read(folder).signatures if "_rows_" not in name})
    ids, mask = prompts(3, 7, left=not model.is_encoder_decoder)
    config = GenerationConfig(max_new_tokens=8, num_beams=3, num_return_sequences=2, decoder_start_token_id=0)
    names = ran(engine)
    found = [generate(each, ids, mask, config) for each in (engine, single)]
    assert any("_rows_6" in name for name in names)
    for one, other in zip(found[0].sequences, found[1].sequences, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(found[0].sequence_scores, found[1].sequence_scores)
