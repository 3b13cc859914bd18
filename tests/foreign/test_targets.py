"""Each target accepts a small model, or refuses it with the reason and advice before the export."""

from __future__ import annotations

import pytest

import kerasformer as kf
from kerasformer.basics.tasks import PRETRAINING, VARIANTS
from kerasformer.bundle import tested
from kerasformer.bundle.architectures import DECODER, find
from kerasformer.errors import ExportError
from kerasformer.export.formats.registry import FORMATS
from kerasformer.export.targets import TARGETS
from tests import tiny_text
from tests.core.export.test_export import REPEATED_HEADS
from tests.core.export.ticks import ALL
from tests.core.zoo.harness import HEADS
from tests.foreign.refusals import reason, try_to_export
from tests.grids import grid

ENCODERS = {name for name, row in ALL.items() if "generation" not in row.task}
WITHOUT_CLASS = ("ctrl", "gpt_bigcode", "openai-gpt", "xglm")
"""Decoders that transformers.js has no class for, or whose caches it cannot create."""
DECODERS = {name for name, row in ALL.items() if row.task == "text-generation"}
ENCODER_DECODERS = {f"{name}-text2text-generation" for name in ("bart", "mbart", "mt5", "t5", "umt5")}
WITHOUT_PIPELINE = {f"{name}-text2text-generation" for name in ("bigbird_pegasus", "led", "pegasus", "umt5")}
"""Encoder-decoders that transformers.js has no class for."""
BERTS = {name for name in ENCODERS if ALL[name].tokenizer in (tiny_text.wordpiece, tiny_text.wordpiece_with_ends)}
"""Encoders with a tokenizer like that of BERT or MPNet, whatever their inputs."""
FOR_TASKS = {name for name, row in ALL.items() if row.task not in (*PRETRAINING, *VARIANTS)}
_EMBEDS = "sentence-similarity"
_HEADS = ("fill-mask", "question-answering", "text-classification", "token-classification")
_FOR_TEXTS = ("text-classification", "feature-extraction", "sentence-similarity")

RUNS = {
    "mediapipe": {name for name in BERTS if name.endswith(_FOR_TEXTS)},
    "litert-lm": DECODERS | {name for name in ENCODERS if name.endswith("sentence-similarity")},
    "litert-web": set(ALL),
    # Without heads for which it has no class, or a class for other files.
    "transformers.js": FOR_TASKS
    - {"albert-token-classification"}
    - {
        f"{kind}-{task}"
        for kind in ("bart", "mbart")
        for task in ("feature-extraction", "question-answering", "fill-mask")
    }
    - {"marian-feature-extraction", "transformer-text2text-generation"}
    - {"mobilebert-token-classification", "modernbert-question-answering", "t5-feature-extraction"}
    - {f"{name}-text-generation" for name in WITHOUT_CLASS}
    - WITHOUT_PIPELINE
    - {f"t5-{task}" for task in ("question-answering", "text-classification", "token-classification")}
    - {name for name, row in ALL.items() if find(row.model_type).branch == DECODER and row.task in _HEADS}
    - {f"{kind}-{task}" for kind in ("big_bird", "longformer") for task in _HEADS},
    # Heads of these sizes do not add up to the hidden size, or the decoder has other heads than the encoder.
    "optimum": FOR_TASKS
    - ENCODER_DECODERS
    - {f"{name}-text2text-generation" for name in ("encoder-decoder", "transformer")}
    - {"gemma3_text-text-generation", "llama-text-generation"},
    # It pads the prompts of a batch on the right, where padding would take up a window.
    "genai": DECODERS - {f"{name}-text-generation" for name in ("gemma3_text", "gpt_neo", "mistral", "qwen3")},
    "saved-model": set(ALL),
    "triton": ENCODERS,
}
"""The small models that each target supports; it refuses all others."""

ADVICE = ("Use ", "Set ", "Remove ", "Export ", "Expected")


@pytest.mark.parametrize(
    ("name", "target"),
    grid(
        ALL,
        TARGETS,
        always=lambda name, _: name not in REPEATED_HEADS and ALL[name].model_type in HEADS,
        release=lambda name, _: name in REPEATED_HEADS,
    ),
)
@pytest.mark.filterwarnings("ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning")
def test_a_model_is_accepted_or_refused_with_the_reason(target, name):
    row, listed = ALL[name], tested.runtimes()[target]
    if name in RUNS[target]:
        try_to_export(target, name)
        assert row.task not in [task for tasks in listed.refusals_of(row.model_type).values() for task in tasks]
        return
    with pytest.raises(ExportError) as refused:
        try_to_export(target, name)
    message = str(refused.value)
    name = target.replace("-", "").lower()
    assert name in message.replace("-", "").lower(), "the runtime is missing"
    assert any(words in message for words in ("Received: ", "this one")), "the received value is missing"
    assert any(words in message for words in ADVICE), "the advice is missing"
    listed_tasks = listed.refusals_of(row.model_type).get(reason(refused.value), [])
    assert row.task in listed_tasks, "kerasformer models has another reason: python -m tests.foreign.table --write"


def test_tested_models_are_not_refused():
    for target, runtime in tested.runtimes().items():
        for task, models in runtime.bundles.items() if target in TARGETS else ():
            for model_type in models:
                # Rows for embeddings are made from those of other heads, so that only some are in the tables.
                rows = {name for name in RUNS[target] if ALL[name].model_type == model_type or name.endswith(_EMBEDS)}
                accepted = {name for name in rows if (task == _EMBEDS) == name.endswith(_EMBEDS)}
                assert accepted, f"{target} refuses every {model_type}, but a test covers {task}"


def test_an_unknown_target(tmp_path):
    with pytest.raises(ExportError, match="Unknown target. Expected one of mediapipe, .*Received: 'coreml'"):
        kf.export.export("sentiment-bert", tmp_path / "out", target="coreml")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "format"),
    [(name, format) for name, target in TARGETS.items() for format in FORMATS if format != target.format],
)
def test_a_target_with_another_format_is_refused(target, format, tmp_path):
    expected = f"target='{target}' requires format='{TARGETS[target].format}'. Received: format='{format}'"
    with pytest.raises(ExportError, match=expected):
        kf.export.export("sentiment-bert", tmp_path / "out", format, target=target)
