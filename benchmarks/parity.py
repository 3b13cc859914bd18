"""Differences from `transformers`: `python -P benchmarks/parity.py CHECKPOINT` prints JSON.

`forward` is the largest difference of an output for a left- or right-padded batch, relative to the largest output of
`transformers`; for models that generate, `greedy` is the number of equal tokens among those of both. The script does
not use other files of this repository, so that any Python can run it with its installed version of kerasformer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

from kerasformer import zoo

SHAPE, NEW_TOKENS = (3, 23), 24


def main() -> None:
    folder = Path(sys.argv[1])
    [name] = json.loads((folder / "config.json").read_text())["architectures"]
    reference = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    model = zoo.load(folder)
    config = reference.config
    random = np.random.default_rng(0)
    ids = random.integers(5, config.vocab_size, SHAPE)
    mask = np.ones(SHAPE, "int64")
    generates = reference.can_generate() and "MaskedLM" not in name
    for row, padding in enumerate((0, 4, 11)):
        mask[row, : padding if generates and not config.is_encoder_decoder else 0] = 0
        mask[row, SHAPE[1] - padding :] = 0 if not generates or config.is_encoder_decoder else mask[row, -1]
    batch = {"input_ids": ids, "attention_mask": mask}
    tensors = {name: torch.tensor(value) for name, value in batch.items()}
    figures = {}
    if generates:
        settings = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
        expected = reference.generate(**tensors, **settings).numpy()[:, -NEW_TOKENS:]
        model.tokenizer = None  # without a tokenizer, the answer is token ids
        answers = model.generate(ids.astype("int32"), attention_mask=mask.astype("int32"), **settings)
        figures["greedy"] = int(np.sum(np.stack([tokens[-NEW_TOKENS:] for tokens in answers]) == expected))
    if config.is_encoder_decoder:
        batch["decoder_input_ids"] = ids[:, :9]
        tensors["decoder_input_ids"] = torch.tensor(ids[:, :9])
    with torch.no_grad():
        outputs = reference(**tensors)
    heads = [outputs.start_logits, outputs.end_logits] if "start_logits" in outputs else [outputs.logits]
    expected = np.stack([head.numpy() for head in heads], -1)
    actual = np.asarray(model({name: value.astype("int32") for name, value in batch.items()}))
    difference = np.abs(actual.reshape(expected.shape) - expected)
    if difference.ndim > 2 and "decoder_input_ids" not in batch and difference.shape[1] == SHAPE[1]:
        difference = difference[mask == 1]  # outputs at padding have no meaning
    figures["forward"] = float(difference.max() / np.abs(expected).max())
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
