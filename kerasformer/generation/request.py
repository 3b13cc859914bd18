"""Conversion of keyword arguments, as in `model.generate`, to a run of `kerasformer.generation`.

Called by `model.generate` and by the pipelines that generate; it calls `loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, FUNCTION, Kind, check, optional, sequence
from kerasformer.engines import Step
from kerasformer.errors import GenerationError, InputError, TokenizerError
from kerasformer.generation import loop
from kerasformer.generation.assistants import AssistantLoader, load_assistant
from kerasformer.generation.constraints import CONSTRAINTS, Constraint, constraint_of
from kerasformer.generation.controls import Controls
from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.loop import Steps
from kerasformer.generation.output import GenerationOutput
from kerasformer.generation.prefix_cache import TextCache
from kerasformer.generation.preparation import prepare
from kerasformer.generation.rules import Rule
from kerasformer.generation.setting_names import GenerationSettings, unknown_name_message
from kerasformer.generation.stopping import Stop
from kerasformer.generation.streams import Callback, Stream
from kerasformer.tokenization import Tokenizer


@dataclass(frozen=True)
class Request:
    """A generation request.

    Attributes:
        config: Generation settings.
        controls: Runtime controls.
        tokenizer: Tokenizer of the texts that the model writes, or `None` if it has none.
        result: Requested result: `"texts"` (tokens, without a tokenizer), `"output"` for the `GenerationOutput`, or
            `"explanation"` for an `Explanation` of each text.
    """

    config: GenerationConfig
    controls: Controls
    tokenizer: Tokenizer | None
    result: str = "texts"

    @property
    def constraint(self) -> Constraint | None:
        """The constraint of the new text, if there is one."""
        return next((rule for rule in self.controls.rules if isinstance(rule, Constraint)), None)

    def for_prompts(self, rows: Sequence[int], total: int) -> Request:
        """Returns the request for some of the prompts, together with their negative prompts.

        Args:
            rows: Indices of the prompts, in any order; an index may be repeated.
            total: Number of all prompts.
        Raises:
            InputError: neither one negative prompt nor one for each prompt.
        """
        ids, mask = self.controls.negative_ids, self.controls.negative_mask
        if ids is None or len(ids) == 1:
            return self
        if len(ids) != total:
            raise InputError(
                f"There must be one negative prompt, or one for each prompt. Expected: 1 or {total}. "
                f"Received: {len(ids)}"
            )
        mask = None if mask is None else np.asarray(mask)[list(rows)]
        controls = dataclasses.replace(self.controls, negative_ids=ids[list(rows)], negative_mask=mask)
        return dataclasses.replace(self, controls=controls)

    def generate(
        self, step: Step, ids: np.ndarray, mask: np.ndarray | None, cache: TextCache | None = None
    ) -> GenerationOutput:
        """Generates whole texts; see `loop.generate` and `Controls.cache`.

        Raises:
            InputError: the tokenizer refuses a prompt, see `Tokenizer.check_prompt`.
        """
        self._check_prompts(step, ids, mask)
        return loop.generate(step, ids, mask, self.config, dataclasses.replace(self.controls, cache=cache))

    def write(self, step: Step, ids: np.ndarray, mask: np.ndarray, cache: TextCache | None = None) -> GeneratedText:
        """Generates texts; arguments as for `generate`.

        Raises:
            TokenizerError: the model has no tokenizer.
        """
        tokenizer = _tokenizer(self.tokenizer, "a text")
        prompts = [_before(step, row, real) for row, real in zip(ids, mask, strict=True)]
        return GeneratedText(tokenizer, prompts, self.generate(step, ids, mask, cache))

    def steps(self, step: Step, ids: np.ndarray, mask: np.ndarray, cache: TextCache | None = None) -> Steps:
        """Generates token by token; arguments as for `generate`, of a single prompt.

        Raises:
            GenerationError: beam search is enabled, or settings that this engine does not support.
            InputError: the tokenizer refuses the prompt, see `Tokenizer.check_prompt`.
        """
        self._check_prompts(step, ids, mask)
        return Steps(prepare(step, ids, mask, self.config, dataclasses.replace(self.controls, cache=cache)))

    def stream(
        self,
        step: Step,
        ids: np.ndarray,
        mask: np.ndarray,
        callback: Callback | None = None,
        cache: TextCache | None = None,
    ) -> Stream:
        """Generates one text as a stream; see `Stream` and `steps`.

        Raises:
            GenerationError: several sequences or a result other than text are requested.
        """
        if self.config.num_return_sequences > 1:
            raise GenerationError(
                "A stream generates one text. Expected num_return_sequences=1. Received: "
                f"{self.config.num_return_sequences}. Remove it, or generate without a stream."
            )
        if self.result != "texts":
            raise GenerationError(
                f"A stream returns only text. Received: settings that request {self.result}. Remove them, or generate "
                "without a stream."
            )
        steps, tokenizer = self.steps(step, ids, mask, cache), _tokenizer(self.tokenizer, "a stream")
        return Stream(steps, tokenizer, _before(step, ids[0], mask[0]), callback)

    def _check_prompts(self, step: Step, ids: np.ndarray, mask: np.ndarray | None) -> None:
        if self.tokenizer is None or step.is_encoder_decoder:
            return
        for index, row in enumerate(np.asarray(ids)):
            self.tokenizer.check_prompt(row.tolist() if mask is None else row[np.asarray(mask)[index] > 0].tolist())


def _before(step: Step, ids: np.ndarray, mask: np.ndarray) -> list[int]:
    """Returns the tokens `(P,)` that precede a new text: those of the prompt, or none for an encoder-decoder."""
    tokens: list[int] = [] if step.is_encoder_decoder else ids[mask > 0].tolist()
    return tokens


def request(
    settings: GenerationSettings,
    base: GenerationConfig,
    tokenizer: Tokenizer | None,
    open_assistant: AssistantLoader,
) -> Request:
    """Creates a request from keyword arguments.

    Args:
        settings: Fields of `GenerationConfig` and the following arguments.
            `stop`: function, or list of functions, of the new tokens of a row `(N,)`; returning true ends the row.
            `rules`: functions that map a `History` and logits `(R, V)` to logits.
            `cancelled`: function without arguments; returning true ends all rows.
            `negative_prompt`: negative prompt for guidance, a text or a list with a text for each prompt.
            `negative_prompt_ids`, `negative_prompt_attention_mask`: negative prompts as arrays `(1 or B, Q)`.
            `assistant`: smaller model for speculative decoding.
            `choices`, `regex`, `json_schema`, `grammar`: constraint of the new text, see `constraint_of`.
            `return_dict_in_generate`: whether to return the `GenerationOutput`.
            `output_scores`, `output_logits`: whether to return it with the scores or logits of each token.
            `explain`: whether to return an `Explanation` of each text.
        base: Settings of the model, which `settings` override.
        tokenizer: Tokenizer for negative prompts; its `writer` is that for stop strings, constraints and results.
        open_assistant: Maps the value of `assistant` to an engine and its tokenizer.
    Raises:
        GenerationError: an unknown name or an invalid value.
        InputError: an argument of a wrong type.
        TokenizerError: texts without a tokenizer, or an assistant with a different vocabulary.
    """
    _check_names(settings)
    arguments = {name: value for name, value in settings.items() if value is not None}
    config = base.replace(**{name: value for name, value in settings.items() if name not in _OTHER_ARGUMENTS})
    explain = _flag("explain", arguments)
    scores, logits = _flag("output_scores", arguments), _flag("output_logits", arguments)
    whole = _flag("return_dict_in_generate", arguments, default=scores or logits)
    negative_ids, negative_mask = _negative(arguments, config, tokenizer)
    rules, writer = _functions("rules", arguments.get("rules", ())), tokenizer and tokenizer.writer
    stops = _functions("stop", arguments.get("stop", ()), "; texts are stop_strings")
    rules, stops = _with_constraint(arguments, writer, config, rules, stops)
    controls = Controls(
        stop=_any(stops),
        decode=_tokenizer(writer, "stop_strings").decode if config.stop_strings else None,
        rules=rules,
        cancelled=check("cancelled", arguments.get("cancelled"), optional(FUNCTION)),
        assistant=load_assistant(arguments.get("assistant"), tokenizer, open_assistant),
        negative_ids=negative_ids,
        negative_mask=negative_mask,
        record=explain,
        output_scores=scores,
        output_logits=logits,
    )
    return Request(config, controls, writer, "explanation" if explain else "output" if whole else "texts")


_OTHER_ARGUMENTS = frozenset(
    "stop rules cancelled negative_prompt negative_prompt_ids negative_prompt_attention_mask assistant "
    "return_dict_in_generate output_scores output_logits explain".split()
).union(CONSTRAINTS)
"""Arguments that are not fields of `GenerationConfig`."""


def _check_names(settings: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(GenerationConfig)} | _OTHER_ARGUMENTS
    for name in settings:
        if name not in known:
            raise GenerationError(unknown_name_message(name, known))


def _any(stops: Sequence[Stop]) -> Stop | None:
    return (lambda tokens: any(stop(tokens) for stop in stops)) if stops else None


def _functions(name: str, value: object, advice: str = "") -> tuple[Callable[..., Any], ...]:
    kind = Kind(f"a function or a list of functions{advice}", sequence(FUNCTION).convert)
    return tuple(check(name, (value,) if callable(value) else value, kind))


def _with_constraint(
    arguments: GenerationSettings,
    tokenizer: Tokenizer | None,
    config: GenerationConfig,
    rules: tuple[Rule, ...],
    stops: tuple[Stop, ...],
) -> tuple[tuple[Rule, ...], tuple[Stop, ...]]:
    constraint = constraint_of(arguments, tokenizer, config)
    if constraint is None:
        return rules, stops
    return (*rules, constraint), stops if constraint.ends_by_token else (*stops, constraint.is_over)


def _flag(name: str, arguments: GenerationSettings, default: bool = False) -> bool:
    return bool(check(name, arguments.get(name, default), BOOLEAN))


def _negative(
    arguments: GenerationSettings, config: GenerationConfig, tokenizer: Tokenizer | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns the tokens and the mask of the negative prompts, or `None`."""
    names = [name for name in ("negative_prompt", "negative_prompt_ids") if name in arguments]
    if "negative_prompt_attention_mask" in arguments and "negative_prompt_ids" not in arguments:
        raise GenerationError(
            "negative_prompt_attention_mask requires negative_prompt_ids. Received: no negative_prompt_ids. Pass both."
        )
    if not names:
        return None, None
    if len(names) > 1:
        raise GenerationError(
            "A negative prompt is a text or ids. Received: negative_prompt and negative_prompt_ids. Remove one of them."
        )
    if config.guidance_scale == 1:
        raise GenerationError(
            "A negative prompt requires a guidance_scale other than 1, which disables guidance. "
            f"Received: {names[0]} with guidance_scale=1. Try guidance_scale=1.5."
        )
    if names == ["negative_prompt_ids"]:
        return np.asarray(arguments["negative_prompt_ids"]), arguments.get("negative_prompt_attention_mask")
    texts = _texts("negative_prompt", arguments["negative_prompt"])
    encoded = _tokenizer(tokenizer, "negative_prompt")(texts, padding_side="right")
    return encoded.input_ids, encoded.attention_mask


def _texts(name: str, value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise InputError(
            f"{name} must be a non-empty text or a list with a non-empty text for each prompt. Received: {value!r}"
        )
    return texts


def _tokenizer(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    if tokenizer is None:
        raise TokenizerError(f"{what} needs a tokenizer, and this model has none. Set model.tokenizer.")
    return tokenizer
