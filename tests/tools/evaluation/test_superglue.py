"""SuperGLUE in T5's form: rows of its files, texts, answers and metrics."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from kerasformer.errors import InputError
from kerasformer.tools.evaluation import Example, TaskEvaluation, examples, read_data, task_evaluation, text_to_text
from kerasformer.tools.evaluation.glue import glue_task
from kerasformer.tools.evaluation.superglue import is_phrase
from tests.tools.evaluation.test_tasks import Writer

COPA = {"premise": "It rained.", "choice1": "The street is wet.", "choice2": "He won.", "question": "effect"}
PASSAGE = 'Ada met Tom.\n@highlight\nThey "ran"\n@highlight\nIt rained'
PARAGRAPH = "<b>Sent 1: </b>Joey ran.<br><b>Sent 2: </b>He fell."
WSC = {"span1_text": "Tom", "span1_index": 2, "span2_text": "he", "span2_index": 4}
# A row of the published file, rows of Hugging Face's datasets, T5's texts, and what is learnt.
ROWS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[str], list[list[str]]]] = {
    "copa": (
        {**COPA, "label": 0, "idx": 3},
        [{**COPA, "label": 0, "idx": 3}],
        ["copa choice1: The street is wet. choice2: He won. premise: It rained. question: effect"],
        [["choice1"]],
    ),
    "multirc": (
        {
            "idx": 5,
            "passage": {
                "text": PARAGRAPH,
                "questions": [
                    {
                        "question": "Who ran?",
                        "idx": 1,
                        "answers": [
                            {"text": "Joey", "idx": 0, "label": 1},
                            {"text": "<b>Ann</b>", "idx": 1, "label": 0},
                        ],
                    }
                ],
            },
        },
        [
            {"paragraph": PARAGRAPH, "question": "Who ran?", "answer": answer, "label": label,
             "idx": {"paragraph": 5, "question": 1, "answer": index}}
            for index, (answer, label) in enumerate([("Joey", 1), ("<b>Ann</b>", 0)])
        ],
        [
            f"multirc question: Who ran? answer: {answer} paragraph: Sent 1: Joey ran. Sent 2: He fell."
            for answer in ("Joey", "Ann")
        ],
        [["True"], ["False"]],
    ),
    "record": (
        {
            "idx": 7,
            "passage": {
                "text": PASSAGE,
                "entities": [{"start": 8, "end": 10}, {"start": 0, "end": 2}, {"start": 0, "end": 2}],
            },
            "qas": [{"query": "@placeholder ran.", "answers": [{"text": "Tom"}, {"text": "Ada"}, {"text": "Ada"}]}],
        },
        [{"passage": PASSAGE, "query": "@placeholder ran.", "entities": ["Ada", "Tom"], "answers": ["Ada", "Tom"]}],
        ['record query: @placeholder ran. entities: Ada, Tom passage: Ada met Tom. They "ran" It rained'],
        [["Ada", "Tom"]],
    ),
    "wic": (
        {"word": "bank", "sentence1": "A river bank.", "sentence2": "The bank closed.", "label": False, "start1": 8},
        [{"word": "bank", "sentence1": "A river bank.", "sentence2": "The bank closed.", "label": 0}],
        ["wic sentence1: A river bank. sentence2: The bank closed. word: bank"],
        [["False"]],
    ),
    "wsc": (
        {"text": "Mitchell asked Tom if he could lend some money.", "target": WSC, "label": True},
        [{"text": "Mitchell asked Tom if he could lend some money.", **WSC, "label": 1}],
        ["wsc: Mitchell asked Tom if *he* could lend some money."],
        [["Tom"]],
    ),
    "SuperGLUE-RTE": (
        {"premise": "It rained.", "hypothesis": "It was wet.", "label": "entailment", "idx": 0},
        [{"premise": "It rained.", "hypothesis": "It was wet.", "label": 0, "idx": 0}],
        ["rte hypothesis: It was wet. premise: It rained."],
        [["entailment"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_become_the_texts_that_t5_reads(name, tmp_path):
    """Those of the published files and of Hugging Face's data sets have equal examples."""
    published, flat, texts, targets = ROWS[name]
    task = glue_task(name)
    read = []
    for index, rows in enumerate([[published], flat]):
        (tmp_path / f"{index}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        read.append(read_data(tmp_path / f"{index}.jsonl", None, {"glue": name}))
        assert [task.written(example) for example in read[-1]] == texts
        assert [task.targets(example) for example in read[-1]] == targets
    assert read[0] == read[1]
    assert examples([example.to_dict() for example in read[0]]) == read[0]
    learnt = text_to_text(read[0], name)
    pairs = [(text, target) for text, each in zip(texts, targets, strict=True) for target in each]
    assert [(example.text, example.label) for example in learnt] == pairs


@pytest.mark.parametrize(
    ("text", "pronoun", "index", "marked"),
    [
        ('The pony threw him. "Good for him," he said.', "him", 6, 'The pony threw him. "Good for *him* ," he said.'),
        ("Some day they might use it , but what for?", "it", 4, "Some day they might use *it* , but what for?"),
        ("He saw that it's hers. It won.", "it", 5, "He saw that it's hers. *It* won."),
        ("Tom fed the cat\nbefore she left", "she.", 4, "Tom fed the cat\nbefore *she* left"),
    ],
)  # fmt: skip
def test_pronouns_are_marked(text, pronoun, index, marked):
    """In two published texts, the index is not that of the pronoun, or the word has punctuation at its end."""
    row = {"text": text, "span1_text": "Tom", "span2_text": pronoun, "span2_index": index, "label": 1}
    assert read_data([row], None, {"glue": "wsc"})[0].text == marked


@pytest.mark.parametrize(
    ("answer", "phrase", "right"),
    [
        ("the large window", "a window", True),
        ("Window", "the large window", True),
        ("Bob", "Bob's hat", False),
        ("Bob's", "Bob's hat", True),
        ("door", "the window", False),
        (" The ", "the window", None),
    ],
)
def test_an_answer_is_a_noun_phrase(answer, phrase, right):
    assert is_phrase(answer, phrase) is right


def evaluated(name: str, rows: list[Example], answers: list[str], **options: Any) -> Any:
    task = glue_task(name)
    pipe = Writer({task.written(row): answer for row, answer in zip(rows, answers, strict=True)})
    return task_evaluation._text_to_class(pipe, rows, {"glue": name, "batch_size": 2, **options})


def test_questions_with_several_answers():
    """F1 over all answers as in sklearn, where an answer that names no class is wrong; exact match by question."""
    right = [1, 0, 1, 0, 1, 0, 0]
    answers = ["True", "False", "True", "True", "maybe", "perhaps", "False"]
    rows = [
        Example(PARAGRAPH, label, f"Question {number // 2}?", f"Answer {number}.") for number, label in enumerate(right)
    ]
    found = evaluated("multirc", rows, answers)
    received = [1, 0, 1, 1, 0, 1, 0]  # the opposite of what is right where no class is named
    assert found.figures == pytest.approx({"f1": f1_score(right, received), "exact_match": 2 / 4})
    same_question = [Example(row.text, row.label, "Why?", row.pair, group=row.question) for row in rows]
    assert evaluated("multirc", same_question, answers).figures["exact_match"] == 2 / 4


def test_answers_without_a_class_are_no_class_of_the_mean():
    right, answers = [0, 1, 2, 0], ["entailment", "contradiction", "?", "neutral"]
    rows = [Example(f"Text {number}.", label, pair="Other.") for number, label in enumerate(right)]
    expected = f1_score(right, [0, 1, -1, 2], labels=range(3), average="macro")
    assert evaluated("cb", rows, answers).figures == pytest.approx({"accuracy": 0.5, "macro_f1": expected})


def test_queries_and_choices_and_phrases():
    """ReCoRD by the best of its answers, as SQuAD; COPA by both names of its classes; WSC by the noun phrase."""
    right = ["Tom Fox", "the Ada"]
    queries = [Example(f"Text {number}.", right, "@placeholder ran.", choices=("Ada", "Tom Fox")) for number in "123"]
    found = evaluated("record", queries, ["ada", "Tom", "Ann"])
    assert found.figures == pytest.approx({"f1": np.mean([1, 2 / 3, 0]), "exact_match": 1 / 3})
    with pytest.raises(InputError, match="Each text needs a reference"):
        evaluated("record", [Example("Text.", [], "@placeholder.", choices=("Ada",))], ["Ada"])
    choices = [Example(f"Text {number}.", "choice2", "cause", choices=("a", "b")) for number in range(4)]
    assert evaluated("copa", choices, ["choice2", "True", "False", "b"]).figures == {"accuracy": 0.5}
    phrases = [Example(f"*He* ran {number}.", label, pair="the fox") for number, label in enumerate([1, 0, 0, 1])]
    found = evaluated("wsc", phrases, ["Fox", "an owl", "red fox", ""])
    assert found.figures == {"accuracy": 0.5} and found.answers == ("True", "False", "True", "no class")
    with pytest.raises(InputError, match="noun phrase of the text. Expected: no choices"):
        evaluated("wsc", phrases, ["", "", "", ""], choices=["False", "True"])


def test_what_t5_learns():
    """Scores in fifths, a text for each answer, and of noun phrases the right ones alone."""
    assert text_to_text([{"text": "a", "pair": "b", "label": 1.66}], "stsb")[0].label == "1.6"
    assert [row.label for row in text_to_text([{"text": "a", "label": 1}], "cola")] == ["acceptable"]
    row = {"text": "Tom ran when he fell.", **WSC, "span2_index": 3}
    assert not text_to_text([{**row, "label": False}], "wsc")
    with pytest.raises(InputError, match="label must be one of False, True.*text 1"):
        text_to_text([{**row, "label": -1}], "wsc")


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "copa",
            {"premise": "It rained.", "choice1": "a"},
            "published files.*Received: premise, choice1: no 'choice2'",
        ),
        ("wsc", {"text": "Tom ran.", **WSC}, "A pronoun of the text was expected.*text 1"),
        ("copa", {"text": "It rained.", "question": "cause", "label": 0}, "A text with choices was expected, 'copa"),
        ("stsb", {"text": "a", "pair": "b", "label": float("inf")}, "A number was expected as the label.*text 1"),
    ],
)
def test_rows_of_another_form_raise(name, row, message):
    with pytest.raises(InputError, match=message):
        text_to_text([row], name)


def test_classifiers_read_pairs_alone():
    with pytest.raises(InputError, match="glue=copa: only for text2text-generation.*task text-classification"):
        TaskEvaluation("text-classification", [Example("It rained.", 0)], {"glue": "copa"})
