"""Steps that attend to the first slots of a cache, steps of several rows, and the engine's choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle, zoo
from kerasformer.bundle import recipes
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.engines import open_engine
from kerasformer.export import export, verify
from kerasformer.models.keras_engine import KerasStep

CACHE_LENGTH, CAPACITY, READ, ROWS = 8, 24, 16, (3, 6)
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
    params=[
        pytest.param(("gpt2", "none"), marks=pytest.mark.release),
        ("gpt2", "int8"),
        pytest.param(("t5", "none"), marks=pytest.mark.grid),
    ],
    ids="-".join,
)
def exported(request: Any, tmp_path_factory: Any) -> Any:
    name, recipe = request.param
    model = zoo.build(name, **SIZES[name])
    lengths = [4, READ] if model.is_encoder_decoder else None
    # The second length equals the capacity, for which there is the plain step.
    sizes = {"capacity": CAPACITY, "lengths": lengths, "cache_lengths": (CACHE_LENGTH, CAPACITY), "batch_sizes": ROWS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "MIN_QUANTIZED", 64)
        folder = tmp_path_factory.mktemp("cache_lengths") / name
        return model, export(model, folder, "litert", loose(recipe), **sizes)


def loose(name: str) -> Recipe:
    """Returns a recipe with low limits, since a model with random weights has no clear answers."""
    return replace(RECIPES[name], tolerance=0.5, min_agreement=0.0)


def record_signatures(engine: Any) -> list[str]:
    """Returns a list to which the engine's later calls append their signatures."""
    names: list[str] = []
    run = engine._engine.run

    def spy(name: str, *arguments: Any) -> Any:
        names.append(name)
        return run(name, *arguments)

    engine._engine.run = spy
    return names


@pytest.mark.parametrize("length", [3, 12])
def test_short_texts_use_the_shorter_cache_length_with_the_answers_of_keras(exported: Any, length: int) -> None:
    model, folder = exported
    engine, keras_engine = open_engine(folder), KerasStep(model, CAPACITY, jit_compile=False)
    ids = np.random.default_rng(0).integers(2, 60, (1, length), "int32")
    states = [item.start(ids, np.ones_like(ids)) for item in (engine, keras_engine)]
    names = record_signatures(engine)
    begin = 0 if model.is_encoder_decoder else length - 1
    for position in range(begin, CAPACITY - 1):
        token = np.array([[5 + position % 7]], "int32")
        logits, states[0] = engine.step(token, states[0])
        expected, states[1] = keras_engine.step(token, states[1])
        if bundle.read(folder).recipe["name"] == "none":
            np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
        long = position + 1 > CACHE_LENGTH or (model.is_encoder_decoder and length > CACHE_LENGTH)
        assert names[-1] == ("decode" if long else f"decode_{CACHE_LENGTH}")


@pytest.mark.parametrize("length", [3, 12])
def test_verify_steps_use_the_shorter_cache_length_if_all_tokens_fit(exported: Any, length: int) -> None:
    model, folder = exported
    engine = open_engine(folder)
    ids = np.random.default_rng(0).integers(2, 60, (1, length), "int32")
    state, names = engine.start(ids, np.ones_like(ids)), record_signatures(engine)
    begin = 0 if model.is_encoder_decoder else length - 1
    for position in range(begin, CAPACITY - 3, 3):
        _, state = engine.step(ids[:, [0, 1, 2, 0]], state)
        state = engine.rewind(state, 1)
        long = position + 4 > CACHE_LENGTH or (model.is_encoder_decoder and length > CACHE_LENGTH)
        assert names == ["verify_4" if long else f"verify_4_{CACHE_LENGTH}"]
        names.clear()


@pytest.mark.parametrize(("length", "expected"), [(6, ["short_prefill_8_8"]), (18, ["short_prefill_8_8", "prefill_8"])])
def test_a_prompt_is_read_with_the_shortest_cache(exported: Any, length: int, expected: list[str]) -> None:
    model, folder = exported
    if model.is_encoder_decoder:
        pytest.skip("an encoder reads the text")
    engine = open_engine(folder)
    whole = engine.limited_to({name for name in bundle.read(folder).signatures if not name.startswith("short")})
    ids = np.random.default_rng(0).integers(2, 60, (1, length), "int32")
    names = record_signatures(engine)
    read = [item.start(ids, np.ones_like(ids)) for item in (engine, whole)]
    assert names[: len(expected)] == expected and not any(name.startswith("short") for name in names[len(expected) :])
    logits, others = (item.step(ids[:, -1:], state)[0] for item, state in zip((engine, whole), read, strict=True))
    np.testing.assert_allclose(logits, others, atol=1e-5 * np.abs(others).max())


def test_each_kind_of_step_is_verified_on_one_loaded_file(exported: Any, monkeypatch: Any) -> None:
    model, folder = exported
    opened = []

    def spy(folder: Any, manifest: Any, *rest: Any) -> Any:
        engine = open_engine(folder, manifest, *rest)
        opened.append(record_signatures(engine))
        return engine

    monkeypatch.setattr(verify, "open_engine", spy)
    manifest = bundle.read(folder)
    verify.verify(folder, manifest, loose(manifest.recipe["name"]))
    (names,) = opened
    assert {"decode", "verify_4", "verify_8", *(f"decode_rows_{rows}" for rows in ROWS)} <= set(names)
    assert model.is_encoder_decoder or any(
        name.endswith(f"_{CACHE_LENGTH}") for name in names
    )  # whose texts are longer


def test_a_limited_engine_runs_only_allowed_signatures(exported: Any) -> None:
    _, folder = exported
    engine = open_engine(folder)
    names = record_signatures(engine)
    for allowed in ({"decode"}, {f"decode_{CACHE_LENGTH}"}):
        others = {name for name in bundle.read(folder).signatures if not name.startswith("decode")}
        limited = engine.limited_to(others | allowed)
        names.clear()
        state = limited.start(np.array([[3, 4, 5]], "int32"), np.ones((1, 3), "int32"))
        limited.step(np.array([[5]], "int32"), state)
        assert set(names) - others == allowed


def prompts(count: int, width: int, left: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns texts of unequal lengths, padded on one side."""
    generator = np.random.default_rng(count)
    ids, mask = generator.integers(2, 60, (count, width), "int32"), np.zeros((count, width), "int32")
    for row, length in enumerate(generator.integers(1, width + 1, count)):
        mask[row, width - length if left else 0 :][:length] = 1
    mask[0] = 1
    return ids * mask, mask


def stepped(engine: Any, state: Any, tokens: np.ndarray) -> Iterator[np.ndarray]:
    """Yields logits `(N, V)` of each column of tokens."""
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
def test_rows_in_a_batch_have_exactly_the_answers_of_single_rows(exported: Any, count: int, names: list[str]) -> None:
    model, folder = exported
    engine = open_engine(folder)
    ids, mask = prompts(count, 11, left=not model.is_encoder_decoder)
    tokens = np.random.default_rng(9).integers(2, 60, (count, 10), "int32")
    names_of_calls = record_signatures(engine)
    together = list(stepped(engine, engine.start(ids, mask), tokens))
    steps = [name for name in names_of_calls if name.startswith("decode")][-len(names) :]
    assert sorted(name.removesuffix(f"_{CACHE_LENGTH}") for name in steps) == sorted(names)
    for row in range(count):
        own = slice(row, row + 1)
        alone = list(stepped(engine, engine.start(ids[own], mask[own]), tokens[own]))
        assert np.array_equal(np.stack(together)[:, row], np.stack(alone)[:, 0])
