"""onnxruntime-genai with our ONNX files."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.catalogue import Job
from kerasformer.bench.other_engines import Genai


def write(bundle: Path) -> None:
    """Writes the configuration with which onnxruntime-genai runs an ONNX bundle of ours, as `target="genai"` does.

    That target also needs a tokenizer, which checkpoints with random weights lack.
    """
    from kerasformer.bundle import read
    from kerasformer.export.targets.genai import genai_config

    config = genai_config(read(bundle, check=False))
    (bundle / "genai_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class Model(Genai):
    """A bundle in onnxruntime-genai."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.checkpoint)
