"""From the keyword arguments of `model.generate` and of a pipeline to a run of `kerasformer.decoding`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer import decoding
from kerasformer.arguments import BOOLEAN, FUNCTION, Kind, check, optional, sequence
from kerasformer.decoding import Controls, GenerationConfig, GenerationOutput, Step, Stop
from kerasformer.decoding.rules import Rule
from kerasformer.decoding.setting_names import ALIASES, unknown_name
from kerasformer.errors import GenerationError, InputError, TokenizerError, argument
from kerasformer.generation.assistants import Opener, assistant_of
from kerasformer.generation.constraints import CONSTRAINTS, Constraint, constraint_of
from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.streams import Callback, Stream
from kerasformer.tokenization import Tokenizer


@dataclass(frozen=True)
class Request:
    """A run that was asked for.

    Attributes:
        config: The settings.
        controls: What steers it beside them.
        tokenizer: Of the model; `None` if there are only ids.
        result: What is wanted of it: `"texts"` (for ids, tokens) or `"output"`, the `GenerationOutput`, or an
            `"explanation"` of each text.
    """

    config: GenerationConfig
    controls: Controls
    tokenizer: Tokenizer | None
    result: str = "texts"

    def split(self, sizes: Sequence[int]) -> list[Request]:
        """The same for so many prompts at a time, each with its own negative prompt if there are several.

        Raises:
            InputError: neither one negative prompt nor one for each prompt.
        """
        ids, mask = self.controls.negative_ids, self.controls.negative_mask
        if ids is None or len(ids) == 1:
            return [self] * len(sizes)
        if len(ids) != sum(sizes):
            raise InputError(
                f"There must be one negative prompt, or one for each prompt. Expected: 1 or {sum(sizes)}. "
                f"Received: {len(ids)}"
            )
        ends = np.cumsum(sizes).tolist()
        rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        parts = [(ids[part], None if mask is None else mask[part]) for part in rows]
        controls = [dataclasses.replace(self.controls, negative_ids=i, negative_mask=m) for i, m in parts]
        return [dataclasses.replace(self, controls=each) for each in controls]

    def generate(self, step: Step, ids: np.ndarray, mask: np.ndarray | None) -> GenerationOutput:
        """See `decoding.generate`."""
        return decoding.generate(step, ids, mask, self.config, self._controls(step))

    def _controls(self, step: Step) -> Controls:
        """The controls, for an engine: constrained texts are to be complete when it is full."""
        rules = [rule.within(step.capacity) if isinstance(rule, Constraint) else rule for rule in self.controls.rules]
        return dataclasses.replace(self.controls, rules=tuple(rules))

    def write(self, step: Step, ids: np.ndarray, mask: np.ndarray) -> GeneratedText:
        """Generates texts; arguments as for `decoding.generate`.

        Raises:
            TokenizerError: there is no tokenizer.
        """
        tokenizer = _tokenizer(self.tokenizer, "a text")
        prompts = [
            [] if step.is_encoder_decoder else row[real > 0].tolist() for row, real in zip(ids, mask, strict=True)
        ]
        return GeneratedText(tokenizer, prompts, self.generate(step, ids, mask))

    def stream(self, step: Step, ids: np.ndarray, mask: np.ndarray, callback: Callback | None = None) -> Stream:
        """Generates one text piece by piece; see `Stream`.

        Raises:
            GenerationError: several results are asked for, or something else than text.
        """
        if self.config.num_return_sequences > 1:
            raise GenerationError(
                f"A stream is one text. Expected num_return_sequences=1. Received: {self.config.num_return_sequences}. "
                "Leave it out, or generate without a stream."
            )
        if self.result != "texts":
            raise GenerationError(
                f"A stream gives text alone. Received: settings that ask for {self.result}. Leave them out, or "
                "generate without a stream."
            )

        def tokens(cancelled: Callable[[], bool]) -> Any:
            controls = dataclasses.replace(self._controls(step), cancelled=cancelled)
            return decoding.stream(step, ids, mask, self.config, controls)

        prompt = [] if step.is_encoder_decoder else ids[0][mask[0] > 0].tolist()
        return Stream(tokens, _tokenizer(self.tokenizer, "a stream"), prompt, callback, self.controls.cancelled)


def request(
    settings: Mapping[str, Any],
    base: GenerationConfig,
    tokenizer: Tokenizer | None,
    open_assistant: Opener,
) -> Request:
    """Sorts keyword arguments into settings and controls.

    Args:
        settings: Fields of `GenerationConfig`, and
            `stop`: a function of a row's new tokens `(N,)` that ends the row when true, or several; texts are
            `stop_strings`;
            `rules`: functions of `History` and logits `(R, V)` that give logits;
            `cancelled`: a function that ends all rows when true;
            `negative_prompt`: a text, or a text a prompt, that guidance leads away from;
            `negative_prompt_ids`, `negative_prompt_attention_mask`: the same as arrays `(1 or B, Q)`;
            `assistant`: a smaller model that guesses ahead;
            `choices`, `regex`, `json_schema`, `grammar`: what the new text must follow, see `constraint_of`;
            `return_dict_in_generate`: asks for the `GenerationOutput`;
            `output_scores`, `output_logits`: likewise, with what each token was chosen from;
            `explain`: asks for an `Explanation` of each text.
        base: Settings of the model; those given here win.
        tokenizer: For stop strings and negative prompts.
        open_assistant: From what a caller gives as `assistant` to an engine and its tokenizer.
    Raises:
        GenerationError: an unknown name, or a value that cannot be.
        InputError: an argument of a wrong kind.
        TokenizerError: texts without a tokenizer, or an assistant with another one.
    """
    _check_names(settings)
    given = {name: value for name, value in settings.items() if value is not None}
    strings, stops = _stops(given)
    fields = {name: value for name, value in settings.items() if name not in _BESIDE}
    config = base.replace(**(fields | strings))
    explain = _flag("explain", given)
    scores, logits = _flag("output_scores", given), _flag("output_logits", given)
    whole = _flag("return_dict_in_generate", given, default=scores or logits)
    negative_ids, negative_mask = _negative(given, config, tokenizer)
    rules, stops = _constrained(given, tokenizer, config, _functions("rules", given.get("rules", ())), stops)
    controls = Controls(
        stop=_any(stops),
        decode=_tokenizer(tokenizer, "stop_strings").decode if config.stop_strings else None,
        rules=rules,
        cancelled=check("cancelled", given.get("cancelled"), optional(FUNCTION)),
        assistant=assistant_of(given.get("assistant"), tokenizer, open_assistant),
        negative_ids=negative_ids,
        negative_mask=negative_mask,
        record=explain,
        output_scores=scores,
        output_logits=logits,
    )
    return Request(config, controls, tokenizer, "explanation" if explain else "output" if whole else "texts")


_BESIDE = frozenset(
    "stop rules cancelled negative_prompt negative_prompt_ids negative_prompt_attention_mask assistant "
    "return_dict_in_generate output_scores output_logits explain".split()
).union(CONSTRAINTS)
"""Names that are no fields of `GenerationConfig`."""


def _check_names(settings: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(GenerationConfig)} | _BESIDE
    for name in settings:
        if name not in known and name not in ALIASES:
            raise GenerationError(unknown_name(name, known))


def _stops(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Stop, ...]]:
    """What `stop` means: settings, if it holds texts, or functions."""
    stop = given.get("stop", ())
    if not isinstance(stop, Sequence) or not stop or not all(isinstance(each, str) for each in stop):
        return {}, _functions("stop", stop)
    if "stop_strings" in given:
        raise GenerationError(
            f"Stop strings are given twice. Received: stop={stop!r}, "
            f"{argument('stop_strings', given['stop_strings'])}. "
            "Leave one out."
        )
    return {"stop_strings": stop}, ()


def _any(stops: Sequence[Stop]) -> Stop | None:
    """Ends a row when one of them does."""
    return (lambda tokens: any(stop(tokens) for stop in stops)) if stops else None


def _functions(name: str, value: Any) -> tuple[Any, ...]:
    """One function or several."""
    kind = Kind("a function or a list of them", sequence(FUNCTION).convert)
    return tuple(check(name, (value,) if callable(value) else value, kind))


def _constrained(
    given: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    config: GenerationConfig,
    rules: tuple[Rule, ...],
    stops: tuple[Stop, ...],
) -> tuple[tuple[Rule, ...], tuple[Stop, ...]]:
    """Rules and stops, with those of a constraint if there is one."""
    constraint = constraint_of(given, tokenizer, config)
    if constraint is None:
        return rules, stops
    return (*rules, constraint), stops if constraint.ends_by_token else (*stops, constraint.is_over)


def _flag(name: str, given: Mapping[str, Any], default: bool = False) -> bool:
    return bool(check(name, given.get(name, default), BOOLEAN))


def _negative(
    given: Mapping[str, Any], config: GenerationConfig, tokenizer: Tokenizer | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Tokens that guidance leads away from and their mask, if any are given."""
    names = [name for name in ("negative_prompt", "negative_prompt_ids") if name in given]
    if "negative_prompt_attention_mask" in given and "negative_prompt_ids" not in given:
        raise GenerationError(
            "negative_prompt_attention_mask says which of negative_prompt_ids are real. Received: it without "
            "negative_prompt_ids. Give both."
        )
    if not names:
        return None, None
    if len(names) > 1:
        raise GenerationError(
            "A negative prompt is a text or ids. Received: negative_prompt and negative_prompt_ids. Leave one out."
        )
    if config.guidance_scale == 1:
        raise GenerationError(
            f"A negative prompt needs guidance_scale other than 1, which says how far to lead away from it. "
            f"Received: {names[0]} with guidance_scale=1. Try guidance_scale=1.5."
        )
    if names == ["negative_prompt_ids"]:
        return np.asarray(given["negative_prompt_ids"]), given.get("negative_prompt_attention_mask")
    texts = _texts("negative_prompt", given["negative_prompt"])
    encoded = _tokenizer(tokenizer, "negative_prompt")(texts, padding_side="right")
    return encoded.input_ids, encoded.attention_mask


def _texts(name: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"{name} must be a text or a text for each prompt, none of them empty. Received: {value!r}")
    return texts


def _tokenizer(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    if tokenizer is None:
        raise TokenizerError(f"{what} needs a tokenizer, and this model has none. Set model.tokenizer.")
    return tokenizer
