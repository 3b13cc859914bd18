"""A case: the config.json of a tiny model, from which `transformers` creates the reference with random weights."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import transformers

from kerasformer.basics.tasks import SENTENCE_SIMILARITY
from kerasformer.models import PretrainedModel, registry


def expect(condition: object, message: object) -> None:
    """Raises an error with this message unless a condition holds; unlike `assert`, also in optimized Python."""
    if not condition:
        raise AssertionError(message)


@dataclass(frozen=True)
class Case:
    """A tiny model of an architecture.

    Attributes:
        name: Name of the case.
        model_type: The architecture.
        settings: Content of config.json.
        only: Tasks to test; all tasks of the architecture by default.
        on_jax: Whether the case also runs on the second Keras backend.
        std: Standard deviation of the random weights; large, so that errors and the best token are clear.
        separator: Token that question answering requires three times in a text.
        banded: Whether the attention weights of the reference are those of a window, `(B, H, T, 2 * w + 1)`.
        derived: Keys of config.json that the reference class computes from others, and that are `None` here; or that it
            reads and does not declare.
        end_token: Last token of each text, for heads that read it.
        zero_padding: Whether the embedding of the padding token is 0, for models in which it affects other tokens.
        left_out: Regular expression of tensors of the reference that the architecture does not have, such as those of
            images; none by default.
    """

    name: str
    model_type: str
    settings: Mapping[str, object]
    only: tuple[str, ...] = ()
    on_jax: bool = False
    std: float = 0.3
    separator: int | None = None
    banded: bool = False
    derived: frozenset[str] = field(default=frozenset())
    end_token: int | None = None
    zero_padding: bool = False
    left_out: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks to test; others have tests of their own.

        They are embeddings, whose class is that of feature extraction, and heads that `transformers` does not have.
        """
        kinds = registry.architecture(self.model_type).MODELS.items()
        tasks = tuple(task for task, kind in kinds if task != SENTENCE_SIMILARITY and kind.in_transformers)
        return self.only or tasks

    @property
    def module(self) -> str:
        """File of the architecture."""
        return str(registry.architecture(self.model_type).__file__)

    def kind(self, task: str) -> type[PretrainedModel]:
        """Returns the class of this package for a task."""
        return registry.architecture(self.model_type).MODELS[task]

    def opened_for(self, task: str) -> str | None:
        """Returns the task to open a checkpoint for: `None` if its class alone tells, as several tasks may have one."""
        kinds = registry.architecture(self.model_type).MODELS
        first = next(kind for kind in kinds.values() if kind.architecture == kinds[task].architecture)
        return None if first is kinds[task] else task

    def reference_class(self, task: str) -> type[transformers.PreTrainedModel]:
        """Returns the class of `transformers` for a task."""
        name = self.kind(task).architecture
        expect(
            hasattr(transformers, name),
            f"transformers has no class {name}, which {self.kind(task).__name__}.architecture names. "
            "Set `architecture` of this head to the class that saves its checkpoints",
        )
        return getattr(transformers, name)

    def reference(self, task: str) -> transformers.PreTrainedModel:
        """Creates a model of `transformers` with large random weights, also in biases and norms."""
        labels = {index: f"class {index}" for index in range(2 if task == "question-answering" else 5)}
        config = transformers.AutoConfig.for_model(
            self.model_type,
            **self.settings,
            id2label=labels,
            label2id={label: index for index, label in labels.items()},
        )
        model = self.reference_class(task)._from_config(config, attn_implementation="eager").eval()
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name} {task}".encode()))
        if self.settings.get("tie_word_embeddings") is False and model.get_output_embeddings() is not None:
            output = model.get_output_embeddings()
            output.weight = torch.nn.Parameter(torch.empty_like(output.weight))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_positions" in name and not parameter.requires_grad:
                    continue  # sinusoids
                is_scale = parameter.ndim == 1 and name.endswith("weight")
                parameter.copy_(is_scale + self.std * torch.randn(parameter.shape, generator=generator))
            for name, buffer in model.named_buffers():
                if buffer.is_floating_point() and name in model.state_dict():
                    buffer.copy_(self.std * torch.randn(buffer.shape, generator=generator))
            if self.zero_padding:
                model.get_input_embeddings().weight[model.config.pad_token_id] = 0
        return model
