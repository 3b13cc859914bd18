"""Conversations for the comparison with `transformers`, and chat templates that use what real ones use."""

from __future__ import annotations

from typing import Any

USER = [{"role": "user", "content": "  Who is the White Rabbit? \n"}]
TURNS = [
    {"role": "user", "content": "Who is the Rabbit?"},
    {"role": "assistant", "content": "A rabbit with a watch."},
    {"role": "user", "content": 'Is it "late"? <b>&amp;</b> 🐇'},
]
SYSTEM = [{"role": "system", "content": "Answer briefly.\n\nBe kind."}, *TURNS]
ANSWERED = [*TURNS, {"role": "assistant", "content": " Always. "}]
THOUGHT = [
    *TURNS[:1],
    {"role": "assistant", "content": "It is late.", "reasoning_content": "It has a watch."},
    *TURNS[2:],
]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's <name>"},
                "unit": {"type": "string", "enum": ["h", "min"]},
            },
            "required": ["city"],
        },
        "return": {"type": "string"},
    },
}
CALLED = [
    {"role": "user", "content": "What time is it in Oxford?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "abcde1234", "type": "function", "function": {"name": "get_time", "arguments": {"city": "Oxford"}}}
        ],
    },
    {"role": "tool", "name": "get_time", "tool_call_id": "abcde1234", "content": "Tea time"},
]
DOCUMENT = {"title": "Alice", "text": "The Rabbit is late."}

CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "user": (USER, {}),
    "prompted": (USER, {"add_generation_prompt": True}),
    "turns": (TURNS, {"add_generation_prompt": True}),
    "system": (SYSTEM, {"add_generation_prompt": True}),
    "answered": (ANSWERED, {}),
    "continued": (ANSWERED, {"continue_final_message": True}),
    "reasoning": (THOUGHT, {"add_generation_prompt": True}),
    "no thinking": (TURNS, {"add_generation_prompt": True, "enable_thinking": False}),
    "tools": (TURNS, {"tools": [TOOL], "add_generation_prompt": True}),
    "tools and system": (SYSTEM, {"tools": [TOOL], "add_generation_prompt": True}),
    "called": (CALLED, {"tools": [TOOL], "add_generation_prompt": True}),
    "no content": ([CALLED[0], {**CALLED[1], "content": None}, CALLED[2]], {"tools": [TOOL]}),
    "documents": (TURNS, {"documents": [DOCUMENT], "add_generation_prompt": True}),
    "two users": ([*USER, *USER], {}),
    "unknown role": ([{"role": "rabbit", "content": "Late!"}], {}),
    "missing content": ([{"role": "user"}], {}),
}

TEMPLATES = {
    "chatml": """\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "alternating": """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set first, rest = '', messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate, from the user on: ' ~ message['role']) }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' ~ (first if loop.first else '') ~ message.content.strip() ~ ' [/INST]' }}
    {%- else %}
        {%- generation %}
        {{- ' ' ~ message.content.lstrip('\\n') ~ eos_token }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
""",
    "tools": """\
{%- macro described(tool, level=0) -%}
    {%- for name, field in tool.function.parameters.properties | dictsort %}
{{ '  ' if level else '' }}- {{ name }} ({{ field.type }}){{ ': ' ~ field.description if field.description is defined }}
        {%- if field.enum %} one of {{ field.enum | join('|') }}{% endif %}
    {%- endfor %}
{%- endmacro -%}
{%- set ns = namespace(last=-1, system='You help.') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% set ns.system = message.content %}{% continue %}{% endif %}
    {%- if message.role not in ['user', 'assistant', 'tool'] %}{{ raise_exception('Unknown role') }}{% endif %}
    {%- set ns.last = loop.index0 %}
{%- endfor %}
<|system|>{{ ns.system }} Since {{ strftime_now('%Y') | length }}.
{%- if tools %}

# Tools
{%- for tool in tools %}

{{ tool.function.name | upper }}: {{ described(tool, 1) }}
{{ tool | tojson(indent=2) }}
{{ tool.function | tojson }}
{%- endfor %}
{%- endif %}
{%- if documents %}
{{ documents | map(attribute='title') | list | tojson(ensure_ascii=true) }}
{{ documents | selectattr('text') | map(attribute='text') | join(' / ') }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
<|{{ message.role }}|>
    {%- if message.content is string and message.content %}{{ message.content.split('\\n')[0].rstrip() }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {%- set arguments = call.function.arguments %}
        {%- if arguments is mapping %}{% set arguments = arguments | tojson %}{% endif %}
{{ '{}({})'.format(call.function.name, arguments) }}{{ '%s of %d' % (loop.index, loop.length) }}
    {%- endfor %}
    {%- if message.reasoning_content and loop.index0 > 0 and not loop.last %}
<think>{{ message.thinking }}</think>
    {%- endif %}
    {%- if loop.index0 > 50 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
<|assistant|>{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}
{%- endif %}
""",
    "no content": """\
{% for message in messages %}{% if message['content'] is none %}{{ message['tool_calls'][0]['function']['name'] }}\
{% else %}{{ message['content'] + '|' }}{% endif %}{% endfor %}""",
    "parts": """\
{% for message in messages %}
    {%- set content = message['content'] %}
    {%- if content is not string %}{% set content = content | tojson %}{% endif %}
{{ message.role }}: {{ content }}
{% endfor %}""",
}
"""Templates that, between them, use the tests, filters, functions, tags and methods of published ones."""
