"""Chat templates for LiteRT-LM, whose engine for templates (minijinja) and inputs differ from those of transformers."""

from __future__ import annotations

import json
import re

from kerasformer.errors import ChatTemplateError, ExportError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.chat_templates import DEFAULT

_TEXTS = """\
{%- set texts = namespace(messages=[]) -%}
{%- for message in messages -%}
    {%- if message.content is defined and message.content is not string -%}
        {%- set message = dict(message, content=message.content | map(attribute='text') | join) -%}
        {%- set texts.messages = texts.messages + [message] -%}
    {%- else -%}
        {%- set texts.messages = texts.messages + [message] -%}
    {%- endif -%}
{%- endfor -%}
{%- set messages = texts.messages -%}
"""
"""Converts the content of messages to text: LiteRT-LM passes a list of parts, also for a single text."""


def chat_template(tokenizer: Tokenizer) -> str | None:
    """Returns the default chat template in the form that LiteRT-LM renders to the same text; `None` if there is none.

    It defines the special tokens, which LiteRT-LM does not pass, and converts messages to texts. The tag
    `{% generation %}` becomes a condition that always holds, since it controls the spaces around it, too.

    Raises:
        ExportError: the template uses a tag that LiteRT-LM lacks.
    """
    templates = tokenizer.chat_template
    template = templates.get(DEFAULT) if isinstance(templates, dict) else templates
    if template is None:
        return None
    if tag := re.search(r"\{%[-+]?\s*(break|continue)\s*[-+]?%\}", template):
        raise ExportError(
            f"LiteRT-LM's engine for chat templates lacks the tag {tag[1]}. Received: a chat template with {tag[0]!r}. "
            "Set model.tokenizer.chat_template to a template without it, or to None to export without a template"
        )
    for name, replacement in (("generation", "if true"), ("endgeneration", "endif")):
        template = re.sub(rf"(\{{%[-+]?\s*){name}(\s*[-+]?%\}})", rf"\1{replacement}\2", template)
    tokens = "".join(
        f"{{%- set {name} = {json.dumps(token, ensure_ascii=False)} -%}}\n"
        for name, token in tokenizer.special_tokens.items()
        if name in template
    )
    return tokens + ("" if _reads_parts(tokenizer) else _TEXTS) + template


def _reads_parts(tokenizer: Tokenizer) -> bool:
    """Whether the template writes a list of parts like a text."""
    text, parts = "Kerasformer", [{"type": "text", "text": "Kerasformer"}]
    try:
        first, second = (
            tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
            for content in (text, parts)
        )
    except ChatTemplateError:
        return False
    return bool(first == second)
