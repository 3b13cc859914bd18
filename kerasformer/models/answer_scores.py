"""Rerankers that are language models: the score of a pair of texts is the logit of one token, such as `yes`, after it.

The logit of a second token, such as `no`, is subtracted, so that the sigmoid of the score is the probability of the
first one among the two. As a classifier with one class, such a model has a head whose kernel is the difference of two
rows of the output matrix. A chat template with the roles `query` and `document` converts a pair to one text.

Reference: `LogitScore` of sentence-transformers; Zhang et al. 2025, "Qwen3 Embedding: Advancing Text Embedding and
Reranking Through Foundation Models", arXiv:2506.05176.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from kerasformer.errors import CheckpointError, UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.files.tensors import TensorFile
from kerasformer.models.contracts import CausalLM
from kerasformer.models.sentence_settings import CROSS_ENCODER, check_keys, file_content, json_object, module_names
from kerasformer.tokenization import Tokenizer

_MODULES, _SCORE = ["Transformer", "LogitScore"], "1_LogitScore/config.json"
_TRANSFORMER = "sentence_bert_config.json"
HEAD = "score.weight"
"""Tensor of the head of a classifier."""


@dataclass(frozen=True)
class AnswerScore:
    """How a language model scores a pair of texts.

    Attributes:
        true_token: Id of the token whose logit is the score.
        false_token: Id of the token whose logit is subtracted; optional.
        prompt: Default content of the message `system`, the instruction; optional.
        variables: Further variables of the chat template.
    """

    true_token: int
    false_token: int | None = None
    prompt: str | None = None
    variables: JsonMapping = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Reads the settings of sentence-transformers; `None` for a folder that is no such reranker.

        Raises:
            UnsupportedConfigError: a setting is not implemented.
        """
        if not is_answer_score(folder):
            return None
        score, use, transformer = (
            json_object(name, file_content(folder, name)) for name in (_SCORE, CROSS_ENCODER, _TRANSFORMER)
        )
        tokens = ("true_token_id", "false_token_id")
        check_keys(_SCORE, score, required={"module_input_name": ("causal_logits",)}, known=tokens)
        message = (transformer.get("modality_config") or {}).get("message") or {}
        check_keys(
            _TRANSFORMER,
            {**transformer, "format": message.get("format", "flat")},
            required={"transformer_task": ("text-generation",), "format": ("flat",)},
            known=("processing_kwargs", "max_seq_length", "modality_config", "module_output_name"),
            ignored=("unpad_inputs",),
        )
        processing = transformer.get("processing_kwargs") or {}
        check_keys(f"processing_kwargs in {_TRANSFORMER}", processing, required={}, known=("chat_template",))
        variables = dict(processing.get("chat_template") or {})
        variables.pop("restore_suffix", None)  # only for truncation
        first, second = (score.get(name) for name in tokens)
        if not isinstance(first, int) or not isinstance(second, int | None):
            raise UnsupportedConfigError(f"{_SCORE} must have ids of tokens. Received: {first!r} and {second!r}")
        prompt = (use.get("prompts") or {}).get(use.get("default_prompt_name"))
        return cls(first, second, prompt, variables)

    @classmethod
    def of_words(cls, content: JsonMapping, tokenizer: Tokenizer | None) -> Self | None:
        """Returns the score by the tokens `yes` and `no` of a language model, `None` for another model or tokenizer.

        Args:
            content: Content of `config.json`.
            tokenizer: Tokenizer of the checkpoint.
        """
        saved = content.get("architectures") or [""]
        if tokenizer is None or not str(saved[0]).endswith("ForCausalLM"):
            return None
        first, second = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
        return None if first is None or second is None else cls(first, second)

    def content(self, content: JsonMapping) -> JsonObject:
        """Returns the content of `config.json` of a classifier with one class."""
        rest = {name: value for name, value in content.items() if name not in ("num_labels", "label2id")}
        return {**rest, "id2label": {"0": "LABEL_0"}}

    def tensors(self, file: TensorFile, generator: type[CausalLM]) -> TensorFile:
        """Returns the tensors of a checkpoint and the kernel of the head.

        Args:
            file: The tensors of the checkpoint.
            generator: Class of the language model.

        Raises:
            UnsupportedConfigError: its logits are not products with a matrix alone.
        """
        rows = [row.tensor for row in generator.head_table]
        if len(rows) != 1 or generator.head_options is not CausalLM.head_options:
            raise UnsupportedConfigError(
                f"The logits of {generator.__name__} have a bias, a factor or a soft limit, which a head for the score "
                f"of one token does not compute. Expected: an output matrix alone. Received: {', '.join(rows)}"
            )
        names = generator.backbone_type.names
        located = names.located(file, set(rows))
        matrix = located.get(rows[0]) or located.get(f"{names.prefix}{names.tokens}")
        count = 0 if matrix is None else file.shape(matrix)[0]
        tokens = [token for token in (self.true_token, self.false_token) if token is not None]
        if matrix is None or not all(0 <= token < count for token in tokens):
            raise CheckpointError(
                f"The score of a pair needs the rows {tokens} of an output matrix. Received: "
                f"{'no matrix' if matrix is None else f'{matrix} with {count} rows'} in {file}"
            )
        return _WithHead(file, matrix, self)

    def set_template(self, tokenizer: Tokenizer, default: str | None) -> None:
        """Sets the chat template that converts pairs to texts, with the default prompt and the variables.

        Args:
            tokenizer: Tokenizer of the model.
            default: Template of the architecture for a tokenizer whose template has no such roles; optional.

        Raises:
            UnsupportedConfigError: there is no template for pairs.
        """
        template = tokenizer.pair_template or default
        if template is None:
            raise UnsupportedConfigError(
                "This reranker needs a chat template with the roles 'query' and 'document', which converts a pair to "
                "one text. Expected: such a template in chat_template.jinja. Received: "
                f"{'another template' if tokenizer.chat_template else 'none'}"
            )
        start = "".join(f"{{%- set {name} = {json.dumps(value)} -%}}" for name, value in self.variables.items())
        if self.prompt is not None:
            system = json.dumps([{"role": "system", "content": self.prompt}])
            start += (
                f"{{%- if messages[0].role != 'system' -%}}{{%- set messages = {system} + messages -%}}{{%- endif -%}}"
            )
        tokenizer.chat_template = start + template


def is_answer_score(folder: Path) -> bool:
    """Whether a folder contains a reranker of sentence-transformers that is a language model."""
    return module_names(file_content(folder, "modules.json")) == _MODULES


class _WithHead(TensorFile):
    """The tensors of a language model, and the kernel of the head that computes the score.

    Args:
        file: The tensors of the checkpoint.
        matrix: Name of the output matrix.
        score: The tokens of the score.
    """

    def __init__(self, file: TensorFile, matrix: str, score: AnswerScore) -> None:
        self.paths, self.on_disk = file.paths, file.on_disk
        self._file, self._matrix, self._score = file, matrix, score

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return [*self._file.names(), HEAD]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return (1, self._file.shape(self._matrix)[1]) if name == HEAD else self._file.shape(name)

    def problem(self, name: str) -> str | None:
        """Describes why a tensor is unsupported."""
        return self._file.problem(self._matrix if name == HEAD else name)

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor; the kernel is a difference in float32."""
        return "float32" if name == HEAD else self._file.dtype(name)

    def _read(self, name: str) -> np.ndarray:
        if name != HEAD:
            return self._file.read(name)
        matrix, score = self._file.read(self._matrix), self._score
        row = matrix[score.true_token].astype("float32")
        if score.false_token is not None:
            row = row - matrix[score.false_token].astype("float32")
        return row[None]
