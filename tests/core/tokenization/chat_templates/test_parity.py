"""Text and ids of chat templates equal those of `transformers`, also on a folder of published templates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from kerasformer.errors import ChatTemplateError, InputError, KerasformerError
from kerasformer.tokenization.chat_templates import render
from tests.core.tokenization.chat_templates.conversations import CASES, TEMPLATES

FOLDER = os.environ.get("KERASFORMER_CHAT_TEMPLATES")
"""Folder of further templates `*.jinja`, which are compared on demand."""
_PUBLISHED = {path.stem: path.read_text("utf-8") for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [*TEMPLATES, *_PUBLISHED])
def test_text_and_ids(tokenizers, name, case):
    ours, theirs = tokenizers
    template = {**TEMPLATES, **_PUBLISHED}[name]
    messages, options = CASES[case]
    try:
        if case == "no content":  # apply_chat_template leaves the key out, so that the tool calls are lost
            rendered, _ = render_jinja_template([messages], chat_template=template, **options)
            assert ours.apply_chat_template(messages, chat_template=template, tokenize=False, **options) == rendered[0]
            return
        expected = theirs.apply_chat_template(messages, chat_template=template, tokenize=False, **options)
    except Exception as error:  # templates raise every type of error
        with pytest.raises(KerasformerError) as refused:
            ours.apply_chat_template(messages, chat_template=template, tokenize=False, **options)
        if type(error).__name__ == "TemplateError":
            assert str(error) in str(refused.value)
        return
    if case == "unknown role":  # which transformers writes as it is
        with pytest.raises(InputError, match="Message 0 has an unknown role. Expected one of .*'rabbit'"):
            ours.apply_chat_template(messages, chat_template=template, tokenize=False, **options)
        return
    assert ours.apply_chat_template(messages, chat_template=template, tokenize=False, **options) == expected
    ids = theirs.apply_chat_template(messages, chat_template=template, return_dict=False, **options)
    assert ours.apply_chat_template(messages, chat_template=template, **options).input_ids[0].tolist() == ids


def test_tokens_of_the_assistant(tokenizers):
    ours, theirs = tokenizers
    messages, template = CASES["answered"][0], TEMPLATES["alternating"]
    options = {"chat_template": template, "return_assistant_tokens_mask": True}
    expected = theirs.apply_chat_template(messages, return_dict=True, **options)["assistant_masks"]
    encoding = ours.apply_chat_template(messages, **options)
    assert encoding["assistant_masks"].tolist() == [expected]
    marked = encoding.input_ids[encoding["assistant_masks"] == 1]
    assert ours.decode(marked) == " A rabbit with a watch.</s>  Always. </s>"


CALL = {"function": {"name": "get_time", "arguments": {}}}
NONE = {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None}
PLAIN = {"role": "assistant", "content": "Late.", "tool_calls": None}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        # A template that writes it, that fails on it, and one that tells calls by it and fails on other keys.
        ("{% for m in messages %}{{ m.content }}/{% endfor %}", "None of it/" + "/Late./"),
        ("{% for m in messages %}{{ m.content ~ '/' }}{% endfor %}", "None of it//Late./"),
        (
            "{% for m in messages %}{% if m.content %}{{ m.content.strip() }}{% endif %}/{% endfor %}",
            "None of it//Late./",
        ),
        (
            "{% for m in messages %}{% if m.content is defined %}{{ m.content + '/' }}{% endif %}{% endfor %}",
            "None of it/Late./",
        ),
        (
            "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
            "{{ c.function.name }}{{ '!' if m.content is none }}{% endfor %}{% endif %}/{% endfor %}",
            "/get_time!//",
        ),
    ],
)
def test_keys_without_a_value(template, expected):
    """They are left out where the template fails or writes them, and only then."""
    messages = [{"role": "user", "content": "None of it"}, NONE, PLAIN]
    assert render(template, messages).text == expected
    with pytest.raises(ChatTemplateError, match="no!"):
        render("{{ raise_exception('no!') }}", messages)


def test_roles(tokenizers):
    """A template may know further roles, which it names."""
    ours, _ = tokenizers
    template = (
        "{% for message in messages %}{{ message.role }}{% if message.role == 'critic' %}!{% endif %}{% endfor %}"
    )
    messages = [{"role": role, "content": "Late!"} for role in ("developer", "critic", "tool", "assistant")]
    assert ours.apply_chat_template(messages, chat_template=template, tokenize=False) == "developercritic!toolassistant"
    with pytest.raises(InputError, match="Message 1 has an unknown role.*Received: 'usr'. Did you mean 'user'?"):
        ours.apply_chat_template([messages[0], {"role": "usr", "content": "x"}], chat_template=template)
