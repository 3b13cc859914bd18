"""Answers of a model to texts: probabilities of the classes as JSON lines, or the vectors of an encoder as NumPy array.

    python answers.py MODEL TEXTS.jsonl OUT

OUT ends with `.jsonl` for a classifier, whose rows are those of TEXTS with the probabilities as `label`; with `.npy`
for an encoder of sentences, whose vectors are float16 `(N, D)`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np

import kerasformer as kf

LENGTHS = (16, 32, 64, 128)
BATCH = 256


def main() -> None:
    """Runs the model on batches of texts of similar length."""
    source, texts, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    vectors = out.suffix == ".npy"
    model = kf.load(source, "sentence-similarity" if vectors else "text-classification", dtype="mixed_bfloat16")
    order = np.argsort([len(row["text"]) for row in rows], kind="stable")
    order = np.concatenate([order, order[: -len(order) % BATCH]])  # so that all batches have one size
    results = None
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        batch = model.tokenizer(
            [rows[row]["text"] for row in part],
            truncation=True,
            max_length=LENGTHS[-1],
            pad_to=LENGTHS,
            padding_side="right",
        )
        values = model.predict_on_batch(dict(batch))
        if not vectors:
            values = np.asarray(keras.ops.softmax(np.asarray(values, "float32")))
        if results is None:
            results = np.zeros((len(rows), values.shape[-1]), "float16" if vectors else "float32")
        results[part] = values
    if vectors:
        np.save(out, results)
    else:
        lines = [
            json.dumps({**row, "label": [round(float(p), 4) for p in scores]})
            for row, scores in zip(rows, results, strict=True)
        ]
        out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
