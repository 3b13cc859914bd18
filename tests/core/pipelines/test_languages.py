"""Languages of the input and the output of multilingual models, in Keras and in bundles."""

from __future__ import annotations

from typing import Any

import pytest

import kerasformer as kf
from kerasformer.errors import InputError
from tests.core.export.text_models import shared_bundle, shared_model
from tests.keras_pipelines import keras_pipeline

pytestmark = pytest.mark.grid

NAME, SOURCE, TARGET = "m2m_100-text2text-generation", "zho_Hans", "ron_Latn"
TEXTS = ["Rain is expected.", "The museum is closed on Mondays"]
# Without repetitions, since the same token is the best at every step, in each language.
SHORT: dict[str, Any] = {"max_new_tokens": 8, "no_repeat_ngram_size": 1}
EAGER: dict[str, Any] = {**SHORT, "jit_compile": False}


def test_languages_of_a_call() -> None:
    model = shared_model(NAME)
    pipe, languages = keras_pipeline(model), {"src_lang": SOURCE, "tgt_lang": TARGET}
    plain = pipe(TEXTS, **SHORT)
    spoken = [row["generated_text"] for row in pipe(TEXTS, **languages, **SHORT)]
    # Each language has its effect.
    ids = model.tokenizer.for_languages(SOURCE)(TEXTS)
    tokens = model.generate(ids.input_ids, attention_mask=ids.attention_mask, forced_bos_token_id=174, **EAGER)
    assert spoken == [model.tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
    assert spoken != [row["generated_text"] for row in pipe(TEXTS, tgt_lang=TARGET, **SHORT)]
    assert model.generate(TEXTS, **languages, **EAGER) == spoken
    for source, options in ((kf.pipeline(shared_bundle(NAME, "tflite")), SHORT), (model, EAGER)):
        assert "".join(source.stream(TEXTS[0], **languages, **options)) == spoken[0]
    assert pipe(TEXTS, **SHORT) == plain, "a call must not change the pipeline"
    # Settings of the call take precedence.
    assert pipe(TEXTS, **languages, forced_bos_token_id=173, **SHORT) == pipe(
        TEXTS, src_lang=SOURCE, tgt_lang="deu_Latn", **SHORT
    )


def test_unknown_and_missing_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = shared_model(NAME)
    pipe = keras_pipeline(model)
    with pytest.raises(
        InputError, match="tgt_lang must be .*eng_Latn, deu_Latn, .*Received: 'ron'. Did you mean 'ron_L"
    ):
        pipe(TEXTS, tgt_lang="ron")
    with pytest.raises(InputError, match="src_lang must be .*Received: 'xx'"):
        pipe.stream(TEXTS[0], src_lang="xx")
    without = model.generation_config.replace(forced_bos_token_id=None)
    monkeypatch.setattr(model, "generation_config", without)
    pipe.generation_config = without
    for call in (pipe, pipe.stream, model.generate, model.stream):
        with pytest.raises(
            InputError, match="The language of the output is missing. Expected tgt_lang=.*Received: none"
        ):
            call(TEXTS[0])
    assert pipe(TEXTS[0], forced_bos_token_id=173, **SHORT) == pipe(TEXTS[0], tgt_lang="deu_Latn", **SHORT)
    with pytest.raises(InputError, match="not marked with a language.*tgt_lang='de'"):
        kf.pipeline(shared_model("t5-text2text-generation"))(TEXTS, tgt_lang="de")
