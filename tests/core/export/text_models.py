"""Small models of every architecture and head, with tokenizers, as one row each; and bundles of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tokenizers import Tokenizer as Backend

from kerasformer import zoo
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.bundle.recipes import Recipe, recipe
from kerasformer.layers.sentence import LAYER_NORM, NORMALIZE, POOLINGS, Projection, VectorDropout
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.span_settings import SpanSettings
from kerasformer.tokenization import Tokenizer
from kerasformer.zoo.bert import BertConfig, BertSpanExtraction
from tests import shared, tiny_text

ENTITIES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
# Every pooling, and what may follow it.
_STEPS = (Projection(80), VectorDropout(0.1), LAYER_NORM, NORMALIZE)
SENTENCE = SentenceSettings(POOLINGS, _STEPS, prompts={"query": "rain: "})


@dataclass(frozen=True)
class Row:
    """A small model.

    Attributes:
        model_type: The architecture.
        task: Of the model.
        settings: Of its configuration.
        tokenizer: Makes its tokenizer.
        min_agreement: Of int8; less than the recipe's where random scores lie so close together that 8 bits swap them.
        min_int4_agreement: Of int4. Rounding random weights to 4 bits changes many answers.
        min_cosine: Of int8, likewise, for embeddings.
        spread: Of the weights' random values: large enough that texts have different answers, or that they differ
            clearly.
        seed: Seed of these values.
    """

    model_type: str
    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Callable[[], Tokenizer] = tiny_text.wordpiece
    min_agreement: float = 0.98
    min_int4_agreement: float = 0.6
    min_cosine: float = 0.999
    spread: float = 0.7
    seed: int = 3

    def __str__(self) -> str:
        return f"{self.model_type}-{self.task}"

    def recipe(self, quantize: str) -> Recipe:
        """Returns the recipe with a name, with this row's agreement."""
        found = recipe(quantize)
        if quantize == "none":
            return found
        if quantize.startswith("int4"):
            return replace(found, min_agreement=self.min_int4_agreement)
        return replace(found, min_agreement=self.min_agreement, min_cosine=self.min_cosine)

    def build(self, vocab_size: int) -> Any:
        """Returns the model with random weights."""
        return zoo.build(self.model_type, self.task, vocab_size=vocab_size, **self.settings)

    def model(self) -> Any:
        """Returns the model, with weights that give a clear best answer."""
        tokenizer = self.tokenizer()
        model = self.build(tokenizer.vocab_size)
        model.tokenizer = copy.copy(tokenizer)  # a test may set its chat template
        random = np.random.default_rng(self.seed)
        for variable in model.trainable_variables:
            value, wide = keras.ops.convert_to_numpy(variable.value), len(variable.shape) == 2
            noise = random.normal(0, self.spread / np.sqrt(value.shape[-1]) if wide else 0.05, value.shape)
            variable.assign(noise if wide else value + noise)
        return model


@dataclass(frozen=True)
class SpanRow(Row):
    """A small model of GLiNER, which finds spans of up to 3 words in texts of up to 20 words."""

    model_type: str = "bert"
    task: str = ZERO_SHOT_TOKENS
    settings: Mapping[str, Any] = field(
        default_factory=lambda: dict(hidden_dim=12, num_layers=1, num_heads=2, intermediate_dim=16, max_length=64)
    )
    spread: float = 1.2

    def build(self, vocab_size: int) -> Any:
        """Returns the model; the settings of its head are not part of the configuration."""
        config = BertConfig.create(vocab_size=vocab_size + len(_MARKS), **self.settings)
        model = BertSpanExtraction(config, SpanSettings(hidden_dim=8, max_width=3, max_words=20))
        model.build()
        return model

    def model(self) -> Any:
        """Returns the model, whose tokenizer has the tokens that mark types."""
        model = super().model()
        backend = Backend.from_str(model.tokenizer.backend.to_str())
        backend.add_special_tokens(_MARKS)
        model.tokenizer = Tokenizer(backend, special_tokens=model.tokenizer.special_tokens)
        return model


_MARKS = ["<<ENT>>", "<<SEP>>"]
_ENCODER = {"hidden_dim": 72, "num_layers": 2, "num_heads": 3, "intermediate_dim": 90, "max_length": 64}
_ROBERTA = {
    "hidden_dim": 72, "num_layers": 2, "num_heads": 3, "intermediate_dim": 90, "num_positions": 98, "num_segments": 1,
}  # fmt: skip
_ELECTRA = {**_ENCODER, "embedding_dim": 40}
# Heads of 16, three times narrower states in the layers, and smaller embeddings of tokens.
_MOBILEBERT = {**_ENCODER, "bottleneck_dim": 48, "embedding_dim": 40, "num_feed_forwards": 2}
_DEBERTA = {
    **_ENCODER, "relative_attention": True, "relative_terms": "c2p|p2c", "max_distance": 12,
    "absolute_positions": False,
}  # fmt: skip
_DEBERTA_V2 = {
    **_ENCODER, "relative_attention": True, "relative_terms": "p2c|c2p", "num_buckets": 12, "share_projections": True,
    "relative_norm": "layer_norm", "absolute_positions": False,
}  # fmt: skip
_MPNET = {**{name: size for name, size in _ENCODER.items() if name != "max_length"}, "num_positions": 66}
# Global and local layers in turn, with a window that is narrower than the longest text.
_MODERNBERT = {**_ENCODER, "num_layers": 3, "window": 16, "global_every": 2, "pad_token_id": 0, "eos_token_id": 3}
_XLM = {"hidden_dim": 72, "num_layers": 2, "num_heads": 3, "max_length": 64}
_GPT2 = {"hidden_dim": 72, "num_layers": 2, "num_heads": 3, "max_length": 96, "eos_token_id": 0, "bos_token_id": 0}
# Heads that share keys and values, and do not add up to the hidden size.
_LLAMA = {
    **{name: size for name, size in _GPT2.items() if name != "num_heads"},
    "head_dim": 20,
    "num_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_dim": 90,
}
# A local layer, whose window is narrower than most texts, and a global one.
_GEMMA3 = {
    **{name: size for name, size in _LLAMA.items() if not name.endswith("token_id")},
    "global_every": 2,
    "window_size": 8,
    "score_scale": 20,
}
# Windows that are narrower than the longest texts, in all layers or in some.
_MISTRAL = {**_LLAMA, "head_dim": None, "num_heads": 6, "num_key_value_heads": 2, "window_size": 8}
_QWEN2 = {**_LLAMA, "head_dim": None, "num_key_value_heads": 3, "tied": True}
_QWEN3 = {**_LLAMA, "head_dim": 12, "uses_window": True, "window_size": 8, "full_layers": 1}
_SMOLLM3 = {**_LLAMA, "head_dim": None, "rotary_interval": 2, "pad_token_id": None}
_BLOOM = {name: size for name, size in _GPT2.items() if name != "max_length"}
# Token embeddings of another size than the layers.
_OPT = {**_GPT2, "token_dim": 48, "intermediate_dim": 90}
_CTRL = {**_GPT2, "intermediate_dim": 90}
# The second layer has a window that is narrower than the longest text.
_GPT_NEO = {**_GPT2, "window": 16}
_GPTJ = {**_GPT2, "rotary_dim": 8}
_GPT_NEOX = {**_GPT2, "intermediate_dim": 90}
_PHI = {**_GPT_NEOX, "rope": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
# Texts of more than 28 tokens are read in blocks.
_BIG_BIRD = {**_ENCODER, "block_size": 4, "num_random_blocks": 1, "sep_token_id": 3}
# A window of another size in each layer, both narrower than the longest text.
_LONGFORMER = {
    **{name: size for name, size in _ENCODER.items() if name != "max_length"},
    "num_positions": 66,
    "num_segments": 1,
    "attention_window": [8, 12],
}
# A decoder with other heads than the encoder.
_BART = {
    "hidden_dim": 72, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3, "decoder_num_heads": 4,
    "intermediate_dim": 90, "decoder_intermediate_dim": 84, "max_length": 96, "forced_eos_token_id": None,
}  # fmt: skip
# The decoder starts with the token of a language (de_DE), or has to write it first (deu_Latn).
_MBART = {**_BART, "decoder_start_token_id": 173}
_M2M_100 = {**_BART, "decoder_num_heads": 3, "forced_bos_token_id": 173, "scale_embedding": False}
_MARIAN = {
    "hidden_dim": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "decoder_num_heads": 4,
    "intermediate_dim": 90, "decoder_intermediate_dim": 84, "max_length": 96, "hidden_act": "swish",
    "scale_embedding": True, "eos_token_id": 0, "forced_eos_token_id": None,
    **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), tiny_text.marian().pad_token_id),
}  # fmt: skip
_TRANSFORMER = {
    "hidden_dim": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "intermediate_dim": 90,
    "max_length": 96,
}  # fmt: skip
_PEGASUS = {**_BART, "decoder_num_heads": 3}
# Texts of more than 28 tokens are read in blocks.
_BIGBIRD_PEGASUS = {**_PEGASUS, "block_size": 4, "num_random_blocks": 1}
# The decoder reads shorter texts than the encoder.
_LED = {
    **{name: size for name, size in _PEGASUS.items() if name != "forced_eos_token_id"}, "decoder_max_length": 88,
    "attention_window": [8, 12],
}  # fmt: skip
# Heads that do not add up to the hidden size.
_BERT2BERT = {
    "hidden_dim": 72, "num_layers": 2, "num_heads": 3, "intermediate_dim": 90, "num_decoder_layers": 2,
    "decoder_num_heads": 4, "decoder_vocab_size": 180, "max_length": 96, "decoder_max_length": 90, "pad_token_id": 0,
    "eos_token_id": 3, "decoder_start_token_id": 2,
}  # fmt: skip
_T5 = {"hidden_dim": 64, "head_dim": 24, "num_layers": 2, "num_heads": 3, "intermediate_dim": 90}

ROWS = {
    str(row): row
    for row in (
        Row(
            "bert",
            "text-classification",
            {**_ENCODER, "num_labels": 5},
            min_agreement=0.85,
            min_int4_agreement=0.4,
            spread=1.0,
        ),
        Row("bert", "token-classification", {**_ENCODER, "id2label": ENTITIES}),
        Row("bert", "question-answering", _ENCODER, min_agreement=0.95),
        Row("bert", "fill-mask", _ENCODER, min_agreement=0.95),
        Row("bert", "feature-extraction", _ENCODER),
        Row("bert", "sentence-similarity", {**_ENCODER, "sentence": SENTENCE}, min_cosine=0.99),
        Row(
            "distilbert",
            "text-classification",
            {**_ENCODER, "num_labels": 5, "problem_type": "multi_label_classification"},
            spread=1.4,
        ),
        Row("albert", "fill-mask", {**_ENCODER, "embedding_dim": 40, "num_layers": 3}, min_agreement=0.95),
        Row("electra", "fill-mask", _ELECTRA, min_agreement=0.95),
        Row(
            "mobilebert",
            "text-classification",
            {**_MOBILEBERT, "intermediate_dim": 160, "num_labels": 5},
            spread=0.85,
            seed=7,
        ),
        Row("mobilebert", "fill-mask", _MOBILEBERT, min_agreement=0.95),
        Row(
            "roberta",
            "text-classification",
            {**_ROBERTA, "num_labels": 5},
            tiny_text.byte_pairs_in_texts,
            min_agreement=0.85,
            spread=2.0,
            seed=5,
        ),
        Row("roberta", "fill-mask", _ROBERTA, tiny_text.byte_pairs_in_texts, min_agreement=0.95),
        Row(
            "roberta",
            "sentence-similarity",
            {**_ROBERTA, "sentence": SentenceSettings(("cls",), (NORMALIZE,))},
            tiny_text.byte_pairs_in_texts,
            min_cosine=0.99,
        ),
        Row("camembert", "fill-mask", _ROBERTA, tiny_text.pieces_in_texts, min_agreement=0.95),
        Row("xlm-roberta", "feature-extraction", _ROBERTA, tiny_text.pieces_in_texts),
        Row("mpnet", "feature-extraction", _MPNET, tiny_text.wordpiece_with_ends),
        Row("modernbert", "token-classification", {**_MODERNBERT, "id2label": ENTITIES}, min_agreement=0.95),
        Row(
            "longformer",
            "text-classification",
            {**_LONGFORMER, "num_labels": 5},
            tiny_text.byte_pairs_in_texts,
            min_agreement=0.9,
            spread=1.15,
            seed=13,
        ),
        Row("big_bird", "question-answering", _BIG_BIRD, min_agreement=0.95),
        Row("deberta", "token-classification", {**_DEBERTA, "id2label": ENTITIES}, min_agreement=0.95),
        Row("deberta-v2", "token-classification", {**_DEBERTA_V2, "id2label": ENTITIES}, min_agreement=0.95),
        Row("xlm", "token-classification", {**_XLM, "n_languages": 4, "id2label": ENTITIES}, min_agreement=0.95),
        Row("gpt2", "text-generation", _GPT2, tiny_text.byte_pairs),
        Row(
            "gpt2",
            "text-classification",
            {**_GPT2, "num_labels": 5, "pad_token_id": 0},
            tiny_text.byte_pairs,
            spread=1.0,
        ),
        Row("llama", "text-generation", _LLAMA, tiny_text.byte_pairs, min_agreement=0.95, min_int4_agreement=0.5),
        Row("gemma3_text", "text-generation", _GEMMA3, tiny_text.byte_fallback),
        Row("mistral", "text-generation", _MISTRAL, tiny_text.byte_pairs, min_agreement=0.95, min_int4_agreement=0.5),
        Row("qwen2", "text-generation", _QWEN2, tiny_text.byte_pairs, min_agreement=0.95, min_int4_agreement=0.5),
        Row("qwen3", "text-generation", _QWEN3, tiny_text.byte_pairs, min_agreement=0.95, min_int4_agreement=0.5),
        Row("smollm3", "text-generation", _SMOLLM3, tiny_text.byte_pairs, min_agreement=0.95, min_int4_agreement=0.5),
        Row("bloom", "text-generation", _BLOOM, tiny_text.byte_pairs, min_agreement=0.95),
        Row("openai-gpt", "text-generation", _GPT2, tiny_text.byte_pairs),
        Row("gpt_bigcode", "text-generation", _GPT2, tiny_text.byte_pairs, min_agreement=0.95),
        Row("opt", "text-generation", _OPT, tiny_text.byte_pairs, min_agreement=0.95),
        Row("ctrl", "text-generation", _CTRL, tiny_text.byte_pairs, min_agreement=0.95),
        Row("xglm", "text-generation", _CTRL, tiny_text.byte_pairs, min_agreement=0.95),
        Row("gpt_neo", "text-generation", _GPT_NEO, tiny_text.byte_pairs, min_agreement=0.95),
        Row("gptj", "text-generation", _GPTJ, tiny_text.byte_pairs, min_agreement=0.95),
        Row("gpt_neox", "text-generation", _GPT_NEOX, tiny_text.byte_pairs, min_agreement=0.95),
        Row("phi", "text-generation", _PHI, tiny_text.byte_pairs, min_agreement=0.95),
        Row(
            "t5",
            "text2text-generation",
            {**_T5, "decoder_start_token_id": 0},
            tiny_text.pieces,
            min_agreement=0.95,
            seed=10,
        ),
        Row("mt5", "text2text-generation", _T5, tiny_text.pieces, min_agreement=0.95, seed=2),
        Row("umt5", "text2text-generation", _T5, tiny_text.pieces, min_agreement=0.95, seed=0),
        Row("pegasus", "text2text-generation", _PEGASUS, tiny_text.pieces, min_agreement=0.95, spread=1.2, seed=0),
        Row(
            "bigbird_pegasus",
            "text2text-generation",
            _BIGBIRD_PEGASUS,
            tiny_text.pieces,
            min_agreement=0.95,
            spread=1.2,
        ),
        Row("led", "text2text-generation", _LED, tiny_text.byte_pairs_in_texts, min_agreement=0.95, spread=1.2, seed=0),
        Row("encoder-decoder", "text2text-generation", _BERT2BERT, min_agreement=0.95, spread=1.2, seed=6),
        Row("bart", "text2text-generation", _BART, tiny_text.byte_pairs_in_texts, 0.95, 0.8, spread=1.2, seed=2),
        Row("mbart", "text2text-generation", _MBART, tiny_text.language_after, 0.95, spread=1.2, seed=1),
        Row("m2m_100", "text2text-generation", _M2M_100, tiny_text.language_first, spread=1.2, seed=2),
        Row("transformer", "text2text-generation", _TRANSFORMER, tiny_text.pieces, 0.95, 0.8, spread=1.2, seed=2),
        Row("marian", "text2text-generation", _MARIAN, tiny_text.marian, spread=1.2),
        Row(
            "t5",
            "feature-extraction",
            {**_T5, "feed_forward": "gated-gelu"},
            tiny_text.pieces,
            min_int4_agreement=0.25,
            spread=0.4,
        ),
    )
}

_SETTINGS = {
    "bert": _ENCODER,
    "electra": _ELECTRA,
    "mobilebert": _MOBILEBERT,
    "distilbert": _ENCODER,
    "albert": {**_ENCODER, "embedding_dim": 40, "num_groups": 2},
    "bart": _BART,
    "big_bird": _BIG_BIRD,
    "bloom": _BLOOM,
    "ctrl": _CTRL,
    "deberta": _DEBERTA,
    "marian": _MARIAN,
    "gemma3_text": _GEMMA3,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "openai-gpt": _GPT2,
    "opt": _OPT,
    "xglm": _CTRL,
    "gpt_neo": _GPT_NEO,
    "gpt_neox": _GPT_NEOX,
    "gptj": _GPTJ,
    "llama": _LLAMA,
    "mbart": _MBART,
    "roberta": _ROBERTA,
    "modernbert": _MODERNBERT,
    "mpnet": _MPNET,
    "phi": _PHI,
    "longformer": _LONGFORMER,
    "t5": _T5,
    "xlm": _XLM,
}
_TOKENIZERS = {
    **dict.fromkeys(("bloom", "ctrl", "gpt2", "gpt_bigcode", "llama"), tiny_text.byte_pairs),
    **dict.fromkeys(("openai-gpt", "opt", "xglm"), tiny_text.byte_pairs),
    "gemma3_text": tiny_text.byte_fallback,
    **dict.fromkeys(("gpt_neo", "gpt_neox", "gptj", "phi"), tiny_text.byte_pairs),
    "mbart": tiny_text.language_after,
    "marian": tiny_text.marian,
    "mpnet": tiny_text.wordpiece_with_ends,
    "t5": tiny_text.pieces,
    **dict.fromkeys(("bart", "longformer", "roberta"), tiny_text.byte_pairs_in_texts),
}
"""Tokenizers of the models below; a WordPiece tokenizer like BERT's by default."""

OTHERS = {
    str(row): row
    for row in (
        Row(model_type, task, _SETTINGS[model_type], _TOKENIZERS.get(model_type, tiny_text.wordpiece))
        for model_type, tasks in zoo.models().items()
        for task in tasks
        # That of GLiNER has tests of its own, with its tokenizer.
        if task != ZERO_SHOT_TOKENS
        if model_type in _SETTINGS and (task != "sentence-similarity" or model_type == "gpt2")
    )
    if str(row) not in ROWS
}
"""Heads without a row above."""


def sentence_row(model_type: str) -> Row:
    """Returns the row of a model for embeddings, with the settings and the tokenizer of another head's row."""
    row = next(row for row in ROWS.values() if row.model_type == model_type)
    # Runtimes of others pass no languages.
    left_out = ("num_labels", "id2label", "problem_type", "n_languages")
    settings = {name: value for name, value in row.settings.items() if name not in left_out}
    return Row(model_type, "sentence-similarity", {**settings, "sentence": SENTENCE}, row.tokenizer)


def size_options(model: Any, format: str, lengths: Sequence[int], capacity: int) -> dict[str, Any]:
    """Returns those of `lengths` and `capacity` that an export of this model in this format accepts."""
    read_at_once = model.is_encoder_decoder or (format == "tflite" and not model.generates)
    options: dict[str, Any] = {"lengths": lengths} if read_at_once else {}
    return {**options, "capacity": capacity} if model.generates else options


LENGTHS, CAPACITY = (16, 64), 80
"""Sizes of the shared bundles: lengths of an encoder's signatures, and the longest text of a decoder."""


@cache
def shared_model(name: str) -> Any:
    """Returns the model of a row, created once in each worker; tests must not change it."""
    return {**ROWS, **OTHERS}[name].model()


def shared_bundle(name: str, format: str, quantize: str = "none") -> Path:
    """Returns the bundle of a row, exported once per session; tests must not change it."""
    model, recipe = shared_model(name), {**ROWS, **OTHERS}[name].recipe(quantize)
    sizes = size_options(model, format, LENGTHS, CAPACITY)
    return shared.exported(model, format, recipe, **sizes)


SEVERAL = (
    "bert-text-classification",
    "distilbert-text-classification",
    "albert-fill-mask",
    "gpt2-text-generation",
    "t5-text2text-generation",
)
"""Rows with all kinds of matrices, for tests of their quantization."""
