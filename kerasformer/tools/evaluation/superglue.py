"""Tasks of SuperGLUE with more than two texts: the rows of their files, and answers that are no names of classes.

A row is read in the form of the published files, of which one may have several questions, or of Hugging Face's data
sets. It becomes rows with the columns `text`, `pair`, `question`, `choices` and `label`.

References: Wang et al. 2019, arXiv:1905.00537; Raffel et al. 2020, arXiv:1910.10683, sections 2.3 and 2.4, appendix D.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kerasformer.errors import InputError

Row = Mapping[str, Any]

TRUTH = ("False", "True")
_HIGHLIGHT = "\n@highlight\n"
"""Mark of ReCoRD between a passage and each of the sentences that sum it up."""
_DETERMINERS = frozenset(
    "a an few her his each every many much my our some that the their these this those which whose your".split()
)


def copa(row: Row) -> list[Row]:
    """Returns a premise, the question after its cause or effect, and two choices."""
    if "premise" not in row:
        return [row]
    choices = row["choice1"], row["choice2"]
    return [{"text": row["premise"], "question": row["question"], "choices": choices, "label": row.get("label")}]


def multirc(row: Row) -> list[Row]:
    """Returns a paragraph, a question and a possible answer, for each answer; `group` is the question."""
    passage = row.get("passage")
    if isinstance(passage, Mapping):
        return [
            {
                "text": passage["text"],
                "question": question["question"],
                "pair": answer["text"],
                "label": answer.get("label"),
                "group": f"{row.get('idx')}/{question.get('idx', question['question'])}",
            }
            for question in passage["questions"]
            for answer in question["answers"]
        ]
    if "paragraph" not in row:
        return [row]
    index, question = row.get("idx"), row["question"]
    group = f"{index['paragraph']}/{index['question']}" if isinstance(index, Mapping) else None
    return [
        {"text": row["paragraph"], "question": question, "pair": row["answer"], "label": row.get("label")}
        | ({} if group is None else {"group": group})
    ]


def record(row: Row) -> list[Row]:
    """Returns a passage, a query with `@placeholder`, the entities of the passage and the right ones, for each query.

    Entities are in alphabetical order, without repetitions, as in the data set that T5 was trained on.
    """
    passage = row.get("passage")
    if isinstance(passage, Mapping):
        text = passage["text"]
        entities = sorted({text[entity["start"] : entity["end"] + 1] for entity in passage["entities"]})
        return [
            {
                "text": text,
                "question": query["query"],
                "choices": entities,
                "label": sorted({answer["text"] for answer in query.get("answers", ())}) or None,
            }
            for query in row["qas"]
        ]
    if passage is None:
        return [row]
    answers = row.get("answers") or None
    return [{"text": passage, "question": row["query"], "choices": row["entities"], "label": answers}]


def wic(row: Row) -> list[Row]:
    """Returns two sentences, and as the question the word that may have the same meaning in both."""
    if "word" not in row:
        return [row]
    return [
        {"text": row["sentence1"], "pair": row["sentence2"], "question": row["word"], "label": row.get("label")},
    ]


def wsc(row: Row) -> list[Row]:
    """Returns a text whose pronoun is in stars, and as the pair the noun phrase that it may refer to."""
    row = {**row, **row["target"]} if isinstance(row.get("target"), Mapping) else row
    if "span2_text" not in row:
        return [row]
    text = row["text"]
    pronoun, phrase = (_span(row[name], text) for name in ("span2_text", "span1_text"))
    marked = _marked(text, pronoun, int(row["span2_index"]))
    return [{"text": marked, "pair": phrase, "label": row.get("label")}]


def _span(span: str, text: str) -> str:
    """Returns a span as the text has it; some published ones have another end."""
    return span if span in text else span.rstrip(".").replace("\n", " ")


def _marked(text: str, pronoun: str, index: int) -> str:
    """Returns a text with stars around a pronoun: the one that is nearest to the word with an index, from 0.

    The published index is that of the word before in one text, and in another the word has punctuation at its end,
    which T5's form puts behind a space.
    """
    found = list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", text, re.IGNORECASE))
    if not found:
        raise InputError(f"A pronoun of the text was expected. Received: {pronoun!r}, text {text!r:.80}")
    best = min(found, key=lambda match: abs(text.count(" ", 0, match.start()) - index))
    after = text[best.end() :]
    space = " " if after and not after[0].isspace() else ""
    return f"{text[: best.start()]}*{best.group()}*{space}{after}"


def is_phrase(answer: str, phrase: str) -> bool | None:
    """Returns whether an answer names a noun phrase, as T5's evaluation of WSC decides; `None` if it is empty.

    The words of one of them must be among those of the other, without case and determiners; a possessive such as
    `Bob's hat` is not `Bob`.
    """
    words = _words(answer)
    if not words:
        return None
    expected = _words(phrase)
    if any("'" in word for word in words) != any("'" in word for word in expected):
        return False
    return words <= expected or expected <= words


def _words(text: str) -> set[str]:
    return set(text.lower().split()) - _DETERMINERS


def without_tags(text: str) -> str:
    """Returns a text of MultiRC without its marks of lines and of bold words."""
    return re.sub("</?b>", "", text.replace("<br>", " "))


def with_highlights(text: str) -> str:
    """Returns a text of ReCoRD whose highlights are sentences."""
    return re.sub(rf"([.?!\"']){_HIGHLIGHT}", r"\1 ", text).replace(_HIGHLIGHT, ". ")
