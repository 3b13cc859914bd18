"""Records the answers of `gliner` 0.2.29, which `pip install --no-deps gliner==0.2.29` installs, to tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from gliner import GLiNER
from gliner.config import UniEncoderSpanConfig
from gliner.modeling.base import UniEncoderSpanModel

from tests.core.pipelines.gliner_folders import ANSWERS, CALLS, CONFIGS, LABELS, TEXTS, write_folder


def _record() -> None:
    recorded = {}
    for kind in CONFIGS:
        with TemporaryDirectory() as name:
            config = json.loads((write_folder(Path(name, "empty"), kind, {}) / "gliner_config.json").read_text())
            model = UniEncoderSpanModel(UniEncoderSpanConfig(**config))
            shapes = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
            reference = GLiNER.from_pretrained(str(write_folder(Path(name, kind), kind, shapes)), local_files_only=True)
            answers = [
                [
                    [[each[key] for key in ("start", "end", "label")] + [round(each["score"], 7)] for each in entities]
                    for entities in reference.inference(TEXTS, LABELS, **call)
                ]
                for call in CALLS
            ]
        recorded[kind] = {"shapes": shapes, "answers": answers}
    ANSWERS.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    _record()
