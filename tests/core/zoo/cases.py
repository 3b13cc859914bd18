"""The architectures under test: one case each, and one for each variant with a different computation.

A case contains the config.json of a tiny model, with unusual sizes and values other than the defaults. `transformers`
creates the model with random weights and saves it, and every test of this folder runs on it.
"""

from __future__ import annotations

from typing import Any

import torch

from kerasformer.tools.testing import Case

torch.set_num_threads(1)  # these models are too small for several threads

BERT = {
    "vocab_size": 97, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 41, "type_vocab_size": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3,
}  # fmt: skip
ROBERTA = {**BERT, "max_position_embeddings": 43, "type_vocab_size": 1, "hidden_act": "gelu", "layer_norm_eps": 1e-5}
DEBERTA = {
    **BERT, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": "c2p|p2c", "max_relative_positions": -1,
    "position_biased_input": False, "pooler_hidden_act": "gelu", "pooler_dropout": 0.13, "hidden_dropout_prob": 0.11,
    "attention_probs_dropout_prob": 0.12, "legacy": False,
}  # fmt: skip
DEBERTA_UNDECLARED = frozenset({"embedding_size", "cls_dropout"})
DEBERTA_V2 = {
    **BERT, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 6,
    "max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    "pooler_hidden_act": "gelu", "pooler_dropout": 0.13, "hidden_dropout_prob": 0.11, "legacy": False,
    "attention_probs_dropout_prob": 0.12,
}  # fmt: skip
DEBERTA_V2_UNDECLARED = DEBERTA_UNDECLARED | frozenset(
    "norm_rel_ebd position_buckets share_att_key conv_kernel_size conv_act".split()
)
MPNET = {
    "vocab_size": 97, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 43,
}  # fmt: skip
MODERNBERT = {
    "vocab_size": 97, "hidden_size": 36, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "sep_token_id": 2,
}  # fmt: skip
NOMIC_BERT = {
    "vocab_size": 97, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 3,
    "max_position_embeddings": 41, "type_vocab_size": 3,
}  # fmt: skip
EUROBERT = {
    "vocab_size": 97, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 6,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "mask_token_id": 3,
}  # fmt: skip
MODERNBERT_DECODER_DERIVED = frozenset({"global_attn_every_n_layers"})
XLM = {
    "vocab_size": 97, "emb_dim": 36, "n_layers": 3, "n_heads": 3, "max_position_embeddings": 41, "layer_norm_eps": 1e-3,
    "n_langs": 4, "dropout": 0.11, "attention_dropout": 0.12, "summary_first_dropout": 0.13, "init_std": 0.03,
}  # fmt: skip
GPT2 = {
    "vocab_size": 97, "n_positions": 64, "n_embd": 36, "n_layer": 3, "n_head": 3, "layer_norm_epsilon": 1e-3,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "resid_pdrop": 0.11, "attn_pdrop": 0.12, "embd_pdrop": 0.13,
}  # fmt: skip
T5 = {
    "vocab_size": 97, "d_model": 36, "d_kv": 7, "d_ff": 44, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "layer_norm_epsilon": 1e-3,
    "decoder_start_token_id": 0, "dropout_rate": 0.11, "classifier_dropout": 0.14,
}  # fmt: skip
BART = {
    "vocab_size": 97, "d_model": 36, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 44, "decoder_ffn_dim": 52, "max_position_embeddings": 53,
    "activation_function": "gelu_new", "dropout": 0.11, "attention_dropout": 0.12, "activation_dropout": 0.13,
    "classifier_dropout": 0.14, "scale_embedding": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 3, "forced_eos_token_id": 2,
}  # fmt: skip
MBART = {**BART, "decoder_start_token_id": None}
M2M_100 = {
    **{name: value for name, value in BART.items() if name not in ("classifier_dropout", "forced_eos_token_id")},
    "activation_function": "relu", "decoder_layers": 2,
}  # fmt: skip
MARIAN = {
    **{name: value for name, value in BART.items() if name != "classifier_dropout"}, "activation_function": "swish",
    "decoder_start_token_id": 0, "init_std": 0.03,
}  # fmt: skip
PEGASUS = {name: value for name, value in BART.items() if name not in ("bos_token_id", "classifier_dropout")}
BIGBIRD_PEGASUS = {
    **{name: value for name, value in BART.items() if name != "forced_eos_token_id"}, "max_position_embeddings": 64,
    "block_size": 4, "num_random_blocks": 1,
}  # fmt: skip
LED = {
    **{
        name: value
        for name, value in BART.items()
        if name not in ("forced_eos_token_id", "max_position_embeddings", "scale_embedding")
    },
    "max_encoder_position_embeddings": 53, "max_decoder_position_embeddings": 41, "attention_window": [4, 8],
}  # fmt: skip
T5_DERIVED = frozenset({"is_gated_act", "dense_act_fn", "scale_decoder_outputs", "num_decoder_layers"})
LLAMA = {
    "vocab_size": 97, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA_DERIVED = frozenset({"head_dim", "num_key_value_heads"})
# The norm of each head of a Gated DeltaNet amplifies rounding where its output is small; a large epsilon limits this.
QWEN35 = {
    **LLAMA, "num_hidden_layers": 4, "rms_norm_eps": 0.1, "head_dim": 16, "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 11, "linear_value_head_dim": 6, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "full_attention_interval": 3,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
        "mrope_section": [1, 1, 0],
    },
}  # fmt: skip
# Texts of the tests are longer than the window.
GEMMA3 = {
    "vocab_size": 97, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "sliding_window": 3,
    "query_pre_attn_scalar": 5, "eos_token_id": [1, 2],
}  # fmt: skip
GEMMA2 = {
    **GEMMA3, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0,
}  # fmt: skip
# As in Granite 4 H, all layers but a few have states, and attention knows no positions.
GRANITE4 = {
    **{key: value for key, value in LLAMA.items() if key != "intermediate_size"},
    "num_hidden_layers": 3, "num_local_experts": 0, "shared_intermediate_size": 44,
    "mamba_n_heads": 6, "mamba_d_state": 7, "mamba_n_groups": 2, "mamba_d_conv": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "tie_word_embeddings": True,
    "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.6, "logits_scaling": 2.5,
}  # fmt: skip
# The settings of Falcon-H1-0.5B-Instruct at small sizes.
FALCON_H1 = {
    **LLAMA, "num_hidden_layers": 2, "head_dim": 8, "tie_word_embeddings": False, "rope_theta": 1e11,
    "rope_scaling": None, "mamba_n_heads": 9, "mamba_d_ssm": 54, "mamba_d_head": 6, "mamba_d_state": 7,
    "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": False, "mamba_norm_before_gate": False,
    "attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9375, "embedding_multiplier": 5.656854249492381,
    "key_multiplier": 0.39062499999999994, "lm_head_multiplier": 0.0390625, "ssm_in_multiplier": 1.25,
    "ssm_out_multiplier": 0.23570226039551587, "mlp_multipliers": [0.8838834764831844, 0.5859375],
    "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
}  # fmt: skip
T5GEMMA = {
    "encoder": {**GEMMA2, "num_hidden_layers": 2, "hidden_activation": "gelu"},
    "decoder": {
        **GEMMA2, "hidden_activation": "gelu", "num_attention_heads": 4, "num_key_value_heads": 1,
        "intermediate_size": 52, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
    "vocab_size": 97, "dropout_rate": 0.11, "attention_dropout": 0.12, "classifier_dropout_rate": 0.13,
    "is_encoder_decoder": False,  # the class for generation sets it
}  # fmt: skip
T5GEMMA2_IMAGES = {
    "vision_config": {
        "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
        "patch_size": 8,
    },
    "mm_tokens_per_image": 1,
}  # fmt: skip
# Windows of one token before and two after a token of the encoder. With sharper attention, rounding alone changes the
# logits by up to 1e-5, since those of the decoder follow from the layers of both stacks.
T5GEMMA2_PART = {**GEMMA3, "query_pre_attn_scalar": 64, "sliding_window": 4}
T5GEMMA2 = {
    "encoder": {
        "text_config": {
            **T5GEMMA2_PART, "num_hidden_layers": 2, "hidden_activation": "gelu",
            "layer_types": ["sliding_attention", "full_attention"],
        },
        **T5GEMMA2_IMAGES,
    },
    "decoder": {
        **T5GEMMA2_PART, "hidden_activation": "gelu", "num_attention_heads": 4, "num_key_value_heads": 1,
        "intermediate_size": 52,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "vocab_size": 97, "dropout_rate": 0.11, "attention_dropout": 0.12, "classifier_dropout_rate": 0.13,
}  # fmt: skip
T5GEMMA2_SCALED = {
    **T5GEMMA2_PART, "num_attention_heads": 2, "head_dim": 10, "attention_bias": True, "hidden_activation": "silu",
    "final_logit_softcapping": 4.0, "initializer_range": 0.03, "bos_token_id": 3, "sliding_window": 5,
    "sliding_window_pattern": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}  # fmt: skip
T5GEMMA2_IMAGE_TENSORS = r"model\.encoder\.(vision_tower|multi_modal_projector)\..*|.*\.eoi_embedding"
# Settings that the classes of these models compute from others, or read and do not declare.
QWEN_DERIVED = frozenset({"head_dim", "layer_types", "num_key_value_heads", "sliding_window"})
SMOLLM3_DERIVED = QWEN_DERIVED | {"no_rope_layers"}
BLOOM = {
    "vocab_size": 97, "hidden_size": 42, "n_layer": 3, "n_head": 6, "layer_norm_epsilon": 1e-3, "pad_token_id": 0,
    "hidden_dropout": 0.11, "attention_dropout": 0.12, "initializer_range": 0.03,
}  # fmt: skip
OPT = {
    "vocab_size": 97, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 44,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OPENAI_GPT = {
    "vocab_size": 97, "n_positions": 64, "n_embd": 36, "n_layer": 3, "n_head": 3, "layer_norm_epsilon": 1e-3,
    "pad_token_id": 0, "resid_pdrop": 0.11, "attn_pdrop": 0.12, "embd_pdrop": 0.13,
}  # fmt: skip
GPT_BIGCODE = {**OPENAI_GPT, "bos_token_id": 1, "eos_token_id": 2}
CTRL = {
    **{name: size for name, size in OPENAI_GPT.items() if name != "attn_pdrop"}, "dff": 44, "initializer_range": 0.03,
    "layer_norm_epsilon": 0.1,  # large, so that the norm after the last layer shows it
}  # fmt: skip
XGLM = {
    "vocab_size": 97, "max_position_embeddings": 64, "d_model": 36, "ffn_dim": 44, "num_layers": 3,
    "attention_heads": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT_NEO = {
    "vocab_size": 97, "max_position_embeddings": 64, "hidden_size": 36, "num_layers": 4, "num_heads": 3,
    "attention_types": [[["global", "local"], 2]], "window_size": 4, "layer_norm_epsilon": 1e-3, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "resid_dropout": 0.11, "embed_dropout": 0.12, "attention_dropout": 0.13,
}  # fmt: skip
GPTJ = {
    "vocab_size": 97, "n_positions": 64, "n_embd": 36, "n_layer": 3, "n_head": 3, "rotary_dim": 4, "pad_token_id": 0,
    "layer_norm_epsilon": 1e-3, "bos_token_id": 1, "eos_token_id": 2,
    "resid_pdrop": 0.11, "attn_pdrop": 0.12, "embd_pdrop": 0.13,
}  # fmt: skip
GPT_NEOX = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 64, "layer_norm_eps": 1e-3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_dropout": 0.11, "attention_dropout": 0.12,
}  # fmt: skip
PHI = {
    "vocab_size": 97, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 64, "layer_norm_eps": 1e-3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "resid_pdrop": 0.11, "embd_pdrop": 0.12, "attention_dropout": 0.13,
}  # fmt: skip

PHI3 = {
    **LLAMA, "original_max_position_embeddings": 64, "resid_pdrop": 0.11, "embd_pdrop": 0.12,
}  # fmt: skip
COHERE = {
    **{name: value for name, value in LLAMA.items() if name not in ("num_key_value_heads", "rms_norm_eps")},
    "layer_norm_eps": 1e-3, "logit_scale": 0.3,
}  # fmt: skip
MPT = {
    "vocab_size": 97, "d_model": 48, "n_layers": 3, "n_heads": 4, "max_seq_len": 64, "layer_norm_epsilon": 1e-3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FALCON = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "pad_token_id": 0,
    "max_position_embeddings": 64, "layer_norm_epsilon": 1e-3, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LFM2 = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 3,
    "max_position_embeddings": 64, "norm_eps": 1e-3, "block_multiple_of": 8,
}  # fmt: skip
ELECTRA = {**BERT, "embedding_size": 13, "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12}
MOBILEBERT = {
    **BERT, "embedding_size": 13, "intra_bottleneck_size": 21, "num_feedforward_networks": 3, "hidden_act": "relu",
    "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12,
}  # fmt: skip


def of(model_type: str, settings: dict[str, Any], **options: Any) -> Case:
    """Returns the case that has the name of its architecture."""
    return Case(model_type, model_type, settings, **options)


CASES = (
    of(
        "bert",
        {
            **BERT, "problem_type": "multi_label_classification", "hidden_dropout_prob": 0.11,
            "attention_probs_dropout_prob": 0.12, "classifier_dropout": 0.13,
        },
        on_jax=True,
    ),
    of(
        "distilbert",
        {
            "vocab_size": 97, "dim": 36, "n_layers": 3, "n_heads": 3, "hidden_dim": 44, "activation": "relu",
            "max_position_embeddings": 41, "sinusoidal_pos_embds": True, "dropout": 0.11, "attention_dropout": 0.12,
            "seq_classif_dropout": 0.13, "qa_dropout": 0.14,
        },  # fmt: skip
    ),
    of(
        "albert",
        {
            **BERT, "embedding_size": 13, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2,
            "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12, "classifier_dropout_prob": 0.13,
        },
        std=0.15,
    ),
    Case("albert-wide", "albert", {**BERT, "embedding_size": 36, "hidden_act": "gelu"}, only=("fill-mask",)),
    of("electra", {**ELECTRA, "classifier_dropout": 0.13}),
    Case(
        "electra-base",
        "electra",
        {**ELECTRA, "embedding_size": 36, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"},
    ),
    Case(
        "electra-relu",
        "electra",
        {**ELECTRA, "embedding_size": 52, "hidden_act": "relu", "type_vocab_size": 1, "pad_token_id": 0},
        only=("fill-mask", "replaced-token-detection", "text-classification"),
    ),
    # The settings of google/mobilebert-uncased at small sizes; then all switches the other way.
    of(
        "mobilebert",
        {**MOBILEBERT, "classifier_activation": False, "layer_norm_eps": 1e-12, "classifier_dropout": 0.13},
        std=0.15,  # nothing normalizes the hidden states
        zero_padding=True,
        on_jax=True,
    ),
    Case(
        "mobilebert-layer-norm",
        "mobilebert",
        {
            **MOBILEBERT, "normalization_type": "layer_norm", "trigram_input": False, "use_bottleneck_attention": True,
            "key_query_shared_bottleneck": False, "num_feedforward_networks": 1, "hidden_act": "gelu",
        },
    ),
    Case(
        "mobilebert-wide",
        "mobilebert",
        {**MOBILEBERT, "use_bottleneck": False, "normalization_type": "layer_norm", "embedding_size": 36},
        only=("feature-extraction", "text-classification"),
        zero_padding=True,
    ),
    Case(
        "mobilebert-unshared",
        "mobilebert",
        {
            **MOBILEBERT, "key_query_shared_bottleneck": False, "intra_bottleneck_size": 36, "embedding_size": 40,
            "type_vocab_size": 1,
        },
        only=("feature-extraction", "next-sentence-prediction"),
        std=0.15,
        zero_padding=True,
    ),
    of(
        "big_bird",
        {
            **BERT, "max_position_embeddings": 64, "type_vocab_size": 2, "sep_token_id": 2, "block_size": 4,
            "num_random_blocks": 1, "hidden_dropout_prob": 0.11, "classifier_dropout": 0.13,
        },
        separator=2,
        on_jax=True,
    ),
    Case(
        "big_bird-odd",
        "big_bird",
        {
            **BERT, "max_position_embeddings": 42, "block_size": 3, "num_random_blocks": 2, "hidden_act": "relu",
            "use_bias": False, "rescale_embeddings": True, "sep_token_id": 5, "attention_probs_dropout_prob": 0.12,
        },
        separator=5,
    ),
    Case(
        "big_bird-full",
        "big_bird",
        {**BERT, "attention_type": "original_full", "type_vocab_size": 2, "sep_token_id": 6, "hidden_act": "gelu"},
        only=("feature-extraction", "text-classification", "question-answering"),
        separator=6,
    ),
    of(
        "longformer",
        {
            **BERT, "max_position_embeddings": 43, "attention_window": [4, 8, 4], "hidden_dropout_prob": 0.11,
            "attention_probs_dropout_prob": 0.12,
        },
        std=0.2,
        separator=2,
        banded=True,
        derived=frozenset({"max_global_tokens"}),
    ),
    Case(
        "longformer-one-window",
        "longformer",
        {
            **BERT, "num_hidden_layers": 2, "attention_window": 4, "type_vocab_size": 1, "pad_token_id": 0,
            "sep_token_id": 5, "hidden_act": "relu",
        },
        only=("fill-mask", "question-answering"),
        std=0.2,
        separator=5,
        banded=True,
    ),
    # The settings of roberta-base at small sizes; then unusual sizes, with padding that has positions of its own.
    of("roberta", ROBERTA),
    Case(
        "roberta-odd",
        "roberta",
        {
            **BERT, "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 3, "eos_token_id": 4,
            "problem_type": "multi_label_classification", "hidden_dropout_prob": 0.11, "classifier_dropout": 0.13,
            "attention_probs_dropout_prob": 0.12, "initializer_range": 0.03,
        },
    ),
    # The activation of the head is always GELU.
    Case(
        "roberta-relu",
        "roberta",
        {**ROBERTA, "hidden_act": "relu", "pad_token_id": 5, "type_vocab_size": 3, "layer_norm_eps": 1e-12},
        only=("fill-mask", "feature-extraction"),
    ),
    of(
        "camembert",
        {**ROBERTA, "bos_token_id": 5, "eos_token_id": 6},
        only=("feature-extraction", "fill-mask", "text-classification"),
    ),
    of(
        "xlm-roberta",
        {**ROBERTA, "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 87},
        only=("feature-extraction", "fill-mask", "text-classification"),
    ),
    of("deberta", DEBERTA, derived=DEBERTA_UNDECLARED),
    Case(
        "deberta-near",
        "deberta",
        {
            **DEBERTA, "num_attention_heads": 4, "max_relative_positions": 5, "pos_att_type": ["c2p"], "legacy": True,
            "position_biased_input": True, "type_vocab_size": 3, "embedding_size": 13, "pooler_hidden_act": "tanh",
            "cls_dropout": 0.14,
        },
    ),
    # The scale of the scores counts every name, also one that adds nothing.
    Case(
        "deberta-p2c",
        "deberta",
        {**DEBERTA, "pos_att_type": " p2c | p2p", "embedding_size": 36},
        only=("feature-extraction",),
    ),
    Case(
        "deberta-absolute",
        "deberta",
        {**DEBERTA, "relative_attention": False, "position_biased_input": True},
        only=("text-classification",),
    ),
    Case("deberta-v3", "deberta-v2", DEBERTA_V2, derived=DEBERTA_V2_UNDECLARED),
    of(
        "deberta-v2",
        {
            **DEBERTA_V2, "position_buckets": -1, "max_relative_positions": 5, "share_att_key": False, "legacy": True,
            "pos_att_type": "c2p", "norm_rel_ebd": "none", "position_biased_input": True, "type_vocab_size": 3,
            "embedding_size": 13, "conv_kernel_size": 5, "conv_act": "gelu", "pooler_hidden_act": "tanh",
            "cls_dropout": 0.14,
        },
    ),
    Case(
        "deberta-v2-p2c",
        "deberta-v2",
        {**DEBERTA_V2, "pos_att_type": ["p2c"], "share_att_key": False, "embedding_size": 36},
        only=("feature-extraction",),
    ),
    Case(
        "deberta-v2-absolute",
        "deberta-v2",
        {**DEBERTA_V2, "relative_attention": False, "norm_rel_ebd": "none", "position_biased_input": True},
        only=("text-classification",),
    ),
    # The settings of mpnet-base at small sizes; then a table with rows that the reference does not use.
    of("mpnet", {**MPNET, "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12}),
    Case(
        "mpnet-odd",
        "mpnet",
        {
            **MPNET, "hidden_size": 35, "num_attention_heads": 5, "relative_attention_num_buckets": 37,
            "layer_norm_eps": 1e-3, "initializer_range": 0.03, "problem_type": "multi_label_classification",
        },
        only=("feature-extraction", "token-classification"),
    ),
    # The activation of the head is always GELU.
    Case(
        "mpnet-relu",
        "mpnet",
        {**MPNET, "hidden_act": "relu", "max_position_embeddings": 203},
        only=("fill-mask", "feature-extraction"),
    ),
    # The settings of ModernBERT-base at small sizes; then every switch the other way; then older files.
    of("modernbert", MODERNBERT, std=0.2, derived=frozenset({"global_attn_every_n_layers"})),
    Case(
        "modernbert-biased",
        "modernbert",
        {
            **MODERNBERT, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "decoder_bias": False,
            "classifier_bias": True, "classifier_pooling": "mean", "hidden_activation": "silu", "local_attention": 5,
            "classifier_activation": "relu", "embedding_dropout": 0.11, "attention_dropout": 0.12, "mlp_dropout": 0.13,
            "classifier_dropout": 0.14, "norm_eps": 1e-3, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
                },
                "sliding_attention": {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0},
            },
        },
        std=0.2,
    ),
    Case(
        "modernbert-odd",
        "modernbert",
        {
            **MODERNBERT, "vocab_size": 89, "hidden_size": 30, "num_attention_heads": 5, "num_hidden_layers": 5,
            "global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 300.0, "norm_bias": True,
            "local_attention": 4, "initializer_range": 0.03,
        },
        only=("fill-mask", "question-answering"),
        std=0.2,
    ),
    # The settings of EuroBERT-210m at small sizes; then those of the larger models, and every switch the other way.
    of("eurobert", EUROBERT, derived=LLAMA_DERIVED),
    Case(
        "eurobert-biased",
        "eurobert",
        {
            **EUROBERT, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu",
            "classifier_pooling": "mean", "attention_dropout": 0.11, "tie_word_embeddings": True, "head_dim": 8,
            "initializer_range": 0.03,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
    ),
    Case(
        "eurobert-odd",
        "eurobert",
        {
            **EUROBERT, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "num_hidden_layers": 2,
            "classifier_pooling": "bos", "tie_word_embeddings": False,
        },
        only=("fill-mask", "text-classification"),
    ),
    # The settings of nomic-embed-text-v1.5 at small sizes; then scaling, and heads of another size.
    of("nomic_bert", NOMIC_BERT, std=0.2, derived=frozenset({"head_dim"})),
    Case(
        "nomic_bert-odd",
        "nomic_bert",
        {
            **NOMIC_BERT, "hidden_size": 30, "num_attention_heads": 5, "head_dim": 8, "type_vocab_size": 1,
            "hidden_act": "gelu_new", "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12,
            "classifier_dropout": 0.13, "layer_norm_eps": 1e-3, "initializer_range": 0.03, "pad_token_id": 4,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
        only=("fill-mask", "text-classification"),
        std=0.2,
    ),
    # The settings of gte-multilingual-base at small sizes; then those of gte-base-en-v1.5, which has no segments.
    of("gte", {**BERT, "hidden_act": "gelu", "type_vocab_size": 1, "layer_norm_eps": 1e-12}),
    Case(
        "gte-odd",
        "gte",
        {
            **BERT, "type_vocab_size": 0, "hidden_size": 30, "num_attention_heads": 5, "pad_token_id": 4,
            "hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.12, "classifier_dropout": 0.13,
            "tie_word_embeddings": False, "initializer_range": 0.03,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
    ),
    # The settings of Ettin decoders at small sizes; then every switch the other way.
    of("modernbert-decoder", MODERNBERT, std=0.2, derived=MODERNBERT_DECODER_DERIVED),
    Case(
        "modernbert-decoder-biased",
        "modernbert-decoder",
        {
            **{name: value for name, value in MODERNBERT.items() if name != "sep_token_id"}, "hidden_size": 30,
            "num_attention_heads": 5, "norm_bias": True, "attention_bias": True, "mlp_bias": True,
            "decoder_bias": False, "classifier_bias": True, "hidden_activation": "silu", "local_attention": 7,
            "classifier_activation": "relu", "embedding_dropout": 0.11, "attention_dropout": 0.12, "mlp_dropout": 0.13,
            "classifier_dropout": 0.14, "norm_eps": 1e-3, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
                },
                "sliding_attention": {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0},
            },
        },
        std=0.2,
    ),
    of("xlm", XLM),
    Case(
        "xlm-causal",
        "xlm",
        {
            **XLM, "causal": True, "sinusoidal_embeddings": True, "gelu_activation": False, "use_lang_emb": False,
            "n_heads": 4, "n_layers": 2, "summary_activation": "tanh",
        },
    ),
    Case("xlm-monolingual", "xlm", {**XLM, "n_langs": 1, "n_heads": 6, "emb_dim": 42}, only=("fill-mask",)),
    of("gpt2", GPT2, on_jax=True),
    Case(
        "gpt2-scaled",
        "gpt2",
        {**GPT2, "n_inner": 50, "activation_function": "relu", "scale_attn_by_inverse_layer_idx": True},
        only=("text-generation",),
    ),
    Case(
        "gpt2-unscaled",
        "gpt2",
        {
            **GPT2, "scale_attn_weights": False, "reorder_and_upcast_attn": True, "activation_function": "silu",
            "tie_word_embeddings": False,
        },
        only=("text-generation",),
        std=0.2,
    ),
    # The settings of TinyLlama, SmolLM2 and Llama 3.2 at small sizes; then all settings that none of them uses.
    of("llama", LLAMA, derived=LLAMA_DERIVED, on_jax=True),
    Case(
        "llama-smollm2",
        "llama",
        {
            **LLAMA, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        },
        only=("text-generation",),
    ),
    Case(
        "llama-3.2",
        "llama",
        {
            **LLAMA, "head_dim": 8, "tie_word_embeddings": True, "eos_token_id": [2, 3],
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
        only=("text-generation",),
    ),
    Case(
        "llama-biased",
        "llama",
        {
            **LLAMA, "head_dim": 10, "num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True,
            "hidden_act": "gelu_new", "attention_dropout": 0.11, "initializer_range": 0.03,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
        only=("text-generation",),
    ),
    # The settings of the models of 270 million parameters, of 1 billion, and then settings that neither of them uses.
    Case(
        "gemma3",
        "gemma3_text",
        {**GEMMA3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        derived=frozenset({"sliding_window_pattern"}),
        on_jax=True,
    ),
    Case(
        "gemma3-1b",
        "gemma3_text",
        {**GEMMA3, "sliding_window_pattern": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12},
        only=("feature-extraction",),
    ),
    Case(
        "gemma3-scaled",
        "gemma3_text",
        {
            **GEMMA3, "head_dim": 10, "num_attention_heads": 2, "attention_bias": True, "attention_dropout": 0.11,
            "hidden_activation": "silu", "final_logit_softcapping": 4.0, "tie_word_embeddings": False,
            "initializer_range": 0.03, "layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        only=("text-generation",),
        std=0.2,
    ),
    # EmbeddingGemma: windows of two tokens on each side, then of one, which the odd size halves to.
    Case(
        "embeddinggemma",
        "gemma3_text",
        {
            **GEMMA3, "use_bidirectional_attention": True, "num_attention_heads": 3, "num_key_value_heads": 1,
            "sliding_window": 4, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        only=("feature-extraction", "text-classification"),
        derived=frozenset({"sliding_window_pattern"}),
    ),
    Case(
        "embeddinggemma-odd",
        "gemma3_text",
        {**GEMMA3, "use_bidirectional_attention": True, "sliding_window": 3, "sliding_window_pattern": 2},
        only=("feature-extraction",),
    ),
    # At the default std, the attention weights of the reference differ by more than 1e-5 from those in float64.
    of("gemma2", GEMMA2, std=0.2),
    Case(
        "gemma2-uncapped",
        "gemma2",
        {
            **GEMMA2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10, "attention_bias": True,
            "attn_logit_softcapping": None, "final_logit_softcapping": None, "hidden_activation": "silu",
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "attention_dropout": 0.11,
            "tie_word_embeddings": False, "initializer_range": 0.03,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
        only=("text-generation",),
        std=0.2,
    ),
    # Windows are shorter than the texts, so that each example has tokens outside of them.
    of("mistral", {**LLAMA, "sliding_window": 4}, derived=LLAMA_DERIVED),
    Case(
        "mistral-no-window",
        "mistral",
        {
            **LLAMA, "sliding_window": None, "head_dim": 10, "num_key_value_heads": 3, "tie_word_embeddings": True,
            "hidden_act": "gelu_new", "attention_dropout": 0.11, "initializer_range": 0.03,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        only=("text-generation",),
    ),
    Case(
        "mistral-odd",
        "mistral",
        {
            **LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 5, "sliding_window": 3,
            "num_hidden_layers": 2, "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
        only=("text-generation",),
        derived=LLAMA_DERIVED,
    ),
    # The settings of Qwen2.5 at small sizes; windows in the last layers; then given types of layers.
    of("qwen2", {**LLAMA, "tie_word_embeddings": True}, derived=QWEN_DERIVED),
    Case(
        "qwen2-windows",
        "qwen2",
        {
            **LLAMA, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_key_value_heads": 3,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
        only=("text-generation",),
        derived=QWEN_DERIVED,
    ),
    Case(
        "qwen2-layer-types",
        "qwen2",
        {
            **LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8,
            "use_sliding_window": True, "sliding_window": 3, "hidden_act": "gelu_new", "attention_dropout": 0.11,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "initializer_range": 0.03,
        },
        only=("text-generation",),
        derived=QWEN_DERIVED,
    ),
    of(
        "qwen3",
        {**LLAMA, "head_dim": 10, "tie_word_embeddings": True},
        derived=QWEN_DERIVED,
    ),
    Case(
        "qwen3-windows",
        "qwen3",
        {
            **LLAMA, "head_dim": 8, "num_key_value_heads": 6, "use_sliding_window": True, "sliding_window": 4,
            "max_window_layers": 2, "attention_bias": True, "hidden_act": "gelu_new", "attention_dropout": 0.11,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 4.0},
        },
        only=("text-generation",),
    ),
    Case(
        "qwen3-odd",
        "qwen3",
        {
            **LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 4,
            "use_sliding_window": True, "sliding_window": 3, "layer_types": ["sliding_attention"] * 3,
            "initializer_range": 0.03, "rms_norm_eps": 1e-6,
        },
        only=("text-generation",),
    ),
    # The settings of SmolLM3 at small sizes; then windows in the layers without positions; then given layers.
    of(
        "smollm3",
        {**LLAMA, "num_hidden_layers": 4, "eos_token_id": [2, 3]},
        derived=SMOLLM3_DERIVED,
    ),
    Case(
        "smollm3-windows",
        "smollm3",
        {
            **LLAMA, "use_sliding_window": True, "sliding_window": 4, "no_rope_layer_interval": 2,
            "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 6,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
        only=("text-generation",),
        derived=SMOLLM3_DERIVED,
    ),
    Case(
        "smollm3-layers",
        "smollm3",
        {
            **LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8,
            "use_sliding_window": True, "sliding_window": 3, "no_rope_layers": [0, 1, 1, 0], "hidden_act": "gelu_new",
            "layer_types": ["full_attention", "sliding_attention", "full_attention"], "attention_dropout": 0.11,
            "initializer_range": 0.03,
        },
        only=("text-generation",),
    ),
    of("bloom", BLOOM, on_jax=True),
    Case("bloom-untied", "bloom", {**BLOOM, "tie_word_embeddings": False}, only=("text-generation",)),
    # The settings of opt-125m at small sizes; then those of opt-350m; then every switch the other way.
    of("opt", {**OPT, "dropout": 0.11, "attention_dropout": 0.12, "init_std": 0.03}),
    Case("opt-projected", "opt", {**OPT, "word_embed_proj_dim": 20, "do_layer_norm_before": False}),
    Case(
        "opt-unbiased",
        "opt",
        {
            **OPT, "hidden_size": 35, "num_attention_heads": 5, "word_embed_proj_dim": 41, "enable_bias": False,
            "_remove_final_layer_norm": True, "activation_function": "gelu", "tie_word_embeddings": False,
        },
        only=("text-generation", "text-classification", "question-answering"),
    ),
    Case("opt-plain-norms", "opt", {**OPT, "layer_norm_elementwise_affine": False}, only=("text-generation",)),
    of("openai-gpt", OPENAI_GPT),
    Case(
        "openai-gpt-swish",
        "openai-gpt",
        {**OPENAI_GPT, "n_embd": 35, "n_head": 5, "afn": "swish", "tie_word_embeddings": False},
        only=("text-generation",),
    ),
    Case("openai-gpt-relu", "openai-gpt", {**OPENAI_GPT, "n_head": 4, "afn": "relu"}, only=("text-generation",)),
    of("gpt_bigcode", GPT_BIGCODE),
    Case(
        "gpt_bigcode-heads",
        "gpt_bigcode",
        {
            **GPT_BIGCODE, "multi_query": False, "n_embd": 35, "n_head": 5, "n_inner": 50,
            "activation_function": "relu", "attention_softmax_in_fp32": False, "scale_attention_softmax_in_fp32": False,
        },
        only=("text-generation", "text-classification"),
    ),
    Case(
        "gpt_bigcode-unscaled",
        "gpt_bigcode",
        {**GPT_BIGCODE, "n_head": 6, "scale_attn_weights": False, "tie_word_embeddings": False},
        only=("text-generation",),
        std=0.2,
    ),
    of("ctrl", CTRL),
    Case(
        "ctrl-kernel",
        "ctrl",
        {**CTRL, "n_embd": 30, "n_head": 5, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-6},
    ),
    of("xglm", {**XGLM, "dropout": 0.11, "attention_dropout": 0.12, "activation_dropout": 0.13}),
    Case(
        "xglm-unscaled",
        "xglm",
        {
            **XGLM, "scale_embedding": False, "activation_function": "relu", "tie_word_embeddings": False,
            "d_model": 30, "attention_heads": 5, "init_std": 0.03,
        },
        only=("text-generation",),
    ),
    # The position with the number of the padding token has no vector.
    Case("xglm-padded", "xglm", {**XGLM, "pad_token_id": 4, "num_layers": 2}, only=("feature-extraction",)),
    # The settings of gpt-neo-125m at small sizes; then odd sizes and a longer list of types; then all other switches.
    of("gpt_neo", GPT_NEO, std=0.2, derived=frozenset({"attention_layers"}), on_jax=True),
    Case(
        "gpt_neo-odd",
        "gpt_neo",
        {
            **GPT_NEO, "hidden_size": 35, "num_heads": 5, "num_layers": 5, "intermediate_size": 50, "window_size": 3,
            "attention_types": [[["local", "global"], 1], [["local"], 3]], "classifier_dropout": 0.14,
        },
        std=0.2,
    ),
    Case(
        "gpt_neo-global",
        "gpt_neo",
        {
            **GPT_NEO, "attention_types": [[["global"], 4]], "activation_function": "relu", "initializer_range": 0.03,
            "tie_word_embeddings": False,
        },
        only=("text-generation",),
        std=0.2,
    ),
    of("gptj", GPTJ),
    Case("gptj-odd", "gptj", {**GPTJ, "n_embd": 35, "n_head": 5, "rotary_dim": 6, "n_inner": 50}),
    Case(
        "gptj-tied",
        "gptj",
        {
            **GPTJ, "rotary_dim": 12, "activation_function": "relu", "initializer_range": 0.03,
            "tie_word_embeddings": True,
        },
        only=("text-generation",),
    ),
    # The settings of Pythia at small sizes; then odd sizes and layers in sequence; then scaling, and a tied output.
    of("gpt_neox", GPT_NEOX),
    Case(
        "gpt_neox-sequential",
        "gpt_neox",
        {
            **GPT_NEOX, "hidden_size": 35, "num_attention_heads": 5, "use_parallel_residual": False,
            "hidden_act": "relu", "attention_bias": False, "classifier_dropout": 0.13,
            "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.6},
        },
    ),
    Case(
        "gpt_neox-scaled",
        "gpt_neox",
        {
            **GPT_NEOX, "initializer_range": 0.03, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
                "partial_rotary_factor": 0.5,
            },
        },
        only=("text-generation",),
    ),
    # The settings of phi-2 at small sizes; then odd sizes and grouped heads; then whole heads with scaling.
    of(
        "phi",
        {**PHI, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4}},
        derived=frozenset({"num_key_value_heads"}),
        on_jax=True,
    ),
    Case(
        "phi-normed",
        "phi",
        {
            **PHI, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "qk_layernorm": True,
            "hidden_act": "silu",
        },
    ),
    Case(
        "phi-scaled",
        "phi",
        {
            **PHI, "initializer_range": 0.03, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "linear", "rope_theta": 300.0, "factor": 4.0, "partial_rotary_factor": 1.0,
            },
        },
        only=("text-generation",),
        std=0.25,
    ),
    # The settings of Phi-3-mini at small sizes, with a window; then those of Phi-4-mini.
    of("phi3", {**PHI3, "sliding_window": 4}, derived=frozenset({"num_key_value_heads"})),
    Case(
        "phi3-longrope",
        "phi3",
        {
            **PHI3, "hidden_size": 48, "num_key_value_heads": 3, "tie_word_embeddings": True, "hidden_act": "gelu_new",
            "original_max_position_embeddings": 32, "attention_dropout": 0.13, "initializer_range": 0.03,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 300.0, "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 3.0, 9.0],
            },
        },
        only=("text-generation",),
    ),
    # The settings of Command R at small sizes; then those of Command R+, with scaling and an output of its own.
    of("cohere", COHERE, derived=frozenset({"num_key_value_heads"})),
    Case(
        "cohere-normed",
        "cohere",
        {
            **COHERE, "hidden_size": 48, "num_key_value_heads": 3, "use_qk_norm": True, "tie_word_embeddings": False,
            "attention_bias": True, "hidden_act": "gelu_new", "attention_dropout": 0.11, "initializer_range": 0.03,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
        only=("text-generation",),
    ),
    # The settings of MPT-7B at small sizes; then a number of heads that is no power of two.
    of("mpt", MPT),
    Case(
        "mpt-odd",
        "mpt",
        {
            **MPT, "n_heads": 6, "layer_norm_epsilon": 1e-5, "initializer_range": 0.03, "tie_word_embeddings": False,
            "attn_config": {"softmax_scale": 0.3},
        },
        only=("text-generation",),
    ),
    # The settings of Falcon 7B at small sizes; then those of 40B, of 11B, and layers in sequence.
    of("falcon", FALCON, derived=frozenset({"num_kv_heads", "ffn_hidden_size"})),
    Case(
        "falcon-new",
        "falcon",
        {
            **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 50,
            "hidden_dropout": 0.11, "attention_dropout": 0.12, "initializer_range": 0.03,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
    ),
    Case(
        "falcon-one-norm",
        "falcon",
        {
            **FALCON, "new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False, "activation": "relu",
        },
        only=("text-generation",),
    ),
    Case(
        "falcon-sequential",
        "falcon",
        {**FALCON, "parallel_attn": False, "multi_query": False, "bias": True, "hidden_size": 36},
        only=("text-generation",),
    ),
    # The settings of Granite 3 at small sizes; then every switch the other way.
    of(
        "granite",
        {
            **LLAMA, "tie_word_embeddings": True, "embedding_multiplier": 3.0, "attention_multiplier": 0.3,
            "residual_multiplier": 0.6, "logits_scaling": 2.5,
        },
        derived=frozenset({"num_key_value_heads"}),
    ),
    Case(
        "granite-biased",
        "granite",
        {
            **LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "attention_bias": True,
            "mlp_bias": True, "hidden_act": "gelu_new", "attention_dropout": 0.11, "initializer_range": 0.03,
            "attention_multiplier": 0.5, "residual_multiplier": 0.22,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
        only=("text-generation",),
    ),
    # The settings of LFM2-350M at small sizes, in the keys of its file; then those that newer files can have.
    of(
        "lfm2",
        {**LFM2, "block_ff_dim": 100, "full_attn_idxs": [2], "tie_embedding": True},
        derived=frozenset({"full_attn_idxs", "layer_types"}),
    ),
    Case(
        "lfm2-layers",
        "lfm2",
        {
            **LFM2, "num_key_value_heads": 6, "intermediate_size": 60, "block_ffn_dim_multiplier": 1.1,
            "conv_L_cache": 4, "layer_types": ["full_attention", "conv", "conv", "full_attention"],
            "initializer_range": 0.03, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0},
        },
        only=("text-generation",),
    ),
    Case(
        "lfm2-untied",
        "lfm2",
        {
            **LFM2, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "num_hidden_layers": 2,
            "intermediate_size": 44, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False,
            "layer_types": ["conv", "full_attention"],
        },
        only=("text-generation",),
    ),
    of("qwen3_5_text", QWEN35, derived=frozenset({"full_attention_interval"})),
    Case(
        "qwen3_5_text-layers",
        "qwen3_5_text",
        {
            **QWEN35, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "attention_bias": True,
            "linear_num_value_heads": 3, "linear_num_key_heads": 3, "linear_key_head_dim": 4,
            "linear_value_head_dim": 7, "linear_conv_kernel_dim": 2, "tie_word_embeddings": True,
            "layer_types": ["full_attention", "linear_attention", "full_attention"], "initializer_range": 0.03,
            "attention_dropout": 0.11, "num_hidden_layers": 3,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0,
                                "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]},
        },
        only=("text-generation",),
    ),
    of("granitemoehybrid", GRANITE4, derived=frozenset({"num_key_value_heads", "mamba_d_head", "num_local_experts"})),
    Case(
        "granitemoehybrid-dense",
        "granitemoehybrid",
        {
            **GRANITE4, "layer_types": ["full_attention"] * 3, "position_embedding_type": "rope",
            "attention_bias": True, "attention_dropout": 0.11, "tie_word_embeddings": False,
        },
        only=("text-generation",),
    ),
    Case(
        "granitemoehybrid-states",
        "granitemoehybrid",
        {
            **GRANITE4, "layer_types": ["full_attention", "mamba", "mamba"], "mamba_n_heads": 4, "mamba_d_head": 27,
            "mamba_expand": 3, "mamba_n_groups": 1, "mamba_conv_bias": False, "hidden_act": "gelu_new",
            "initializer_range": 0.03,
        },
        only=("text-generation",),
    ),
    of("falcon_h1", FALCON_H1, derived=frozenset({"num_key_value_heads"})),
    # Every switch the other way: groups and a norm of Mamba-2, biases, tied tables, a factor of the attention's input.
    Case(
        "falcon_h1-norm",
        "falcon_h1",
        {
            **{key: value for key, value in FALCON_H1.items() if key != "head_dim"}, "mamba_rms_norm": True,
            "mamba_d_ssm": None, "mamba_expand": 3, "mamba_n_heads": 4, "mamba_d_head": "auto", "mamba_n_groups": 2,
            "mamba_d_conv": 3, "mamba_conv_bias": False, "attention_bias": True, "mlp_bias": True,
            "tie_word_embeddings": True, "attention_in_multiplier": 0.7, "hidden_act": "gelu_new",
            "initializer_range": 0.03, "num_key_value_heads": 6, "attention_dropout": 0.11,
        },
        only=("text-generation",),
    ),
    of("t5", T5, std=0.2, derived=T5_DERIVED, end_token=1, on_jax=True),
    of("bart", BART, std=0.15, end_token=2, on_jax=True),
    Case(
        "bart-plain",
        "bart",
        {**BART, "scale_embedding": False, "activation_function": "relu", "tie_word_embeddings": False},
        only=("text2text-generation",),
        std=0.2,
    ),
    Case(
        "bert2bert",
        "encoder-decoder",
        {
            "encoder": {**BERT, "model_type": "bert", "num_hidden_layers": 2},
            "decoder": {
                **BERT, "model_type": "bert", "is_decoder": True, "add_cross_attention": True, "type_vocab_size": 2,
                "num_attention_heads": 4, "intermediate_size": 52,
            },
            "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1,
        },
        std=0.15,
    ),
    of("mbart", MBART, std=0.15, end_token=2),
    Case(
        "mbart-plain",
        "mbart",
        {
            **MBART, "scale_embedding": False, "activation_function": "relu", "tie_word_embeddings": False,
            "decoder_start_token_id": 4, "forced_eos_token_id": None,
        },
        only=("text2text-generation",),
        std=0.2,
    ),
    of("m2m_100", M2M_100, std=0.15),
    Case(
        "m2m_100-unscaled",
        "m2m_100",
        {
            **M2M_100, "scale_embedding": False, "activation_function": "gelu", "tie_word_embeddings": False,
            "decoder_start_token_id": 5, "decoder_layers": 3,
        },
        std=0.2,
    ),
    # The settings of OPUS-MT at small sizes; then two vocabularies; then all other switches.
    of("marian", MARIAN, std=0.2),
    Case(
        "marian-vocabularies",
        "marian",
        {
            **MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 113, "d_model": 30,
            "encoder_attention_heads": 5, "decoder_attention_heads": 3, "activation_function": "relu",
        },
        only=("text2text-generation",),
        std=0.2,
    ),
    Case(
        "marian-untied",
        "marian",
        {
            **MARIAN, "tie_word_embeddings": False, "scale_embedding": False, "activation_function": "gelu",
            "decoder_start_token_id": 5, "max_position_embeddings": 50,
        },
        only=("text2text-generation",),
        std=0.2,
    ),
    Case(
        "t5-gated",
        "t5",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        only=("text2text-generation", "feature-extraction"),
        std=0.2,
        derived=T5_DERIVED,
    ),
    of("mt5", T5, std=0.2, derived=T5_DERIVED, end_token=1),
    Case(
        "mt5-relu",
        "mt5",
        {**T5, "feed_forward_proj": "relu", "d_kv": 16, "num_decoder_layers": 1, "tie_word_embeddings": False},
        only=("text2text-generation",),
        std=0.2,
        derived=T5_DERIVED,
    ),
    of("umt5", T5, std=0.15, derived=T5_DERIVED, end_token=1),
    Case(
        "umt5-relu",
        "umt5",
        {**T5, "feed_forward_proj": "relu", "d_kv": 16, "num_layers": 3, "num_decoder_layers": 1},
        only=("text2text-generation",),
        std=0.2,
        derived=T5_DERIVED,
    ),
    Case(
        "umt5-silu",
        "umt5",
        {
            **T5, "feed_forward_proj": "gated-silu", "num_heads": 5, "relative_attention_num_buckets": 10,
            "relative_attention_max_distance": 20, "eos_token_id": [1, 5], "initializer_factor": 0.5,
        },
        only=("text2text-generation",),
        std=0.2,
        derived=T5_DERIVED,
    ),
    of("t5gemma", T5GEMMA, std=0.15),
    Case(
        "t5gemma-uncapped",
        "t5gemma",
        {
            **{
                stack: {
                    **{name: size for name, size in GEMMA2.items() if not name.endswith("softcapping")},
                    "attn_logit_softcapping": None, "final_logit_softcapping": None, "num_hidden_layers": layers,
                    "head_dim": 10, "num_attention_heads": 2, "attention_bias": True, "hidden_activation": "silu",
                    "sliding_window": 4, "initializer_range": 0.03, "bos_token_id": 3,
                    "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 8.0},
                }
                for stack, layers in (("encoder", 3), ("decoder", 1))
            },
            "vocab_size": 97, "eos_token_id": [1, 2],
            "tie_word_embeddings": False,
        },
        only=("text2text-generation",),
        std=0.2,
    ),
    of("t5gemma2", T5GEMMA2, std=0.2, derived=frozenset({"images"}), left_out=T5GEMMA2_IMAGE_TENSORS),
    Case(
        "t5gemma2-scaled",
        "t5gemma2",
        {
            "encoder": {"text_config": {**T5GEMMA2_SCALED, "num_hidden_layers": 3}, **T5GEMMA2_IMAGES},
            "decoder": {**T5GEMMA2_SCALED, "num_hidden_layers": 2},
            "vocab_size": 97, "tie_word_embeddings": False,
        },
        only=("text2text-generation",),
        std=0.2,
        left_out=T5GEMMA2_IMAGE_TENSORS,
    ),
    of("pegasus", PEGASUS, std=0.15),
    Case(
        "pegasus-plain",
        "pegasus",
        {**PEGASUS, "scale_embedding": False, "activation_function": "relu", "tie_word_embeddings": False},
        only=("text2text-generation",),
        std=0.15,
    ),
    Case(
        "pegasus-odd",
        "pegasus",
        {
            **PEGASUS, "d_model": 20, "encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 5,
            "decoder_attention_heads": 2, "decoder_start_token_id": 0, "forced_eos_token_id": None,
        },
        only=("text2text-generation",),
        std=0.15,
    ),
    of("bigbird_pegasus", BIGBIRD_PEGASUS, std=0.15, end_token=2),
    Case(
        "bigbird_pegasus-odd",
        "bigbird_pegasus",
        {
            **BIGBIRD_PEGASUS, "block_size": 3, "num_random_blocks": 2, "max_position_embeddings": 42, "use_bias": True,
            "activation_function": "relu", "scale_embedding": False, "tie_word_embeddings": False,
        },
        only=("text2text-generation", "feature-extraction"),
        std=0.15,
    ),
    Case(
        "bigbird_pegasus-full",
        "bigbird_pegasus",
        {**BIGBIRD_PEGASUS, "attention_type": "original_full", "decoder_attention_heads": 3},
        only=("text2text-generation",),
        std=0.15,
    ),
    of("led", LED, std=0.15, banded=True),
    Case(
        "led-wide",
        "led",
        {**LED, "attention_window": 16, "activation_function": "relu", "tie_word_embeddings": False},
        only=("text2text-generation",),
        std=0.15,
        banded=True,
    ),
    Case(
        "led-odd",
        "led",
        {
            **LED, "d_model": 20, "encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 5,
            "decoder_attention_heads": 2, "attention_window": [4, 8, 4], "activation_function": "gelu",
        },
        only=("text2text-generation",),
        std=0.15,
        banded=True,
    ),
)  # fmt: skip
"""All cases."""

FIRST = tuple({case.model_type: case for case in reversed(CASES)}.values())
"""One case of each architecture."""

BERT_CASE, GPT2_CASE = (next(case for case in CASES if case.name == name) for name in ("bert", "gpt2"))

RELATIVES = {
    **dict.fromkeys(("camembert", "xlm-roberta"), "roberta"),
    **dict.fromkeys(("mistral", "qwen2", "qwen3", "smollm3"), "llama"),
    **dict.fromkeys(("mbart", "pegasus"), "bart"),
    "mt5": "t5",
}
"""Architectures with the layers of another one; tests of layers need not repeat what that one shows."""
DISTINCT = tuple(case for case in FIRST if case.model_type not in RELATIVES)
"""One case of each architecture that has layers of its own."""
OPERATORS = {
    **RELATIVES,
    **dict.fromkeys(("albert", "distilbert", "electra", "roberta", "camembert", "xlm-roberta"), "bert"),
    **{"deberta-v2": "deberta", "bigbird_pegasus": "big_bird", "led": "longformer", "phi": "gpt_neox"},
    **{"modernbert-decoder": "modernbert", "eurobert": "modernbert", "gte": "nomic_bert"},
    **{"granite": "llama", "falcon": "gpt_neox", "mpt": "bloom"},
    **dict.fromkeys(("openai-gpt", "gpt_bigcode", "opt", "ctrl", "xglm"), "gpt2"),
    **dict.fromkeys(("mbart", "m2m_100", "marian", "pegasus", "transformer"), "bart"),
    **dict.fromkeys(("mt5", "umt5"), "t5"),
}
"""Architectures whose layers have the operators of another one: a runtime that runs that one runs them too.

Whether their bundles have the answers of Keras, tests/core/export/test_export.py shows before a release.
"""
