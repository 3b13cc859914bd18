"""mBART: BART for many languages, with norms before attention and feed-forward and at the end of both stacks.

Derived from: `bart`.
Paper: Liu et al. 2020, "Multilingual Denoising Pre-training for Neural Machine Translation", arXiv:2001.08210;
mBART-50: Tang et al. 2020, arXiv:2008.00401. Reference: `transformers.models.mbart`.
"""

from __future__ import annotations

from dataclasses import dataclass

from keras import ops

from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import hf
from kerasformer.models.config_types import TokenId
from kerasformer.models.task_models import heads_like
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class MbartConfig(bart.BartConfig):
    """Configuration of mBART; the defaults are those of the reference class."""

    model_type = "mbart"
    required = {**bart.BartConfig.required, "add_final_layer_norm": (True,), "normalize_before": (True,)}

    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", None)
    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})


class Mbart(bart.Bart):
    """mBART without head."""

    config_type = MbartConfig
    architecture_prefix = "MBart"
    order = "pre_norm"
    final_norm = True

    def shift_right(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Returns the texts shifted by one, with their last token at the start; see `EncoderDecoder.shift_right`.

        The last token is the language in texts of mBART-25, and the end token in those of mBART-50. As in the
        reference, padding must be on the right.
        """
        real = ids != self.config.pad_token_id if attention_mask is None else attention_mask > 0
        last = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True) - 1
        start = ops.take_along_axis(ids, ops.maximum(last, 0), axis=1)
        return ops.concatenate([start, ids[:, :-1]], axis=1)

    @property
    def start_token_id(self) -> None:
        """No token of its own; see `EncoderDecoder.start_token_id`."""


MODELS = heads_like(bart.MODELS, Mbart)
