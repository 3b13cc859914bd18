"""The tokenizers that checkpoints name: what each class takes for granted when its files do not say it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["wordpiece", "bpe", "sentencepiece"]

PLAIN_INPUTS = ("input_ids", "attention_mask")
SEGMENT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclass(frozen=True)
class Family:
    """Defaults of one tokenizer class of Hugging Face.

    Attributes:
        kind: Which vocabulary files it is made of.
        special_tokens: Names such as `"pad_token"` to tokens.
        model_inputs: Arrays that the model takes.
        single: How one text is surrounded: names of special tokens, and `"$A"` for the text.
        pair: The same for two texts, with `"$B"`; a number after a colon is the segment.
    """

    kind: Kind
    special_tokens: Mapping[str, str]
    model_inputs: tuple[str, ...] = PLAIN_INPUTS
    single: str = "$A:0"
    pair: str = "$A:0 $B:1"


_SEGMENTS = {
    "single": "cls_token:0 $A:0 sep_token:0",
    "pair": "cls_token:0 $A:0 sep_token:0 $B:1 sep_token:1",
}
_BERT_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_ALBERT_TOKENS = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_END_OF_TEXT = "<|endoftext|>"

BERT = Family("wordpiece", _BERT_TOKENS, SEGMENT_INPUTS, **_SEGMENTS)
DISTILBERT = Family("wordpiece", _BERT_TOKENS, PLAIN_INPUTS, **_SEGMENTS)
GPT2 = Family("bpe", dict.fromkeys(("unk_token", "bos_token", "eos_token"), _END_OF_TEXT))
ROBERTA = Family(
    "bpe",
    _ROBERTA_TOKENS,
    single="cls_token:0 $A:0 sep_token:0",
    pair="cls_token:0 $A:0 sep_token:0 sep_token:0 $B:0 sep_token:0",
)
T5 = Family(
    "sentencepiece",
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    single="$A:0 eos_token:0",
    pair="$A:0 eos_token:0 $B:0 eos_token:0",
)
ALBERT = Family("sentencepiece", _ALBERT_TOKENS, SEGMENT_INPUTS, **_SEGMENTS)
DEBERTA = Family(
    "sentencepiece", {**_BERT_TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"}, SEGMENT_INPUTS, **_SEGMENTS
)

CLASSES: Mapping[str, Family] = {
    "BertTokenizer": BERT,
    "DistilBertTokenizer": DISTILBERT,
    "ElectraTokenizer": BERT,
    "MobileBertTokenizer": BERT,
    "GPT2Tokenizer": GPT2,
    "RobertaTokenizer": ROBERTA,
    "BartTokenizer": ROBERTA,
    "T5Tokenizer": T5,
    "AlbertTokenizer": ALBERT,
    "DebertaV2Tokenizer": DEBERTA,
}
"""By `tokenizer_class`, the ending `Fast` taken off."""

GENERIC_CLASSES = frozenset({"PreTrainedTokenizer", "TokenizersBackend", "PythonBackend"})
"""Classes that take nothing for granted: `tokenizer.json` says it all."""

MODEL_TYPES: Mapping[str, Family] = {
    "albert": ALBERT,
    "bart": ROBERTA,
    "bert": BERT,
    "convbert": BERT,
    "deberta-v2": DEBERTA,
    "distilbert": DISTILBERT,
    "electra": BERT,
    "gpt2": GPT2,
    "gpt_neo": GPT2,
    "gptj": GPT2,
    "mobilebert": BERT,
    "mt5": T5,
    "opt": GPT2,
    "roberta": ROBERTA,
    "switch_transformers": T5,
    "t5": T5,
}
"""By `model_type`, for checkpoints that name no tokenizer class."""


def guess(vocabulary: Collection[str], kind: Kind) -> Family | None:
    """Finds the family of a vocabulary whose folder names neither a tokenizer class nor a model type."""
    families = {
        "wordpiece": (BERT,),
        "bpe": (ROBERTA, GPT2),
        "sentencepiece": (ALBERT, T5, DEBERTA),
    }[kind]
    for family in families:
        if all(token in vocabulary for token in family.special_tokens.values()):
            return family
    return None
