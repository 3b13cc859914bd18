"""What the page shows, recorded from a Keras model or a bundle, and from its quantized bundles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasformer import bundle
from kerasformer.basics.arguments import STRING, check, sequence
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import ModelInfo
from kerasformer.engines import Step
from kerasformer.errors import BundleError, CapacityError, InputError
from kerasformer.files import sources
from kerasformer.files.reading import JsonObject
from kerasformer.generation import GenerationOutput
from kerasformer.pipelines import Opened, open_source
from kerasformer.tools.interpretability.attention_sources import BundleSource
from kerasformer.tools.interpretability.attribution import Method, attribute
from kerasformer.tools.interpretability.explainer.answers import (
    COMPARED_TOKENS,
    NEW_TOKENS,
    NEXT,
    SPAN,
    VECTOR,
    Answers,
    Continued,
    answers_of,
    beam_search,
    continued,
    kind_of,
)
from kerasformer.tools.interpretability.explainer.insides import Attention, family, insides, of_bundle
from kerasformer.tools.interpretability.explainer.packing import packed_ids, packed_numbers, packed_shares
from kerasformer.tools.interpretability.explainer.precision import (
    RECIPES,
    Precision,
    by_name,
    divergence,
    exported,
    opened_bundle,
    siblings,
)
from kerasformer.tools.interpretability.explainer.readings import Reading, Text, readings
from kerasformer.tools.interpretability.explainer.words import Words

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

CANDIDATES = 200
"""Number of most probable candidates whose logits the page has."""
TEMPERATURES = tuple(round(0.1 * step, 1) for step in range(1, 21))
"""Temperatures that the page can show, for which the sum over all other candidates is recorded."""
LENS_CANDIDATES, COMPARED = 5, 6
"""Number of candidates of a layer, and of each precision in the comparison."""
MAX_PLACES = 64
"""Number of places of a text that are shown, the last ones if there are more."""
ATTENTION_BYTES = 2_000_000
"""Attention weights of all texts of a page, in bytes. Layers are left out where there would be more."""


@dataclass(frozen=True)
class _Subject:
    """The model of a page.

    Attributes:
        opened: The engine that answers.
        model: The Keras model; `None` for a bundle.
        precision: Name and size of the weights.
        title: Name of the model.
        source: Name of the preset, folder or hub id; `None` for a Keras model that the caller has.
        folder: Folder of a bundle; `None` for a Keras model.
        weights: The bundle as a source of attention weights, if it was exported with them.
    """

    opened: Opened
    model: PretrainedModel | None
    precision: Precision
    title: str
    source: str | None = None
    folder: Path | None = None
    weights: BundleSource | None = None


@dataclass(frozen=True)
class _Item:
    """One text with the answers of the model, and its continuation in the comparison."""

    text: Continued | Reading
    answers: Answers
    whole: Continued | None = None

    @property
    def reading(self) -> Reading:
        return self.text.reading if isinstance(self.text, Continued) else self.text


def record(
    source: str | os.PathLike[str] | PretrainedModel,
    texts: Sequence[Text] | None = None,
    *,
    recipes: Sequence[str] = RECIPES,
    bundles: Mapping[str, str | os.PathLike[str]] | None = None,
    format: str = "litert",
    progress: StageProgress | None = None,
) -> JsonObject:
    """Records what the page shows.

    Args:
        source: Keras model, checkpoint folder, preset, hub id or bundle. A bundle shows no layers, and
            attention only if it was exported with it.
        texts: Texts or pairs of texts; by default sample texts of the model's task.
        recipes: Recipes of the bundles that are exported for the comparison; none for no comparison. A bundle is
            compared with those of the same model that lie beside it.
        bundles: Bundles of the same model to compare instead of these, by the names that the page shows.
        format: Format of the exported bundles.
        progress: Called with each stage.

    Returns:
        A JSON object with `model`, `precisions`, `temperatures`, `words`, and a list of `texts`.

    Raises:
        CapacityError: a text has more tokens than the model reads, or than a page shows.
        ExportError: a recipe is unknown.
        InputError: the format is unknown, a text is no text, or a bundle is of another model.
        SourceError: the source was not found.
        TokenizerError: the model has no tokenizer, or one without the mask token that it needs.
    """
    report: StageProgress = progress or (lambda *_: None)
    recipes = check("recipes", recipes, sequence(STRING))
    report("load", 0, 0)
    subject = _opened(source)
    opened = subject.opened
    report("read", 0, 0)
    items = [_item(opened, each) for each in readings(texts, opened.info, opened.tokenizer)]
    words = Words(opened.tokenizer)
    with _compared_with(subject, items, recipes, bundles, format, report) as precisions:
        report("compare", 0, 0)
        pages = [_page(subject, item, words, len(items)) for item in items]
        for item, page in zip(items, pages, strict=True):
            page["comparison"] = _comparison(subject, item, precisions, words)
        listed = [subject.precision, *precisions]
        return {
            "model": _facts(subject),
            "precisions": [{"name": each.name, "bytes": each.bytes, "note": each.note} for each in listed],
            "temperatures": TEMPERATURES,
            "texts": pages,
            "words": words.listed(),
        }


def _opened(source: str | os.PathLike[str] | PretrainedModel) -> _Subject:
    if isinstance(source, str | os.PathLike):
        folder = sources.resolve(source)
        if sources.kind(folder) != "checkpoint":
            precision = opened_bundle(folder)
            assert precision.opened is not None  # noqa: S101  # only a failed export has none
            _check_choices(precision.opened.info)
            name = folder.absolute().name
            return _Subject(precision.opened, None, precision, name, name, folder, _attention_source(folder))
        from kerasformer.models import load

        name = Path(source).name
        # The page does not tell the folders of the machine; a hub id is whole.
        return _of_model(load(folder), name, name if Path(source).exists() else str(source))
    return _of_model(source)


def _attention_source(folder: Path) -> BundleSource | None:
    try:
        return bundle.load(folder, BundleSource)
    except BundleError:  # exported without
        return None


def _of_model(model: PretrainedModel, title: str | None = None, source: str | None = None) -> _Subject:
    from kerasformer.models import KerasStep

    if model.config.prefix_lm:
        raise InputError(
            "The page reads a text token by token, but in a prompt of a prefix language model tokens attend to later "
            "ones. Expected: a causal model. Received: prefix_lm=True in the configuration"
        )
    opened = open_source(None, model)
    if model.generates:  # without XLA, which pays off only for longer texts
        opened = Opened("keras", KerasStep(model, jit_compile=False), opened.tokenizer, opened.info, opened.task)
    _check_choices(opened.info)
    size = sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in model.variables)
    precision = Precision(model.dtype_policy.name, opened, size)
    return _Subject(opened, model, precision, title or opened.info.name, source)


def _check_choices(info: ModelInfo) -> None:
    """Raises an error for a model whose scores are no probabilities.

    Raises:
        InputError: the model is for regression, or a cross-encoder whose scores are its logits or their tanh.
    """
    if info.problem_type == "regression":
        received = "a model for regression"
    elif len(info.labels) == 1 and not (info.score_activation or "Sigmoid").endswith("Sigmoid"):
        received = f"a cross-encoder whose scores are its logits after {info.score_activation}"
    else:
        return
    raise InputError(
        f"The page explains choices among tokens, classes or places. Received: {received}, which returns numbers. "
        "kerasformer explain without --site shows its attention"
    )


def _item(opened: Opened, reading: Reading) -> _Item:
    if kind_of(opened) != NEXT:
        return _Item(reading, answers_of(opened, reading))
    whole = continued(opened, reading, COMPARED_TOKENS)
    text = whole.first(NEW_TOKENS)
    return _Item(text, answers_of(opened, text), whole)


@contextmanager
def _compared_with(
    subject: _Subject,
    items: Sequence[_Item],
    recipes: Sequence[str],
    bundles: Mapping[str, str | os.PathLike[str]] | None,
    format: str,
    report: StageProgress,
) -> Iterator[list[Precision]]:
    """Yields the other precisions of the model."""
    if bundles is not None:
        yield by_name(bundles)
    elif subject.folder is not None:
        found = siblings(subject.folder, bundle.read(subject.folder, check=False))
        yield [_unless_short(each, items) for each in found]
    elif subject.model is not None and recipes:
        with exported(subject.model, [item.text for item in items], recipes, format, report) as precisions:
            yield precisions
    else:
        yield []


def _unless_short(precision: Precision, items: Sequence[_Item]) -> Precision:
    """Returns a bundle that nobody named, which is not opened if it reads fewer tokens than the texts have."""
    if precision.opened is None:
        return precision
    longest, model = max((item.text for item in items), key=lambda text: len(text.ids)), precision.opened.model
    note = ""
    if not isinstance(model, Step):
        try:
            answers_of(precision.opened, longest)
        except CapacityError as error:
            note = str(error)
    elif len(longest.ids) > model.capacity:
        note = f"It reads {model.capacity} tokens, and these texts have {len(longest.ids)}"
    return replace(precision, opened=None, note=note) if note else precision


def _facts(subject: _Subject) -> JsonObject:
    """Returns what the head of the page says about the model."""
    info, model = subject.opened.info, subject.model
    generates = isinstance(subject.opened.model, Step)
    # The manifest of a bundle has no stacks.
    stacks = "encoder-decoder" if info.is_encoder_decoder else "decoder" if generates else "encoder"
    return {
        "title": subject.title,
        "source": subject.source,
        "name": info.name,
        "type": info.model_type,
        "task": subject.opened.task,
        "family": stacks if model is None else family(model),
        "generates": generates,
        "bundle": subject.folder is not None,
        "kind": kind_of(subject.opened),
        "parameters": None if model is None else model.count_params(),
        "vocabulary": info.vocab_size,
    }


def _page(subject: _Subject, item: _Item, words: Words, count: int) -> JsonObject:
    """Returns what the page shows of one text, but for the comparison."""
    reading, text = item.reading, item.text
    page: JsonObject = {
        "text": reading.text,
        "pair": reading.pair,
        "prefix": reading.prefix,
        "read": packed_ids(words.of_tokens(reading.ids, written=_shared_vocabulary(subject))),
        "special": [int(special) for special in reading.special],
        "gap": _gap(subject.opened, reading),
        "segments": None if reading.segments is None else reading.segments.tolist(),
        "reason": _reason(subject, reading),
        "choices": _choices(item, words),
        "attention": [],
        "lens": None,
        "beams": None,
        "written": None,
    }
    if isinstance(text, Continued):
        page["written"] = packed_ids(words.of_tokens(text.ids))
        page["start"] = len(text.start)
        page["beams"] = _beams(beam_search(subject.opened, reading), words)
    inside = None
    if subject.model is not None:
        inside = insides(subject.model, subject.opened, text)
    elif subject.weights is not None:
        inside = of_bundle(subject.weights, subject.opened, text)
    if inside is not None:
        limit = ATTENTION_BYTES // count
        total = sum(attention.weights.size for attention in inside.attentions)
        stride = max(1, -(-total // limit))
        page["attention"] = [_attention(each, stride, words, _shared_vocabulary(subject)) for each in inside.attentions]
        page["lens"] = _lens(item, inside.layers, words) if inside.layers else None
    return page


def _reason(subject: _Subject, reading: Reading) -> JsonObject | None:
    """Returns what each part of a text adds to the score of the answer; `None` where answers are no scores."""
    method: Method = "occlusion" if subject.model is None else "integrated_gradients"
    try:
        found = attribute(subject.model or subject.opened, reading.text, reading.pair, method=method)
    except InputError:
        return None
    parts = [[text, share if share is None else round(share, 4)] for text, share in found.pieces()]
    return {"title": found.title, "method": method, "parts": parts}


def _gap(opened: Opened, reading: Reading) -> int | None:
    """Returns the index of the first mask token in a text; `None` if there is none."""
    gaps = np.flatnonzero(reading.ids == opened.tokenizer.mask_token_id)
    return int(gaps[0]) if len(gaps) else None


def _shared_vocabulary(subject: _Subject) -> bool:
    """Whether the tokens of a text are those that the model writes."""
    return not subject.opened.info.is_encoder_decoder


def _attention(attention: Attention, stride: int, words: Words, shared: bool) -> JsonObject:
    """Returns the weights of every `stride`-th layer, counted from the last one."""
    kept = sorted(range(len(attention.layers) - 1, -1, -stride))
    return {
        "stack": attention.name,
        "layers": [attention.layers[index] for index in kept],
        "total": len(attention.layers),
        "queries": packed_ids(words.of_tokens(attention.queries, written=shared or attention.name != "encoder")),
        "keys": packed_ids(words.of_tokens(attention.keys, written=shared or attention.name == "decoder")),
        "weights": packed_shares(attention.weights[kept]),
    }


def _candidates(item: _Item, words: Words) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from indices of candidates to those of their words."""
    labels = item.answers.labels
    if labels is None:
        return words.of_tokens
    if item.answers.kind == SPAN:
        ids = words.of_tokens(item.reading.ids, written=False)
        labels = tuple(f"{words.text(word)} · {index}" for index, word in enumerate(ids.tolist()))
    table = words.of_labels(labels)
    return lambda indices: table[indices]


def _shown(item: _Item) -> slice:
    """Returns the places that are shown."""
    return slice(max(0, len(item.answers.places) - MAX_PLACES), None)


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the `count` greatest scores of each row, best first; of equal ones, the lower index."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :count]


def _choices(item: _Item, words: Words) -> JsonObject:
    """Returns the logits of the best candidates at each place, and sums over all others for each temperature."""
    answers, shown = item.answers, _shown(item)
    base = {"kind": answers.kind, "places": list(answers.places[shown]), "independent": answers.independent}
    if answers.kind == VECTOR:
        return {**base, "vector": packed_numbers(answers.scores[0])}
    scores = answers.scores[shown].astype(np.float64)
    best = _best(scores, CANDIDATES)
    rest = scores.copy()
    np.put_along_axis(rest, best, -np.inf, axis=1)
    others = scores.shape[1] - best.shape[1]
    sums = np.stack([_log_sum(rest / temperature) for temperature in TEMPERATURES], axis=1) if others else None
    return {
        **base,
        "words": packed_ids(_candidates(item, words)(best)),
        "scores": packed_numbers(np.take_along_axis(scores, best, axis=1)),
        "others": others,
        "rest": None if sums is None else packed_numbers(sums),
    }


def _log_sum(scores: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the sum of the powers of scores, over the last axis."""
    greatest = scores.max(axis=-1, keepdims=True)
    return (np.log(np.exp(scores - greatest).sum(axis=-1, keepdims=True)) + greatest)[..., 0]


def _lens(item: _Item, layers: Sequence[Answers], words: Words) -> JsonObject:
    """Returns the best candidates after each layer, with their probabilities and that of the final choice."""
    shown, of_candidates = _shown(item), _candidates(item, words)
    logs = np.stack([answers.log_probabilities[shown] for answers in layers])
    best = _best(logs, LENS_CANDIDATES)
    final = np.broadcast_to(best[-1:, :, :1], (*logs.shape[:2], 1))
    return {
        "words": packed_ids(of_candidates(best)),
        "shares": packed_numbers(np.exp(np.take_along_axis(logs, best, axis=2))),
        "final": packed_numbers(np.exp(np.take_along_axis(logs, final, axis=2)[..., 0])),
    }


def _beams(output: GenerationOutput, words: Words) -> JsonObject | None:
    """Returns the candidates of each step of a beam search, as rows of numbers.

    A row has the index of the parent in the step before (-1 for the first step), the word, the probability, the sum of
    the log-probabilities, and whether the candidate was kept, ended, and is a part of the returned text.
    """
    if output.record is None:
        return None
    best = {id(node) for node in output.record.paths[0]}
    indices: dict[int, int] = {}
    steps = []
    for nodes in output.record.steps:
        ranked = sorted(nodes, key=lambda node: (not node.selected, -(node.total or 0)))
        kept = [node for node in ranked if (node.total or 0) > -1e8]
        steps.append(
            [
                [
                    -1 if node.parent is None else indices[id(node.parent)],
                    int(words.of_tokens(np.array([node.token]))[0]),
                    _rounded(float(np.exp(node.log_probability))),
                    _rounded(node.total or 0.0),
                    int(node.selected),
                    int(node.finished),
                    int(id(node) in best),
                ]
                for node in kept
            ]
        )
        indices |= {id(node): index for index, node in enumerate(kept)}
    return {"steps": steps, "count": max(len(step) for step in steps)}


def _rounded(number: float) -> float:
    return float(f"{number:.5g}")


def _comparison(subject: _Subject, item: _Item, precisions: Sequence[Precision], words: Words) -> list[JsonObject]:
    """Returns the best candidates of the model and of each precision, and how far their probabilities are apart."""
    others = [(each, _answers_in(each, item)) for each in precisions if each.opened is not None]
    everything = [item.answers, *(answers for _, answers in others)]
    if item.answers.kind == VECTOR:
        cosines = [_cosine(item.answers.scores[0], answers.scores[0]) for answers in everything]
        return [{"cosine": _rounded(cosine)} for cosine in cosines]
    shown = _shown(item)
    logs = [answers.log_probabilities[shown] for answers in everything]
    union = [
        np.unique(np.concatenate([_best(each[place], COMPARED) for each in logs])) for place in range(len(logs[0]))
    ]
    width = max(map(len, union))
    # Rows are filled with their best candidate, which the page shows once.
    tables = np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in union])
    order = np.argsort(-np.take_along_axis(logs[0], tables, axis=1), axis=1, kind="stable")
    tables = np.take_along_axis(tables, order, axis=1)
    word_table = packed_ids(_candidates(item, words)(tables))
    results = []
    for index, (each, answers) in enumerate(zip(logs, everything, strict=True)):
        opened = subject.opened if index == 0 else others[index - 1][0].opened
        result: JsonObject = {
            "name": subject.precision.name if index == 0 else others[index - 1][0].name,
            "words": word_table,
            "shares": packed_numbers(np.exp(np.take_along_axis(each, tables, axis=1))),
            "best": packed_ids(_candidates(item, words)(each.argmax(axis=1))),
            "divergence": packed_numbers(divergence(logs[0], each, answers.independent)),
        }
        if item.whole is not None and opened is not None:
            written = item.whole if index == 0 else continued(opened, item.reading, COMPARED_TOKENS)
            result["written"] = packed_ids(words.of_tokens(written.written))
        results.append(result)
    return results


def _answers_in(precision: Precision, item: _Item) -> Answers:
    """Returns the answers of another precision.

    Raises:
        InputError: it is another model.
    """
    assert precision.opened is not None  # noqa: S101  # checked by the caller
    info = precision.opened.info
    if kind_of(precision.opened) == item.answers.kind and info.vocab_size > item.reading.ids.max():
        answers = answers_of(precision.opened, item.text)
        if answers.scores.shape == item.answers.scores.shape:
            return answers
    raise InputError(
        f"A bundle of the same model was expected. Received: {precision.name}, {info.name} with {info.vocab_size} "
        "tokens"
    )


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12))
