"""A tokenizer with special tokens for chats."""

from __future__ import annotations

import pytest

from kerasformer.tokenization import Tokenizer
from tests.core.tokenization.chat_templates.chat_model import save_tokenizer


@pytest.fixture(scope="session")
def _saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat_tokenizer")
    return folder, save_tokenizer(folder)


@pytest.fixture
def tokenizers(_saved):
    """The same tokenizer here and in `transformers`, without a chat template."""
    folder, theirs = _saved
    return Tokenizer.load(folder), theirs
