"""Languages of the input and the output of multilingual models, in Keras and in bundles."""

from __future__ import annotations

from typing import Any

import pytest

import kerasformer as kf
from kerasformer.errors import InputError
from tests.export.text_models import shared_bundle, shared_model
from tests.keras_pipelines import keras_pipeline

# The row, its format, languages, and the settings that the language of the output stands for.
ROWS = {
    "m2m_100-text2text-generation": ("tflite", ("zho_Hans", "ron_Latn"), {"forced_bos_token_id": 174}),
    "mbart-text2text-generation": ("onnx", ("zh_CN", "ro_RO"), {"decoder_start_token_id": 174}),
}
TEXTS = ["Rain is expected.", "The museum is closed on Mondays"]
# Without repetitions, since the same token is the best at every step, in each language.
SHORT: dict[str, Any] = {"max_new_tokens": 8, "no_repeat_ngram_size": 1}
EAGER: dict[str, Any] = {**SHORT, "jit_compile": False}


@pytest.mark.parametrize("name", ROWS)
def test_languages_of_a_call(name: str) -> None:
    format, (source, target), settings = ROWS[name]
    model = shared_model(name)
    pipe, bundle = keras_pipeline(model), kf.pipeline(shared_bundle(name, format))
    plain = pipe(TEXTS, **SHORT)
    spoken = pipe(TEXTS, src_lang=source, tgt_lang=target, **SHORT)
    assert bundle(TEXTS, **SHORT) == plain
    assert bundle(TEXTS, src_lang=source, tgt_lang=target, **SHORT) == spoken != plain
    # Each language has its effect.
    ids = model.tokenizer.for_languages(source)(TEXTS)
    tokens = model.generate(ids.input_ids, attention_mask=ids.attention_mask, **settings, **EAGER)
    decoded = [model.tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
    assert [row["generated_text"] for row in spoken] == decoded
    assert spoken != pipe(TEXTS, tgt_lang=target, **SHORT) != plain
    assert model.generate(TEXTS, src_lang=source, tgt_lang=target, **EAGER) == decoded
    assert "".join(bundle.stream(TEXTS[0], src_lang=source, tgt_lang=target, **SHORT)) == decoded[0]
    assert "".join(model.stream(TEXTS[0], src_lang=source, tgt_lang=target, **EAGER)) == decoded[0]
    assert pipe(TEXTS, **SHORT) == plain, "a call must not change the pipeline"
    # Settings of the call take precedence.
    assert pipe(TEXTS, src_lang=source, tgt_lang=target, **{key: 173 for key in settings}, **SHORT) == pipe(
        TEXTS, src_lang=source, **SHORT
    )


def test_unknown_and_missing_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = shared_model("m2m_100-text2text-generation")
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
