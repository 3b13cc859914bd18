"""LiteRT-LM's embedding engine computes the embeddings of Keras from the `.litertlm` file."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import processors

import kerasformer as kf
from kerasformer.errors import ExportError
from kerasformer.export.reference_texts import READING
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.tokenization import hard_texts
from tests import tiny_text
from tests.foreign.cards import run_litert_lm
from tests.foreign.cases import cases, embedder, tiny
from tests.foreign.environments import run
from tests.grids import grid
from tests.margins import cosines

TARGET, TASK = "litert-lm", "sentence-similarity"
LENGTHS = (16, 64)
BERT = tiny("bert", TASK)


def embeddings(folder: Path, texts: list[str], normalize: bool = False, **options: Any) -> list[Any]:
    """Returns the embeddings that LiteRT-LM computes."""
    request = {"model": str(folder / litertlm_file.NAME), "texts": texts, "normalize": normalize, **options}
    return run(TARGET, "litert_lm_embed.py", request)


def expected(model: Any, texts: list[str]) -> np.ndarray:
    """Returns the embeddings of the Keras model."""
    return np.array(kf.pipeline(model, TASK).encode(texts))


def fitting(model: Any, texts: Any, length: int = LENGTHS[-1]) -> list[str]:
    """Returns the texts of at most this many tokens."""
    return [text for text in texts if len(model.tokenizer.encode(text)) <= length]


@pytest.mark.foreign(TARGET)
@cases(
    BERT,
    embedder("roberta"),
    embedder("xlm-roberta"),
    embedder("gpt2"),
    tiny("bert", TASK, "int8"),
    tiny("bert", TASK, "int8_weights"),
    *(embedder(name) for name in ("distilbert", "albert", "camembert", "mpnet", "modernbert", "longformer")),
    *(embedder(name) for name in ("electra", "mobilebert", "deberta", "deberta-v2", "llama", "bloom", "gemma3_text")),
    embedder("xlm"),
)
def test_embeddings_are_those_of_keras(case, tmp_path):
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, lengths=LENGTHS)
    texts = fitting(model, [*READING[:8], "a", "many words " * 3])
    assert len({len(model.tokenizer.encode(text)) <= LENGTHS[0] for text in texts}) == 2, "both lengths must be tested"
    received, keras = embeddings(folder, texts), expected(model, texts)
    assert np.abs(keras - keras[0]).max() > 0.1 * np.abs(keras).max(), "the embeddings must differ"
    if case.quantize == "none":
        np.testing.assert_allclose(received, keras, atol=1e-5 * np.abs(keras).max(), rtol=0)
    assert cosines(received, keras).min() >= (0.9999 if case.quantize == "none" else case.source.min_cosine)
    # The file that this package runs is the one inside.
    np.testing.assert_allclose(kf.pipeline(folder, TASK).encode(texts), received, atol=1e-5 * np.abs(keras).max())


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Any]:
    """A bundle and its model."""
    model = BERT.model()
    return BERT.export(tmp_path_factory.mktemp("out") / "out", model, target=TARGET, lengths=LENGTHS), model


@pytest.mark.foreign(TARGET)
@cases(BERT, embedder("roberta"))
def test_unusual_texts(case, tmp_path):
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, lengths=LENGTHS)
    texts = fitting(model, [text for text, _ in hard_texts.hard_texts(model.tokenizer) if text])
    received, keras = embeddings(folder, texts), expected(model, texts)
    different = np.abs(np.array(received) - keras).max(axis=1) > 1e-5 * np.abs(keras).max()
    assert [text for text, differs in zip(texts, different, strict=True) if differs] == []


@pytest.mark.foreign(TARGET)
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.TruncationWarning")
def test_long_texts(exported):
    """By default they are an error; truncation keeps the last special token."""
    folder, model = exported
    (long,) = [" ".join(READING[:8])]
    assert embeddings(folder, [long, "a"])[0] is None
    pipe = kf.pipeline(model, TASK)
    cut = pipe.encode([long], truncation=True)
    np.testing.assert_allclose(embeddings(folder, [long], overflow="TRUNCATE"), cut, atol=1e-5 * np.abs(cut).max())


@pytest.mark.foreign(TARGET)
def test_normalization_and_other_backends(exported):
    folder, _ = exported
    assert np.linalg.norm(embeddings(folder, ["a"], normalize=True)) == pytest.approx(1, abs=1e-5)
    with pytest.raises(AssertionError, match=r"Model requires one of \[cpu\] but Main backend is GPU"):
        embeddings(folder, ["a"], backend="GPU")


@pytest.fixture(scope="module")
def with_prompts(tmp_path_factory) -> tuple[Path, Any]:
    """A bundle and its model, whose card has a prompt and no normalization."""
    settings = SentenceSettings("cls", (), prompts={"query": 'rain "$1": '}, default_prompt="query", truncate_dim=40)
    case = replace(BERT, source=replace(BERT.source, settings={**BERT.source.settings, "sentence": settings}))
    model = case.model()
    return case.export(tmp_path_factory.mktemp("out") / "out", model, target=TARGET, lengths=LENGTHS), model


@pytest.mark.foreign(TARGET)
@pytest.mark.parametrize(
    ("name", "language"),
    grid(
        ["exported", "with_prompts"],
        ["python", "cpp"],
        always=[("with_prompts", "python"), ("exported", "cpp")],
        others="release",
    ),
)
def test_the_program_of_the_card(name, language, request, tmp_path):
    """The embedding of the card's text has all entries, also those that the pipeline drops."""
    folder, model = request.getfixturevalue(name)
    values = [float(number) for number in re.findall(r"-?\d[-+.\de]*", run_litert_lm(folder, language, tmp_path))]
    (keras,) = expected(model, ["A text."])
    np.testing.assert_allclose(values[: len(keras)], keras, atol=1e-5 * np.abs(keras).max())


def many_special_tokens() -> Any:
    """Returns a tokenizer that puts a token before every text only, twice."""
    tokenizer = copy.deepcopy(tiny_text.wordpiece())  # that one is shared by all tests
    first = tokenizer.token_to_id("[CLS]")
    tokenizer.backend.post_processor = processors.TemplateProcessing(
        single="[CLS] [CLS] $A", special_tokens=[("[CLS]", first)]
    )
    return tokenizer


@pytest.mark.foreign(TARGET)
def test_other_special_tokens(tmp_path):
    case = replace(BERT, source=replace(BERT.source, tokenizer=many_special_tokens))
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, lengths=LENGTHS)
    texts = list(READING[:2])
    keras = expected(model, texts)
    np.testing.assert_allclose(embeddings(folder, texts), keras, atol=1e-5 * np.abs(keras).max())


def with_types() -> Any:
    """Returns a tokenizer whose tokens have type 1."""
    tokenizer = copy.deepcopy(tiny_text.wordpiece())  # that one is shared by all tests
    tokenizer.backend.post_processor = processors.TemplateProcessing(single="$A:1", special_tokens=[])
    return tokenizer


def test_unsupported_tokenizers_are_refused(tmp_path):
    case = replace(BERT, source=replace(BERT.source, tokenizer=with_types))
    with pytest.raises(ExportError, match="before and after every text, all of type 0. Received: a tokenizer that"):
        case.export(tmp_path / "out", target=TARGET)
    with pytest.raises(
        ExportError, match="passes only input_ids, attention_mask, token_type_ids to a model. Received: Xlm"
    ):
        row = embedder("xlm").source
        replace(BERT, source=replace(row, settings={**row.settings, "n_languages": 4})).export(
            tmp_path / "out", target=TARGET
        )
    assert not (tmp_path / "out").exists()
