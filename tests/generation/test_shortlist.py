"""Vocabulary shortlists: learning, files, candidates, and generation on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.decoding.shortlisted import Shortlisted
from kerasformer.errors import GenerationError, InputError, SourceError, TokenizerError
from kerasformer.export import DecoderSignatures
from kerasformer.generation import Shortlist
from kerasformer.generation.lexicon import learn_lexicon
from tests import tiny_text
from tests.export.text_models import shared_model
from tests.keras_pipelines import keras_pipeline
from tests.pipelines.copying import copying_pipeline

TEXTS = ["Rain is expected.", "The museum is closed on Mondays and the ship is late", "Rain."]
MARIAN = "marian-text2text-generation"


def test_a_lexicon_is_learned_from_sentences_alone() -> None:
    random = np.random.default_rng(0)
    dictionary = random.permutation(40)  # the target token of each source token
    sources = [random.integers(0, 40, random.integers(3, 9)) for _ in range(1500)]  # two chunks
    targets = [random.permutation(dictionary[each]) for each in sources]
    lexicon = learn_lexicon(sources, targets)
    assert {token: best.tolist() for token, best in lexicon.best(1)} == {i: [t] for i, t in enumerate(dictionary)}
    assert np.allclose(np.bincount(lexicon.sources, lexicon.probabilities), 1)
    assert all(len(best) == 3 and (np.diff(best) > 0).all() for _, best in lexicon.best(3))


def test_candidates_are_those_of_tokens_phrases_and_all_texts(tmp_path: Path) -> None:
    tokenizer = tiny_text.marian()
    source, target = tokenizer.get_vocab(), tokenizer.writer.get_vocab()
    (tmp_path / "vmap.txt").write_text("▁the\t▁ i\n▁the r\t▁and\na\t\n\t▁ .\n")
    shortlist = Shortlist.read(tmp_path / "vmap.txt", tokenizer)
    special = {*tokenizer.writer.all_special_ids}

    def candidates(*tokens: str) -> set[int] | None:
        found = shortlist.candidates(np.array([source[token] for token in tokens]))
        return None if found is None else set(found.tolist()) - special

    common = {target["▁"], target["."]}
    end = str(tokenizer.eos_token)
    assert candidates("▁the", end) == common | {target["i"]}
    assert candidates("a") == common
    assert candidates("▁the", "r") == common | {target["i"], target["▁and"]}
    assert candidates("▁the", "a", "r") is None  # no candidates are known for "r" alone
    written = shortlist.write(tmp_path / "again.txt")
    assert written.read_text().splitlines()[-1] in ("\t▁ .", "\t. ▁")
    again = Shortlist.read(written, tokenizer)
    for tokens in (["▁the"], ["▁the", "r"], ["a"]):
        ids = np.array([source[token] for token in tokens])
        np.testing.assert_array_equal(again.candidates(ids), shortlist.candidates(ids))
    assert len(again) == 3 and [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", SourceError, "is empty"),
        (b"\xff\tx\n", SourceError, "not in UTF-8"),
        (b"a b c\n", SourceError, "a tab, and candidates.*Received in line 1: 'a b c'"),
        (b"a\ti\n\ta i", SourceError, "truncated: its last line has no end"),
        (b"a\ti\n", SourceError, "no candidates for all texts.*truncated"),
        (b"xylophone a\ti\n\ti\n", TokenizerError, "another vocabulary: 1 of its 2 source tokens.*'xylophone'"),
        (b"a\ti Haus\n\ti\n", TokenizerError, "another vocabulary: 1 of its 2 target tokens.*'Haus'"),
    ],
)
def test_a_file_that_is_refused(content: bytes, error: type[Exception], message: str, tmp_path: Path) -> None:
    (tmp_path / "vmap.txt").write_bytes(content)
    pipe = copying_pipeline("translation", tokenizer=tiny_text.marian())
    with pytest.raises(error, match=message):
        pipe("Rain.", shortlist=tmp_path / "vmap.txt")


def test_refused_values() -> None:
    pipe, other = copying_pipeline("translation"), copying_pipeline("translation", tokenizer=tiny_text.marian())
    with pytest.raises(TokenizerError, match="that of another source vocabulary. Expected: that of the model"):
        other("Rain.", shortlist=pipe.learn_shortlist(TEXTS))
    with pytest.raises(SourceError, match="missing"):
        pipe("Rain.", shortlist="nothing.txt")
    with pytest.raises(InputError, match="Each text needs a translation. Received: 3 texts"):
        pipe.learn_shortlist(TEXTS, TEXTS[:2])
    with pytest.raises(InputError, match="texts must be a non-empty list"):
        pipe.learn_shortlist([])
    with pytest.raises(InputError, match="max_candidates must be an integer of at least 1"):
        pipe.learn_shortlist(TEXTS, max_candidates=0)
    outside = Shortlist(pipe.tokenizer, {}, [pipe.tokenizer.vocab_size])
    with pytest.raises(
        GenerationError, match="that of another vocabulary. Expected: token ids up to 319. Received: 320"
    ):
        Shortlisted(pipe.model, outside).start(np.array([[pipe.tokenizer.eos_token_id]]), np.array([[1]]))
    with pytest.raises(GenerationError, match="A shortlist is for encoder-decoders"):
        story = kf.pipeline(None, "story-gpt2")
        story("Once", shortlist=Shortlist(story.tokenizer, {}, []))


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"guidance_scale": 1.5}], ids=str)
def test_texts_contain_only_candidates(settings: dict[str, Any]) -> None:
    pipe = copying_pipeline("translation")
    both = pipe.learn_shortlist(TEXTS, TEXTS, max_candidates=320, num_frequent=0)
    assert pipe(TEXTS, shortlist=both, **settings) == pipe(TEXTS, **settings)
    # Without candidates of their own, tokens are replaced by others; an unknown token allows the whole vocabulary.
    some = pipe.learn_shortlist(TEXTS, TEXTS, max_candidates=1, num_frequent=0)
    texts = [*TEXTS, "Rain, xylophone."]
    results = pipe(texts, shortlist=some, **settings)
    assert results[3] == pipe(texts[3], **settings)[0] and results != pipe(texts, **settings)
    for text, result in zip(texts, results, strict=True):
        assert pipe(text, shortlist=some, **settings) == [result]  # other texts of a batch change nothing


def test_logits_of_candidates_are_those_of_the_model() -> None:
    pipe = keras_pipeline(shared_model(MARIAN), "translation")
    shortlist = pipe.learn_shortlist(TEXTS, TEXTS[::-1], max_candidates=4, num_frequent=6)
    candidates = shortlist.candidates(np.array(pipe.tokenizer.encode(TEXTS[0])))
    assert candidates is not None and len(candidates) < pipe.tokenizer.writer.vocab_size / 2
    options: dict[str, Any] = {"output_logits": True, "max_new_tokens": 1}
    (whole,), (limited,) = (pipe(TEXTS[0], shortlist=each, **options).logits for each in (None, shortlist))
    np.testing.assert_array_equal(limited[:, candidates], whole[:, candidates])
    assert np.isneginf(np.delete(limited, candidates, axis=1)).all()
    with pipe.stream(TEXTS[0], shortlist=shortlist, max_new_tokens=6) as pieces:
        assert "".join(pieces) == pipe(TEXTS[0], shortlist=shortlist, max_new_tokens=6)[0]["translation_text"]


BUNDLES = [("marian", "tflite", "none"), ("t5", "onnx", "none"), ("marian", "onnx", "int8"), ("t5", "tflite", "int4")]


@pytest.mark.parametrize(
    ("name", "format", "recipe"),
    [pytest.param(*row, marks=pytest.mark.grid if row[2] != "none" else ()) for row in BUNDLES],
)
def test_bundles_compute_the_logits_of_candidates_alone(name: str, format: str, recipe: str, tmp_path: Path) -> None:
    model = shared_model(f"{name}-text2text-generation")
    steps = DecoderSignatures(cache_lengths=(), rows=(2,), verify_lengths=())
    sizes: dict[str, Any] = {"lengths": (48,), "capacity": 24, "shortlist": True}
    sizes |= {"signatures": steps} if format == "tflite" else {}
    kf.export.export(model, tmp_path / "out", format, recipe, progress=False, **sizes)
    task = "text2text-generation"
    pipe, plain = kf.pipeline(task, tmp_path / "out"), kf.pipeline(task, tmp_path / "out")
    plain.model.limits_output = False  # computes all logits
    shortlist = pipe.learn_shortlist(TEXTS, TEXTS[::-1], max_candidates=4, num_frequent=6)
    candidates = shortlist.candidates(np.array(pipe.tokenizer.encode(TEXTS[0])))
    assert candidates is not None

    looked_up: list[np.ndarray] = []
    lookup = pipe.model.output_rows
    pipe.model.output_rows = lambda tokens: (looked_up.append(tokens), lookup(tokens))[1]
    options: dict[str, Any] = {"output_logits": True, "max_new_tokens": 3}
    results = [each(TEXTS[0], shortlist=shortlist, **options).logits[0] for each in (pipe, plain)]
    tolerance = {"none": 1e-5, "int8": 0.02, "int4": 0.02}[recipe]  # rounded inputs of the product with all tokens
    scale = np.abs(results[1][:, candidates]).max()
    np.testing.assert_allclose(*(each[:1, candidates] for each in results), atol=tolerance * scale)
    assert np.isneginf(np.delete(results[0], candidates, axis=1)).all()
    if recipe == "none":
        for settings in ({}, {"num_beams": 3}):
            written = [each(TEXTS, shortlist=shortlist, max_new_tokens=6, **settings) for each in (pipe, plain)]
            assert written[0] == written[1]
    np.testing.assert_array_equal(looked_up[0], candidates)
    looked_up.clear()
    assert pipe("7", shortlist=shortlist, max_new_tokens=4) == plain("7", max_new_tokens=4)
    assert not looked_up


def test_languages_and_glossaries_are_candidates() -> None:
    pipe = keras_pipeline(shared_model("m2m_100-text2text-generation"), "translation")
    options: dict[str, Any] = {"src_lang": "eng_Latn", "tgt_lang": "ron_Latn", "num_beams": 3, "max_new_tokens": 9}
    shortlist = pipe.learn_shortlist(TEXTS, ["Rain"] * 3, src_lang="eng_Latn", tgt_lang="ron_Latn", num_frequent=0)
    result = pipe("Rain.", shortlist=shortlist, glossary={"rain": "museum"}, **options)
    assert "museum" in result[0]["translation_text"]
    assert "museum" not in pipe("Rain.", shortlist=shortlist, **options)[0]["translation_text"]
