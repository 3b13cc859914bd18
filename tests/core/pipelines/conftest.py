"""Tiny random checkpoints with trained tokenizers, as `transformers` writes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.keras_pipelines import keras_pipeline

logging.getLogger("transformers").setLevel(logging.ERROR)
torch.set_num_threads(1)  # these models are too small to share

LABELS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}}
LABELS["label2id"] = {label: index for index, label in LABELS["id2label"].items()}
BERT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "max_position_embeddings": 48, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 96, "bos_token_id": 0, "eos_token_id": 0}
BART = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 48, "pad_token_id": 0,
    "decoder_start_token_id": 3, "eos_token_id": 3, "bos_token_id": 2, "forced_eos_token_id": 3,
}  # fmt: skip
T5 = {
    "d_model": 32, "d_kv": 12, "d_ff": 40, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0,
    "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
PREFIXES = {
    "task_specific_params": {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: "},
        "translation_en_to_fr": {"prefix": "translate English to French: "},
    }
}

# name: (class of transformers, its config, tokenizer)
CASES: dict[str, tuple[str, Mapping[str, Any], Callable[[], Tokenizer]]] = {
    "classes": ("BertForSequenceClassification", BERT | LABELS, tiny_text.wordpiece),
    "one-class": ("BertForSequenceClassification", BERT | {"num_labels": 1}, tiny_text.wordpiece),
    "many-true": (
        "DistilBertForSequenceClassification",
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 40, "max_position_embeddings": 48}
        | {"problem_type": "multi_label_classification"}
        | LABELS,
        tiny_text.wordpiece,
    ),
    "number": (
        "BertForSequenceClassification",
        BERT | {"problem_type": "regression", "num_labels": 2},
        tiny_text.wordpiece,
    ),
    "last-token": ("GPT2ForSequenceClassification", GPT2 | LABELS | {"pad_token_id": 0}, tiny_text.byte_pairs),
    "compared": (
        "AlbertForSequenceClassification",
        BERT | LABELS | {"embedding_size": 16},
        tiny_text.pieces_in_segments,
    ),
    "entities": ("BertForTokenClassification", BERT | LABELS, tiny_text.wordpiece),
    "gaps": ("BertForMaskedLM", BERT, tiny_text.wordpiece),
    "restored": ("BartForConditionalGeneration", BART, tiny_text.wordpiece),
    "vectors": ("BertModel", BERT, tiny_text.wordpiece),
    "answers": ("BertForQuestionAnswering", BERT, tiny_text.wordpiece),
    "spaced-answers": ("AlbertForQuestionAnswering", BERT | {"embedding_size": 16}, tiny_text.pieces),
    "story": ("GPT2LMHeadModel", GPT2, tiny_text.byte_pairs),
    "rewrite": ("T5ForConditionalGeneration", T5 | PREFIXES, tiny_text.pieces),
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a case, which tests must not change."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            kind, settings, tokenizer = CASES[name]
            cls = getattr(transformers, kind)
            model = cls(cls.config_class(vocab_size=tokenizer().vocab_size, **settings)).eval()
            _spread(model, seed=4)
            model.save_pretrained(made[name])
            tokenizer().save(made[name])
        return made[name]

    return make


@pytest.fixture(scope="module")
def story(checkpoint: Callable[[str], Path]) -> Any:
    """A text-generation pipeline."""
    return keras_pipeline(checkpoint("story"))


@pytest.fixture(scope="module")
def rewrite(checkpoint: Callable[[str], Path]) -> Any:
    """A text2text-generation pipeline."""
    return keras_pipeline(checkpoint("rewrite"))


def _spread(model: Any, seed: int) -> None:
    """Sets weights so large that answers differ clearly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = parameter.ndim == 1 and name.endswith("weight")
            # Small for weights that affect all tokens alike (biases, attention outputs), or answers would be similar.
            alike = parameter.ndim == 1 or "attention.output" in name or "c_proj" in name
            # Large in the cross-attention, where the input affects the output.
            spread = 0.05 if alike else 0.8 if "EncDecAttention" in name else 0.3
            parameter.copy_(is_scale + spread * torch.randn(parameter.shape, generator=generator))
