"""Tiny tokenizers of three kinds, trained on the sentences that the package itself carries."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasformer.export.texts import PROMPTS, READING
from kerasformer.tokenization import Tokenizer

CORPUS = (*READING, *PROMPTS)


@cache
def wordpiece() -> Tokenizer:
    """As BERT has it: lower case, `[CLS] … [SEP] … [SEP]`, segments."""
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names["mask_token"] = "[MASK]"
    backend.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=180, special_tokens=list(names.values()), show_progress=False)
    )
    ends = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return Tokenizer(backend, special_tokens=names, model_inputs=("input_ids", "token_type_ids", "attention_mask"))


@cache
def byte_pairs() -> Tokenizer:
    """As GPT-2 has it: bytes, an end token and no padding token."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return Tokenizer(backend, special_tokens={"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"})


@cache
def pieces() -> Tokenizer:
    """As T5 has it: pieces that begin with their space, `… </s>`."""
    backend = Backend(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    backend.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=170, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", backend.token_to_id("</s>"))]
    )
    return Tokenizer(backend, special_tokens={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
