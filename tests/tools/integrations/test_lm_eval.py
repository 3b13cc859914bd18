"""Scores of the Language Model Evaluation Harness on bundles and checkpoints equal those of its own model `hf`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer.errors import InputError
from tests import shared, tiny_text
from tests.extras import need
from tests.keras_pipelines import keras_pipeline
from tests.tools.server.servers import running

lm_eval = need("lm_eval")
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

from kerasformer.tools.integrations.lm_eval import KerasformerLM

PRESET = Path(kf.zoo.__file__).parent / "presets" / "story-gpt2"
LONG = "The museum is closed on Mondays, but the garden, with its old trees, stays open until nine. "
TOLERANCE = 1e-3
"""Of a log-likelihood, a sum of tokens, in float32."""

# Rows like those of BLiMP, LAMBADA, WikiText and ARC.
PAIRS = [
    {"good": "The keys to the cabinet are on the table.", "bad": "The keys to the cabinet is on the table."},
    {"good": "She has never seen it.", "bad": "She has ever seen it."},
]
ENDS = [{"text": "The dog ran to the gate and barked at the dog"}, {"text": "He opened the door and shut the door"}]
PAGES = [{"page": LONG * 6}, {"page": "Rain."}]
QUESTIONS = [
    {"question": "What falls in winter?", "choices": ["snow", "the old garden", "a long day", "bread"], "answer": 0},
    {"question": "Where do fish live?", "choices": ["in trees", "in water"], "answer": 1},
]
CHOICE = {"output_type": "multiple_choice", "metric_list": [{"metric": "acc"}]}
FORMS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "blimp": (PAIRS, {"doc_to_text": "", "doc_to_choice": "{{[good, bad]}}", "doc_to_target": 0, **CHOICE}),
    "lambada": (
        ENDS,
        {
            "doc_to_text": "{{text.rsplit(' ', 1)[0]}}",
            "doc_to_target": "{{' ' + text.rsplit(' ', 1)[1]}}",
            "output_type": "loglikelihood",
            "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
        },
    ),
    "wikitext": (
        PAGES,
        {
            "doc_to_text": "",
            "doc_to_target": "{{page}}",
            "output_type": "loglikelihood_rolling",
            "metric_list": [{"metric": "byte_perplexity"}],
        },
    ),
    "arc_easy": (
        QUESTIONS,
        {
            "doc_to_text": "Question: {{question}}\nAnswer:",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "{{answer}}",
            **CHOICE,
        },
    ),
    "gsm8k": (
        ENDS,
        {
            "doc_to_text": "{{text.rsplit(' ', 1)[0]}}",
            "doc_to_target": "{{text.rsplit(' ', 1)[1]}}",
            "output_type": "generate_until",
            "generation_kwargs": {"until": ["e"], "max_gen_toks": 6, "do_sample": False},
            "metric_list": [{"metric": "exact_match"}],
        },
    ),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The tasks, whose data are files on this disk."""
    folder, configs = tmp_path_factory.mktemp("tasks"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
        for name, (rows, settings) in FORMS.items():
            path = folder / f"{name}.json"
            path.write_text("\n".join(map(json.dumps, rows)))
            files = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}}
            configs.append({"task": f"tiny_{name}", "test_split": "test", "target_delimiter": " ", **files, **settings})
        configs[1]["target_delimiter"] = configs[0]["target_delimiter"] = ""
        yield configs


def checkpoint(name: str) -> Path:
    """Returns the folder of a model: a preset, or a tiny random one of transformers; made once a session."""
    if name == "story-gpt2":
        return PRESET

    def make(folder: Path) -> None:
        torch.manual_seed(0)
        tokenizer = tiny_text.byte_pairs() if name == "gpt2" else tiny_text.byte_fallback()
        model: Any
        if name == "gpt2":
            sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
            sizes |= {"bos_token_id": 0, "eos_token_id": 0}
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=tokenizer.vocab_size, **sizes))
        else:
            config = transformers.LlamaConfig(
                vocab_size=tokenizer.vocab_size, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3,
                bos_token_id=2, eos_token_id=1, pad_token_id=0,
            )  # fmt: skip
            model = transformers.LlamaForCausalLM(config)
        model.save_pretrained(folder)
        tokenizer.save(folder)

    return shared.once(f"harness-{name}", make)


def bundle(name: str, format: str) -> Path:
    """Returns the bundle of a model in float32; made once a session."""
    make = lambda folder: kf.export.export(kf.load(checkpoint(name), dtype="float32"), folder, format)  # noqa: E731
    return shared.once(f"harness-{name}-{format}", make)


def theirs(name: str, **options: Any) -> HFLM:
    """Returns the harness' own model with the same weights."""
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint(name), dtype=torch.float32)
    model.generation_config.max_new_tokens = None  # that of the preset would override the limit of a task
    special = kf.Tokenizer.load(checkpoint(name)).special_tokens
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(checkpoint(name) / "tokenizer.json"), **{"pad_token": special["eos_token"], **special}
    )
    return HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=3, **options)


def answers(model: Any, tasks: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the figures of the tasks, and the response to each request."""
    found = lm_eval.simple_evaluate(
        model=model, tasks=[dict(task) for task in tasks], log_samples=True, bootstrap_iters=0, verbosity="ERROR"
    )
    responses = {name: [sample["resps"] for sample in samples] for name, samples in found["samples"].items()}
    return found["results"], responses


def check_equal(received: dict[str, Any], expected: dict[str, Any]) -> None:
    assert received.keys() == expected.keys()
    for name in expected:
        for one, other in zip(received[name], expected[name], strict=True):
            if name == "tiny_gsm8k":
                assert [text.strip() for text in one[0]] == [text.strip() for text in other[0]]
                continue
            for (log, *greedy), (their_log, *their_greedy) in zip(
                (np.atleast_1d(each[0]) for each in one), (np.atleast_1d(each[0]) for each in other), strict=True
            ):
                assert float(log) == pytest.approx(float(their_log), abs=TOLERANCE), name
                assert [bool(each) for each in greedy] == [bool(each) for each in their_greedy]


@pytest.mark.grid
@pytest.mark.parametrize(
    "case",
    ["llama-onnx", *(pytest.param(f"{name}-tflite", marks=pytest.mark.release) for name in ("gpt2", "story-gpt2"))],
)
def test_scores_equal_those_of_transformers(case: str, tasks: list[dict[str, Any]]) -> None:
    name, _, format = case.rpartition("-")
    ours = KerasformerLM(str(bundle(name, format)), batch_size=3)
    figures, responses = answers(ours, tasks)
    their_figures, their_responses = answers(theirs(name, max_length=ours.max_length), tasks)
    check_equal(responses, their_responses)
    for task, values in their_figures.items():
        for metric, value in values.items():
            if isinstance(value, float):
                assert figures[task][metric] == pytest.approx(value, rel=1e-4), (task, metric)


@pytest.mark.release
def test_the_server_scores_the_same(tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    """By `echo` and `logprobs`; a request asks for one new token, for which a window leaves room."""
    model = theirs("gpt2", max_length=62)
    model.tokenizer.save_pretrained(tmp_path)
    with running([f"tiny={bundle('gpt2', 'tflite')}"]) as server:
        client = get_model("local-completions")(
            model="tiny", base_url=f"{server.url}/v1/completions", tokenizer_backend="huggingface",
            tokenizer=str(tmp_path), max_length=64, batch_size=4,
        )  # fmt: skip
        check_equal(answers(client, tasks[:4])[1], answers(model, tasks[:4])[1])


def scored(model: KerasformerLM, *pairs: tuple[str, str]) -> list[tuple[float, bool]]:
    found: list[tuple[float, bool]] = model.loglikelihood(
        [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)], disable_tqdm=True
    )
    return found


def test_a_context_is_read_once_and_a_text_after_it_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = KerasformerLM(str(bundle("gpt2", "onnx")))
    pairs = [("The garden stays open", f" {end}") for end in ("until nine", "on Mondays", "with rain", "late")]
    separate = [scored(model, pair)[0] for pair in pairs]
    started: list[int] = []
    read: list[int] = []
    start, step = model.step.start, model.step.step
    monkeypatch.setattr(model.step, "start", lambda ids, mask: (started.append(len(ids)), start(ids, mask))[1])
    monkeypatch.setattr(model.step, "step", lambda ids, state: (read.append(ids.shape[1]), step(ids, state))[1])
    together = scored(model, *pairs)
    assert (started, len(read)) == ([1], 1) and read[0] > 4
    assert [log for log, _ in together] == pytest.approx([log for log, _ in separate], abs=1e-5)


def test_a_checkpoint_in_keras_and_long_contexts() -> None:
    ours, hf = KerasformerLM(keras_pipeline(checkpoint("gpt2")), max_length=40), theirs("gpt2", max_length=40)
    pairs = [(LONG * 3, " The garden is closed."), ("", "Rain.")]
    expected = hf.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs], disable_tqdm=True)
    assert [log for log, _ in scored(ours, *pairs)] == pytest.approx([log for log, _ in expected], abs=TOLERANCE)
    with pytest.raises(InputError, match="must have 1 to 40 tokens"):
        scored(ours, ("It is", LONG * 3))
    with pytest.raises(InputError, match="max_gen_toks"):
        ours.generate_until([Instance("generate_until", {}, ("It is", {"until": []}), 0)], disable_tqdm=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_length": 65}, "max_length"), ({"batch_size": "auto"}, "batch_size"), ({"max_gen_toks": 0}, "max_gen_toks")],
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KerasformerLM(str(bundle("gpt2", "tflite")), **options)


@pytest.mark.grid
def test_the_command(tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(tasks[0]))  # JSON is YAML
    command = [sys.executable, "-m", "kerasformer.tools.integrations.lm_eval", "run", "--model", "kerasformer"]
    command += ["--model_args", f"source={bundle('gpt2', 'tflite')}", "--tasks", "tiny_blimp", "--batch_size", "2"]
    command += ["--include_path", str(tmp_path), "--output_path", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|tiny_blimp|" in done.stdout
    loaded = (
        "import sys, kerasformer.tools.integrations.lm_eval; print({'torch', 'keras', 'tensorflow'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "set()\n"
