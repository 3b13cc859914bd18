"""Embeddings through the client of OpenAI, of a Keras model and of a bundle."""

from __future__ import annotations

import numpy as np
import pytest

import kerasformer as kf
from tests import shared
from tests.core.pipelines import sentence_folders
from tests.extras import need
from tests.tools.server.servers import running

openai = need("openai")

TEXTS = ["The rabbit is late.", "a", "Who is it? " * 30]


def export(folder):
    kf.export.export(kf.zoo.load(checkpoint()), folder, "tflite")


def checkpoint():
    return shared.once("sentence-checkpoint", lambda folder: sentence_folders.write(folder))


@pytest.fixture(scope="module")
def server():
    bundle = shared.once("sentence-tflite", export)
    with running([f"keras={checkpoint()}", f"tflite={bundle}"]) as server:
        yield server


@pytest.mark.parametrize("model", ["keras", "tflite"])
def test_embeddings(server, model):
    expected = server.models[model].pipe(TEXTS)
    for encoding in ("float", "base64", openai.NOT_GIVEN):
        answer = server.client().embeddings.create(model=model, input=TEXTS, encoding_format=encoding)
        if encoding != "base64":
            np.testing.assert_allclose([each.embedding for each in answer.data], expected, atol=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 90
    few = server.client().embeddings.create(model=model, input=TEXTS[0], dimensions=5).data[0].embedding
    np.testing.assert_allclose(few, server.models[model].pipe(TEXTS[0], truncate_dim=5), atol=1e-6)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("model", ["keras", "tflite"])
def test_token_ids(server, model, special):
    ids = [server.models[model].pipe.tokenizer.encode(text, add_special_tokens=special) for text in TEXTS]
    asked = {"model": model, "encoding_format": "float"}
    expected = server.client().embeddings.create(**asked, input=TEXTS)
    answer = server.client().embeddings.create(**asked, input=ids)
    assert answer == expected
    assert server.client().embeddings.create(**asked, input=ids[0]).data[0] == expected.data[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": []}, "a list of strings"),
        ({"input": ["a", ""]}, "none of them empty"),
        ({"input": [99_999]}, "token ids from 0 to"),
        ({"input": [44, 44]}, "as the tokenizer of tflite returns them"),
        ({"input": ["a"] * 3000}, "at most 2048 texts"),
        ({"extra_body": {"prompt_name": "rabbit"}}, "no prompt of this name"),
    ],
)
def test_wrong_fields(server, change, message):
    with pytest.raises(openai.BadRequestError, match=message):
        server.client().embeddings.create(**{"model": "tflite", "input": "a", **change})


def test_no_texts_from_a_model_for_embeddings(server):
    with pytest.raises(openai.BadRequestError, match="has no conversations"):
        server.client().chat.completions.create(model="keras", messages=[{"role": "user", "content": "Who?"}])
    with pytest.raises(openai.BadRequestError, match="not for texts"):
        server.client().completions.create(model="keras", prompt="Who?")
