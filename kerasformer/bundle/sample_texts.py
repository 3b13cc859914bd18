"""Sample texts for each task, for the web page, the demo and the model card.

The presets answer these texts well. Those of text-classification are some of `examples/presets/everyday.jsonl`, which
are outside of the training data.
"""

from __future__ import annotations

from pathlib import Path

from kerasformer.files.reading import JsonObject
from kerasformer.files.sources import read_json

_FILE = Path(__file__).with_suffix(".json")


def examples(task: str) -> JsonObject:
    """Returns sample inputs for a task.

    Args:
        task: Hugging Face task name.

    Returns:
        `inputs`, a list of dicts with the texts of a pipeline call by argument name (`{gap}` marks the mask token) and
        optionally the correct `label`; and `credit`, their source, unless they were made up. `inputs` is empty for an
        unknown task.
    """
    return dict(read_json(_FILE).get(task, {"inputs": []}))
