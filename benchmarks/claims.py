"""The published sizes of docs/claims.md, computed from configurations: python -m benchmarks.claims [--write]."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kerasformer.models.costs import Costs, costs

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
COMMAND = "python -m benchmarks.claims --write"
_BEGIN, _END = f"<!-- from benchmarks/claims.py: {COMMAND} -->", "<!-- end -->"


@dataclass(frozen=True)
class Published:
    """A model of the literature.

    Attributes:
        says: Number of parameters in the paper.
        config: What its `config.json` contains beside the defaults of the architecture.
    """

    says: str
    config: Mapping[str, Any]


def _bert(**config: Any) -> dict[str, Any]:
    return {"model_type": "bert", "architectures": ["BertModel"], **config}


def _gpt2(n_embd: int, n_layer: int, n_head: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": n_embd,
        "n_layer": n_layer,
        "n_head": n_head,
    }


def _t5(d_model: int, d_ff: int, num_layers: int, num_heads: int, d_kv: int = 64) -> dict[str, Any]:
    sizes = {"d_model": d_model, "d_ff": d_ff, "num_layers": num_layers, "num_heads": num_heads, "d_kv": d_kv}
    return {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32128, **sizes}


def _albert(hidden_size: int, num_hidden_layers: int, num_attention_heads: int) -> dict[str, Any]:
    return {
        "model_type": "albert",
        "architectures": ["AlbertModel"],
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": num_attention_heads,
    }


MODELS = {
    "BERT base": Published("110M", _bert()),
    "BERT large": Published(
        "340M", _bert(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    ),
    "DistilBERT": Published("66M", {"model_type": "distilbert", "architectures": ["DistilBertModel"]}),
    "ALBERT base": Published("12M", _albert(768, 12, 12)),
    "ALBERT large": Published("18M", _albert(1024, 24, 16)),
    "ALBERT xlarge": Published("60M", _albert(2048, 24, 16)),
    "ALBERT xxlarge": Published("235M", _albert(4096, 12, 64)),
    "GPT-2 small": Published("117M", _gpt2(768, 12, 12)),
    "GPT-2 medium": Published("345M", _gpt2(1024, 24, 16)),
    "GPT-2 large": Published("762M", _gpt2(1280, 36, 20)),
    "GPT-2 XL": Published("1542M", _gpt2(1600, 48, 25)),
    "T5 small": Published("60M", _t5(512, 2048, 6, 8)),
    "T5 base": Published("220M", _t5(768, 3072, 12, 12)),
    "T5 large": Published("770M", _t5(1024, 4096, 24, 16)),
    "T5 3B": Published("3B", _t5(1024, 16384, 24, 32, 128)),
    "T5 11B": Published("11B", _t5(1024, 65536, 24, 128, 128)),
    "SmolLM2 135M": Published(
        "135M",
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "vocab_size": 49152,
            "tie_word_embeddings": True,
            "max_position_embeddings": 8192,
        },
    ),
}


@cache
def computed(name: str) -> Costs:
    """Returns what one of `MODELS` costs."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(MODELS[name].config), encoding="utf-8")
        return costs(file)


def table() -> str:
    """Returns a row for each model."""
    heads = [
        "model",
        "the paper says",
        "parameters",
        "without embeddings",
        "multiply-adds per token",
        "cache per token",
    ]
    lines = [heads, ["---", *["---:"] * 5]]
    for name, model in MODELS.items():
        found = computed(name)
        cache = f"{found.cache_bytes:,} bytes" if found.cache_bytes else "–"
        outside = found.parameters - found.embedding_parameters
        lines.append([name, model.says, f"{found.parameters:,}", f"{outside:,}", f"{found.macs:,}", cache])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Returns the page with an up-to-date table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes or compares the page; returns the exit status."""
    new = page()
    if "--write" in arguments:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    print(table())
    return int(new != PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
