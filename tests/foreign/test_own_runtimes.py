"""Bundles run in LiteRT and ONNX Runtime without this package and without Keras, by what their manifest says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.bundle import MANIFEST, read
from kerasformer.pipelines.base import softmax
from tests.core.export.text_models import size_options
from tests.foreign.cards import PROGRAM, keras_arrays, run_python
from tests.foreign.cases import DECODERS, EMBEDDERS, ENCODER_DECODERS, cases, embedder, tiny
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_classes, check_tokens

SENTENCES = ("The old man went out to look for the boat.", "A letter!", "Nobody knew why.")
QUESTIONS = (("Who went out?", "The old man went out to look for the boat."), ("What?", "A letter came, and no more."))

CASES = (
    tiny("bert", "text-classification"),
    tiny("bert", "text-classification", "int8"),
    tiny("bert", "token-classification"),
    tiny("bert", "question-answering"),
    tiny("bert", "fill-mask"),
    tiny("bert", "feature-extraction"),
    tiny("bert", "sentence-similarity"),
    *(embedder(name) for name in EMBEDDERS if name != "bert"),
    tiny("distilbert", "text-classification"),
    tiny("albert", "fill-mask"),
    tiny("roberta", "text-classification"),
    tiny("roberta", "fill-mask"),
    tiny("camembert", "fill-mask"),
    tiny("xlm-roberta", "feature-extraction"),
    tiny("electra", "fill-mask"),
    tiny("mobilebert", "text-classification"),
    tiny("mpnet", "feature-extraction"),
    tiny("modernbert", "token-classification"),
    tiny("modernbert", "token-classification", "int8"),
    tiny("deberta-v2", "token-classification"),
    tiny("longformer", "text-classification"),
    tiny("longformer", "text-classification", "int8"),
    tiny("big_bird", "question-answering"),
    tiny("deberta", "token-classification"),
    tiny("xlm", "token-classification"),
    tiny("gpt2", "text-generation"),
    tiny("gpt2", "text-generation", "int8"),
    tiny("gpt2", "text-classification"),
    *DECODERS,
    tiny("llama", "text-generation", "int8"),
    tiny("gemma3_text", "text-generation", "int8"),
    tiny("bloom", "text-generation", "int8"),
    tiny("bart", "text2text-generation"),
    tiny("bart", "text2text-generation", "int8"),
    tiny("mbart", "text2text-generation"),
    tiny("m2m_100", "text2text-generation"),
    tiny("marian", "text2text-generation"),
    tiny("t5", "text2text-generation"),
    tiny("t5", "text2text-generation", as_task="summarization"),
    *ENCODER_DECODERS,
)


# The program has code for each task and for each format; test_export.py runs every architecture in these runtimes.


@pytest.mark.foreign("litert")
@cases(*CASES)
def test_litert(case):
    check(case, "tflite", PROGRAM)


@pytest.mark.foreign("onnxruntime")
@cases(*CASES, by_task=True)
def test_onnxruntime(case):
    check(case, "onnx", PROGRAM)


@pytest.mark.parametrize(
    "case", [tiny("distilbert", "text-classification"), tiny("bert", "feature-extraction")], ids=str
)
@pytest.mark.filterwarnings("ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning")
def test_the_program_of_a_bundle_for_another_runtime(case, tmp_path):
    """The outputs are probabilities, or one vector for each text."""
    model = case.model()
    bundle = case.export(tmp_path / "bundle", model, target="mediapipe")
    (result,) = run_python(bundle, PROGRAM, [SENTENCES[:1]])
    pipe = keras_pipeline(model, case.task)
    if case.task == "text-classification":
        assert result.printed == classes(pipe, model, SENTENCES[0])
    else:
        expected = pipe(SENTENCES[0], pooling="mean")
        assert np.allclose(result.arrays["sentence_embedding"], expected, atol=1e-5)


@pytest.mark.foreign("litert")
@pytest.mark.parametrize("format", ["onnx", pytest.param("tflite", marks=pytest.mark.release)])  # the same code
def test_forbidden_and_first_tokens(format, tmp_path):
    model = tiny("bart", "text2text-generation").model()
    chosen = model.generate(SENTENCES[:1], max_new_tokens=3, jit_compile=False, num_beams=1)[0]
    forbidden = model.tokenizer.encode(chosen, add_special_tokens=False)
    settings = {"suppress_tokens": (forbidden[0],), "bad_words_ids": [[token] for token in forbidden[1:]]}
    model.generation_config = model.generation_config.replace(forced_bos_token_id=120, **settings)
    sizes = size_options(model, format, (16, 64), 80)
    folder = kf.export.export(model, tmp_path / "bundle", format, **sizes)
    heading = PROGRAM
    (result,) = run_python(folder, heading, [SENTENCES[:1]])
    (row,) = model.generate(model.tokenizer(SENTENCES[:1]).input_ids, max_new_tokens=40, jit_compile=False, num_beams=1)
    assert result.tokens[1:] == [token for token in row if token not in model.generation_config.eos_token_id]
    assert result.tokens[1] == 120 and not {*result.tokens} & {*forbidden}
    with pytest.raises(AssertionError, match="A text can have 1 to 64 tokens. Received: "):
        run_python(folder, heading, [[" ".join(SENTENCES * 9)]])
    # The same for a language that an argument selects.
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["info"]["languages"] = {"ids": {"deu": 120, "ron": 121}, "setting": "forced_bos_token_id"}
    del manifest["info"]["generation"]["forced_bos_token_id"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    german, romanian = run_python(folder, heading, [[SENTENCES[0], language] for language in ("deu", "ron")])
    assert german.tokens == result.tokens and romanian.tokens[1] == 121
    with pytest.raises(AssertionError, match="Pass the language of the output, one of deu, ron"):
        run_python(folder, heading, [SENTENCES[:1]])


def check(case, format, heading):
    """Checks that the program gives the answers of the Keras model; in int8, within their margins."""
    model, bundle = case.shared_model(), case.shared(format)
    (check_texts if model.generates else check_arrays)(case, model, bundle, heading)


def check_texts(case, model, bundle, heading):
    results = run_python(bundle, heading, [[text] for text in SENTENCES])
    if case.quantize == "none":
        pipe = keras_pipeline(model, case.task)
        for text, result in zip(SENTENCES, results, strict=True):
            (answer,) = pipe(text, max_new_tokens=40, num_beams=1)
            assert result.printed == answer[next(key for key in answer if key.endswith("_text"))].strip(), text
    else:
        prompts = [model.tokenizer.encode(text) for text in SENTENCES]
        starts = [1 if model.is_encoder_decoder else len(prompt) for prompt in prompts]
        generated = [result.tokens[start:] for result, start in zip(results, starts, strict=True)]
        check_tokens(model, bundle, prompts, generated, 40, {"do_sample": False})
    assert len({tuple(result.tokens) for result in results}) == len(SENTENCES)


def check_arrays(case, model, bundle, heading):
    texts = QUESTIONS if case.task == "question-answering" else [(text,) for text in SENTENCES]
    if case.task == "fill-mask":
        texts = [(f"A {model.tokenizer.mask_token} {text}",) for (text,) in texts]
    results = run_python(bundle, heading, texts)
    tolerance, *_ = read(bundle).promise
    pipe = keras_pipeline(model, case.task)
    for text, result in zip(texts, results, strict=True):
        for name, expected in keras_arrays(model, *text).items():
            received = result.arrays[name][:, : expected.shape[1]]
            assert np.abs(received - expected).max() <= max(tolerance, 1e-5) * np.abs(expected).max(), (text, name)
            if case.quantize != "none":
                check_classes(bundle, softmax(expected), softmax(received))
        if case.task in PRINTED and case.quantize == "none":
            assert result.printed == PRINTED[case.task](pipe, model, *text), text


def classes(pipe, model, text):
    rows = pipe(text, top_k=None)
    if model.config.problem_type == "multi_label_classification":
        ranks = {label: index for index, label in enumerate(model.info().labels)}
        return str(sorted((row["label"] for row in rows if row["score"] > 0.5), key=ranks.get))
    return rows[0]["label"]


PRINTED = {
    "text-classification": classes,
    "question-answering": lambda pipe, model, *texts: pipe(question=texts[0], context=texts[1])["answer"],
    "fill-mask": lambda pipe, model, text: pipe(text)[0]["token_str"],
}
"""The expected output of a program, from a pipeline."""
