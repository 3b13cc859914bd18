"""Templates that reach for Python, compute without end or fill the memory are refused, with an error that names why."""

from __future__ import annotations

import time

import pytest

from kerasformer.errors import ChatTemplateError, InputError
from kerasformer.tokenization.chat_templates import render, sandbox

MESSAGES = [{"role": "user", "content": "hello"}]
DOUBLED = "{% set ns = namespace(l=[1], m=[1], s='aa') %}{% for i in range(60) %}"

ATTRIBUTES = {
    "{{ ''.__class__.__mro__ }}": "'__class__' of str",
    "{{ messages[0]['content'].__init__ }}": "'__init__' of str",
    "{{ messages['__class__'] }}": "'__class__' of list",
    "{{ 'x' | attr('__class__') }}": "'__class__' of str",
    "{{ '{0.__class__}'.format(1) }}": "'__class__' of int",
    "{{ cycler.__init__.__globals__ }}": "'__init__' of type",
    "{{ self.__dict__ }}": "'__dict__' of TemplateReference",
    "{{ (1).to_bytes(10 ** 10, 'big') }}": "'to_bytes' of int",
    "{{ messages.append(1) }}": "'append' of list",
    "{% set ns = namespace(_x=1) %}{{ ns._x }}": "'_x' of _MeasuredNamespace",
}
SIZES = {
    "{% for i in range(10 ** 12) %}a{% endfor %}": "Range too big",
    "{{ range(-(10 ** 12), 10 ** 12, 3) }}": "Range too big",
    "{% set x %}{% for i in range(99999) %}" + "a" * 40 + "{% endfor %}{% endset %}": "creates text",
    "{{ 'a' * 10 ** 10 }}": "creates a value",
    "{{ [0] * 10 ** 10 }}": "creates a value",
    "{{ 10 ** (10 ** 10) }}": "a number",
    "{{ '%999999999d' % 1 }}": "a width",
    "{{ '%*d' | format(999999999, 1) }}": "a width",
    "{{ '{:{}}'.format(1, 999999999) }}": "a width",
    "{{ '{x:>999999999}'.format_map({'x': 1}) }}": "a width",
    "{{ 'a'.ljust(10 ** 10) }}": "ljust",
    "{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}": "replace",
    "{% set a = 'a' * 100000 %}{{ a | replace('a', a) }}": "replace",
    "{% set a = 'a' * 1000 %}{{ a.join(['b'] * 10000) }}": "join",
    "{% set a = 'a' * 1000 %}{{ (['b'] * 10000) | join(a) }}": "join",
    "{% set a = 'a' * 1000 %}{{ (a | escape).join(['b'] * 10000) }}": "join",
    "{{ '\t'.expandtabs(10 ** 10) }}": "'expandtabs' of str",
    "{{ messages | tojson(indent=10 ** 9) }}": "indents JSON",
    "{{ 'a' | indent(10 ** 9) }}": "indent",
    "{{ [1] | batch(10 ** 9, 'x') | list }}": "batch",
    "{{ 1.5 | round(10 ** 9) }}": "round",
    "{{ strftime_now('%999999999Y') }}": "date",
    DOUBLED + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}": "creates text",
    DOUBLED + "{% set ns.s = ns.s + ns.s %}{% endfor %}": "creates a value",
    DOUBLED + "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}": "a value",
    DOUBLED + "{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l }}": "creates a value",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}": "creates a value",
}
ENDLESS = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "seconds",
    "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}": "seconds",
    "{% set l = range(99999) | list %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}": "seconds",
    "{% for i in range(99999) %}{{ (range(99999) | map('string') | list | length) and '' }}{% endfor %}": "seconds",
    "{% macro f(n) %}{{ f(n - 1) }}{% endmacro %}{{ f(30) }}": "recursion",
    "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}": "recursion",
}


@pytest.mark.parametrize("template", [*ATTRIBUTES, *SIZES])
def test_refused(template):
    with pytest.raises(ChatTemplateError, match="in line 1.*" + {**ATTRIBUTES, **SIZES}[template]):
        render(template, MESSAGES)


@pytest.mark.parametrize("template", ENDLESS)
def test_endless(template, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.1)
    start = time.thread_time()
    with pytest.raises(ChatTemplateError, match=ENDLESS[template]):
        render(template, MESSAGES)
    assert time.thread_time() - start < 1


def test_long_output():
    with pytest.raises(ChatTemplateError, match="creates text of more than 2,000,000"):
        render("{% for i in range(99999) %}{{ messages[0].content * 100 }}{% endfor %}", MESSAGES)


def test_limits_hold_for_each_run_alone():
    template = "{% for i in range(99999) %}aaaaaaaa{% endfor %}"
    for _ in range(4):
        assert len(render(template, MESSAGES).text) == 8 * 99999


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\n{% for %}", "not valid Jinja in line 2, '{% for %}'"),
        ("{{ 'a' | center(9) }}", "No filter named 'center'"),
        ("{% include 'x' %}", "loader"),
        ("\n\n{{ none.x.y }}", "in line 3"),
        ("{{ lipsum(9) }}", "'lipsum' is undefined"),
        ("{{ raise_exception('Only users!') }}", "refuses this conversation: Only users!"),
        ("{{ 'a' + 1 }}", "failed in line 1"),
    ],
)
def test_broken_templates(template, message):
    with pytest.raises(ChatTemplateError) as error:
        render(template, MESSAGES)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "non-empty list of messages"),
        ([{"content": "hello"}], "Message 0 must be a dict with a role"),
        ([*MESSAGES, "hello"], "Message 1 must be a dict with a role"),
        ([{"role": "user", "content": object()}], "must consist of texts"),
    ],
)
def test_broken_conversations(messages, message):
    with pytest.raises(InputError, match=message):
        render("", messages)


def test_unwritten_message_cannot_be_continued():
    with pytest.raises(ChatTemplateError, match="does not write the content of the last message"):
        render("{{ messages[0].role }}", MESSAGES, continue_final_message=True)


def test_marked_spans():
    rendered = render("a{% generation %}bc{% endgeneration %}d{% generation %}e{% endgeneration %}", MESSAGES)
    assert rendered.text == "abcde"
    assert rendered.generated == ((1, 3), (4, 5))
