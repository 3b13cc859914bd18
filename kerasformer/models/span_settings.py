"""Settings of a head that finds spans of named types, in the file of GLiNER.

Every key of `gliner_config.json` is mapped, ignored because it only matters in training, or refused when the folder is
opened (`files/gliner.py`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kerasformer.basics.arguments import BOOLEAN, STRING, Kind, check, integer, number
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.gliner import CONFIG, LABEL_TOKEN, REQUIRED, SEPARATOR
from kerasformer.files.reading import JsonMapping, JsonObject, read_json
from kerasformer.files.sources import inside
from kerasformer.models.config import ConfigWarning

_KEYS: dict[str, tuple[str, Kind]] = {
    "hidden_dim": ("hidden_size", integer(2)),
    "max_width": ("max_width", integer(1)),
    "recurrent_layers": ("num_rnn_layers", integer(0, 1)),
    "max_words": ("max_len", integer(1)),
    "label_token": ("ent_token", STRING),
    "separator": ("sep_token", STRING),
    "reads_label_token": ("embed_ent_token", BOOLEAN),
    "dropout": ("dropout", number(0.0, 1.0)),
}
"""Key in the file and valid values of each attribute."""
# Of training, of the encoder and the tokenizer, and of the package.
_IGNORED = frozenset(
    """_attn_implementation _name_or_path adversarial architectures attn_implementation augment_data_prob batch_size
    class_token_index data decoder_loss_coef dtype encoder_config eval_batch_size eval_every fine_tune freeze_token_rep
    gradient_accumulation_steps has_rnn id2label id_to_classes is_composition label2id label_smoothing
    log_dir loss_alpha loss_gamma loss_prob_margin loss_reduction lr_encoder lr_others masking max_grad_norm
    max_neg_type_ratio max_steps max_types model_name name neg_spans_ratio negatives num_post_fusion_layers num_steps
    optimizer_type prev_path random_drop root_dir run_name sampler_entities save_total_limit scheduler_type
    shuffle_types size_sup span_loss_coef token_loss_coef torch_dtype train_batch_size train_data
    transformers_version val_data_dir vocab_size warmup_ratio weight_decay_encoder weight_decay_other""".split()
)


@dataclass(frozen=True)
class SpanSettings:
    """How a model scores the spans of a text against labels; the defaults are those of `gliner_small-v2.1`.

    Attributes:
        hidden_dim: Size of the states of words, spans and labels.
        max_width: Number of words of the longest span.
        recurrent_layers: Number of bidirectional LSTMs over the words, 0 or 1.
        max_words: Maximum number of words of a text.
        label_token: Token before each label.
        separator: Token between the labels and the text.
        reads_label_token: Whether the state of a label is that of its `label_token`, or of the token after that.
        dropout: Dropout rate in the head.

    Raises:
        UnsupportedConfigError: a value is invalid.
    """

    hidden_dim: int = 512
    max_width: int = 12
    recurrent_layers: int = 1
    max_words: int = 384
    label_token: str = LABEL_TOKEN
    separator: str = SEPARATOR
    reads_label_token: bool = True
    dropout: float = 0.4

    def __post_init__(self) -> None:
        """Checks the values."""
        for name, (key, kind) in _KEYS.items():
            value = check(f"{CONFIG}: {key}", getattr(self, name), kind, error=UnsupportedConfigError)
            object.__setattr__(self, name, value)
        if self.recurrent_layers and self.hidden_dim % 2:
            raise UnsupportedConfigError(
                f"{CONFIG}: hidden_size must be even, as each direction of the LSTM has half of it. "
                f"Received: {self.hidden_dim}"
            )
        if not self.label_token or not self.separator or self.label_token == self.separator:
            raise UnsupportedConfigError(
                f"{CONFIG}: ent_token and sep_token must be two different tokens. "
                f"Received: {self.label_token!r} and {self.separator!r}"
            )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Reads the settings of a checkpoint; `None` for a folder without `gliner_config.json`."""
        return cls.from_file(read_json(inside(folder, CONFIG))) if (folder / CONFIG).is_file() else None

    @classmethod
    def from_file(cls, content: JsonMapping) -> Self:
        """Creates the settings from the content of `gliner_config.json`."""
        keys = {key: name for name, (key, _) in _KEYS.items()}
        if unknown := sorted(set(content) - {*keys, *REQUIRED, *_IGNORED}):
            warnings.warn(
                f"{CONFIG} has unsupported keys, which are ignored: {', '.join(unknown)}. If one of them affects the "
                "scores, they will be wrong.",
                ConfigWarning,
                stacklevel=2,
            )
        values: dict[str, Any] = {"recurrent_layers": 0} if content.get("has_rnn") is False else {}
        return cls(**values | {keys[key]: value for key, value in content.items() if key in keys})

    def to_file(self, encoder: JsonMapping) -> JsonObject:
        """Returns the content of `gliner_config.json`, which the reference can read.

        Args:
            encoder: Content of the `config.json` of the encoder.
        """
        content = {key: getattr(self, name) for name, (key, _) in _KEYS.items()}
        fixed = {key: values[-1] for key, values in REQUIRED.items() if isinstance(values[-1], str) and values[-1]}
        return {**fixed, **content, "encoder_config": dict(encoder), "vocab_size": encoder["vocab_size"]}
