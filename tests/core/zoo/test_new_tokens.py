"""Models with further tokens: the logits of all other tokens stay."""

from __future__ import annotations

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import InputError


def test_new_tokens_leave_the_others(tmp_path):
    model = kf.load("summarizer-t5")
    size = model.config.vocab_size
    longer = kf.zoo.add_tokens(model, ["<extra_id_0>", "<extra_id_1>"], mask_token="<mask>")
    added = [longer.tokenizer.token_to_id(token) for token in ("<mask>", "<extra_id_0>", "<extra_id_1>")]
    assert added == [size, size + 1, size + 2] and longer.config.vocab_size == size + 3
    assert longer.tokenizer.mask_token_id == size and model.tokenizer.mask_token_id is None
    assert longer.tokenizer.encode("a <mask>", add_special_tokens=False)[-1] == size

    batch = {**model.tokenizer(["It counts words."]), "decoder_input_ids": np.array([[0, 5, 7]])}
    before, after = np.asarray(model(batch)), np.asarray(longer(batch))
    np.testing.assert_allclose(after[..., :size], before, atol=1e-5 * np.abs(before).max())
    assert np.abs(after[..., size:]).max() < 4 * np.abs(before).max() and not np.allclose(
        after[..., -1], after[..., -2]
    )

    longer.save_pretrained(tmp_path / "longer")
    again = kf.load(tmp_path / "longer")
    assert again.tokenizer.mask_token_id == size and set(added) <= set(again.tokenizer.all_special_ids)
    np.testing.assert_array_equal(again(batch), after)


def test_names_of_tokens_are_checked():
    with pytest.raises(InputError, match="mask_token"):
        kf.zoo.add_tokens(kf.load("summarizer-t5"), masks="<mask>")
    with pytest.raises(InputError, match="A model with a tokenizer"):
        kf.zoo.add_tokens("summarizer-t5", ["<mask>"])
