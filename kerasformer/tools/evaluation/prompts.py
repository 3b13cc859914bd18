"""Prompts with a few solved examples before the text, from which a language model learns a task without training."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerasformer.basics.arguments import STRING, check, integer, sequence
from kerasformer.errors import InputError
from kerasformer.pipelines import Example
from kerasformer.pipelines import examples as read

_SEPARATOR = "\n\n"
_FIELDS = {"text", "question", "pair", "label"}


@dataclass(frozen=True)
class FewShotPrompt:
    """A prompt that begins with solved examples; calling it with a text adds the text, without its solution.

    Attributes:
        shots: The solved examples, in the order of the prompt.
        template: Form of an example, with `{label}` at its end.
        classes: Names of the classes, by which ids of classes are replaced; none for labels that are texts.
    """

    shots: tuple[Example, ...]
    template: str
    classes: tuple[str, ...] = ()

    def __call__(self, text: str | Mapping[str, str] | Example) -> str:
        """Returns the prompt for a text, which ends where its label begins.

        Args:
            text: Text; or a dict or an example with `question` or `pair`, if the template has these.

        Raises:
            InputError: the template has a field that the text lacks.
        """
        (example,) = read([text])
        solved = [self._filled(shot) + self.name_of(shot.label) for shot in self.shots]
        return _SEPARATOR.join([*solved, self._filled(example)])

    def name_of(self, label: object) -> str:
        """Returns a label as it stands in the prompt."""
        if self.classes and str(label).isdigit() and int(str(label)) < len(self.classes):
            return self.classes[int(str(label))]
        return str(label)

    def _filled(self, example: Example) -> str:
        """Returns an example in the form of the template, up to the label."""
        fields = {name: getattr(example, name) for name in _fields(self.template) - {"label"}}
        if missing := [name for name, value in fields.items() if value is None]:
            raise InputError(f"The template needs {', '.join(missing)}. Received: {example.text!r:.80} without it")
        return self.template.removesuffix("{label}").format(**fields)


def prompt(
    examples: Sequence[Any],
    k: int = 4,
    *,
    template: str = "Text: {text}\nLabel: {label}",
    classes: Sequence[str] = (),
    seed: int = 0,
) -> FewShotPrompt:
    """Makes a k-shot prompt of labelled examples.

        shots = kf.prompt([("Warm and funny.", "good"), ("A waste of time.", "bad")], k=2)
        kf.choose(pipe, shots("It made me laugh."), ["good", "bad"])
        pipe(shots("It made me laugh.").rstrip(), max_new_tokens=1)

    Args:
        examples: Pairs of a text and its label; or examples with labels: `Example`, or dicts such as `{"question",
            "context", "answer"}`.
        k: Number of examples in the prompt, drawn without repetition; 0 for an instruction without examples.
        template: Form of each example, with `{text}`, `{question}` or `{pair}`, and `{label}` at its end.
        classes: Names of the classes, by which labels that are ids are replaced.
        seed: Seed of the draw and of the order, both of which change what models answer (Zhao et al. 2021,
            arXiv:2102.09690).

    Returns:
        A function from a text to its prompt.

    Raises:
        InputError: there are fewer than `k` examples, one lacks its label, or the template is invalid.

    Reference: Brown et al. 2020, arXiv:2005.14165, section 2.
    """
    template = check("template", template, STRING)
    try:
        fields = _fields(template)
    except ValueError:
        fields = set()
    if not template.endswith("{label}") or not fields - {"label"} or not fields <= _FIELDS:
        raise InputError(
            "template must have {text}, {question} or {pair}, and end with {label}. "
            f"Received: template={template!r}"
        )
    rows = [{"text": row[0], "label": row[1]} if isinstance(row, tuple) and len(row) == 2 else row for row in examples]
    labelled = read(rows) if rows else []
    count = check("k", k, integer(0, len(labelled)), advice="It is the number of examples in the prompt.")
    if missing := [number for number, example in enumerate(labelled, 1) if example.label is None]:
        raise InputError(f"Each example of a prompt needs a label. Received: none for example {missing[0]}")
    names = check("classes", classes, sequence(STRING))
    return FewShotPrompt(tuple(random.Random(seed).sample(labelled, count)), template, names)


def _fields(template: str) -> set[str]:
    """Returns the names of the fields of a template.

    Raises:
        ValueError: it cannot be read, or a field has a format or no name.
    """
    names = set()
    for _, name, format, conversion in string.Formatter().parse(template):
        if name == "" or format or conversion:
            raise ValueError
        names |= set() if name is None else {name}
    return names
