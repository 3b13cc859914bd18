"""Rates of tasks, and what a mixture reads in each epoch."""

from __future__ import annotations

import json
import math

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.tools.evaluation import examples, text_to_text
from kerasformer.tools.training import Mixture, mixing_rates, mixture
from kerasformer.tools.training import recipe as module
from kerasformer.tools.training.datasets import Format, Row
from kerasformer.tools.training.recipe import Recipe

SIZES = [250, 400, 138_854]  # CB, COPA, ReCoRD


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [250 / 139_504, 400 / 139_504, 138_854 / 139_504]),
        ({"limit": 1000}, [250 / 1650, 400 / 1650, 1000 / 1650]),
        ({"limit": 1000, "temperature": 2}, [0.23447, 0.29659, 0.46894]),  # roots 15.811, 20 and 31.623
        ({"temperature": math.inf}, [1 / 3, 1 / 3, 1 / 3]),
        ({"temperature": 1e-3}, [0, 0, 1]),
    ],
)
def test_rates(options, expected):
    """min(size, K) to the power of 1/T, divided by the sum: section 3.5.2 of T5's paper, computed by hand."""
    rates = mixing_rates(SIZES, **options)
    np.testing.assert_allclose(rates, expected, atol=1e-5)
    assert rates.sum() == pytest.approx(1)


def rows(count: int, first: int) -> list[Row]:
    return [Row({"input_ids": np.array([1, 2])}, np.array(first + number)) for number in range(count)]


PARTS = [rows(5, 0), rows(40, 100), rows(300, 1000)]


def mixed(**options) -> Mixture:
    settings = {"rates": [1, 1, 2], "size": 64, "batch_size": 8, **options}
    return Mixture(PARTS, Format(keras.losses.MeanSquaredError), **settings)


def read(data: Mixture) -> list[int]:
    return [int(target) for index in range(len(data)) for target in data[index][1]]


def test_every_text_of_a_task_comes_before_one_comes_again():
    data, seen = mixed(), np.zeros(1300, int)
    counts = np.zeros(3, int)
    for epoch in range(6):
        assert data.epoch == epoch and len(data) == 8
        numbers = read(data)
        np.add.at(seen, numbers, 1)
        assert np.bincount(np.digitize(numbers, [100, 1000]), minlength=3).tolist() == data.counts(epoch).tolist()
        counts += data.counts(epoch)
        for start, part in zip([0, 100, 1000], PARTS, strict=True):
            times = seen[start : start + len(part)]
            assert times.max() - times.min() <= 1
        data.on_epoch_end()
    assert counts.sum() == 6 * 64 and seen[:5].min() > 10 and seen[1000:].max() == 1
    drawn = np.sum([data.counts(epoch) for epoch in range(200)], axis=0)
    deviation = np.sqrt(200 * 64 * np.array([0.25, 0.25, 0.5]) * np.array([0.75, 0.75, 0.5]))
    assert (np.abs(drawn - 200 * 64 * np.array([0.25, 0.25, 0.5])) < 4 * deviation).all()


def test_the_order_depends_on_the_seed_and_the_epoch_alone():
    """As after a kill, when `Resume` sets the epoch."""
    data, again = mixed(), mixed()
    data.on_epoch_end()
    data.on_epoch_end()
    again.epoch = 2
    assert read(data) == read(again)
    again.epoch = 3
    assert read(data) != read(again) and sorted(read(data)) != sorted(read(again))
    other = mixed(seed=1)
    other.epoch = 2
    assert sorted(read(data)) != sorted(read(other)) and other.counts(0).tolist() != data.counts(0).tolist()


COPA = {
    "premise": "It rained.",
    "choice1": "The street is wet.",
    "choice2": "He won.",
    "question": "effect",
    "label": 0,
}
ARTICLES = [{"article": f"Article {number} of the day. It is short.", "summary": "Short."} for number in range(6)]


@pytest.fixture(scope="module")
def summarizer():
    return kf.load("summarizer-t5")


def test_tasks_of_a_model_from_text_to_text(summarizer):
    """The prefix of the model, `summarize: `, is not put before the texts of other tasks."""
    tasks = [text_to_text([COPA] * 2, "copa"), examples(ARTICLES)]
    data = mixture(summarizer, tasks, limit=3, size=32, batch_size=32, seed=1)
    assert data.rates == pytest.approx([0.4, 0.6])
    assert mixture(summarizer, tasks, limit=3).size == 5 and mixture(summarizer, tasks, rates=[1, 3]).rates[1] == 0.75
    texts = summarizer.tokenizer.batch_decode(data[0][0]["input_ids"], skip_special_tokens=True)
    firsts = [text.split()[0].lower() for text in texts]
    assert firsts.count("article") == data.counts(0)[1] and len(set(firsts)) == 2


def test_mixtures_are_checked(summarizer):
    for message, options in [
        ("rates must have a number for each of 3 tasks. Received: 2", {"rates": [1, 2]}),
        ("rates must be.*above 0", {"rates": [1, 0, 2]}),
        ("Expected: shuffle=True", {"shuffle": False}),
        ("size must be", {"size": 0}),
    ]:
        with pytest.raises(InputError, match=message):
            mixed(**options)
    for message, options in [("temperature must be.*inf", {"temperature": 0}), ("limit must be", {"limit": 0})]:
        with pytest.raises(InputError, match=message):
            mixing_rates([1, 2], **options)
    with pytest.raises(InputError, match="no effect on rates"):
        mixture(summarizer, [ARTICLES], rates=[1], temperature=2)
    with pytest.raises(InputError, match="At least one task"):
        mixture(summarizer, [])


TASKS = {
    "model": {
        "architecture": "t5",
        "config": {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 24, "head_dim": 8},
    },
    "tokenizer": {"algorithm": "bpe", "vocab_size": 300},
    "data": {
        "tasks": [
            {"train": ["copa.jsonl"], "validation": "copa.jsonl", "glue": "copa"},
            {"train": ["articles.jsonl"], "prefix": "summarize: "},
        ],
        "temperature": math.inf,
        "size": 16,
        "batch_size": 4,
    },
    "training": {"epochs": 2, "learning_rate": 1e-3},
}


@pytest.fixture
def folder(tmp_path):
    for name, lines in {"copa": [COPA] * 3, "articles": ARTICLES}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_a_recipe_of_several_tasks(folder, summarizer):
    recipe = Recipe.create("tasks", TASKS)
    parts = [module._task(recipe, folder, task, task["train"]) for task in recipe.data["tasks"]]
    assert parts[0] == text_to_text([COPA] * 3, "copa") and parts[1][0].text.startswith("summarize: Article 0")
    assert module._held_out(recipe, folder) == parts[0]
    data, _, _ = module._mixture(recipe, summarizer, parts)
    assert data.rates == [0.5, 0.5] and data.size == 16 and len(data) == 4
    with pytest.raises(InputError, match="glue and prefix of .* are for text2text-generation"):
        module._mixture(recipe, kf.load("story-gpt2"), parts)


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({"train": ["a.txt"]}, {}, "with tasks has no train"),
        ({"limit": 3}, {"rate": 0.5}, "rate was expected for all tasks, without limit and temperature"),
        ({}, {"rates": 1}, "Did you mean rate"),
        ({}, {"glue": "copa", "prefix": "copa: "}, "the columns and the form of that task"),
    ],
)
def test_recipes_of_tasks_are_checked(changes, task, message):
    data = {"tasks": [{"train": ["a.txt"], **task}, {"train": ["b.txt"]}], **changes}
    with pytest.raises(InputError, match=message):
        Recipe.create("tasks", {**TASKS, "data": data})
