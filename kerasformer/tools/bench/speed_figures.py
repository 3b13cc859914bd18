"""Computes figures from measured times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerasformer.tools.bench.question import Workload
from kerasformer.tools.bench.worker import Sample, Worker


@dataclass
class Answers:
    """Measurements of a subject in a workload.

    Attributes:
        first: First run of each batch, which includes compilation and warm-up.
        rounds: Later runs, by round and batch.
        failure: Reason why the subject cannot run the workload; `None` if it can.
    """

    first: list[Sample]
    rounds: list[list[Sample]] = field(default_factory=list)
    failure: str | None = None


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of a latency, in milliseconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Ratio:
    """Speed relative to the first subject; 2 is twice as fast.

    Attributes:
        best: Ratio of the shortest times, which are least affected by other load.
        median: Median of the ratios of all rounds.
    """

    best: float
    median: float


@dataclass(frozen=True)
class WorkFigures:
    """Figures of a subject in a workload. Times are per batch, averaged over the batches of the workload.

    Attributes:
        work: Title of the workload.
        seconds: Time of each round.
        best_s: Shortest time of each batch.
        median_s: Median time of each batch.
        first_s: Time of the first run, including compilation.
        tokens_s: New tokens per second, including prefill, or input tokens per second if none are generated; computed
            with `median_s`.
        best_tokens_s: The same, computed with `best_s`.
        prefill_tokens_s: Prompt tokens per second until the first new token; the median of all runs.
        best_prefill_tokens_s: The same of the fastest run.
        decode_tokens_s: New tokens per second after the first one; the median of all runs.
        best_decode_tokens_s: The same of the fastest run.
        first_token_ms: Time until the first new token.
        latency_ms: Latency of each token after the first, or of each answer if tokens are not generated or reported.
        latency_of: `"token"` or `"answer"`.
        ratio: Speed relative to the first subject; `None` without a comparison.
    """

    work: str
    seconds: list[float]
    best_s: float
    median_s: float
    first_s: float
    tokens_s: float
    best_tokens_s: float
    prefill_tokens_s: float | None
    best_prefill_tokens_s: float | None
    decode_tokens_s: float | None
    best_decode_tokens_s: float | None
    first_token_ms: Percentiles | None
    latency_ms: Percentiles
    latency_of: str
    ratio: Ratio | None = None


@dataclass(frozen=True)
class SubjectFigures:
    """Figures of a subject.

    Attributes:
        name: Source as passed by the caller.
        engine: Name of the engine.
        task: Hugging Face task name.
        size_mb: Size of the model files in 10^6 bytes.
        import_s: Time to import the runtime, in seconds.
        load_s: Time to load the model, in seconds.
        first_token_s: Time from the start of loading to the first token, or answer, of the first workload, in seconds;
            without `import_s`.
        runtime_mb: Resident memory after the import, in 10^6 bytes.
        peak_mb: Peak resident memory, including mapped files, in 10^6 bytes.
        model_mb: Difference of these, the memory of the model.
        works: Figures of each workload that the subject can run.
        failures: Reasons why it cannot run the others, by their titles.
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
    failures: dict[str, str] = field(default_factory=dict)


def subject_figures(worker: Worker, works: Sequence[Workload], answers: Sequence[Answers]) -> SubjectFigures:
    """Computes the figures of a subject that can run at least one of the workloads, without ratios."""
    by_title = {work.title: measured for work, measured in zip(works, answers, strict=True)}
    failures = {title: measured.failure for title, measured in by_title.items() if measured.failure is not None}
    done = {title: measured for title, measured in by_title.items() if title not in failures}
    first = next(iter(done.values())).first[0]
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
        works=[work_figures(title, measured) for title, measured in done.items()],
        failures=failures,
    )


def work_figures(title: str, answers: Answers) -> WorkFigures:
    """Computes the figures of a workload, without a ratio."""
    by_question = list(zip(*answers.rounds, strict=True))
    samples = [sample for samples in answers.rounds for sample in samples]
    best_s = statistics.fmean(min(s.seconds for s in runs) for runs in by_question)
    median_s = statistics.fmean(statistics.median(s.seconds for s in runs) for runs in by_question)
    tokens = statistics.fmean(runs[0].tokens.written or runs[0].tokens.read for runs in by_question)
    generates = any(sample.tokens.written for sample in samples)
    reports_tokens = generates and all(sample.marks for sample in samples)
    steps = [
        after - before for sample in samples for before, after in zip(sample.marks, sample.marks[1:], strict=False)
    ]
    prefills = [sample.tokens.read / sample.marks[0] for sample in samples] if reports_tokens else []
    decodes = [_decode_rate(sample) for sample in samples] if steps else []
    return WorkFigures(
        work=title,
        seconds=[statistics.fmean(sample.seconds for sample in samples) for samples in answers.rounds],
        best_s=best_s,
        median_s=median_s,
        first_s=statistics.fmean(sample.seconds for sample in answers.first),
        tokens_s=tokens / median_s,
        best_tokens_s=tokens / best_s,
        prefill_tokens_s=statistics.median(prefills) if prefills else None,
        best_prefill_tokens_s=max(prefills, default=None),
        decode_tokens_s=statistics.median(decodes) if decodes else None,
        best_decode_tokens_s=max(decodes, default=None),
        first_token_ms=percentiles([sample.marks[0] for sample in samples]) if reports_tokens else None,
        latency_ms=percentiles(steps or [sample.seconds for sample in samples]),
        latency_of="token" if steps else "answer",
    )


def _decode_rate(sample: Sample) -> float:
    """Returns the number of new tokens per second after the first one."""
    rows = sample.tokens.written / len(sample.marks)
    return rows * (len(sample.marks) - 1) / (sample.marks[-1] - sample.marks[0])


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Computes percentiles with linear interpolation."""
    return Percentiles(*(1000 * float(value) for value in np.percentile(seconds, (50, 90, 99))))


def ratio(base: WorkFigures, other: WorkFigures) -> Ratio:
    """Returns the speed of `other` relative to `base`."""
    by_round = [a / b for a, b in zip(base.seconds, other.seconds, strict=True)]
    return Ratio(base.best_s / other.best_s, statistics.median(by_round))


def with_ratios(subjects: Sequence[SubjectFigures]) -> list[SubjectFigures]:
    """Adds ratios to the first subject that can run the workload."""
    bases: dict[str, WorkFigures] = {}
    for work in (work for one in subjects for work in one.works):
        bases.setdefault(work.work, work)
    return [
        replace(one, works=[replace(work, ratio=ratio(bases[work.work], work)) for work in one.works])
        for one in subjects
    ]
