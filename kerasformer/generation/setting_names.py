"""Messages for unknown and unsupported generation settings."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping
from typing import Any

GenerationSettings = Mapping[str, Any]
"""Settings of `GenerationConfig` by name, as callers pass them or files contain them; to be checked."""

UNSUPPORTED = {
    "num_beam_groups": "group beam search is not implemented; to get diverse results, use do_sample=True with "
    "num_return_sequences",
    "diversity_penalty": "group beam search is not implemented; to get diverse results, use do_sample=True with "
    "num_return_sequences",
    "penalty_alpha": "contrastive search is not implemented; to avoid repetition, use repetition_penalty, "
    "no_repeat_ngram_size or sampling with top_p",
    "dola_layers": "DoLa decoding is not implemented, because engines return the logits of the last layer only",
    "constraints": "constrained beam search is not implemented; to constrain the output, use choices, regex, "
    "json_schema, grammar or prefix_allowed_tokens_fn",
    "force_words_ids": "constrained beam search is not implemented; to make words more likely, use sequence_bias; to "
    "constrain the output, use choices, regex, json_schema, grammar or prefix_allowed_tokens_fn",
    "watermarking_config": "watermarks are not implemented; a custom rule can add one",
    "token_healing": "token healing is not implemented; end the prompt after a whole word, without a space",
    "forced_decoder_ids": "forced_decoder_ids are not implemented; add the first tokens to the prompt, or force them "
    "with prefix_allowed_tokens_fn",
    "logits_processor": "pass functions that change the logits as rules=",
    "stopping_criteria": "pass a function of the new tokens as stop=",
    "streamer": "use stream() to get the text in pieces",
    "assistant_model": "pass the smaller model as assistant=",
}
"""Settings of `transformers` that are not supported, with alternatives."""

_DISABLED = {"num_beam_groups": 1, "diversity_penalty": 0.0}
"""Values that disable these settings, besides `None` and `False`."""

_IGNORED = frozenset(
    "transformers_version _from_model_config _commit_hash use_cache cache_implementation cache_config max_cache_len "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate low_memory "
    "is_assistant compile_config disable_compile prefill_chunk_size continuous_batching_config use_mtp "
    "speculation_type num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit "
    "assistant_lookbehind target_lookbehind".split()
)
"""Fields of the file that have no effect on the generated tokens."""


def warn_unsupported(settings: GenerationSettings, names: Collection[str]) -> None:
    """Warns about unsupported settings in a file that would have an effect in `transformers`."""
    unknown = sorted(
        key for key in settings if key not in names and key not in _IGNORED and _has_effect(key, settings[key])
    )
    if unknown:
        listed = ", ".join(f"{key}={settings[key]!r}" for key in unknown)
        advice = "".join(
            f"\n- {text}" for text in dict.fromkeys(UNSUPPORTED[key] for key in unknown if key in UNSUPPORTED)
        )
        warnings.warn(
            f"these generation settings are not implemented and have no effect: {listed}{advice}", stacklevel=3
        )


def _has_effect(key: str, value: object) -> bool:
    return value is not None and value is not False and value != _DISABLED.get(key)


def unknown_name_message(name: str, names: Collection[str]) -> str:
    """Returns the error message for an unknown setting."""
    if name in UNSUPPORTED:
        return f"{name} is not a generation setting: {UNSUPPORTED[name]}."
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(sorted(names))}."
    return f"{name} is not a generation setting. {advice}"
