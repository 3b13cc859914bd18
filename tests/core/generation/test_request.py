"""The effect of keyword arguments, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.engines import Step
from kerasformer.errors import GenerationError, InputError, KerasformerError, TokenizerError
from kerasformer.generation import GenerationConfig, Request, request
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.generation.scripted import Scripted, named

PROMPT, TEXT = "The old man", " looked at the sea. The ship"
BYTES = tiny_text.byte_pairs()


def engine() -> Scripted:
    return Scripted(BYTES, PROMPT, TEXT)


def open_assistant(source: Any) -> tuple[Step, Tokenizer | None]:
    return engine(), {"same": BYTES, "other": tiny_text.pieces(), "unknown": None}[source]


def create_request(tokenizer: Tokenizer | None = BYTES, **settings: Any) -> Request:
    base = GenerationConfig(max_new_tokens=100, eos_token_id=0)
    return request(settings, base, tokenizer, open_assistant)


def generate(**settings: Any) -> Any:
    model = engine()
    return create_request(**settings).write(model, model.ids, model.mask)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, TEXT),
        ({"stop_strings": " sea"}, " looked at the sea"),
        ({"stop_strings": [". T", " sea."]}, " looked at the sea."),
        ({"stop_strings": ["nowhere", "man look"]}, None),
        ({"stop": lambda tokens: len(tokens) == 1}, None),
        ({"stop": [lambda tokens: False, lambda tokens: len(tokens) == 1]}, None),
        ({"stop": None, "rules": None, "assistant": None, "explain": None}, TEXT),
        ({"guidance_scale": 1.5, "negative_prompt": PROMPT}, TEXT),
        ({"guidance_scale": 1.5, "negative_prompt_ids": [BYTES.encode(PROMPT)]}, TEXT),
        ({"guidance_scale": 1.5, "negative_prompt": [PROMPT], "num_beams": 2}, TEXT),
    ],
    ids=named,
)
def test_settings(settings: dict[str, Any], text: str | None) -> None:
    result = generate(**settings).texts[0][0]
    if text is None:
        assert 0 < len(result) < len(TEXT) and TEXT.startswith(result)
    else:
        assert result == text


def test_custom_rules() -> None:
    script = engine().script

    def forbid_first(history: Any, logits: np.ndarray) -> np.ndarray:
        changed = logits.copy()
        changed[:, script[0]] = -np.inf
        return changed

    for rules in (forbid_first, [forbid_first]):
        assert script[0] not in generate(rules=rules, max_new_tokens=3).output.sequences[0]


def test_negative_ids_and_their_mask() -> None:
    ids, mask = np.array([[0, 5]]), np.array([[0, 1]])
    controls = create_request(guidance_scale=2.0, negative_prompt_ids=ids, negative_prompt_attention_mask=mask).controls
    assert controls.negative_ids.tolist() == [[0, 5]] and controls.negative_mask.tolist() == [[0, 1]]


def test_negative_prompts_are_split_into_batches() -> None:
    request = create_request(guidance_scale=2.0, negative_prompt_ids=[[1, 2], [3, 4], [5, 6]])
    parts = [request.for_prompts(rows, 3).controls.negative_ids.tolist() for rows in (range(2), range(2, 3), [2, 0])]
    assert parts == [[[1, 2], [3, 4]], [[5, 6]], [[5, 6], [1, 2]]]
    one = create_request(guidance_scale=2.0, negative_prompt="one")
    assert one.for_prompts([0, 1], 3) is one
    with pytest.raises(InputError, match="Expected: 1 or 4. Received: 3"):
        request.for_prompts([0, 1], 4)


@pytest.mark.parametrize("name", ["same", "unknown"])
def test_an_assistant(name: str) -> None:
    result = generate(assistant=name)
    assert result.texts == [[TEXT]]
    assert result.output.speculation is not None


def test_the_whole_output() -> None:
    assert create_request().result == "texts"
    assert create_request(return_dict_in_generate=True).result == "output"
    model = engine()
    output = generate(output_scores=True).result("output")
    assert output.scores[0].shape == (len(model.script), model.vocab_size)
    assert output.logits is None
    assert generate(output_logits=True).result("output").logits is not None
    assert create_request(output_scores=True, return_dict_in_generate=False).result == "texts"


def test_an_explanation_of_each_text() -> None:
    pytest.importorskip("kerasformer.tools.interpretability")
    assert len(generate(explain=True).result("explanation").lines) == len(engine().script)
    several = generate(explain=True, num_return_sequences=2, num_beams=2).result("explanation")
    assert [type(each).__name__ for each in several] == ["Explanation"] * 2


BAD = [
    ({"max_new_token": 3}, GenerationError, "Did you mean max_new_tokens?"),
    ({"truncation": True}, GenerationError, "truncation is not a generation setting"),
    ({"max_new_tokens": 0}, GenerationError, "max_new_tokens.*at least 1"),
    ({"stop": 3}, InputError, "stop must be a function or a list of functions; texts are .*Received: stop=3"),
    ({"beam_size": 2}, GenerationError, "beam_size is not a generation setting. Known names: .*num_beams"),
    ({"stop_strings": [""]}, GenerationError, "stop_strings"),
    ({"rules": "upper"}, InputError, "rules must be a function"),
    ({"logits_processor": [len]}, GenerationError, "pass functions .* as rules="),
    ({"cancelled": True}, InputError, "cancelled must be a function"),
    ({"output_scores": 1}, InputError, "output_scores must be True or False"),
    ({"negative_prompt": "no"}, GenerationError, "guidance_scale other than 1"),
    ({"negative_prompt_ids": [[1]]}, GenerationError, "negative_prompt_ids with guidance_scale=1"),
    ({"negative_prompt": "", "guidance_scale": 2.0}, InputError, "must be a non-empty text"),
    ({"negative_prompt": "a", "negative_prompt_ids": [[1]], "guidance_scale": 2.0}, GenerationError, "Remove one of"),
    ({"negative_prompt_attention_mask": [[1]], "guidance_scale": 2.0}, GenerationError, "no negative_prompt_ids"),
    ({"assistant": "other"}, TokenizerError, "must have the same vocabulary.*Use a smaller model"),
]


@pytest.mark.parametrize(("settings", "kind", "message"), BAD, ids=[str(row[0]) for row in BAD])
def test_invalid_arguments(settings: dict[str, Any], kind: type[KerasformerError], message: str) -> None:
    with pytest.raises(kind, match=message):
        create_request(**settings)


@pytest.mark.parametrize("settings", [{"stop_strings": "a"}, {"negative_prompt": "a", "guidance_scale": 2.0}], ids=str)
def test_texts_require_a_tokenizer(settings: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="needs a tokenizer"):
        create_request(tokenizer=None, **settings)
