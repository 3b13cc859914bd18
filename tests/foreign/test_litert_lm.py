"""LiteRT-LM generates the texts of Keras from the `.litertlm` file; unsupported settings are refused at export."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

import kerasformer as kf
from kerasformer import bundle
from kerasformer.errors import ExportError
from kerasformer.export.hugging_face_files import end_tokens
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.export.targets.litert_lm.chat_template import chat_template
from kerasformer.tokenization import Tokenizer, hard_texts
from kerasformer.tools.bench import bench
from tests import tiny_text
from tests.core.export.text_models import ROWS
from tests.foreign.cards import run_litert_lm
from tests.foreign.cases import DECODERS, Case, cases, tiny
from tests.foreign.environments import packages, run
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_tokens

TARGET = "litert-lm"
PROMPTS = (
    "A",
    "Once upon a time",
    "The ship sailed along the coast",
    "In the morning, the old man walked to the harbour and",
    "Why did she leave the city?",
    'He said: "no" — and then',
    "  Two spaces",
    "Été, naïve, 日本",
    "Nobody knew what the letter said, for it had been written in a tongue that was forgotten",
    "1, 2, 3, 4, 5, 6, 7, 8, 9",
)
TOKENS = 24


def varied(case: Case, **changes: Any) -> Case:
    """Returns a case with a larger spread of random weights, so that its texts rarely repeat themselves."""
    return replace(case, source=replace(case.source, **{"spread": 2.0, "min_agreement": 0.9, **changes}))


GPT2 = varied(tiny("gpt2", "text-generation"))
# Such weights lose more accuracy than the recipes allow; this tests only that two runtimes read the same file.
QUANTIZED = [
    varied(tiny("gpt2", "text-generation", "fp16")),
    varied(tiny("gpt2", "text-generation", "int8")),
    varied(tiny("gpt2", "text-generation", "int4"), spread=1.5, min_int4_agreement=0.5),
]
OTHERS = [varied(case) for case in DECODERS]


def text_model(case: Case) -> Any:
    """Returns the model; it generates only printable characters, because others look alike in a text."""
    model = case.model()
    tokenizer = model.tokenizer
    size = tokenizer.vocab_size
    suppressed = [i for i in range(size) if not tokenizer.decode([i]).replace("\ufffd", "\n").isprintable()]
    suppressed += tokenizer.all_special_ids  # LiteRT-LM prints these
    for variable in model.variables:
        if size in variable.shape:  # tokens or, in an output that is not tied to them, columns
            value = keras.ops.convert_to_numpy(variable.value).copy()
            np.moveaxis(value, tuple(variable.shape).index(size), 0)[suppressed] *= 0.05
            variable.assign(value)
    return model


def generated(
    folder: Path, prompts: tuple[str, ...] = PROMPTS, tokens: int = TOKENS, mode: str = "session"
) -> list[str]:
    """Returns the text that LiteRT-LM generates after each prompt."""
    request = {"model": str(folder / litertlm_file.NAME), "prompts": prompts, "tokens": tokens, "mode": mode}
    return run(TARGET, "litert_lm_generate.py", request)


def expected(source: Any, prompts: tuple[str, ...] = PROMPTS, tokens: int = TOKENS) -> list[str]:
    """Returns the texts of a model, or of a bundle on the engine of this package."""
    pipe = keras_pipeline(source, "text-generation")
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "max_new_tokens": tokens}
    return [pipe(prompt, **greedy)[0]["generated_text"][len(prompt) :] for prompt in prompts]


@pytest.mark.foreign(TARGET)
@cases(GPT2, *QUANTIZED, *OTHERS, recipes=("none", "int4"))
def test_greedy_texts(case, tmp_path):
    model = text_model(case)
    folder = case.export(tmp_path / "out", model, target=TARGET, capacity=96)
    texts, answers = expected(model), generated(folder)
    assert len(set(texts)) >= len(PROMPTS) - 2, "the texts must differ"
    if case.quantize == "none":
        assert answers == texts
        return
    # LiteRT-LM returns texts without tokens; the tokens of this package's engine for the same file are checked instead.
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    pipe = kf.pipeline(folder, "text-generation")
    outputs = [pipe(text, max_new_tokens=TOKENS, return_dict_in_generate=True, **greedy) for text in PROMPTS]
    sequences = [output.sequences[0].tolist() for output in outputs]
    assert answers == [model.tokenizer.decode(row, skip_special_tokens=True) for row in sequences]
    check_tokens(model, folder, [model.tokenizer.encode(text) for text in PROMPTS], sequences, TOKENS, greedy)


CHAT = """\
{{- bos_token -}}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ 'answer: ' + message.content | trim + eos_token + '\n' }}{% endgeneration %}
    {%- else %}
        {{- (message.role | upper) ~ ': ' ~ message['content'].strip() + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'answer:' }}{% endif %}"""


def conversations(folder: Path, system: str | None, chats: list[list[str]]) -> list[list[tuple[str, str, int]]]:
    """Returns prompt, answer and number of tokens in the cache for each message of each conversation of LiteRT-LM."""
    request = {"model": str(folder / litertlm_file.NAME), "system": system, "chats": chats, "tokens": TOKENS}
    return run(TARGET, "litert_lm_generate.py", request)


@pytest.mark.foreign(TARGET)
def test_conversations(tmp_path):
    """Prompts and answers of the chat template in the file are those of Keras; both end with its end token."""
    model = text_model(GPT2)
    model.tokenizer.chat_template = CHAT
    folder = GPT2.export(tmp_path / "out", model, target=TARGET, capacity=96)
    chats, system, pipe = [prompt for prompt in PROMPTS if len(prompt) < 60], "Be brief. ", keras_pipeline(model)
    turns = conversations(folder, system, [[text] for text in chats])
    received = [(prompt, text) for ((prompt, text, _),) in turns]
    messages = [[{"role": "system", "content": system}, {"role": "user", "content": text}] for text in chats]
    assert [prompt for prompt, _ in received] == [
        pipe.apply_chat_template(each, add_generation_prompt=True, tokenize=False) for each in messages
    ]
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "max_new_tokens": TOKENS, "return_full_text": False}
    assert [text for _, text in received] == [pipe(each, **greedy)[0]["generated_text"] for each in messages]


TURNS = """\
{% for message in messages %}{% if message.role == 'assistant' %}{{ message.content + eos_token }}
{%- else %}{{ 'Q: ' + message.content + '\\nA:' }}{% endif %}{% endfor %}"""
"""A template that writes nothing after the end token of an answer."""


def single_bytes() -> Tokenizer:
    """Returns a tokenizer with a token for each byte, so that the text of an answer has the tokens of the answer."""
    names = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Backend(models.BPE({name: index for index, name in enumerate(names)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(names[:1])
    return Tokenizer(backend, special_tokens={"eos_token": names[0]})


@pytest.mark.foreign(TARGET)
def test_later_turns(tmp_path):
    """Answers and cached tokens of three turns are those of Keras, which reads the whole conversation each time."""
    settings = {**ROWS["gptj-text-generation"].settings, "max_length": 160}
    case = varied(tiny("gptj", "text-generation"), tokenizer=single_bytes, settings=settings)
    model = text_model(case)
    model.tokenizer.chat_template = TURNS
    (bias,) = [variable for variable in model.variables if tuple(variable.shape) == (model.tokenizer.vocab_size,)]
    value = keras.ops.convert_to_numpy(bias.value).copy()
    value[0] = 2.0  # answers end after some tokens
    bias.assign(value)
    folder = case.export(tmp_path / "out", model, target=TARGET)
    chat, pipe = ["Who is it?", "Why?", "When?"], keras_pipeline(model)
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "max_new_tokens": TOKENS}
    messages, before = [], ""
    for text, (prompt, answer, count) in zip(chat, conversations(folder, None, [chat])[0], strict=True):
        messages.append({"role": "user", "content": text})
        assert before + prompt == pipe.apply_chat_template(messages, tokenize=False)
        messages = pipe(messages, **greedy)[0]["generated_text"]
        assert answer == messages[-1]["content"] and 0 < len(answer) < TOKENS
        before = pipe.apply_chat_template(messages, tokenize=False)
        assert count == len(model.tokenizer.encode(before)), "the end token is in the cache, too"


def test_the_end_token_of_the_template_ends_a_text():
    """Also if it is not an end token of the model."""
    model = kf.zoo.load("story-gpt2")
    model.tokenizer.backend.add_special_tokens(["<|turn|>"])
    model.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}<|turn|>\n{% endfor %}"
    (end,) = model.info().eos_token_id
    job = SimpleNamespace(model=model, info=model.info())
    assert end_tokens(job) == (end, model.tokenizer.token_to_id("<|turn|>"))


def test_tags_that_litert_lm_lacks():
    tokenizer = kf.Tokenizer.load("story-gpt2")
    tokenizer.chat_template = "{% for message in messages %}{%- break %}{% endfor %}"
    with pytest.raises(ExportError, match="lacks the tag break"):
        chat_template(tokenizer)


@pytest.mark.foreign(TARGET)
def test_ids_of_unusual_texts(exported):
    folder, _ = exported
    rows = json.loads((folder / hard_texts.FILE).read_text(encoding="utf-8"))
    request = {"model": str(folder / litertlm_file.NAME), "tokenize": [row["text"] for row in rows]}
    received = run(TARGET, "litert_lm_generate.py", request)
    assert [row["text"] for row, ids in zip(rows, received, strict=True) if ids != row["ids"]] == []


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Any]:
    """A bundle and its model."""
    model = text_model(GPT2)
    return GPT2.export(tmp_path_factory.mktemp("litert-lm") / "out", model, target=TARGET, capacity=96), model


def test_bench_compares_it_with_this_package(exported, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", packages("litert-lm"))
    found = bench([exported[0]], texts=["A"], new_tokens=8, rounds=1, engines=True)
    assert not found.not_measured
    assert [subject.engine for subject in found.subjects] == ["litert", "LiteRT-LM"]
    assert all(subject.works[0].decode_tokens_s for subject in found.subjects)


@pytest.mark.foreign(TARGET)
@pytest.mark.parametrize(
    "mode", ["file settings", *(pytest.param(mode, marks=pytest.mark.release) for mode in ("streamed", "conversation"))]
)
def test_other_modes(mode, exported):
    folder, model = exported
    assert generated(folder, mode=mode) == expected(model)


@pytest.mark.foreign(TARGET)
@pytest.mark.parametrize(("counts", "tokens"), [((7, 8, 9, 64, 65, 73), 20), ((95,), 1)], ids=["some", "most"])
def test_prompts_of_every_length(counts, tokens, exported):
    """Prompts are read in prefills of 64 and 8 tokens; the last one may be longer than the remaining tokens."""
    folder, model = exported
    prompts = tuple("!" * (count - 1) + "A" for count in counts)
    assert tuple(len(model.tokenizer.encode(prompt)) for prompt in prompts) == counts
    assert generated(folder, prompts, tokens) == expected(model, prompts, tokens)


@pytest.mark.foreign(TARGET)
def test_each_end_token_ends_a_text(exported, tmp_path):
    prompt = PROMPTS[1:2]
    (whole,) = expected(exported[1], prompt)
    ids = exported[1].tokenizer.encode(whole)
    case = varied(GPT2, settings={**GPT2.source.settings, "eos_token_id": [0, ids[5]]})
    model = text_model(case)
    (text,) = generated(case.export(tmp_path / "out", model, target=TARGET), prompt)
    assert whole.startswith(text) and 0 < len(text) < len(whole)
    assert text == model.tokenizer.decode(ids[: ids.index(ids[5])])


@pytest.mark.foreign(TARGET)
def test_suppressed_tokens(exported, tmp_path):
    model = text_model(GPT2)
    unwanted = model.tokenizer.encode(expected(exported[1], PROMPTS[1:2])[0])[:3]
    model.generation_config = model.generation_config.replace(suppress_tokens=unwanted)
    folder = GPT2.export(tmp_path / "out", model, target=TARGET, capacity=96)
    assert generated(folder) == expected(model) != expected(exported[1])


def llama_like() -> Tokenizer:
    """Returns a tokenizer like that of LLaMA: pieces start with their space, byte fallback, a begin token."""
    pieces = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁"])}
    for letter in sorted({letter for text in tiny_text.CORPUS for letter in text if letter.isalpha()}):
        pieces.setdefault(letter, len(pieces))
    merges = [(a, b) for a, b in (("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "n"), ("a", "n")) if a + b not in pieces]
    for pair in merges:
        pieces["".join(pair)] = len(pieces)
    backend = Backend(models.BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return Tokenizer(backend, special_tokens={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})


@pytest.mark.foreign(TARGET)
def test_a_begin_token_and_pieces_with_spaces(tmp_path):
    settings = {**GPT2.source.settings, "eos_token_id": 2, "bos_token_id": 1}
    case = varied(GPT2, tokenizer=llama_like, settings=settings)
    model = text_model(case)
    folder = case.export(tmp_path / "out", model, target=TARGET, capacity=96)
    prompts = tuple(prompt for prompt in PROMPTS if len(model.tokenizer.encode(prompt)) < 64)
    assert generated(folder, prompts) == expected(model, prompts)


def test_the_bundle_also_runs_with_kerasformer(exported):
    folder, model = exported
    manifest = bundle.read(folder)
    assert list(manifest.signatures) == ["prefill_8", "prefill_32", "decode"]
    assert (folder / "model.tflite").read_bytes() in (folder / litertlm_file.NAME).read_bytes()
    assert expected(folder, PROMPTS[:2]) == expected(model, PROMPTS[:2])


def test_the_same_sections_give_the_same_file(exported, tmp_path):
    folder, _ = exported
    copies = []
    for name, capacity in (("one", 96), ("two", 96), ("other", 88)):
        settings = kf.generation.GenerationConfig()
        message = litertlm_file.metadata(settings, capacity=capacity, vocab_size=320, start=None, ends=(0,))
        litertlm_file.write(tmp_path / name, message, folder / "tokenizer.json", folder / "model.tflite")
        copies.append((tmp_path / name).read_bytes())
    one, two, other = copies
    assert one == two != other
    assert one[: 16 * 1024] != other[: 16 * 1024], "the caches of a device depend on the name in the header"


@pytest.mark.foreign(TARGET)
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_the_program_of_the_card(language, exported, tmp_path):
    folder, model = exported
    assert run_litert_lm(folder, language, tmp_path).rstrip("\n") == expected(model, PROMPTS[1:2], 40)[0]


REFUSED = [
    (GPT2, {"capacity": 92}, "multiple of 8"),
    (GPT2, {"capacity": 4}, "multiple of 8"),
    (varied(GPT2, settings={**GPT2.source.settings, "eos_token_id": None}), {}, "without eos_token_id"),
    (varied(GPT2, tokenizer=tiny_text.pieces), {}, "only a single token, before a text"),
]


@pytest.mark.parametrize(("case", "settings", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_unsupported_models_and_settings_are_refused(case, settings, reason, tmp_path):
    with pytest.raises(ExportError, match=reason):
        case.export(tmp_path / "out", target=TARGET, **settings)
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    model = GPT2.model()
    model.tokenizer = None
    with pytest.raises(ExportError, match="needs a tokenizer"):
        GPT2.export(tmp_path / "out", model, target=TARGET)


def test_sampling_is_in_the_file():
    settings = kf.generation.GenerationConfig(do_sample=True, temperature=0.75, top_p=0.5)
    sampler = litertlm_file.metadata(settings, capacity=8, vocab_size=99, start=None, ends=(0,)).sampler_params
    assert (sampler.k, sampler.p, sampler.temperature) == (99, np.float32(0.5), 0.75)
