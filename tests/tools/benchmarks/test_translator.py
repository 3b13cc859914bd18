"""Batches and vocabulary of `benchmarks.translator`, which trains a translator."""

import numpy as np
import pytest

from benchmarks.translator import EOS, IGNORED, PAD, Batches, build, train_tokenizer
from kerasformer.evaluation import Example
from kerasformer.tokenization import Tokenizer

PAIRS = [
    Example(f"Two {noun}s are {verb}ing.", [f"Zwei {plural} {german}, ohne Eile."])
    for noun, plural in (("dog", "Hunde"), ("cat", "Katzen"), ("girl", "Mädchen"))
    for verb, german in (("walk", "gehen"), ("play", "spielen"), ("sing", "singen"))
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([text for pair in PAIRS for text in (pair.text, pair.label[0])], 120)


def test_the_vocabulary_keeps_texts_of_both_languages(tokenizer: Tokenizer) -> None:
    for pair in PAIRS:
        for text in (pair.text, pair.label[0]):
            ids = tokenizer.encode(text)
            assert ids[-1] == EOS and tokenizer.decode(ids, skip_special_tokens=True) == text


def test_batches_hold_all_pairs_and_the_decoder_reads_the_labels_shifted_by_one(tokenizer: Tokenizer) -> None:
    batches = Batches(tokenizer, PAIRS, tokens=60)
    seen = set()
    for inputs, labels in (batches[index] for index in range(len(batches))):
        assert labels.shape == inputs["input_ids"].shape and labels.size <= 60
        np.testing.assert_array_equal(inputs["attention_mask"], inputs["input_ids"] != PAD)
        assert (inputs["decoder_input_ids"][:, 0] == PAD).all()
        for ids, read, row in zip(inputs["input_ids"], inputs["decoder_input_ids"], labels, strict=True):
            written = row[row != IGNORED]
            assert written[-1] == EOS
            np.testing.assert_array_equal(read[1 : len(written)], written[:-1])
            seen.add(tuple(tokenizer.decode(part, skip_special_tokens=True) for part in (ids, written)))
    assert seen == {(pair.text, pair.label[0]) for pair in PAIRS}


def test_the_model_is_small_and_knows_its_special_tokens(tokenizer: Tokenizer) -> None:
    model = build(tokenizer)
    config = model.config
    assert model.count_params() < 8e6
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (PAD, EOS, PAD)
