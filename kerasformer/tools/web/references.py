"""Reference answers for a page, with which it compares an engine's answers on the user's device.

They are a small part of the `references.npz` of a bundle: token ids, and the largest logits of the Keras model. The
texts were tokenized by the export, so the ids can be turned back into texts. References are therefore only used if all
texts are those that ship with this package, unless the author of the page permits others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import LABEL_SLOTS, SPAN_LOGITS, WORD_SLOTS, Manifest, SpanInfo
from kerasformer.engines import (
    DEFAULT_TEXTS,
    ENDS_OF_SPANS,
    SAME_DIRECTION,
    is_hidden_state,
    output_names,
    recorded_entries,
)

_TEXTS, _VECTORS, _PROMPTS = 8, 3, 4
"""Number of texts, of texts with hidden states or embeddings, and of prompts."""
_TOKENS, _TOP = 12, 8
"""Number of generated tokens of a prompt, or of compared tokens of a text; number of logits of each answer."""


def page_references(
    folder: Path, manifest: Manifest, outputs: frozenset[str], given_texts: bool = False
) -> dict[str, object] | None:
    """Returns the reference answers of a bundle for a page, as JSON values.

    Args:
        folder: Folder of the bundle.
        manifest: Its manifest.
        outputs: Names of the outputs that the page uses.
        given_texts: Whether texts that were passed to the export, or whose origin is unknown, may be in the page.

    Returns:
        The references; `None` if the texts may not be in the page, or if the bundle has no suitable references.
        `texts` has the token ids and answers; the other fields are the limits of the bundle's recipe: `tolerance` for
        differences of logits relative to `scale`, `min_agreement` for answers whose margin exceeds `tie` logits, and
        `min_cosine` for each vector.

    Raises:
        BundleError: the manifest has no limits.
    """
    if bundle.REFERENCES not in manifest.files:
        return None
    arrays = bundle.read_references(folder)
    if not given_texts and not arrays.get(DEFAULT_TEXTS, np.array(0)).item():
        return None
    names = [name for name in output_names(arrays) if name in outputs]
    real = [row for row in range(len(arrays.get("input.input_ids", ()))) if not _made_up(arrays, row)]
    if not names or not real:
        return None
    generates = "tokens" in arrays
    spans = manifest.info.spans
    texts = [
        _prompt(arrays, row) if generates else _text(arrays, names, row, spans) for row in _spread(arrays, names, real)
    ]
    logits = [arrays[f"output.{name}.values"][real] for name in names if not is_hidden_state(name)]
    scale = max((float(np.nanmax(np.abs(values))) for values in logits), default=1.0)
    tolerance, min_agreement, min_cosine, *_ = manifest.promise
    return {
        "distribution": arrays.get("distribution", np.array("softmax")).item(),
        "scale": _number(scale),
        "tolerance": tolerance,
        # Twice the largest change of a logit by the export: answers with a smaller margin may differ.
        "tie": _number(2 * scale * manifest.fidelity.get("max_error", 0.0)),
        "min_agreement": min_agreement,
        # The recipe limits the mean of all texts, from which one of a few texts may differ.
        "min_cosine": _number(1 - 2 * (1 - min_cosine)) if min_cosine else SAME_DIRECTION,
        "texts": texts,
    }


def _made_up(arrays: Mapping[str, np.ndarray], row: int) -> bool:
    return "made_up" in arrays and bool(arrays["made_up"][row])


def _spread(arrays: Mapping[str, np.ndarray], names: list[str], rows: list[int]) -> list[int]:
    """Selects a few texts of different lengths."""
    most = _PROMPTS if "tokens" in arrays else _VECTORS if all(map(is_hidden_state, names)) else _TEXTS
    ordered = sorted(rows, key=lambda row: int(arrays["input.attention_mask"][row].sum()))
    chosen = np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)
    return [ordered[index] for index in chosen]


def _text(arrays: Mapping[str, np.ndarray], names: list[str], row: int, spans: SpanInfo | None) -> dict[str, object]:
    """Returns a text of a model that does not generate, and its answers by the name of the output.

    `asked` are the indices of the answers: of tokens, or of the spans of `k + 1` words from each word.
    """
    used = arrays["input.attention_mask"][row] > 0
    ids = arrays["input.input_ids"][row][used]
    types = arrays.get("input.token_type_ids")
    asked = np.flatnonzero(arrays["asked"][row][used]) if "asked" in arrays else np.arange(len(ids))
    answers: dict[str, Any] = {}
    for name in names:
        entries = recorded_entries(arrays, name, row)
        if is_hidden_state(name):
            answers[name] = {"mean": _numbers(entries["mean"])}
        else:
            answers[name] = _top(entries)
    slots: dict[str, list[int]] = {}
    if spans is not None and SPAN_LOGITS in names:
        rows = {name: arrays[f"input.{name}"][row] for name in (WORD_SLOTS, LABEL_SLOTS)}
        slots = {name: values[values >= 0].tolist() for name, values in rows.items()}
        words = len(slots[WORD_SLOTS])
        asked = np.flatnonzero(np.add.outer(np.arange(words), np.arange(spans.max_width)) < words)
    if not any(name in ENDS_OF_SPANS for name in names):
        asked = asked[:_TOKENS]
    segments = [0] * len(ids) if types is None else types[row][used].tolist()
    return {"ids": ids.tolist(), "segments": segments, **slots, "asked": asked.tolist(), "outputs": answers}


def _prompt(arrays: Mapping[str, np.ndarray], row: int) -> dict[str, object]:
    """Returns a prompt, the tokens that continue it, and the logits of each of them."""
    asked = arrays["asked"][row] > 0 if "asked" in arrays else np.ones(arrays["tokens"].shape[1], bool)
    count = min(_TOKENS, int(asked.sum()))
    entries = {key: array[:count] for key, array in recorded_entries(arrays, "logits", row).items()}
    prompt = arrays["input.input_ids"][row][arrays["input.attention_mask"][row] > 0]
    tokens = [int(arrays["input.first"][row, 0]), *arrays["tokens"][row, : count - 1].tolist()]
    return {"prompt": prompt.tolist(), "tokens": tokens[:count], "outputs": {"logits": _top(entries)}}


def _top(entries: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Returns the largest logits of each answer, and their indices."""
    values, indices = (np.atleast_2d(entries[key])[:_TOKENS, :_TOP] for key in ("values", "indices"))
    per_token = entries["values"].ndim == 2
    return {"values": [_numbers(row) for row in values], "indices": indices.tolist(), "per_token": per_token}


def _numbers(values: np.ndarray) -> list[float]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float:
    """Rounds to six digits, since differences are compared with limits of about a hundredth."""
    return float(f"{value:.6g}")
