"""Settings of decoding beside each other: the text of each, its likelihood, its repetitions, and its time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, integer
from kerasformer.errors import InputError
from kerasformer.files.reading import JsonObject
from kerasformer.generation import ID_SETTINGS, GeneratedText, GenerationConfig
from kerasformer.pipelines import GenerationPipeline, pipeline
from kerasformer.tools.evaluation.likelihood import sequence_logprob
from kerasformer.tools.evaluation.metrics import distinct, repetition

Settings = Mapping[str, object]

SWEEP: dict[str, Settings] = {
    "greedy": {},
    "4 beams": {"num_beams": 4},
    "4 beams, no bigram twice": {"num_beams": 4, "no_repeat_ngram_size": 2},
    "repetition penalty 1.3": {"repetition_penalty": 1.3},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1": {"do_sample": True},
    "temperature 1.5": {"temperature": 1.5},
    "top-k 20": {"top_k": 20},
    "top-p 0.9": {"top_p": 0.9},
}
"""What is compared by default, each with its name."""
_REPEATED = 3
"""Length of the n-grams of `SweptSetting.repetition`."""


@dataclass(frozen=True)
class SweptSetting:
    """A setting and what it wrote. All figures are of tokens, so that they exist for every language.

    Attributes:
        name: Its name.
        settings: Fields of `GenerationConfig`.
        texts: The new texts; several if tokens are sampled and several samples were requested.
        num_tokens: Number of new tokens, of all texts together.
        log_probability: Mean log-probability of a new token under the model itself, without any rule or filter.
        repetition: Share of the trigrams of a text that occurred in it before (rep-3), mean of the texts.
        distinct_1: Number of distinct tokens divided by that of tokens, in all texts together.
        distinct_2: Number of distinct bigrams divided by that of tokens, likewise.
        seconds: Mean time of a text in seconds.
    """

    name: str
    settings: Settings
    texts: tuple[str, ...]
    num_tokens: int
    log_probability: float
    repetition: float
    distinct_1: float
    distinct_2: float
    seconds: float


@dataclass(frozen=True)
class Sweep:
    """Settings of decoding beside each other.

    Attributes:
        text: The prompt, or the input of the encoder.
        engine: What ran the model.
        rows: The settings, in their order.
    """

    text: str
    engine: str
    rows: tuple[SweptSetting, ...]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the names of the columns, and the cells of each setting."""
        columns = ["setting", "log-prob / token", "rep-3", "distinct-1", "distinct-2", "tokens", "seconds", "text"]
        cells = [
            [
                row.name,
                f"{row.log_probability:.2f}",
                f"{row.repetition:.0%}",
                f"{row.distinct_1:.2f}",
                f"{row.distinct_2:.2f}",
                f"{row.num_tokens}",
                f"{row.seconds:.2f}",
                row.texts[0],
            ]
            for row in self.rows
        ]
        return columns, cells

    def to_dict(self) -> JsonObject:
        """Returns all fields as values for JSON."""
        return dataclasses.asdict(self)

    def picture(self, path: str | Path, title: str = "", dark: bool = False) -> None:
        """Draws the figures of all settings as bars.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            title: Title of the figure.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, or its folder does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_sweep

        panels = {
            "log-probability of a token": [row.log_probability for row in self.rows],
            "repeated trigrams (rep-3)": [row.repetition for row in self.rows],
            "distinct-2": [row.distinct_2 for row in self.rows],
            "seconds": [row.seconds for row in self.rows],
        }
        draw_sweep([row.name for row in self.rows], panels, path, title, dark)

    def __str__(self) -> str:
        columns, cells = self.table()
        widths = [max(len(row[index]) for row in [columns, *cells]) for index in range(len(columns) - 1)]
        lines = []
        for row in [columns, *cells]:
            figures = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*figures, " ".join(row[-1].split())]))
        return "\n".join(lines)


def sweep(
    source: Any,
    text: str,
    settings: Mapping[str, Settings] | Sequence[Settings] | None = None,
    *,
    task: str | None = None,
    samples: int = 1,
    seed: int = 0,
    raw: bool = False,
    **common: object,
) -> Sweep:
    """Generates a text with each of several settings of decoding and measures what they differ in.

        print(kf.sweep("story-gpt2", "Once upon a time", max_new_tokens=40))
        kf.sweep(pipe, text, {"greedy": {}, "nucleus": {"top_p": 0.9}}, samples=5).picture("sweep.png")

    Args:
        source: Model, pipeline, bundle, folder, preset or hub id of a model that generates.
        text: The prompt, or the input of the encoder.
        settings: Fields of `GenerationConfig` by the name of the setting, or a list of them; by default greedy search,
            beams, penalties, temperatures and the filters of sampling (`SWEEP`). What a setting does not name is off,
            even if the model's own settings have it, except for the maximum length and for settings with ids of tokens,
            such as tokens that are forced or never generated.
        task: Task of a source.
        samples: Number of texts of each setting that samples.
        seed: Seed of the first sample; the next ones have the next seeds. A setting may have its own.
        raw: Whether a decoder with a chat template continues the text as it is.
        common: Settings of all, such as `max_new_tokens=40`.

    Raises:
        InputError: the model does not generate, there are no settings, or one returns several texts in one call.
        GenerationError: a setting is invalid.

    Reference: rep-n: Welleck et al. 2020, arXiv:1908.04319; distinct-n: Li et al. 2016, arXiv:1510.03055, section 5.
    """
    text = check("text", text, STRING)
    raw = check("raw", raw, BOOLEAN)
    samples, seed = check("samples", samples, integer(1)), check("seed", seed, integer(0))
    chosen: Mapping[str, Settings] = SWEEP if settings is None else _named(settings)
    if not chosen:
        raise InputError("A sweep compares settings. Expected: at least one. Received: none")
    chosen = {name: {**common, **values} for name, values in chosen.items()}
    configs = {name: GenerationConfig().replace(**values) for name, values in chosen.items()}
    if any(config.num_return_sequences > 1 for config in configs.values()):
        raise InputError("A sweep measures one text of each call. Expected: samples=. Received: num_return_sequences")
    pipe = source if isinstance(source, GenerationPipeline) else pipeline(source, task)
    if not isinstance(pipe, GenerationPipeline):
        raise InputError(f"A sweep is for models that generate. Received: a model for {pipe.task}")
    rows = []
    for name, values in chosen.items():
        sampled, own = bool(configs[name].do_sample), configs[name].seed
        call = {**_neutral(pipe.generation_config), **values, "do_sample": sampled}
        first = seed if own is None else own
        calls = [{**call, "seed": first + index} for index in range(samples)] if sampled else [call]
        rows.append(_swept(pipe, text, name, values, calls, {"raw": True} if raw else {}))
    return Sweep(text, pipe.engine, tuple(rows))


def _named(settings: Mapping[str, Settings] | Sequence[Settings]) -> Mapping[str, Settings]:
    if isinstance(settings, Mapping):
        return settings
    named = {", ".join(f"{name}={value}" for name, value in row.items()) or "greedy": row for row in settings}
    if len(named) < len(settings):
        raise InputError(f"Each setting may be given only once. Received: {', '.join(map(str, settings))}")
    return named


def _neutral(config: GenerationConfig) -> dict[str, Any]:
    """Returns the defaults of what a model sets, so that only a sweep sets it; but for ids and the maximum length."""
    kept, plain = {*ID_SETTINGS, "max_new_tokens", "max_length", "seed"}, GenerationConfig()
    names = [field.name for field in dataclasses.fields(GenerationConfig) if field.name not in kept]
    return {name: getattr(plain, name) for name in names if getattr(config, name) != getattr(plain, name)}


def _swept(
    pipe: GenerationPipeline,
    text: str,
    name: str,
    settings: Settings,
    calls: Sequence[dict[str, Any]],
    reading: Mapping[str, Any],
) -> SweptSetting:
    """Generates the texts of a setting and measures them."""
    texts, tokens, logs, seconds = [], [], [], []
    prompt = pipe.prompt(text, **reading)  # type: ignore[attr-defined]  # which both pipelines have
    # What is prepared at the first call, such as graphs for so many beams, is not the time of a setting.
    pipe(text, **{**calls[0], **reading, "max_new_tokens": 2})  # type: ignore[operator]
    for call in calls:
        started = time.perf_counter()
        output = pipe(text, return_dict_in_generate=True, **call, **reading)  # type: ignore[operator]
        seconds.append(time.perf_counter() - started)
        new = output.sequences[0]
        texts.append(GeneratedText(pipe.tokenizer.writer, [prompt.before], output).texts[0][0])
        tokens.append(new.tolist())
        logs.append(_log_probability(pipe, prompt, new) if len(new) else 0.0)
    count = sum(map(len, tokens))
    return SweptSetting(
        name,
        dict(settings),
        tuple(texts),
        count,
        sum(logs) / max(count, 1),
        float(np.mean([repetition(row, _REPEATED) for row in tokens])),
        distinct(tokens, 1),
        distinct(tokens, 2),
        float(np.mean(seconds)),
    )


def _log_probability(pipe: GenerationPipeline, prompt: Any, new: np.ndarray) -> float:
    """Returns the log-probability of new tokens under the model, without rules and filters."""
    if prompt.step.is_encoder_decoder:
        return float(sequence_logprob(pipe, prompt.ids[0], target=new))
    return float(sequence_logprob(pipe, [*prompt.before, *new.tolist()], input_len=len(prompt.before)))
