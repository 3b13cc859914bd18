"""Steps that see only the first positions of a cache, and the host's choice among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer import bundle, zoo
from kerasformer.export import export, tflite_signatures, verify
from kerasformer.export.recipes import RECIPES
from kerasformer.runtime import open_engine
from kerasformer.zoo._engine import KerasStep

pytest.importorskip("ai_edge_litert")

WINDOW, CAPACITY, READ = 8, 24, 16
SIZES = {
    "gpt2": {"vocab_size": 60, "hidden_dim": 12, "num_layers": 2, "num_heads": 3, "max_length": 32},
    "t5": {
        "vocab_size": 60,
        "hidden_dim": 12,
        "num_layers": 2,
        "decoder_layers": 2,
        "num_heads": 3,
        "head_dim": 4,
        "intermediate_dim": 24,
    },
}


@pytest.fixture(scope="module", params=SIZES)
def exported(request: Any, tmp_path_factory: Any) -> Any:
    model = zoo.build(request.param, **SIZES[request.param])
    lengths = [4, READ] if model.is_encoder_decoder else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tflite_signatures, "DECODE_WINDOWS", (WINDOW,))
        folder = tmp_path_factory.mktemp("windows") / request.param
        return model, export(model, folder, "tflite", capacity=CAPACITY, lengths=lengths)


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
        np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
        long = position + 1 > WINDOW or (model.is_encoder_decoder and length > WINDOW)
        assert names[-1] == ("decode" if long else f"decode_{WINDOW}")


def test_each_kind_of_step_is_verified_on_one_loaded_file(exported: Any, monkeypatch: Any) -> None:
    _, folder = exported
    opened = []

    def spy(folder: Any, manifest: Any, *rest: Any) -> Any:
        engine = open_engine(folder, manifest, *rest)
        opened.append(ran(engine))
        return engine

    monkeypatch.setattr(verify, "open_engine", spy)
    verify.verify(folder, bundle.read(folder), RECIPES["none"])
    (names,) = opened
    assert {"decode", f"decode_{WINDOW}"} <= set(names)


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
    names = [function.name for function in tflite_signatures.tflite_functions(model, CAPACITY, None, ())]
    assert names == ["prefill_8", "decode"]
