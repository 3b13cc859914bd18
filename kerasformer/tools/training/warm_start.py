"""Encoder-decoders whose weights come from two encoders, and whose cross attention is new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError
from kerasformer.generation import GenerationConfig
from kerasformer.models import (
    PretrainedModel,
    architecture,
    create,
    load,
    model_type_of,
    read_config,
    variables_by_path,
)
from kerasformer.tokenization import Tokenizer

MODEL_TYPE = "encoder-decoder"


def warm_start(encoder: str | Path, decoder: str | Path | None = None, *, dtype: str | None = None) -> PretrainedModel:
    """Creates an encoder-decoder from two checkpoints of BERT, for fine-tuning to summarize or translate.

        model = zoo.warm_start("bert-base-uncased")

    The encoder has the weights of the first checkpoint. The decoder has those of the second, with its head for masked
    words, and sees only earlier tokens. Its cross attention is new: `model.new_variables` lists it. The tokens that
    begin and end an answer are the decoder's `[CLS]` and `[SEP]`.

    Args:
        encoder: Checkpoint, preset or hub id of a BERT.
        decoder: The same for the decoder; by default the encoder's, as a copy.
        dtype: Keras dtype policy.

    Raises:
        InputError: a source is not of the architecture `bert`.
        MissingHeadError: the second checkpoint has no head for masked words.
        SourceError: a source does not exist.
        UnsupportedConfigError: both differ in a size or a setting that must be equal.
    Reference: Rothe et al. 2020, arXiv:1907.12461, BERT2BERT.
    """
    module = architecture(MODEL_TYPE)
    sources = {"encoder": encoder, "decoder": encoder if decoder is None else decoder}
    for stack, source in sources.items():
        if (model_type := model_type_of(read_config(source))) != module.PART:
            raise InputError(f"The {stack} must be a {module.PART}. Received: {model_type}")
    tasks = {"encoder": "feature-extraction", "decoder": "fill-mask"}
    models = {stack: load(source, tasks[stack], dtype=dtype) for stack, source in sources.items()}
    configs = {stack: model.config.to_hf() for stack, model in models.items()}
    module.check_pair(*(model.config for model in models.values()))
    reader, writer = (model.tokenizer for model in models.values())
    content: dict[str, Any] = {**configs, "pad_token_id": models["decoder"].config.pad_token_id}
    content["decoder"] |= {"is_decoder": True, "add_cross_attention": True}
    if writer is not None:
        content |= {"decoder_start_token_id": writer.cls_token_id, "eos_token_id": writer.sep_token_id}
    model_class = module.MODELS["text2text-generation"]
    result: PretrainedModel = create(model_class, model_class.backbone_type.config_type.from_hf(content), dtype)
    result.new_variables = tuple(_copy(result, models, module.origin))
    result.generation_config = GenerationConfig.from_dict({}, result.config.generation_settings())
    if reader is not None and writer is not None:
        result.set_tokenizer(_joined(reader, writer))
    return result


def _copy(
    result: PretrainedModel, models: dict[str, PretrainedModel], origin: Callable[[str], tuple[str, str] | None]
) -> list[str]:
    """Copies the variables of both models, and returns the paths of those that are in neither.

    Args:
        result: The model to copy to.
        models: The models by the name of the stack.
        origin: Function from the path of a variable to its stack and its path in that model; `None` for a new variable.
    """
    sources = {stack: variables_by_path(model) for stack, model in models.items()}
    new = []
    for path, variable in variables_by_path(result).items():
        if (place := origin(path)) is None:
            new.append(path)
        else:
            stack, other = place
            variable.assign(sources[stack][other])
    return new


def _joined(reader: Tokenizer, writer: Tokenizer) -> Tokenizer:
    """Returns one tokenizer for both texts, which has another one for the decoder's if the vocabularies differ."""
    if reader.get_vocab() != writer.get_vocab():
        reader.target = writer
    return reader
