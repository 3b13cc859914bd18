"""Answers of a model to texts: probabilities of the classes as JSON lines, or the vectors of an encoder as NumPy array.

    python answers.py MODEL TEXTS.jsonl OUT

MODEL is a checkpoint or, several times faster, a bundle, such as that of `kerasformer export MODEL OUT --format onnx
--quantize int8`. OUT ends with `.jsonl` for a classifier, whose rows are those of TEXTS with the probabilities as
`label`; with `.npy` for an encoder of sentences, whose vectors are float16 `(N, D)`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import kerasformer as kf

BATCH = 64


def main() -> None:
    """Runs the model on batches of texts of similar length."""
    source, texts, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["text"]))
    vectors = out.suffix == ".npy"
    pipe = kf.pipeline(source, "sentence-similarity" if vectors else "text-classification")
    options = {} if vectors else {"top_k": None}
    answers = pipe([rows[row]["text"] for row in order], batch_size=BATCH, truncation=True, **options)
    results = [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]
    if vectors:
        np.save(out, np.asarray(results, "float16"))
        return
    for row, scores in zip(rows, results, strict=True):
        of = {score["label"]: score["score"] for score in scores}
        row["label"] = [round(of[label], 4) for label in pipe.info.labels]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
