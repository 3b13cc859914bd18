"""Writes the pictures of docs/anatomy.md: `python -m examples.anatomy [FOLDER]`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import kerasformer as kf
from kerasformer.tools.interpretability.patterns import position_values, visible_keys
from kerasformer.tools.viz import draw_masks, draw_positions

CONFIGURATIONS = {
    "gpt2": {"model_type": "gpt2"},
    "t5-small": {
        "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6,
        "num_heads": 8, "vocab_size": 32128, "feed_forward_proj": "relu", "tie_word_embeddings": True,
    },
    "gpt-j-6b": {"model_type": "gptj", "tie_word_embeddings": False},
    "deberta-v3-base": {
        "model_type": "deberta-v2", "vocab_size": 128100, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 0,
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": "p2c|c2p", "position_biased_input": False, "layer_norm_eps": 1e-7,
    },
}  # fmt: skip
"""The published sizes, from which everything is drawn without weights."""
PROMPT = "Once upon a time there was a"


def draw(folder: Path) -> None:
    """Writes all pictures into a folder."""
    with tempfile.TemporaryDirectory() as temporary:
        for name, settings in CONFIGURATIONS.items():
            path = Path(temporary, name, "config.json")
            path.parent.mkdir()
            path.write_text(json.dumps(settings))
            kf.anatomy(path).save(folder / f"anatomy-{name}.svg")
    draw_masks(visible_keys(), folder / "anatomy-masks.png", "Which keys a query sees, and the share of all pairs")
    draw_positions(position_values(), folder / "anatomy-positions.svg")
    tokens = kf.next_token_distribution("story-gpt2", PROMPT)
    tokens.temperatures(folder / "anatomy-temperatures.png", top_p=0.7, title=f"After “{PROMPT}”, top-p 0.7")
    swept = kf.sweep("story-gpt2", PROMPT, max_new_tokens=40, samples=3)
    swept.picture(folder / "anatomy-sweep.png", f"After “{PROMPT}”")


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures"))
