import pytest

from kerasformer.errors import InputError
from kerasformer.tools.training.vocabularies import train_tokenizer

TEXTS = [f"The old fox number {index} looks at the sea, and waits." for index in range(50)]
PAIRS = {
    "bpe": ("The fox waits.", None),
    "unigram": ("The fox waits.", "The fox waits.</s>"),
    "wordpiece": ("the fox waits.", "[CLS] the fox waits. [SEP]"),
}


@pytest.mark.parametrize("algorithm", PAIRS)
def test_vocabularies_have_the_form_of_their_models(algorithm):
    tokenizer = train_tokenizer(TEXTS, algorithm, 300, max_length=64)
    text, framed = PAIRS[algorithm]
    ids = tokenizer.encode("The fox waits.")
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids).replace(" </s>", "</s>") == (framed or text)
    assert tokenizer.vocab_size <= 300 and tokenizer.model_max_length == 64
    if algorithm == "wordpiece":
        batch = tokenizer(["The fox"], ["waits"])
        assert batch["token_type_ids"][0].tolist() == [0] * 4 + [1] * (len(batch["input_ids"][0]) - 4)


@pytest.mark.parametrize("algorithm", PAIRS)
def test_special_tokens_suit_the_kind_of_model(algorithm):
    encoder, decoder, both = (
        train_tokenizer(TEXTS, algorithm, 420, branch=branch, mask=branch != "decoder", sentinels=100)
        for branch in ("encoder", "decoder", "encoder-decoder")
    )
    first, *_, last = encoder.encode("The fox")
    assert (first, last) == (encoder.cls_token_id, encoder.sep_token_id)
    assert encoder.mask_token_id is not None and "token_type_ids" in encoder("The fox", "waits")
    # A model continues a prompt, and knows when to stop.
    assert decoder.encode("The fox") == decoder.encode("The fox", add_special_tokens=False)
    assert decoder.eos_token_id is not None and decoder.mask_token_id is None
    assert both.encode("The fox")[-1] == both.eos_token_id and both.mask_token_id is not None
    assert both.token_to_id("<extra_id_99>") == both.vocab_size - 1 and both.vocab_size <= 420
    with pytest.raises(InputError, match="a vocab_size above"):
        train_tokenizer(TEXTS, algorithm, 100, sentinels=100)


def test_unknown_algorithms_are_refused():
    with pytest.raises(InputError, match="unigram"):
        train_tokenizer(TEXTS, "words", 100)
