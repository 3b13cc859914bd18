import pytest

from kerasformer.errors import InputError
from kerasformer.training.vocabularies import train_tokenizer

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


def test_unknown_algorithms_are_refused():
    with pytest.raises(InputError, match="unigram"):
        train_tokenizer(TEXTS, "words", 100)
