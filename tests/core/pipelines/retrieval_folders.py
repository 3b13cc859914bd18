"""Folders for retrieval with tiny random models: sparse vectors and several vectors of each text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

from kerasformer.tokenization import Tokenizer
from tests import tiny_text

SIZES: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": 66, "pad_token_id": 0,
}  # fmt: skip
DISTIL = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 66}
SPARSE: dict[str, tuple[Any, Any, Any, dict[str, str]]] = {
    "bert": (transformers.BertConfig, SIZES, MLMTransformer, {}),
    "distilbert": (transformers.DistilBertConfig, DISTIL, Transformer, {"pooling_strategy": "sum"}),
    "roberta": (transformers.RobertaConfig, SIZES, Transformer, {"activation_function": "log1p_relu"}),
}
"""Configuration, sizes, class of the first module and options of the pooling, by the name of the architecture."""


def randomize(*modules: torch.nn.Module, seed: int = 5, std: float = 0.3) -> None:
    """Draws all weights; scales of norms are near 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in modules:
            for name, parameter in module.named_parameters():
                is_scale = parameter.ndim == 1 and name.endswith("weight")
                parameter.copy_(is_scale + std * torch.randn(parameter.shape, generator=generator))


def base(folder: Path, model: torch.nn.Module, tokenizer: Tokenizer | None = None) -> Path:
    """Writes a model of `transformers` with random weights, and a tokenizer."""
    randomize(model)
    model.save_pretrained(folder)  # type: ignore[operator]
    (tokenizer or tiny_text.wordpiece()).save(folder)
    return folder


def write_sparse(folder: Path, kind: str, **options: Any) -> SparseEncoder:
    """Writes a folder of `SparseEncoder`, and returns its model."""
    config, sizes, module, pooling = SPARSE[kind]
    made = config(vocab_size=tiny_text.wordpiece().vocab_size, **sizes)
    plain = base(folder.with_name(f"{kind}-plain"), transformers.AutoModelForMaskedLM.from_config(made))
    arguments = {} if module is MLMTransformer else {"transformer_task": "fill-mask"}
    modules = [module(str(plain), max_seq_length=60, **arguments), SpladePooling(**pooling)]
    model = SparseEncoder(modules=modules, device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model


PUNCTUATION = [".", ",", "!", "no such token"]
TOKEN_WISE = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
MULTI_VECTOR: dict[str, tuple[str, dict[str, Any], list[tuple[int, Any]], dict[str, str]]] = {
    "bert": (
        "bert",
        {"query_expansion": {"strategy": "fixed", "attend": False, "length": 30}, "document_length": 60},
        [(8, torch.nn.Identity())],
        {"query": "the query: ", "document": ""},
    ),
    "roberta": (
        "roberta",
        {"query_expansion": {"strategy": "min", "attend": False, "length": 16, "token": "the"}},
        [(16, torch.nn.GELU()), (8, torch.nn.Identity())],
        {},
    ),
    "distilbert": ("distilbert", {"query_length": 40}, [], {}),
}
"""Architecture, settings of the Transformer, dense layers and prompts of folders of `MultiVectorEncoder`."""


def encoder(kind: str) -> torch.nn.Module:
    """Returns the encoder of `transformers` with the configuration of a row of `SPARSE`."""
    config, sizes, *_ = SPARSE[kind]
    made = config(vocab_size=tiny_text.wordpiece().vocab_size, **sizes)
    return transformers.AutoModel.from_config(made)


def write_multi_vector(folder: Path, kind: str) -> MultiVectorEncoder:
    """Writes a folder of `MultiVectorEncoder`, and returns its model."""
    architecture, options, layers, prompts = MULTI_VECTOR[kind]
    plain = base(folder.with_name(f"{kind}-plain"), encoder(architecture))
    modules, size = [], SIZES["hidden_size"]
    for dim, activation in layers:
        modules.append(Dense(size, dim, bias=dim != 8, activation_function=activation, **TOKEN_WISE))
        size = dim
    randomize(*modules)
    modules = [*modules, MultiVectorMask(PUNCTUATION), Normalize(module_input_name="token_embeddings")]
    modules = [Transformer(str(plain), max_seq_length=60, **options), *modules]
    similarity = "meanmaxsim" if kind == "roberta" else None
    model = MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
    model.save(str(folder), create_model_card=False)
    return model


def write_pylate(folder: Path, **settings: Any) -> MultiVectorEncoder:
    """Writes a folder as PyLate does, with tokens `[Q] ` and `[D] `, and returns the model that reads it."""
    tiny_text.wordpiece().save(folder)
    tokenizer = Tokenizer.load(folder)  # a copy, as the other one is shared
    tokenizer.backend.add_tokens(["[Q] ", "[D] "])
    model = encoder("bert")
    model.resize_token_embeddings(tokenizer.backend.get_vocab_size())
    base(folder, model, tokenizer)
    layer = torch.nn.Linear(SIZES["hidden_size"], 8, bias=False)
    randomize(layer)
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": layer.weight.detach()}, folder / "1_Dense" / "model.safetensors")
    activation = "torch.nn.modules.linear.Identity"
    files = {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
        ],
        "1_Dense/config.json": {"in_features": 24, "out_features": 8, "bias": False, "activation_function": activation},
        "sentence_bert_config.json": {"max_seq_length": 59, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "ColBERT", "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim",
            "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 30, "document_length": 60,
            "attend_to_expansion_tokens": False, "skiplist_words": PUNCTUATION, "do_query_expansion": True, **settings,
        },
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return MultiVectorEncoder(str(folder), device="cpu")


def write_colbert(folder: Path, **metadata: Any) -> MultiVectorEncoder:
    """Writes a folder as ColBERT does, with a projection beside the tensors of the encoder, and returns the model."""
    tiny_text.wordpiece().save(folder)
    tokenizer = Tokenizer.load(folder)  # a copy, as the other one is shared
    tokenizer.backend.add_tokens(["[unused0]", "[unused1]"])
    model = encoder("bert")
    model.resize_token_embeddings(tokenizer.backend.get_vocab_size())
    layer = torch.nn.Linear(SIZES["hidden_size"], 8, bias=False)
    randomize(layer)
    base(folder, model, tokenizer)
    tensors = {f"bert.{name}": value.contiguous() for name, value in model.state_dict().items()}
    save_file({**tensors, "linear.weight": layer.weight.detach()}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    known = {"dim": 8, "doc_maxlen": 60, "query_maxlen": 30, "similarity": "cosine", "nway": 64}
    (folder / "artifact.metadata").write_text(json.dumps(known | metadata))
    return MultiVectorEncoder(str(folder), device="cpu")


class UnifiedModel:
    """The vectors of BGE-M3 by their published formulas, with the encoder of `transformers`; written in plain PyTorch.

    Reference: Chen et al. 2024, arXiv:2402.03216, section 3.2; `EncoderOnlyEmbedderM3Model` and `M3Embedder`.
    """

    def __init__(self, folder: Path) -> None:
        self.encoder = transformers.AutoModel.from_pretrained(folder).eval()
        self.sparse, self.colbert = (
            torch.load(folder / f"{name}_linear.pt", weights_only=True) for name in ("sparse", "colbert")
        )
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def vectors(self, text: str) -> tuple[torch.Tensor, dict[str, float], torch.Tensor]:
        """Returns the embedding, the weights of tokens, and the vectors of the tokens of a text."""
        ids = torch.tensor([self.tokenizer(text)["input_ids"]])
        states = self.encoder(input_ids=ids).last_hidden_state[0]
        colbert = torch.nn.functional.linear(states[1:], self.colbert["weight"], self.colbert["bias"])
        weights = torch.nn.functional.linear(states, self.sparse["weight"], self.sparse["bias"])[:, 0].relu()
        lexical: dict[str, float] = {}
        for token, weight in zip(ids[0].tolist(), weights.tolist(), strict=True):
            if token not in self.tokenizer.all_special_ids and weight > 0:
                name = self.tokenizer.convert_ids_to_tokens(token)
                lexical[name] = max(weight, lexical.get(name, 0.0))
        normalize = torch.nn.functional.normalize
        return normalize(states[0], dim=-1), lexical, normalize(colbert, dim=-1)

    def scores(self, query: str, document: str) -> dict[str, float]:
        """Returns the score of each kind of vectors."""
        q, d = self.vectors(query), self.vectors(document)
        return {
            "dense": float(q[0] @ d[0]),
            "sparse": sum(weight * d[1].get(token, 0.0) for token, weight in q[1].items()),
            "multi_vector": float((q[2] @ d[2].T).max(dim=-1).values.sum() / len(q[2])),
        }


def write_unified(folder: Path) -> UnifiedModel:
    """Writes a folder like that of BGE-M3, and returns its model."""
    config = transformers.XLMRobertaConfig(vocab_size=tiny_text.wordpiece().vocab_size, **SIZES)
    base(folder, transformers.XLMRobertaModel(config))
    for name, size, seed in (("sparse", 1, 6), ("colbert", 20, 7)):
        layer = torch.nn.Linear(SIZES["hidden_size"], size)
        randomize(layer, seed=seed)
        torch.save(layer.state_dict(), folder / f"{name}_linear.pt")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    content = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(content))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 60, "do_lower_case": False}))
    return UnifiedModel(folder)
