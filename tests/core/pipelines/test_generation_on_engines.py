"""Generation settings have the same effect in Keras and on an engine, and with a model and a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from kerasformer.errors import InputError, TokenizerError
from tests.keras_pipelines import keras_pipeline
from tests.tiny_text import CORPUS, PROMPTS

pytestmark = pytest.mark.grid

NEW = 8
TEXTS = {"story": [PROMPTS[0], "It"], "rewrite": [CORPUS[7], "Rain."]}
LONG = " ".join(CORPUS[:2])[:80]


@pytest.fixture(scope="module")
def pipe(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Any]:
    """A function that returns the pipeline of a checkpoint on an engine."""
    opened: dict[tuple[str, str], Any] = {}

    def get(name: str, engine: str) -> Any:
        if (name, engine) not in opened:
            if engine == "keras":
                it = keras_pipeline(_calmer(kf.zoo.load(checkpoint(name))))
            else:
                model = get(name, "keras").model.model
                it = kf.pipeline(kf.export.export(model, tmp_path_factory.mktemp(name) / engine, engine))
            opened[name, engine] = it
        return opened[name, engine]

    return get


def _calmer(model: Any) -> Any:
    """Compares answers; the large logits of these checkpoints differ from Keras in the fourth digit."""
    for variable in model.trainable_variables:
        variable.assign(0.8 * variable)
    return model


@pytest.mark.parametrize("name", TEXTS)
def test_generate_of_a_model_equals_its_pipeline(pipe, name) -> None:
    it = pipe(name, "keras")
    model = it.model.model
    settings = {"max_new_tokens": NEW, "num_return_sequences": 2, "num_beams": 3}
    expected = [row["generated_text"] for rows in it(TEXTS[name], **settings) for row in rows]
    assert model.generate(TEXTS[name], jit_compile=False, **settings) == expected
    text = TEXTS[name][0]
    extra = {"return_full_text": False} if name == "story" else {}
    new = it(text, max_new_tokens=NEW, **extra)[0]["generated_text"]
    pieces = list(model.stream(text, max_new_tokens=NEW, jit_compile=False))
    assert len(pieces) > 2 and "".join(pieces) == new
    with pytest.raises(InputError, match="a single text"):
        model.stream([text])
    for nothing, message in ((5, "Prompts must be a text"), ([], "Prompts must be a text"), (None, "neither")):
        with pytest.raises(InputError, match=message):
            model.generate(nothing)


def test_any_source_with_the_same_tokens_may_assist(pipe, checkpoint) -> None:
    it, source = pipe("story", "onnx"), checkpoint("story")
    expected = it(PROMPTS[0], max_new_tokens=NEW)
    model = pipe("story", "keras").model.model
    for assistant in (source, pipe("story", "keras"), it.model):
        assert it(PROMPTS[0], max_new_tokens=NEW, assistant=assistant) == expected
    for assistant in (str(source), it, it.model, model):
        text = model.generate(PROMPTS[0], max_new_tokens=NEW, assistant=assistant, jit_compile=False)
        assert text == expected[0]["generated_text"]
    with pytest.raises(TokenizerError, match="must have the same vocabulary as the model"):
        it(PROMPTS[0], assistant=checkpoint("rewrite"))
    with pytest.raises(InputError, match="A model that generates was expected"):
        it(PROMPTS[0], assistant=checkpoint("classes"))
    with pytest.raises(InputError, match="A model that generates was expected"):
        model.generate(PROMPTS[0], assistant=3)
