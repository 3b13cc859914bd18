"""Question answering in which the tokens of the question cannot be part of the answer.

Shape letters: `B` batch, `T` length of the text.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models.task_models import QuestionAnswering
from kerasformer.models.text_inputs import TOKEN_TYPE_IDS

HIDDEN_SCORE = -1e6
"""Added to the scores of the question."""


class AnswerInContext(QuestionAnswering):
    """Extractive question answering whose first text, the question, is found by the first separator.

    Tokens up to the first separator are the question and have segment 0; the others have segment 1. Bundles therefore
    have no input for segments. The first token is no part of the question, since it stands for "no answer". In a text
    without separator, the question is the first token alone. The configuration has `sep_token_id`.
    """

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the input arrays of `call` and of bundles, without segments."""
        return tuple(name for name in super().input_names if name != TOKEN_TYPE_IDS.name)

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Names of the optional input arrays of `call`, which bundles do not have."""
        known = {*super().input_names, *super().optional_names}
        return tuple(
            text_input.name
            for text_input in self.backbone.text_inputs
            if text_input.name in known - set(self.input_names)
        )

    def question(self, ids: Tensor) -> Tensor:
        """Returns 1 for the tokens up to the first separator, int32 `(B, T)`."""
        separators = ops.cast(ops.equal(ids, self.config.sep_token_id), "int32")
        before = ops.cast(ops.equal(ops.cumsum(separators, axis=1) - separators, 0), "int32")
        return ops.where(ops.max(separators, axis=1, keepdims=True) > 0, before, self._first(ids))

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """Returns the arguments of the backbone, with the default segments."""
        arguments = super().backbone_arguments(arrays, every_token)
        if TOKEN_TYPE_IDS.in_bundles(self.config):
            arguments.setdefault(TOKEN_TYPE_IDS.argument, 1 - self.question(arrays["input_ids"]))
        return arguments

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores, those of the question reduced by 1,000,000."""
        output, ids = super().answer(states, inputs, training), inputs["input_ids"]
        hidden = ops.expand_dims(self.question(ids) - self._first(ids) > 0, -1)
        return ops.where(hidden, output + ops.cast(HIDDEN_SCORE, output.dtype), output)

    def _first(self, ids: Tensor) -> Tensor:
        """Returns 1 for the first token of each row, int32 `(B, T)`."""
        return ops.zeros(ops.shape(ids), "int32") + ops.cast(
            ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), 0), "int32"
        )
