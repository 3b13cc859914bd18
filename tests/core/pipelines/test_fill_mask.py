from __future__ import annotations

import pytest
import transformers

from kerasformer.errors import InputError, TokenizerError
from kerasformer.pipelines import pipeline
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import byte_pairs

ONE = "The [MASK] leaves at nine."
TWO = "She closed the [MASK] and looked [MASK] of the window."


@pytest.fixture(scope="module")
def pipes(checkpoint):
    folder = checkpoint("gaps")
    return pipeline(folder, "fill-mask"), transformers.pipeline("fill-mask", str(folder))


@pytest.mark.parametrize("text", [ONE, TWO, [ONE, ONE.replace("nine", "the window"), "A [MASK]."], [TWO, TWO + "!"]])
@pytest.mark.parametrize("top_k", [5, 1, 3])
def test_words_equal_those_of_transformers(pipes, text, top_k):
    assert_same(pipes[0](text, top_k=top_k), pipes[1](text, top_k=top_k))


def test_words_of_an_encoder_decoder_equal_those_of_transformers(checkpoint):
    """BART's decoder reads the text, too, after its start token."""
    folder = checkpoint("restored")
    ours, theirs = pipeline(folder, "fill-mask"), transformers.pipeline("fill-mask", str(folder))
    for text in (ONE, TWO, [ONE, "A [MASK]."]):
        assert_same(ours(text), theirs(text))
    assert pipeline(folder).task == "text2text-generation"


def test_a_text_without_mask_token_raises(pipes):
    with pytest.raises(InputError, match=r"no \[MASK\]"):
        pipes[0]("A text without.")
    with pytest.raises(InputError, match="top_k"):
        pipes[0](ONE, top_k=0)


def test_a_tokenizer_without_a_mask_token(checkpoint):
    pipe = pipeline(checkpoint("gaps"), "fill-mask")
    pipe.tokenizer = byte_pairs()
    with pytest.raises(TokenizerError, match="mask token"):
        pipe(ONE)
