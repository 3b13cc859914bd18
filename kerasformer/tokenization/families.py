"""Default settings of the tokenizer classes of Hugging Face, which checkpoints need not repeat."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kerasformer.tokenization import language_codes

Kind = Literal[
    "wordpiece", "bpe", "word-bpe", "sentencepiece", "dictionary", "bertweet", "byte-fallback", "marian", "bytes"
]

PLAIN_INPUTS = ("input_ids", "attention_mask")
SEGMENT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclass(frozen=True)
class LanguageScheme:
    """How texts are marked with their language.

    Attributes:
        token: Token of a language, with `{}` for its code.
        code: Regular expression of the codes.
        codes: Codes of the published models, for files without tokens of languages.
        default: Code of the language of the input, unless the folder specifies one.
        after: Whether the token follows the text and its end token; otherwise it precedes the text.
        may_follow: Whether the option `legacy_behaviour` decides on that.
        starts_decoder: Whether the decoder starts with the token of the language of the output; otherwise the model is
            forced to generate this token first.
    """

    token: str
    code: str
    codes: tuple[str, ...]
    default: str
    after: bool = False
    may_follow: bool = False
    starts_decoder: bool = False

    @property
    def tokens(self) -> list[str]:
        """Tokens of the languages of the published models."""
        return [self.token.format(code) for code in self.codes]


@dataclass(frozen=True)
class Family:
    """Defaults of one tokenizer class of Hugging Face.

    Attributes:
        kind: Kind of the vocabulary; `dictionary` is a file of SentencePiece with ids from another file,
            `byte-fallback`, byte-pair merges of characters with bytes for unknown ones, is read from `tokenizer.json`
            only; `marian`, a SentencePiece file for each side of a translation; `bytes` needs no file.
        special_tokens: Mapping from names such as `"pad_token"` to tokens.
        model_inputs: Names of the inputs of the model.
        single: Template for one text: names of special tokens, and `"$A"` for the text. The number after a colon is the
            segment.
        pair: Template for two texts, with `"$B"` for the second.
        first_pieces: Tokens that replace the first pieces of a SentencePiece file, with their scores: tokens, or names
            of special tokens such as `"pad_token"`.
        num_replaced: Number of pieces that they replace.
        last_pieces: Names of special tokens that follow the pieces of the file.
        offset: Number of tokens of the pretraining of PEGASUS before the pieces of the file, unless the folder
            specifies it; `None` for other classes.
        line_break: Token of texts that models write, which stands for a line break.
        mask_takes_spaces: Whether the mask token includes the spaces before it, unless the folder specifies its flags.
        padding_side: Side of the padding, unless the folder specifies it.
        languages: How texts are marked with their language, by a `MultilingualTokenizer`; `single` and `pair` are then
            unused. The tokens of the languages precede `last_pieces`.
        has_merges: Whether a SentencePiece file may have byte-pair merges.
    """

    kind: Kind
    special_tokens: Mapping[str, str]
    model_inputs: tuple[str, ...] = PLAIN_INPUTS
    single: str = "$A:0"
    pair: str = "$A:0 $B:1"
    first_pieces: tuple[tuple[str, float], ...] = ()
    num_replaced: int = 0
    last_pieces: tuple[str, ...] = ()
    offset: int | None = None
    line_break: str | None = None
    mask_takes_spaces: bool = False
    padding_side: str = "right"
    languages: LanguageScheme | None = None
    has_merges: bool = False


_SEGMENTS = "cls_token:0 $A:0 sep_token:0", "cls_token:0 $A:0 sep_token:0 $B:1 sep_token:1"
_TWO_SEPARATORS = "cls_token:0 $A:0 sep_token:0", "cls_token:0 $A:0 sep_token:0 sep_token:0 $B:0 sep_token:0"
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

BERT = Family("wordpiece", _BERT_TOKENS, SEGMENT_INPUTS, *_SEGMENTS)
DISTILBERT = Family("wordpiece", _BERT_TOKENS, PLAIN_INPUTS, *_SEGMENTS)
GPT2 = Family("bpe", dict.fromkeys(("unk_token", "bos_token", "eos_token"), _END_OF_TEXT))
GPT_NEOX = Family("bpe", {**GPT2.special_tokens, "pad_token": "<|padding|>"})
ROBERTA = Family("bpe", _ROBERTA_TOKENS, PLAIN_INPUTS, *_TWO_SEPARATORS)
MPNET = Family(
    "wordpiece",
    {**_ROBERTA_TOKENS, "unk_token": "[UNK]"},
    PLAIN_INPUTS,
    *_TWO_SEPARATORS,
    mask_takes_spaces=True,
)
BERTWEET = Family("bertweet", _ROBERTA_TOKENS, PLAIN_INPUTS, *_TWO_SEPARATORS)
# XLM-RoBERTa and CamemBERT have the special tokens of fairseq before the pieces of the file.
XLM_ROBERTA = Family(
    "sentencepiece",
    _ROBERTA_TOKENS,
    PLAIN_INPUTS,
    *_TWO_SEPARATORS,
    first_pieces=(("bos_token", 0.0), ("pad_token", 0.0), ("eos_token", 0.0), ("unk_token", 0.0)),
    num_replaced=3,
    last_pieces=("mask_token",),
)
CAMEMBERT = Family(
    "sentencepiece",
    _ROBERTA_TOKENS,
    PLAIN_INPUTS,
    *_TWO_SEPARATORS,
    first_pieces=(
        ("<s>NOTUSED", 0.0),
        ("pad_token", 0.0),
        ("</s>NOTUSED", 0.0),
        ("unk_token", 0.0),
        ("<unk>NOTUSED", -100.0),
    ),
    num_replaced=1,
    last_pieces=("mask_token",),
    mask_takes_spaces=True,
)
T5 = Family(
    "sentencepiece",
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    single="$A:0 eos_token:0",
    pair="$A:0 eos_token:0 $B:0 eos_token:0",
)
# The bytes of UTF-8, each of which is a token.
BYT5 = replace(T5, kind="bytes")
PEGASUS = replace(
    T5,
    special_tokens={**T5.special_tokens, "mask_token": "<mask_2>"},
    pair="$A:0 $B:0 eos_token:0",
    offset=103,
    line_break="<n>",
)
BIGBIRD_PEGASUS = replace(
    PEGASUS,
    special_tokens={
        **T5.special_tokens,
        **{"bos_token": "<s>", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    },
    offset=0,
)
BIG_BIRD = Family(
    "sentencepiece",
    {**_ROBERTA_TOKENS, "sep_token": "[SEP]", "cls_token": "[CLS]", "mask_token": "[MASK]"},
    PLAIN_INPUTS,
    *_SEGMENTS,
    mask_takes_spaces=True,
)
ALBERT = Family("sentencepiece", _ALBERT_TOKENS, SEGMENT_INPUTS, *_SEGMENTS)
DEBERTA = Family(
    "sentencepiece", {**_BERT_TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"}, SEGMENT_INPUTS, *_SEGMENTS
)

# Texts of a pair have one separator between them, as in the training of the models and in transformers 4; the class of
# transformers 5 adds two.
DEBERTA_BPE = Family("bpe", {**_BERT_TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"}, SEGMENT_INPUTS, *_SEGMENTS)
XLM = Family(
    "bpe",
    {
        **{"unk_token": "<unk>", "bos_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"},
        **{"cls_token": "</s>", "mask_token": "<special1>"},
    },
    single="bos_token:0 $A:0 sep_token:0",
    pair="bos_token:0 $A:0 sep_token:0 $B:1 sep_token:1",
)
# Texts of a pair have two separators between them.
XGLM = Family(
    "sentencepiece",
    {name: token for name, token in _ROBERTA_TOKENS.items() if name != "mask_token"},
    PLAIN_INPUTS,
    "eos_token:0 $A:0",
    "eos_token:0 $A:0 eos_token:0 eos_token:0 $B:0",
    first_pieces=XLM_ROBERTA.first_pieces,
    num_replaced=XLM_ROBERTA.num_replaced,
)
_OF_MBART = LanguageScheme(
    "{}", "[a-z]{2,3}_[A-Z]{2}", language_codes.MBART_25, "en_XX", after=True, starts_decoder=True
)
MBART = replace(XLM_ROBERTA, mask_takes_spaces=True, languages=_OF_MBART)
MBART_50 = replace(
    MBART,
    special_tokens={name: token for name, token in _ROBERTA_TOKENS.items() if name != "bos_token"},
    first_pieces=(("cls_token", 0.0), *XLM_ROBERTA.first_pieces[1:]),
    languages=replace(_OF_MBART, codes=language_codes.MBART_50, after=False, starts_decoder=False),
)
NLLB = replace(
    MBART,
    has_merges=True,
    languages=LanguageScheme("{}", "[a-z]{3}_[A-Z][a-z]{3}", language_codes.NLLB, "eng_Latn", may_follow=True),
)
M2M_100 = Family(
    "dictionary",
    {name: token for name, token in _ROBERTA_TOKENS.items() if name not in ("cls_token", "mask_token")},
    languages=LanguageScheme("__{}__", "[a-z]{2,3}", language_codes.M2M_100, "en"),
)
MARIAN = Family("marian", T5.special_tokens, single="$A:0 eos_token:0", pair="$A:0 $B:0 eos_token:0")
OPENAI_GPT = Family("word-bpe", {"unk_token": "<unk>"})
CTRL = Family("word-bpe", {"unk_token": "<unk>"})
GEMMA = Family(
    "byte-fallback",
    {name + "_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk", "mask")},
    single="bos_token:0 $A:0",
    pair="bos_token:0 $A:0 bos_token:1 $B:1",
    padding_side="left",
)

CLASSES: Mapping[str, Family] = {
    "BertTokenizer": BERT,
    "DistilBertTokenizer": DISTILBERT,
    "ElectraTokenizer": BERT,
    "MarianTokenizer": MARIAN,
    "MobileBertTokenizer": BERT,
    "MPNetTokenizer": MPNET,
    "CTRLTokenizer": CTRL,
    "OpenAIGPTTokenizer": OPENAI_GPT,
    "XGLMTokenizer": XGLM,
    "CodeGenTokenizer": GPT2,
    "GPT2Tokenizer": GPT2,
    "GPTNeoXTokenizer": GPT_NEOX,
    "RobertaTokenizer": ROBERTA,
    "BartTokenizer": ROBERTA,
    "LongformerTokenizer": ROBERTA,
    "LEDTokenizer": ROBERTA,
    "BertweetTokenizer": BERTWEET,
    "CamembertTokenizer": CAMEMBERT,
    "XLMRobertaTokenizer": XLM_ROBERTA,
    "T5Tokenizer": T5,
    "ByT5Tokenizer": BYT5,
    "PegasusTokenizer": PEGASUS,
    "AlbertTokenizer": ALBERT,
    "BigBirdTokenizer": BIG_BIRD,
    "DebertaTokenizer": DEBERTA_BPE,
    "DebertaV2Tokenizer": DEBERTA,
    "XLMTokenizer": XLM,
    "GemmaTokenizer": GEMMA,
    "M2M100Tokenizer": M2M_100,
    "MBartTokenizer": MBART,
    "MBart50Tokenizer": MBART_50,
    "NllbTokenizer": NLLB,
}
"""Families by `tokenizer_class`, without the suffix `Fast`."""

GENERIC_CLASSES = frozenset({"PreTrainedTokenizer", "TokenizersBackend", "PythonBackend"})
"""Classes without defaults, whose `tokenizer.json` is complete."""

MODEL_TYPES: Mapping[str, Family] = {
    "albert": ALBERT,
    "bart": ROBERTA,
    "bert": BERT,
    "big_bird": BIG_BIRD,
    "bigbird_pegasus": BIGBIRD_PEGASUS,
    "camembert": CAMEMBERT,
    "convbert": BERT,
    "ctrl": CTRL,
    "deberta": DEBERTA_BPE,
    "deberta-v2": DEBERTA,
    "distilbert": DISTILBERT,
    "electra": BERT,
    "gemma3_text": GEMMA,
    "gpt2": GPT2,
    "gpt_neo": GPT2,
    "gpt_neox": GPT_NEOX,
    "gptj": GPT2,
    "led": ROBERTA,
    "longformer": ROBERTA,
    "m2m_100": M2M_100,
    "marian": MARIAN,
    "mbart": MBART,
    "mobilebert": BERT,
    "mpnet": MPNET,
    "mt5": T5,
    "openai-gpt": OPENAI_GPT,
    "opt": GPT2,
    "pegasus": PEGASUS,
    "phi": GPT2,
    "roberta": ROBERTA,
    "switch_transformers": T5,
    "t5": T5,
    "umt5": T5,
    "xglm": XGLM,
    "xlm": XLM,
    "xlm-roberta": XLM_ROBERTA,
}
"""Families by `model_type`, for checkpoints without a tokenizer class."""


def guess(vocabulary: Collection[str], kind: Kind) -> Family | None:
    """Returns the family that fits the special tokens of a vocabulary, or `None`.

    Used for folders that specify neither a tokenizer class nor a model type.
    """
    families = {
        "wordpiece": (BERT, MPNET),
        "bpe": (ROBERTA, GPT2, DEBERTA_BPE),
        "sentencepiece": (ALBERT, BIG_BIRD, XLM_ROBERTA, T5, DEBERTA),
        "word-bpe": (),
        "dictionary": (),
        "bertweet": (),
        "byte-fallback": (),
        "marian": (),
        "bytes": (),
    }[kind]
    for family in families:
        if all(token in vocabulary for token in family.special_tokens.values()):
            return family
    return None
