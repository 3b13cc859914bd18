"""The artifact against Keras, in the real runtime, before anyone gets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.errors import ExportMismatchError
from kerasformer.export.recipes import Recipe
from kerasformer.export.texts import PROMPTS, READING
from kerasformer.runtime import open_engine
from kerasformer.runtime.fidelity import Fidelity, compare, record_forward, record_step
from kerasformer.zoo._engine import KerasForward, KerasStep

GENERATED = 24  # tokens of each prompt
_LONGEST = 48  # tokens of a text


def record(model: Any, manifest: Manifest, texts: Sequence[str] | None) -> dict[str, np.ndarray]:
    """What the Keras model answers, for `references.npz`.

    Args:
        model: Any model of the zoo.
        manifest: Of its bundle, for the capacity.
        texts: To be read or continued; sentences of this package by default, random ids without a tokenizer.
    """
    limit = min(_LONGEST, manifest.info.max_length or _LONGEST)
    if not model.generates:
        return record_forward(KerasForward(model), _inputs(model, texts or READING, limit, model.input_names))
    capacity = manifest.capacity or 0
    count = min(GENERATED, capacity // 2)
    names = ("input_ids", "attention_mask")
    if model.is_encoder_decoder:
        chosen = [_prefix(model) + text for text in texts or READING[:8]]
        inputs = _inputs(model, chosen, limit, names)
        start = manifest.info.decoder_start_token_id
        start = start if start is not None else manifest.info.pad_token_id or 0
    else:
        inputs = _inputs(model, texts or PROMPTS, min(limit, capacity - count), names, left=True)
        start = None
    # No longer than needed: caches of the whole capacity are gigabytes.
    width = 0 if model.is_encoder_decoder else inputs["input_ids"].shape[1]
    engine = KerasStep(model, width + count, jit_compile=False)
    return record_step(engine, inputs["input_ids"], inputs["attention_mask"], start, count)


def _prefix(model: Any) -> str:
    return next(iter(model.task_prefixes.values()), "")


def _inputs(
    model: Any, texts: Sequence[str], limit: int, names: Sequence[str], left: bool = False
) -> dict[str, np.ndarray]:
    """`(N, T)` int32 arrays; at most `limit` tokens of each text."""
    if model.tokenizer is not None:
        rows = [model.tokenizer.encode(text)[:limit] for text in texts]
        rows = [row for row in rows if row]
    else:
        random = np.random.default_rng(0)
        sizes = random.integers(max(2, limit // 3), limit + 1, len(texts))
        rows = [random.integers(0, model.config.vocab_size, size).tolist() for size in sizes]
    width = max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), "int32"), np.zeros((len(rows), width), "int32")
    for index, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, place], mask[index, place] = row, 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: arrays[name] for name in names}


def verify(folder: Path, manifest: Manifest, recipe: Recipe, num_threads: int | None = None) -> Fidelity:
    """Runs the artifact in its runtime and compares it with the references in its folder.

    Raises:
        ExportMismatchError: it is less faithful than its recipe promises; the message has the figures.
    """
    references = bundle.read_references(folder)
    fidelity = compare(open_engine(folder, manifest, num_threads), references)
    _check(fidelity, manifest, recipe)
    whole = {name: of for name, of in manifest.signatures.items() if not name.startswith("decode_")}
    if len(whole) < len(manifest.signatures):
        # Texts of a check are short, and steps over the whole cache would not be seen.
        engine = open_engine(folder, replace(manifest, signatures=whole), num_threads)
        _check(compare(engine, references), manifest, recipe)
    return fidelity


def _check(fidelity: Fidelity, manifest: Manifest, recipe: Recipe) -> None:
    exact = recipe.exact and fidelity.generated is not None
    if not fidelity.within(recipe.tolerance, recipe.min_agreement) or (exact and fidelity.generated != 1.0):
        expected = (
            f"a largest error of at most {recipe.tolerance:g} of the scale, agreement of {recipe.min_agreement:g}"
        )
        raise ExportMismatchError(
            f"The {manifest.format} file does not answer as Keras does. Expected for {recipe.name}: {expected}"
            f"{' and equal tokens' if exact else ''}. Received: largest error {fidelity.max_error:.3g}, agreement "
            f"{fidelity.agreement:.4f} of {fidelity.answers} answers, generated tokens {fidelity.generated}. "
            "Nothing was written."
        )
