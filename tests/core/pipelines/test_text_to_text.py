"""Translation and summarization: results, long texts, batches, scores."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

import kerasformer as kf
from kerasformer import bundle
from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines import pipeline
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.truncation import TruncationWarning
from tests import tiny_text
from tests.code_blocks import blocks
from tests.core.export.text_models import shared_bundle, shared_model
from tests.core.pipelines.copying import copying_pipeline
from tests.core.tokenization.conftest import CASES, write
from tests.keras_pipelines import keras_pipeline

LANGUAGES = {"m2m_100": ("zho_Hans", "ron_Latn"), "mbart": ("zh_CN", "ro_RO")}
TEXTS = ["Rain is expected.", "The museum is closed on Mondays and the ship is late", "Rain."]
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3, "length_penalty": 0.3, "no_repeat_ngram_size": 2, "early_stopping": True},
}
TRANSLATION, SUMMARY = ("translation", "translation_text"), ("summarization", "summary_text")
MODELS = {"marian": TRANSLATION, "mbart": TRANSLATION, "m2m_100": TRANSLATION, "bart": SUMMARY, "t5": SUMMARY}
LONG = "The ship is late, e.g. today. Is it?\n\nIt rains!  The museum of Dr. Bell is closed. 今天很好。我们去公园！\n"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that returns a model of `transformers` with the weights of a shared model."""
    opened: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in opened:
            folder = shared_model(f"{name}-text2text-generation").save_pretrained(tmp_path_factory.mktemp(name))
            opened[name] = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        return opened[name]

    return get


IN_GRID = [pytest.param(name, "beams", marks=pytest.mark.grid) for name in MODELS if name not in ("m2m_100", "t5")]


@pytest.mark.parametrize(("name", "settings"), [("m2m_100", "greedy"), ("m2m_100", "beams"), ("t5", "beams"), *IN_GRID])
@pytest.mark.grid
def test_results_and_scores_equal_those_of_transformers(name: str, settings: str, theirs: Any) -> None:
    task, key = MODELS[name]
    source, target = LANGUAGES.get(name, (None, None))
    chosen: dict[str, Any] = {"max_new_tokens": 7, **SETTINGS[settings]}
    pipe = keras_pipeline(shared_model(f"{name}-text2text-generation"), task)
    results = pipe(TEXTS, src_lang=source, tgt_lang=target, batch_size=2, return_scores=True, **chosen)
    tokenizer = pipe.tokenizer.for_languages(source, target)
    given = {**pipe.generation_config.to_dict(), **chosen}
    given |= tokenizer.target_settings(given) if target else {}
    beams = given.get("num_beams", 1)
    for text, result in zip(TEXTS, results, strict=True):
        ids = torch.tensor([tokenizer.encode(text)])
        options = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
        output = theirs(name).generate(input_ids=ids, **given, **options)
        assert result[key] == tokenizer.writer.decode(output.sequences[0].tolist(), skip_special_tokens=True)
        logs = theirs(name).compute_transition_scores(
            output.sequences, output.scores, output.beam_indices if beams > 1 else None, normalize_logits=beams == 1
        )
        kept = logs[0][torch.isfinite(logs[0])].numpy()
        kept = np.trim_zeros(kept["forced_bos_token_id" in given :], "b")  # without padding
        assert result["score"] == pytest.approx(kept.sum() / len(kept) ** chosen.get("length_penalty", 1), rel=1e-3)
    assert len({result[key] for result in results}) > 1
    assert pipe(TEXTS[1], src_lang=source, tgt_lang=target, **chosen) == [{key: results[1][key]}]


@pytest.mark.parametrize(("name", "format"), [("m2m_100", "tflite"), ("mbart", "onnx")])
@pytest.mark.grid
def test_bundles_translate_as_keras(name: str, format: str) -> None:
    source, target = LANGUAGES[name]
    folder = shared_bundle(f"{name}-text2text-generation", format)
    pipe = kf.pipeline(folder, "translation", src_lang=source, tgt_lang=target)
    expected = keras_pipeline(shared_model(f"{name}-text2text-generation"), "translation")
    options: dict[str, Any] = {"max_new_tokens": 6, "num_beams": 2, "split": "sentences"}
    assert pipe(LONG, **options) == expected(LONG, src_lang=source, tgt_lang=target, **options)
    assert kf.pipeline(folder, f"translation_{source}_to_{target}")(LONG, **options) == pipe(LONG, **options)
    assert pipe(LONG, tgt_lang=source, **options) != pipe(LONG, **options)
    with pytest.raises(InputError, match="tgt_lang must be .*Did you mean"):
        kf.pipeline(folder, "translation", tgt_lang=target[:-1])


def test_batches_have_similar_lengths_and_results_the_order_of_the_texts() -> None:
    pipe = copying_pipeline("translation")
    texts = ["The ship is late.", "No.", "It rains and it snows.", "Yes.", "Is it?"]
    expected = [{"translation_text": text} for text in texts]
    assert pipe(texts, batch_size=2) == expected
    assert pipe.model.lengths == [sorted(each, reverse=True) for each in pipe.model.lengths]
    widths = [max(each) for each in pipe.model.lengths]
    assert widths == sorted(widths, reverse=True) and len(widths) == 3
    assert list(pipe(iter(texts), batch_size=2)) == expected
    assert pipe(texts[0]) == expected[:1] and pipe([]) == []
    several = pipe(texts[:2], num_beams=2, num_return_sequences=2)
    assert [row[0] for row in several] == expected[:2] and all(len(row) == 2 for row in several)


@pytest.mark.parametrize(
    "options", [{"split": "sentences"}, {"split": "chunks"}, {"split": "chunks", "chunk_length": 12}]
)
def test_long_translations(options: dict[str, Any]) -> None:
    pipe = copying_pipeline("translation")
    with pytest.raises(CapacityError, match="at most 40 tokens.*truncation=True.*split='sentences' reads it in parts"):
        pipe(LONG)
    assert pipe([LONG, "Rain.", LONG], batch_size=3, **options) == [
        {"translation_text": text} for text in (LONG, "Rain.", LONG)
    ]
    assert max(map(max, pipe.model.lengths)) <= options.get("chunk_length", 40)
    assert list(pipe(iter([LONG, "Rain."]), batch_size=1, **options)) == pipe([LONG, "Rain."], **options)


def test_long_summaries() -> None:
    pipe = copying_pipeline("summarization", task_prefixes={"summarization": "cut: "})
    with pytest.raises(CapacityError, match="split='chunks'"):
        pipe(LONG)
    summary = pipe(LONG, split="chunks")[0]["summary_text"]
    parts = summary.removeprefix("cut: ").split(" cut: ")
    assert "".join(" ".join(parts).split()) == "".join(LONG.split())
    assert len(parts) == len(pipe.model.lengths[0])
    assert max(map(max, pipe.model.lengths)) <= 40
    with pytest.raises(InputError, match="shorter than its summary must be. Expected: at least 30.*Received: 1"):
        pipe("Rain.", min_new_tokens=30)


def test_scores_of_parts() -> None:
    pipe = copying_pipeline("translation")
    whole = pipe(LONG, split="sentences", return_scores=True, length_penalty=0.5)[0]["score"]
    parts = [line for line in LONG.splitlines() if line]
    probability = -np.log(1 + np.exp(-8) * (pipe.info.vocab_size - 1))
    count = sum(map(sum, pipe.model.lengths))
    assert parts and whole == pytest.approx(count**0.5 * probability, rel=1e-3)
    beams = pipe("Rain.", num_beams=2, return_scores=True)[0]["score"]
    output = pipe("Rain.", num_beams=2, return_dict_in_generate=True)
    assert beams == pytest.approx(output.sequence_scores[0], rel=1e-5)


def test_spaces_before_punctuation() -> None:
    pipe = copying_pipeline("translation")
    assert pipe("Rain , snow .")[0]["translation_text"] == "Rain , snow ."
    assert pipe("Rain , snow .", clean_up_tokenization_spaces=True)[0]["translation_text"] == "Rain, snow."


def test_line_breaks_of_summaries(tmp_path: Path) -> None:
    """PEGASUS writes them as a token."""
    vocabulary, config, options = CASES["pegasus-lines"]
    write(tmp_path / "tokenizer", {**vocabulary(), "config.json": config, "tokenizer_config.json": options})
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    sizes = {"hidden_dim": 12, "num_layers": 1, "num_heads": 2, "decoder_num_heads": 2, "intermediate_dim": 16}
    model = kf.zoo.build("pegasus", vocab_size=tokenizer.vocab_size, max_length=32, **sizes)
    model.tokenizer = tokenizer
    pipe = keras_pipeline(model.save_pretrained(tmp_path / "model"), "summarization")
    settings = {"regex": r"the Rabbit\nwas tired\n", "num_beams": 1}
    assert pipe("the Rabbit", **settings) == [{"summary_text": "the Rabbit\nwas tired\n"}]
    with pipe.stream("the Rabbit", **settings) as stream:
        assert "".join(stream) == "the Rabbit\nwas tired\n"


def test_cut_translations() -> None:
    pipe = copying_pipeline("translation")
    pipe.generation_config = pipe.generation_config.replace(max_new_tokens=4)
    with pytest.warns(TruncationWarning, match="1 of 2 translations were cut after 4 tokens.*larger max_new_tokens"):
        pipe([TEXTS[1][:20], "R"])
    pipe(TEXTS[1][:20], max_new_tokens=3)


def test_refused_options() -> None:
    pipe = copying_pipeline("translation")
    for options, message in (
        ({"split": "words"}, "split must be 'sentences' or 'chunks'"),
        ({"split": "chunks", "truncation": True}, "either truncated or split"),
        ({"split": "chunks", "return_dict_in_generate": True}, "split is for results that are texts"),
        ({"return_scores": True, "explain": True}, "return_scores is for results that are texts"),
        ({"return_scores": 1}, "return_scores must be True or False"),
    ):
        with pytest.raises(InputError, match=message):
            pipe("Rain.", **options)
    with pytest.raises(InputError, match="split is for translation and summarization"):
        copying_pipeline("text2text-generation")("Rain.", split="chunks")
    with pytest.raises(InputError, match="no maximum length, so that .*chunk_length=…"):
        copying_pipeline("summarization", max_length=None)("Rain.", split="chunks")
    with pytest.raises(InputError, match="src_lang is for tasks from text to text"):
        kf.pipeline("sentiment-bert", "text-classification", src_lang="en")


class TestTaskSettings:
    """T5 has a prefix and settings for each task."""

    PARAMS = {
        "summarization": {"prefix": "summarize: ", "num_beams": 2, "max_length": 6},
        "translation_en_to_de": {"prefix": "translate English to German: ", "max_length": 5},
        "translation_en_to_fr": {"prefix": "translate English to French: ", "max_length": 7, "num_beams": 2},
    }

    @pytest.fixture
    def model(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        model = shared_model("t5-text2text-generation")
        monkeypatch.setattr(model, "config", replace(model.config, task_specific_params=self.PARAMS))
        return model

    def test_a_task_has_its_settings(self, model: Any) -> None:
        plain = keras_pipeline(model)
        assert "num_beams" not in plain.generation_config.to_dict()
        expected = plain("summarize: " + TEXTS[0], num_beams=2, max_length=6)[0]["generated_text"]
        summarizer = keras_pipeline(model, "summarization")
        assert summarizer(TEXTS[0]) == [{"summary_text": expected}]
        assert summarizer(TEXTS[0], num_beams=1, max_new_tokens=9) != [{"summary_text": expected}]

    def test_languages_select_a_task(self, model: Any) -> None:
        plain, pipe = keras_pipeline(model), keras_pipeline(model, "translation")
        german = plain("translate English to German: " + TEXTS[0], max_length=5)[0]["generated_text"]
        french = plain("translate English to French: " + TEXTS[0], max_length=7, num_beams=2)[0]["generated_text"]
        with pytest.warns(TruncationWarning):
            assert pipe(TEXTS[0], src_lang="en", tgt_lang="de") == [{"translation_text": german}]
            assert pipe(TEXTS[0], tgt_lang="fr") == [{"translation_text": french}] != [{"translation_text": german}]
            for other in (
                pipeline(model, "translation", tgt_lang="fr"),
                pipeline(model, "translation_en_to_fr"),
            ):
                other.model = pipe.model
                assert other(TEXTS[0]) == [{"translation_text": french}]
        for codes, message in (
            ({}, "several prefixes for translation"),
            ({"src_lang": "en"}, "language of the output is missing. Expected tgt_lang=… to be one of de, fr"),
            ({"src_lang": "en", "tgt_lang": "it"}, "one of en to de, en to fr. Received: src_lang='en', tgt_lang='it'"),
            ({"src_lang": "en", "tgt_lang": "d"}, "Did you mean en to de?"),
        ):
            with pytest.raises(InputError, match=message.replace("?", r"\?")):
                pipe(TEXTS[0], **codes)
        with pytest.raises(InputError, match="Did you mean en to fr"):
            pipeline(model, "translation", tgt_lang="f", src_lang="en")

    @pytest.mark.parametrize(
        ("task", "params", "expected"),
        [
            ("summarization", {"summarization": {"num_beams": 2}}, "so: "),
            ("summarization", {"summarization": {"prefix": "short: "}}, "short: "),
            ("summarization", {"summarization": {"prefix": ""}}, ""),
            ("translation_en_to_de", {"translation_en_to_de": {"prefix": "G: "}}, "G: "),
            ("translation_en_to_it", {"translation_en_to_de": {"prefix": "G: "}}, "so: "),
        ],
    )
    def test_the_prefix_of_all_tasks(
        self, task: str, params: Any, expected: str, model: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = type(model.config).from_hf(model.config.to_hf() | {"prefix": "so: ", "task_specific_params": params})
        assert config.to_hf()["prefix"] == "so: "
        monkeypatch.setattr(model, "config", config)
        pipe, settings = keras_pipeline(model, task), {"num_beams": 1, "max_new_tokens": 8}
        assert pipe(TEXTS[0], **settings) == pipe(TEXTS[0], prefix=expected, **settings)
        assert pipe(TEXTS[0], **settings) != pipe(TEXTS[0], prefix="no", **settings)

    def test_a_bundle_has_the_settings(self, model: Any, tmp_path: Path) -> None:
        info = model.info()
        assert info.task_settings["summarization"] == {"num_beams": 2, "max_length": 6}
        bundle.write(tmp_path, bundle.Manifest("onnx", info, {}))
        assert bundle.read(tmp_path).info.task_settings == info.task_settings


class TestMarkedTexts:
    """Models of OPUS-MT with several languages read the token of the output's language first."""

    @pytest.fixture
    def pipe(self) -> Any:
        tokenizer = tiny_text.pieces()
        backend = Backend.from_str(tokenizer.backend.to_str())
        backend.add_special_tokens([AddedToken(code, special=True) for code in (">>fra<<", ">>ron<<")])
        return copying_pipeline("translation", tokenizer=Tokenizer(backend, special_tokens=tokenizer.special_tokens))

    def test_the_language_is_put_before_each_text(self, pipe: Any) -> None:
        written: list[list[str]] = []
        encode = pipe.tokenizer._encode_batch
        pipe.tokenizer._encode_batch = lambda texts, *options: written.append(texts) or encode(texts, *options)
        expected = pipe(">>fra<< Rain is expected.")
        assert pipe("Rain is expected.", tgt_lang="fra") == expected
        pipe("Rain is expected. The museum is closed.", tgt_lang="ron", split="sentences", batch_size=1)
        assert [">>ron<< Rain is expected."] in written and [">>ron<< The museum is closed."] in written
        pipe._set_languages(None, "fra")
        assert pipe("Rain is expected.") == expected

    def test_errors(self, pipe: Any) -> None:
        for options, message in (
            ({}, "language of the output is missing. Expected tgt_lang=… to be one of fra, ron"),
            ({"tgt_lang": "fr"}, "tgt_lang must be .*one of fra, ron. Received: 'fr'. Did you mean 'fra'"),
            ({"src_lang": "eng", "tgt_lang": "fra"}, "marks the language of the output alone.*src_lang='eng'"),
        ):
            for call in (pipe, pipe.stream):
                with pytest.raises(InputError, match=message):
                    call("Rain.", **options)


@pytest.mark.grid
def test_the_example_of_the_documentation() -> None:
    page = Path(__file__).parents[3] / "docs" / "pipelines.md"
    (block,) = [block for block in blocks(page, "pycon") if "summarizer" in block]
    test = doctest.DocTestParser().get_doctest(block, {}, page.name, str(page), 0)
    assert len(test.examples) > 5 and doctest.DocTestRunner().run(test).failed == 0
