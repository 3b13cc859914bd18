"""What settings are called elsewhere, and what stands in for those that are not here."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from kerasformer.errors import GenerationError

ALIASES = {
    # OpenAI, vLLM
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "max_output_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "n": "num_return_sequences",
    "stop": "stop_strings",
    # vLLM, KerasHub
    "stop_token_ids": "eos_token_id",
    # CTranslate2
    "beam_size": "num_beams",
    "num_hypotheses": "num_return_sequences",
    "sampling_temperature": "temperature",
    "sampling_topk": "top_k",
    "sampling_topp": "top_p",
}
"""Names with exactly the meaning of one that is used here."""

NOT_HERE = {
    "num_beam_groups": "group beam search is not implemented; for results that differ, draw them: do_sample=True with "
    "num_return_sequences",
    "diversity_penalty": "group beam search is not implemented; for results that differ, draw them: do_sample=True "
    "with num_return_sequences",
    "penalty_alpha": "contrastive search is not implemented; against repetition there are repetition_penalty, "
    "no_repeat_ngram_size and sampling with top_p",
    "dola_layers": "DoLa decoding is not implemented, for engines give the logits of their last layer alone",
    "constraints": "constrained beam search is not implemented; what may be said can be told by choices, regex, "
    "json_schema, grammar or prefix_allowed_tokens_fn",
    "force_words_ids": "constrained beam search is not implemented; sequence_bias makes words likely, and choices, "
    "regex, json_schema, grammar or prefix_allowed_tokens_fn tell what may be said",
    "watermarking_config": "watermarks are not implemented; a rule of your own can add one",
    "token_healing": "token healing is not implemented; end the prompt after a whole word, without a space",
    "forced_decoder_ids": "forced_decoder_ids are not implemented; give the first tokens as part of the prompt, or "
    "force them by prefix_allowed_tokens_fn",
    "logits_processor": "rules= takes functions of what has been said and the logits",
    "stopping_criteria": "stop= takes functions of the new tokens",
    "streamer": "stream() gives the text piece by piece",
    "assistant_model": "assistant= takes the smaller model",
}
"""What `transformers` has or had and this package has not, and what to do instead."""

_NEUTRAL = {"num_beam_groups": 1, "diversity_penalty": 0.0}
"""Values that switch these off; so do `None` and `False`."""

_IGNORED = frozenset(
    "transformers_version _from_model_config _commit_hash use_cache cache_implementation cache_config max_cache_len "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate low_memory "
    "is_assistant compile_config disable_compile prefill_chunk_size continuous_batching_config use_mtp "
    "speculation_type num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit "
    "assistant_lookbehind target_lookbehind".split()
)
"""Fields of the file that say how `transformers` runs, not which tokens come out."""


def translated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that they have here; other names are told.

    Raises:
        GenerationError: a setting under two names.
    """
    result = {name: value for name, value in settings.items() if name not in ALIASES}
    other = {name: value for name, value in settings.items() if name in ALIASES}
    for name, value in other.items():
        ours = ALIASES[name]
        if result.get(ours) is not None:
            raise GenerationError(
                f"{ours} is given twice. Expected one name. Received: {ours}={result[ours]!r}, {name}={value!r}. "
                f"Leave {name} out."
            )
        result[ours] = value
    if other:
        told = ", ".join(f"{name} is read as {ALIASES[name]}" for name in other)
        warnings.warn(f"generation settings: {told}.", stacklevel=3)
    return result


def tell_unknown(settings: Mapping[str, Any], names: Collection[str]) -> None:
    """Warns of settings in a file that would act elsewhere and do not here."""
    unknown = sorted(key for key in settings if key not in names and key not in _IGNORED and _acts(key, settings[key]))
    if unknown:
        given = ", ".join(f"{key}={settings[key]!r}" for key in unknown)
        advice = "".join(f"\n- {text}" for text in dict.fromkeys(NOT_HERE[key] for key in unknown if key in NOT_HERE))
        warnings.warn(
            f"these generation settings are not implemented and have no effect: {given}{advice}", stacklevel=3
        )


def _acts(key: str, value: Any) -> bool:
    return value is not None and value is not False and value != _NEUTRAL.get(key)


def unknown_name(name: str, names: Collection[str]) -> str:
    """The error text for a setting that is not known."""
    if name in NOT_HERE:
        return f"{name} is not a generation setting: {NOT_HERE[name]}."
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(sorted(names))}."
    return f"{name} is not a generation setting. {advice}"
