"""From times to figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kerasformer.bench.rounds import Answers, Workload
from kerasformer.bench.worker import Sample
from kerasformer.bench.worker_process import Worker


@dataclass(frozen=True)
class Percentiles:
    """Of a latency, in milliseconds: half of all were faster than `p50`."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the first subject.

    Attributes:
        best: Of the shortest times of both: what is left when nothing else runs.
        median: Of the ratios of all rounds, in each of which both answered one after the other.
    """

    best: float
    median: float


@dataclass(frozen=True)
class WorkFigures:
    """One subject at one work. Seconds are those of one answer to a whole batch, the mean of the work's questions.

    Attributes:
        work: Its title.
        seconds: One for each round.
        best_s: The least for each question.
        median_s: The median for each question.
        first_s: The first answer ever, with what is compiled then.
        tokens_s: New tokens a second over the whole answer, or tokens read where none are written; of `median_s`.
        best_tokens_s: The same of `best_s`.
        prefill_tokens_s: Tokens of the prompt a second until the first new token is there.
        decode_tokens_s: New tokens a second from then on.
        first_token_ms: Time until the first new token.
        latency_ms: Of each further token; of each answer where none are written or the library does not tell.
        latency_of: `"token"` or `"answer"`.
        ratio: To the first subject; `None` where there is only one.
    """

    work: str
    seconds: list[float]
    best_s: float
    median_s: float
    first_s: float
    tokens_s: float
    best_tokens_s: float
    prefill_tokens_s: float | None
    decode_tokens_s: float | None
    first_token_ms: Percentiles | None
    latency_ms: Percentiles
    latency_of: str
    ratio: Ratio | None = None


@dataclass(frozen=True)
class SubjectFigures:
    """One subject.

    Attributes:
        name: As it was given.
        engine: What runs it.
        task: Hugging Face's name.
        size_mb: Its model files, in 10^6 bytes.
        import_s: To import the runtime.
        load_s: To open the model.
        first_token_s: From the opening to the first token, or answer, of the first work; without `import_s`.
        runtime_mb: Memory resident after the import, in 10^6 bytes.
        peak_mb: Most memory resident, files mapped into it included.
        model_mb: The difference: what the model takes.
        works: One for each work.
    """

    name: str
    engine: str
    task: str
    size_mb: float
    import_s: float
    load_s: float
    first_token_s: float
    runtime_mb: float
    peak_mb: float
    model_mb: float
    works: list[WorkFigures]


def subject_figures(worker: Worker, works: Sequence[Workload], answers: Sequence[Answers]) -> SubjectFigures:
    """Figures of one subject, without ratios."""
    first = answers[0].first[0]
    return SubjectFigures(
        name=worker.name,
        engine=worker.facts.engine,
        task=worker.facts.task,
        size_mb=worker.facts.size_mb,
        import_s=worker.import_s,
        load_s=worker.load_s,
        first_token_s=worker.load_s + (first.marks[0] if first.marks else first.seconds),
        runtime_mb=worker.runtime_mb,
        peak_mb=worker.peak_mb,
        model_mb=worker.peak_mb - worker.runtime_mb,
        works=[work_figures(work.title, given) for work, given in zip(works, answers, strict=True)],
    )


def work_figures(title: str, answers: Answers) -> WorkFigures:
    """Figures of the answers to one work, without a ratio."""
    by_question = list(zip(*answers.rounds, strict=True))
    samples = [sample for samples in answers.rounds for sample in samples]
    best_s = statistics.fmean(min(s.seconds for s in of) for of in by_question)
    median_s = statistics.fmean(statistics.median(s.seconds for s in of) for of in by_question)
    tokens = statistics.fmean(of[0].tokens.written or of[0].tokens.read for of in by_question)
    writes = any(sample.tokens.written for sample in samples)
    tells = writes and all(sample.marks for sample in samples)
    steps = [
        after - before for sample in samples for before, after in zip(sample.marks, sample.marks[1:], strict=False)
    ]
    return WorkFigures(
        work=title,
        seconds=[statistics.fmean(sample.seconds for sample in samples) for samples in answers.rounds],
        best_s=best_s,
        median_s=median_s,
        first_s=statistics.fmean(sample.seconds for sample in answers.first),
        tokens_s=tokens / median_s,
        best_tokens_s=tokens / best_s,
        prefill_tokens_s=statistics.median(s.tokens.read / s.marks[0] for s in samples) if tells else None,
        decode_tokens_s=statistics.median(map(_decode_rate, samples)) if steps else None,
        first_token_ms=percentiles([sample.marks[0] for sample in samples]) if tells else None,
        latency_ms=percentiles(steps or [sample.seconds for sample in samples]),
        latency_of="token" if steps else "answer",
    )


def _decode_rate(sample: Sample) -> float:
    """New tokens a second after the first one."""
    rows = sample.tokens.written / len(sample.marks)
    return rows * (len(sample.marks) - 1) / (sample.marks[-1] - sample.marks[0])


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Of some times, interpolated linearly between neighbours."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return 1000 * (ordered[low] + (place - low) * (ordered[high] - ordered[low]))

    return Percentiles(at(0.5), at(0.9), at(0.99))


def ratio(base: WorkFigures, other: WorkFigures) -> Ratio:
    """How many times as fast `other` is as `base`."""
    by_round = [a / b for a, b in zip(base.seconds, other.seconds, strict=True)]
    return Ratio(base.best_s / other.best_s, statistics.median(by_round))
