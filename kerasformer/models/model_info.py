"""The information about a model that pipelines and bundles need."""

from __future__ import annotations

import keras
import numpy as np

from kerasformer.bundle import LanguageInfo, ModelInfo
from kerasformer.tokenization.languages import MultilingualTokenizer


def model_info(model: keras.Model, task: str) -> ModelInfo:
    """Implements `PretrainedModel.info`."""
    config = model.config
    settings = model.generation_config.to_dict()
    if model.is_encoder_decoder:
        settings.setdefault("decoder_start_token_id", config.generation_settings()["decoder_start_token_id"])
        if getattr(model.tokenizer, "tgt_lang", None) is not None:
            settings |= model.tokenizer.target_settings(settings)
    eos = settings.get("eos_token_id", config.eos_token_id)
    return ModelInfo(
        task=task,
        model_type=config.model_type,
        name=type(model).__name__,
        labels=config.labels if model.has_labels else (),
        problem_type=config.problem_type if model.has_labels else None,
        max_length=model.max_length,
        vocab_size=config.vocab_size,
        num_segments=getattr(config, "num_segments", None) or None,
        is_encoder_decoder=model.is_encoder_decoder,
        pad_token_id=settings.get("pad_token_id", config.pad_token_id),
        bos_token_id=settings.get("bos_token_id", config.bos_token_id),
        decoder_start_token_id=settings.get("decoder_start_token_id"),
        eos_token_id=() if eos is None else tuple(np.atleast_1d(eos).tolist()),
        task_prefixes=model.task_prefixes,
        task_settings=model.task_settings,
        input_names=model.input_names,
        generation=settings,
        score_activation=config.score_activation if model.has_labels else None,
        languages=_languages(model.tokenizer),
    )


def _languages(tokenizer: object) -> LanguageInfo | None:
    return LanguageInfo(**tokenizer.language_info()) if isinstance(tokenizer, MultilingualTokenizer) else None
