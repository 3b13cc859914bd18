"""Vocabularies that are trained on the texts of a recipe, in the formats of BERT, GPT-2 and T5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasformer.basics.arguments import check, one_of
from kerasformer.bundle.architectures import BRANCHES, DECODER, ENCODER, ENCODER_DECODER
from kerasformer.errors import InputError
from kerasformer.tokenization import PLAIN_INPUTS, SEGMENT_INPUTS, Tokenizer


class _Algorithm(NamedTuple):
    """How a vocabulary is trained: the empty tokenizer, its trainer, and its special tokens for each kind of model."""

    backend: Callable[[], tokenizers.Tokenizer]
    trainer: Callable[..., trainers.Trainer]
    special: Mapping[str, dict[str, str]]
    mask: str
    usual: str


def train_tokenizer(
    texts: Iterable[str],
    algorithm: str,
    vocab_size: int,
    *,
    branch: str | None = None,
    mask: bool = False,
    sentinels: int = 0,
    max_length: int | None = None,
) -> Tokenizer:
    """Trains a vocabulary.

    Special tokens enclose the texts of an encoder, as in BERT, RoBERTa or XLM-R. A text of an encoder-decoder ends with
    one, and one of a decoder has none, since the model continues it. Encoders have a mask token.

    Args:
        texts: Texts of the language.
        algorithm: `"bpe"` of bytes as in GPT-2, `"unigram"` as in T5, or `"wordpiece"` of lower-case words as in BERT.
        vocab_size: Number of tokens, including the special ones.
        branch: Kind of the model: `"encoder"`, `"decoder"` or `"encoder-decoder"`; by default that of the model which
            `algorithm` names.
        mask: Whether other models than encoders have a mask token, too, as BART does.
        sentinels: Number of sentinels, `<extra_id_0>` and so on, of which T5 has 100. They have the last ids.
        max_length: Maximum length of a text in tokens, saved with the tokenizer.

    Raises:
        InputError: an unknown algorithm or kind, or no room for tokens beside the special ones.

    Reference: Sennrich et al. 2015, arXiv:1508.07909; Kudo 2018, arXiv:1804.10959; Schuster and Nakajima 2012.
    """
    chosen = _ALGORITHMS[check("algorithm", algorithm, one_of(*_ALGORITHMS))]
    branch = check("branch", branch or chosen.usual, one_of(*BRANCHES))
    special = {**chosen.special[branch], **({"mask_token": chosen.mask} if mask else {})}
    backend, tokens = chosen.backend(), list(dict.fromkeys(special.values()))
    if vocab_size <= sentinels + len(tokens):
        raise InputError(
            f"A vocabulary needs more tokens than the special ones. Expected: a vocab_size above "
            f"{sentinels + len(tokens)}. Received: {vocab_size}"
        )
    trainer = chosen.trainer(vocab_size=vocab_size - sentinels, special_tokens=tokens, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(f"<extra_id_{index}>", normalized=False) for index in range(sentinels)])
    if branch != DECODER:
        first, last = special.get("cls_token"), special.get("sep_token", special.get("eos_token"))
        before = f"{first} " if first else ""
        ids = [(token, backend.token_to_id(token)) for token in tokens]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{before}$A {last}", pair=f"{before}$A {last} $B:1 {last}:1", special_tokens=ids
        )
    inputs = SEGMENT_INPUTS if branch == ENCODER else PLAIN_INPUTS
    return Tokenizer(backend, special_tokens=special, model_inputs=inputs, model_max_length=max_length)


def _byte_level_bpe() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _bpe_trainer(**options: Any) -> trainers.Trainer:
    return trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)


def _unigram() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    # Separates punctuation from words, so that a word is the same token before a full stop.
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    backend.decoder = decoders.Metaspace()
    return backend


def _unigram_trainer(**options: Any) -> trainers.Trainer:
    printable = [chr(code) for code in range(33, 127)]
    return trainers.UnigramTrainer(unk_token="<unk>", initial_alphabet=printable, **options)


def _wordpiece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


_END = "<|endoftext|>"
_ROBERTA = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
_T5 = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
_ALGORITHMS = {
    "bpe": _Algorithm(
        _byte_level_bpe,
        _bpe_trainer,
        {
            ENCODER: _ROBERTA,
            DECODER: {name: _END for name in ("bos_token", "eos_token", "unk_token", "pad_token")},
            ENCODER_DECODER: _ROBERTA,
        },
        "<mask>",
        DECODER,
    ),
    "unigram": _Algorithm(
        _unigram, _unigram_trainer, {ENCODER: _ROBERTA, DECODER: _T5, ENCODER_DECODER: _T5}, "<mask>", ENCODER_DECODER
    ),
    "wordpiece": _Algorithm(
        _wordpiece,
        trainers.WordPieceTrainer,
        {
            ENCODER: _BERT,
            DECODER: {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[SEP]"},
            # The names that BERT2BERT has for a decoder.
            ENCODER_DECODER: {**_BERT, "bos_token": "[CLS]", "eos_token": "[SEP]"},
        },
        "[MASK]",
        ENCODER,
    ),
}
