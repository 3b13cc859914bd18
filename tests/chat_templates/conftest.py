"""A tokenizer with special tokens for chats."""

from __future__ import annotations

import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kerasformer.tokenization import load_tokenizer
from tests.chat_templates.conversations import TEMPLATES


@pytest.fixture(scope="session")
def _saved(tmp_path_factory):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(list(TEMPLATES.values()), trainer)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", additional_special_tokens=special[2:]
    )
    folder = tmp_path_factory.mktemp("chat_tokenizer")
    theirs.save_pretrained(folder)
    return folder, theirs


@pytest.fixture
def tokenizers(_saved):
    """The same tokenizer here and in `transformers`, without a chat template."""
    folder, theirs = _saved
    return load_tokenizer(folder), theirs
