"""Causal language modelling, prefixes and translation."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.tools import training
from kerasformer.tools.training import Vocabulary
from tests import tiny_text
from tests.tools.training.objectives.spelled import texts_of

TEXTS = texts_of([6, 2, 9])
GPT = Vocabulary(97, end_id=2)


def test_each_position_predicts_the_next_token():
    batch = training.causal(TEXTS, GPT)
    for text, ids, mask, labels in zip(
        TEXTS, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        np.testing.assert_array_equal(ids[mask == 1], text)
        np.testing.assert_array_equal(labels[labels != -100], [*text[1:], 2])
        np.testing.assert_array_equal(labels != -100, mask == 1)
    assert training.causal([[7, 8]], Vocabulary(97, end_id=2, single=((1,), (2,))))["labels"].tolist() == [[7, 8, 2]]


@pytest.mark.parametrize("before", [(), (1,)])
def test_prefixes_of_decoders(before):
    vocabulary = Vocabulary(97, end_id=2, single=(before, ()))
    cuts = set()
    for seed in range(30):
        batch = training.prefix_lm(TEXTS, vocabulary, np.random.default_rng(seed))
        for text, prefix, ids, labels in zip(
            TEXTS, batch["prefix_mask"], batch["input_ids"], batch["labels"], strict=True
        ):
            cut = prefix.sum() - len(before)
            assert 0 < cut < len(text) and prefix[: cut + len(before)].all()
            np.testing.assert_array_equal(labels[labels != -100], [*text[cut:], 2])
            assert ids[np.flatnonzero(labels != -100)[0]] == text[cut - 1]
            cuts.add(int(cut))
    assert cuts == set(range(1, 9))


def test_decoders_read_targets_as_their_models_shift_them():
    tokenizer = tiny_text.language_after().for_languages("en_XX", "de_DE")
    sizes = {"hidden_dim": 12, "num_heads": 2, "intermediate_dim": 12, "num_layers": 1, "num_decoder_layers": 1}
    mbart = zoo.build("mbart", task="text2text-generation", vocab_size=180, max_length=32, **sizes)
    bart = zoo.build("bart", task="text2text-generation", vocab_size=320, max_length=32, **sizes)
    mbart.set_tokenizer(tokenizer)
    bart.set_tokenizer(tiny_text.byte_pairs_in_texts())
    for model in (mbart, bart):
        texts = ["a first text", "and"]
        pairs = [[model.tokenizer.encode(text, add_special_tokens=False) for text in texts]] * 2
        batch = training.translation(pairs, Vocabulary.of(model))
        source, target = (side(texts) for side in (model.tokenizer, model.tokenizer.writer))
        for row, (first, second) in enumerate([(0, 1), (0, 1)]):
            read = source["input_ids"][first][source["attention_mask"][first] == 1]
            written = target["input_ids"][second][target["attention_mask"][second] == 1]
            np.testing.assert_array_equal(batch["input_ids"][row][batch["attention_mask"][row] == 1], read)
            np.testing.assert_array_equal(batch["labels"][row][batch["labels"][row] >= 0], written)
        padded = np.where(batch["labels"] < 0, model.config.pad_token_id, batch["labels"])
        shifted = np.asarray(model.backbone.shift_right(padded))
        mask = batch["decoder_attention_mask"] == 1
        np.testing.assert_array_equal(batch["decoder_input_ids"][mask], shifted[mask])
