"""Texts to try each task with: what the page offers, and what the demo compares engines on.

They are texts that the presets answer well: those of text-classification are chosen by
`zoo/presets/sentiment-bert/choose_examples.py` from sentences that the model never learned from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kerasformer.sources import read_json

_FILE = Path(__file__).with_suffix(".json")


def examples(task: str) -> dict[str, Any]:
    """Examples of a task.

    Args:
        task: Hugging Face's name of it.

    Returns:
        `inputs`, each with the texts of a pipeline call by their names (`{gap}` stands for the mask token) and maybe
        the right `label`; `credit`, where they are from, unless they were made up. No inputs for an unknown task.
    """
    return dict(read_json(_FILE).get(task, {"inputs": []}))
