"""Where chat templates are read from, and how they are saved."""

from __future__ import annotations

import json

import pytest
import transformers

from kerasformer.errors import ChatTemplateError, InputError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.chat_templates import read_templates
from tests import tiny_text
from tests.core.tokenization.chat_templates.conversations import TEMPLATES, TOOL, TURNS

NAMED = {"default": TEMPLATES["chatml"], "tool_use": TEMPLATES["tools"]}


def test_precedence(tmp_path):
    assert read_templates(tmp_path, {}) is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "old"}))
    assert read_templates(tmp_path, {}) == "old"
    assert read_templates(tmp_path, {"chat_template": "settings"}) == "settings"
    (tmp_path / "chat_template.jinja").write_text("jinja\n")
    assert read_templates(tmp_path, {"chat_template": "settings"}) == "jinja\n"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert read_templates(tmp_path, {}) == {"default": "jinja\n", "tool_use": "tools"}


def test_list_of_named_templates(tmp_path):
    listed = [{"name": name, "template": template} for name, template in NAMED.items()]
    assert read_templates(tmp_path, {"chat_template": listed}) == NAMED


@pytest.mark.parametrize("value", [5, [], [{"name": "default"}], {"default": 5}, ["{{ x }}"]])
def test_wrong_types(tmp_path, value):
    with pytest.raises(ChatTemplateError, match="must be a template, or a list of"):
        read_templates(tmp_path, {"chat_template": value})


def test_unreadable_files(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ChatTemplateError, match="UTF-8"):
        read_templates(tmp_path, {})
    (tmp_path / "chat_template.jinja").write_text("a" * 1_000_001)
    with pytest.raises(ChatTemplateError, match="at most 1,000,000 characters"):
        read_templates(tmp_path, {})


def test_named_templates(tokenizers):
    ours, _ = tokenizers
    ours.chat_template = NAMED
    assert ours.apply_chat_template(TURNS, tokenize=False).startswith("<|im_start|>")
    assert ours.apply_chat_template(TURNS, [TOOL], tokenize=False).startswith("<|system|>")
    assert ours.apply_chat_template(TURNS, chat_template="tool_use", tokenize=False).startswith("<|system|>")
    assert ours.apply_chat_template(TURNS, chat_template="{{ bos_token }}", tokenize=False) == "<s>"
    ours.chat_template = {"rag": "a", "tool_use": "b"}
    with pytest.raises(ChatTemplateError, match="'rag', 'tool_use'. Received: none"):
        ours.apply_chat_template(TURNS)


def test_no_template(tokenizers):
    ours, _ = tokenizers
    with pytest.raises(ChatTemplateError, match="no chat template"):
        ours.apply_chat_template(TURNS)


@pytest.mark.parametrize("template", [TEMPLATES["chatml"], NAMED])
def test_saved_files_are_read_here_and_by_transformers(tokenizers, tmp_path, template):
    ours, _ = tokenizers
    ours.chat_template = template
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert Tokenizer.load(tmp_path).chat_template == theirs.chat_template == template


def test_batches(tokenizers):
    ours, _ = tokenizers
    ours.chat_template = TEMPLATES["chatml"]
    batch = ours.apply_chat_template([TURNS, TURNS[:1]])
    assert batch.input_ids.shape[0] == 2
    short = ours.apply_chat_template(TURNS[:1])
    assert batch.input_ids[1][batch.attention_mask[1] == 1].tolist() == short.input_ids[0].tolist()
    texts = ours.apply_chat_template([TURNS, TURNS[:1]], tokenize=False)
    assert [ours.encode(text, add_special_tokens=False) for text in texts][1] == short.input_ids[0].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokenize": False, "max_length": 4, "truncation": True}, "tokenize=False returns a text.* max_length"),
        ({"tokenize": False, "return_tensors": "pt"}, "tokenize=False returns a text.* return_tensors"),
        ({"max_length": 4}, "max_length has no effect without truncation"),
        ({"tokenizer_kwargs": {"max_length": 4}}, "tokenizer_kwargs is no variable of a template"),
    ],
)
def test_arguments_without_effect_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        tiny_text.byte_pairs().apply_chat_template(TURNS, chat_template="{{ messages[0].content }}", **arguments)
