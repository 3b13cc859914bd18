"""What a number of requests a second costs: `python -m benchmarks.scale [measure FOLDER | load FOLDER | --write]`.

Without a word, the replicas of a server are simulated with the figures in `benchmarks/scale.json`, and the tables of
docs/scale.md are printed; `--write` writes them there. The same figures and seeds give the same tables.

`measure FOLDER` measures what a request costs, in processor time of one thread, with the int8 bundles of the presets,
which are exported to FOLDER unless they are there. `load FOLDER` runs `kerasformer serve`, sends requests at random
times, at three rates for each of two tasks, and keeps what clients saw. Both write `benchmarks/scale.json`.

A simulated replica has two stations, each for one thing at a time: Python, which reads requests, tokenizes, chooses
tokens and writes answers; and the engine. What the engine does next, how many requests run and wait, and how long a
step waits for the texts of the last one is what `kerasformer.server` does (`jobs.py`, `shared_step.py`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import bundle
from kerasformer.server.limits import Limits
from kerasformer.server.shared_step import _PATIENCE

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
FIGURES = Path(__file__).with_suffix(".json")
COMMAND = "python -m benchmarks.scale --write"
PROMPT, NEW = 32, 32
"""Tokens of a prompt or a text, and new tokens of an answer, of the measured requests."""
UTILISATION = 0.7
"""Share of its capacity that a replica is planned for: above it, queues grow faster than the load."""
REQUESTS = 500
"""Number of simulated requests for each replica."""


@dataclass(frozen=True)
class Costs:
    """What a request costs a replica, in seconds of the station that it occupies.

    Attributes:
        python: Reading and answering of a request, with its tokenization.
        engine: The model for a whole text, or the prompt of a text that is continued.
        token: Python for each new token.
        steps: Duration of a step of the engine by its number of texts; empty for models that answer in one call.
    """

    python: float
    engine: float
    token: float = 0.0
    steps: Mapping[int, float] = field(default_factory=dict)

    def step(self, rows: int) -> float:
        """Returns the duration of a step, between measured numbers of texts on a straight line."""
        counts = sorted(self.steps)
        return float(np.interp(rows, counts, [self.steps[count] for count in counts]))

    def capacity(self, new_tokens: int, rows: int = 8, *, in_turn: bool = False) -> float:
        """Returns the requests per second of one replica: of its busier station, or of both in turn."""
        engine = self.engine + (new_tokens * self.step(rows) / rows if self.steps else 0.0)
        python = self.python + new_tokens * self.token
        return 1 / (engine + python if in_turn else max(engine, python))


@dataclass(frozen=True)
class Load:
    """What clients see.

    Attributes:
        rate: Requests per second that arrive.
        throughput: Requests per second that are answered.
        p50: Median time of an answer in seconds.
        p99: The time that 99 of 100 answers do not exceed.
        refused: Share of requests that are refused with status 503.
        rows: Mean number of texts of a step; 0 without steps.
        mean: Mean time of an answer in seconds.
    """

    rate: float
    throughput: float
    p50: float
    p99: float
    refused: float
    rows: float = 0.0
    mean: float = 0.0

    @classmethod
    def of(cls, rate: float, throughput: float, seconds: list[float], refused: int, rows: list[int]) -> Load:
        """Returns the figures of the times of all answers, and of the numbers of texts of all steps."""
        p50, p99 = (float(value) for value in np.percentile(seconds, [50, 99]))
        share = refused / (len(seconds) + refused)
        return cls(rate, float(throughput), p50, p99, share, float(np.mean(rows or [0])), float(np.mean(seconds)))


class Clock:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Adds an event at a time in seconds."""
        heapq.heappush(self._events, (moment, next(self._count), event))

    def run(self) -> None:
        """Calls all events."""
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


@dataclass(eq=False)
class Request:
    """A request in a replica: its arrival, and the tokens that it still needs."""

    arrival: float
    tokens: int


class Replica:
    """One process of the server.

    Args:
        clock: The events of all replicas.
        costs: What a request costs.
        limits: Limits of the server.
        answered: Called with each request when its answer has left.
        in_turn: Whether Python and the engine take turns, as on one core, and not each on its own.
    """

    def __init__(
        self,
        clock: Clock,
        costs: Costs,
        limits: Limits,
        answered: Callable[[Request], object],
        in_turn: bool = False,
    ) -> None:
        self._clock, self._costs, self._limits, self._answered = clock, costs, limits, answered
        self._in_turn = in_turn
        self._waiting: deque[Request] = deque()
        self._running = 0
        self._python_free = 0.0
        self._engine_busy = False
        self._steps: list[Request] = []
        self._others: deque[tuple[Request, float]] = deque()
        self._expected, self._patience, self._waits_until = 1, 0.0, None
        self.rows: list[int] = []

    def arrive(self, request: Request) -> bool:
        """Takes a request; returns whether it is not refused."""
        if self._running + len(self._waiting) >= self._limits.max_running + self._limits.max_waiting:
            return False
        self._waiting.append(request)
        self._start()
        return True

    def _start(self) -> None:
        while self._waiting and self._running < self._limits.max_running:
            request = self._waiting.popleft()
            self._running += 1
            self._python(self._costs.python / 2, lambda request=request: self._read(request))

    def _python(self, seconds: float, event: Callable[[], object]) -> None:
        self._python_free = max(self._clock.now, self._python_free) + seconds
        self._clock.at(self._python_free, event)

    def _engine(self, seconds: float, event: Callable[[], object]) -> None:
        if self._in_turn:
            self._python(seconds, event)
        else:
            self._clock.at(self._clock.now + seconds, event)

    def _read(self, request: Request) -> None:
        """Gives the text to the engine."""
        self._others.append((request, self._costs.engine))
        self._poke()

    def _poke(self) -> None:
        """Lets the engine choose what it does next, as `SharedStep._run` does."""
        if self._engine_busy or not (self._steps or self._others):
            return
        now = self._clock.now
        if self._steps and self._patience and len(self._steps) < self._expected:
            if self._waits_until is None:
                self._waits_until = now + self._patience
                self._clock.at(self._waits_until, self._poke)
            if now < self._waits_until:
                return
        self._waits_until, self._engine_busy = None, True
        steps, self._steps = self._steps, []
        other = self._others.popleft() if self._others else None
        if steps:
            seconds = self._costs.step(len(steps))
            self.rows.append(len(steps))
            self._engine(seconds, lambda: self._stepped(steps, seconds, other))
        else:
            self._other(other)

    def _stepped(self, steps: list[Request], seconds: float, other: tuple[Request, float] | None) -> None:
        self._expected = len(steps) + len(self._steps)
        self._patience = _PATIENCE * seconds if self._expected > 1 else 0.0
        for request in steps:
            request.tokens -= 1
            self._python(self._costs.token, lambda request=request: self._chosen(request))
        self._other(other)

    def _other(self, other: tuple[Request, float] | None) -> None:
        if other is None:
            self._engine_busy = False
            self._poke()
            return
        request, seconds = other

        def end() -> None:
            self._engine_busy = False
            self._chosen(request)
            self._poke()

        self._engine(seconds, end)

    def _chosen(self, request: Request) -> None:
        if request.tokens:
            self._steps.append(request)
            self._poke()
        else:
            self._python(self._costs.python / 2, lambda: self._end(request))

    def _end(self, request: Request) -> None:
        self._running -= 1
        self._answered(request)
        self._start()


def simulate(
    costs: Costs,
    rate: float,
    replicas: int = 1,
    *,
    new_tokens: int = 0,
    limits: Limits | None = None,
    requests: int = 1000,
    seed: int = 0,
    in_turn: bool = False,
) -> Load:
    """Simulates replicas behind a service that chooses one at random for each request, as that of Kubernetes does.

    Args:
        costs: What a request costs.
        rate: Requests per second, which arrive at random times (Poisson).
        replicas: Number of processes, each with cores of its own.
        new_tokens: Number of new tokens of each answer.
        limits: Limits of each server; its defaults if `None`.
        requests: Number of requests. The first tenth, which finds empty queues, is not counted.
        seed: Seed of the arrivals and choices.
        in_turn: Whether Python and the engine of a replica take turns.
    """
    clock, random = Clock(), np.random.default_rng(seed)
    limits = limits or Limits()
    times: list[tuple[float, float]] = []
    answered = lambda request: times.append((request.arrival, clock.now))  # noqa: E731
    pool = [Replica(clock, costs, limits, answered, in_turn) for _ in range(replicas)]
    arrivals = np.cumsum(random.exponential(1 / rate, requests))
    first, last = arrivals[requests // 10], arrivals[-1]
    refused = 0

    def arrive(moment: float, replica: Replica) -> None:
        nonlocal refused
        if not replica.arrive(Request(moment, new_tokens)):
            refused += moment >= first

    for moment, index in zip(arrivals.tolist(), random.integers(0, replicas, requests).tolist(), strict=True):
        clock.at(moment, lambda moment=moment, replica=pool[index]: arrive(moment, replica))
    clock.run()
    seconds = [end - arrival for arrival, end in times if arrival >= first]
    ended = sum(first <= end <= last for _, end in times)
    rows = [count for replica in pool for count in replica.rows]
    return Load.of(rate, ended / float(last - first), seconds, refused, rows)


TASKS = {
    "classification": ("sentiment-bert", 0),
    "embeddings": ("embedder-bert", 0),
    "chat": ("story-gpt2", NEW),
    "translation": ("summarizer-t5", NEW),
}
"""The measured preset of each task, and the new tokens of a request. The summarizer stands for translators."""


@dataclass(frozen=True)
class Usual:
    """A model of usual size, in int8 on LiteRT with two threads, from the tables of benchmarks/RESULTS.md.

    Attributes:
        model: Its name and the sizes of a request.
        engine: Seconds of the engine for a request, on both cores.
        memory: Memory beyond the import in MB.
        new_tokens: New tokens of a request.
        answer: Size of an answer in bytes.
    """

    model: str
    engine: float
    memory: float
    new_tokens: int
    answer: int

    @property
    def core_seconds(self) -> float:
        """Processor time of the engine, on two cores."""
        return 2 * self.engine


USUAL = {
    "classification": Usual("BERT-base, 128 tokens", 0.0311, 150, 0, 400),
    "embeddings": Usual("all-MiniLM-L6-v2, texts of 8 to 242 tokens", 0.149 / 32, 150, 0, 8_300),
    "chat": Usual("GPT-2 124M, 32 + 64 tokens, 8 at once", 64 / 506, 406, 64, 600),
    "translation": Usual("opus-mt, 32 + 32 tokens, 8 at once", 32 / 780, 862, 32, 500),
}
"""Engine time on two cores for one request. Eight texts at once, as a server under load has them."""


def costs_of(task: str, figures: Mapping[str, Any]) -> Costs:
    """Returns the measured costs of the preset of a task."""
    found = figures["tasks"][task]
    steps = {int(rows): seconds for rows, seconds in found.get("steps", {}).items()}
    return Costs(found["server"] + found["tokenizer"], found["engine"], found.get("token", 0.0), steps)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}" if seconds < 0.01 else f"{1000 * seconds:.0f}"


def measured_table(figures: Mapping[str, Any]) -> str:
    """Returns what a request costs in each preset."""
    rows = []
    for task, (preset, new_tokens) in TASKS.items():
        found, costs = figures["tasks"][task], costs_of(task, figures)
        each = costs.step(8) / 8 if costs.steps else 0.0
        python = found["server"] + new_tokens * costs.token
        engine = found["engine"] + new_tokens * each
        memory = f"{found['memory']:.0f}"
        busiest = max((found["tokenizer"] + python, "Python"), (engine, "engine"))[1]
        steps = f"{_ms(costs.step(1))}, {_ms(costs.step(8))}" if costs.steps else ""
        cells = [_ms(found["tokenizer"]), _ms(python), _ms(found["engine"]), steps, _ms(engine)]
        rows.append([f"{task}, `{preset}`", *cells, memory, busiest, f"{costs.capacity(new_tokens):.0f}"])
    heads = ["task", "tokenizer, ms", "server, ms", "text or prompt, ms", "step of 1, of 8 texts, ms"]
    return _table([*heads, "engine in all, ms", "memory, MB", "bottleneck", "requests/s of a replica"], rows)


def loads_table(figures: Mapping[str, Any]) -> str:
    """Returns the latencies of 1 to 4 replicas, in which Python and the engine take turns."""
    rows = []
    for task in ("embeddings", "chat"):  # the others cost nearly the same
        (preset, new_tokens), costs = TASKS[task], costs_of(task, figures)
        capacity = costs.capacity(new_tokens, in_turn=True)
        for replicas in range(1, 5):
            settings: dict[str, Any] = {"replicas": replicas, "new_tokens": new_tokens, "in_turn": True}
            settings["requests"] = REQUESTS * replicas
            most = simulate(costs, 2 * replicas * capacity, **settings)
            half, high = (simulate(costs, share * most.throughput, **settings) for share in (0.5, 0.8))
            cells = [f"{_ms(half.p50)}, {_ms(half.p99)}", f"{_ms(high.p50)}, {_ms(high.p99)}"]
            full = f"{_ms(most.p50)}, {_ms(most.p99)}"
            rows.append([f"`{preset}`", str(replicas), f"{most.throughput:.0f}", *cells, full, f"{most.refused:.0%}"])
    heads = ["preset", "replicas", "at saturation, requests/s", "p50, p99 at 50%, ms", "at 80%, ms", "at 200%, ms"]
    return _table([*heads, "refused at 200%"], rows)


def costs_table(figures: Mapping[str, Any], rate: float = 1000.0) -> str:
    """Returns what a rate of requests costs with models of usual size."""
    rows = []
    for task, usual in USUAL.items():
        found = figures["tasks"][task]
        python = found["server"] + found["tokenizer"] * _longer(task) + usual.new_tokens * found.get("token", 0.0)
        busy = rate * (usual.core_seconds + python)
        share = python / (usual.core_seconds + python)
        # A replica has two cores; Python is one thread, beside the engine's.
        replicas = int(np.ceil(rate * max(usual.engine + python / 2, python) / UTILISATION))
        memory = replicas * (usual.memory + figures["tasks"]["chat"]["memory"]) / 1000
        cells = [_ms(usual.core_seconds), _ms(python), f"{busy:.0f}", f"{2 * replicas:,}", f"{memory:,.0f}"]
        network = 8 * rate * usual.answer / 1e6
        rows.append([f"{task}: {usual.model}", *cells, f"{share:.0%}", f"{network:.0f}"])
    heads = ["task: model", "engine, core-ms", "Python, core-ms", "busy cores", f"cores at {UTILISATION:.0%}"]
    return _table([*heads, "memory, GB", "share of Python", "answers, Mbit/s"], rows)


def _longer(task: str) -> float:
    """Returns how much longer the texts of `USUAL` are than the measured ones: tokenization is proportional to it."""
    return {"classification": 128 / PROMPT, "embeddings": 64 / PROMPT}.get(task, 1.0)


def checked_table(figures: Mapping[str, Any]) -> str:
    """Returns what clients of a real server saw, beside the simulation."""
    rows = []
    for point in figures["points"]:
        preset, new_tokens = TASKS[point["task"]]
        costs, rate = costs_of(point["task"], figures), point["rate"]
        settings = {"new_tokens": new_tokens, "requests": point["requests"]}  # with the same seed, the same arrivals
        beside, in_turn = (simulate(costs, rate, **settings, in_turn=each) for each in (False, True))
        loads = (Load(**point["seen"]), beside, in_turn)
        rows.append([f"`{preset}`", f"{rate:.0f}", " / ".join(f"{each.throughput:.0f}" for each in loads)])
        rows[-1] += [" / ".join(_ms(each.p50) for each in loads), " / ".join(_ms(each.p99) for each in loads)]
        rows[-1].append(" / ".join(f"{each.rows:.1f}" for each in loads) if costs.steps else "")
    heads = ["preset", "requests/s sent", "answered: seen / beside / in turn", "p50, ms", "p99, ms"]
    return _table([*heads, "texts of a step"], rows)


TABLES = {"costs": costs_table, "measured": measured_table, "checked": checked_table, "loads": loads_table}
"""The tables of the page by the name in their markers."""


def page(text: str, figures: Mapping[str, Any]) -> str:
    """Returns the page with up-to-date tables."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: {COMMAND} -->\n", "<!-- end -->"
        before, marker, rest = text.partition(begin)
        if not marker:
            raise ValueError(f"{PAGE} must have the line {begin}")
        text = f"{before}{begin}{table(figures)}\n{end}{rest.partition(end)[2]}"
    return text


def bundles(folder: Path) -> dict[str, Path]:
    """Returns the int8 bundle of each task, exported unless it is there."""
    for preset, _ in TASKS.values():
        if not (folder / preset).exists():
            from kerasformer.export import export

            export(preset, folder / preset, "litert", "int8", progress=False)
    return {task: folder / preset for task, (preset, _) in TASKS.items()}


def _median(call: Callable[[], object], repeats: int = 30) -> float:
    """Returns the median processor time of a call in this thread, in seconds; an engine has one thread, too."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return float(np.median(times))


def measure(folder: Path) -> dict[str, Any]:
    """Returns what a request costs with each preset, in processor time."""
    import kerasformer as kf

    words = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").split()
    found = {}
    for task, path in bundles(folder).items():
        pipe = kf.pipeline(path, num_threads=1)
        texts = [" ".join(words[start : start + PROMPT * 2 // 3]) for start in range(0, 200, 20)]
        ids = pipe.tokenizer.encode(texts[0])[:PROMPT]
        text = pipe.tokenizer.decode(ids)
        result: dict[str, Any] = {"tokenizer": _median(lambda text=text, pipe=pipe: pipe.tokenizer.encode(text))}
        if not TASKS[task][1]:
            whole = _median(lambda text=text, pipe=pipe: pipe(text))
            result |= {"engine": whole - result["tokenizer"]}
        else:
            result |= _steps(pipe.model, np.array([ids]))
        # Without a request of its own, the server's part of a classification is that of an embedding.
        if task != "classification":
            result |= _server_costs(path, task, text, result)
        found[task] = result
        print(task, result, flush=True)
    found["classification"] |= {name: found["embeddings"][name] for name in ("server", "token", "memory")}
    return found


def _steps(engine: Any, ids: np.ndarray) -> dict[str, Any]:
    """Returns the time of a prompt, and of steps of several texts."""
    mask = np.ones_like(ids)
    prompt = _median(lambda: engine.start(ids, mask))
    steps = {}
    for rows in (1, 2, 4, 8):
        states = [engine.start(ids, mask) for _ in range(rows)]
        token, times = np.array([[int(ids[0, 0])]], ids.dtype), []
        for _ in range(NEW):
            start = time.thread_time()
            results = engine.step_together([(token, state) for state in states])
            times.append(time.thread_time() - start)
            states = [state for _, state in results]
        steps[rows] = float(np.median(times))
    return {"engine": prompt, "steps": steps}


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, int]]:
    """Runs `kerasformer serve` with one thread of the engine; yields its port and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kerasformer.cli", "serve", f"model={folder}", "--port", str(port)]
    command += ["--num-threads", "1", "--no-prefix-cache"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield port, process.pid
        finally:
            process.terminate()


def _body(path: Path, text: str, new_tokens: int) -> tuple[str, dict[str, Any]]:
    """Returns path and body of a request, whose answer does not end early."""
    if not new_tokens:
        return "/v1/embeddings", {"model": "model", "input": text}
    ends = {str(token): -100 for token in bundle.read(path).info.eos_token_id}
    fields = {"prompt": text, "max_tokens": new_tokens, "temperature": 0, "logit_bias": ends}
    return "/v1/completions", {"model": "model", **fields}


def _processor_time(pid: int) -> float:
    """Returns the processor time of a process in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _server_costs(path: Path, task: str, text: str, result: Mapping[str, Any], count: int = 100) -> dict[str, float]:
    """Returns the processor time of the server beyond tokenizer and engine, and its largest resident memory in MB."""

    async def each(port: int, new_tokens: int, pid: int) -> float:
        client, (way, body) = _Client(port), _body(path, text, new_tokens)
        start, content = _processor_time(pid), json.dumps(body).encode()
        for _ in range(count):
            status, answer = await client.ask("POST", way, content)
            if status != 200:
                raise RuntimeError(f"the server answered {status}: {answer[:200]!r}")
        return (_processor_time(pid) - start) / count

    with serving(path) as (port, pid):
        few = min(TASKS[task][1], 1)
        asyncio.run(each(port, few, pid))  # what is made at the first calls
        short = asyncio.run(each(port, few, pid))
        token = 0.0
        if few:
            token = max(0.0, (asyncio.run(each(port, NEW, pid)) - short) / (NEW - few) - result["steps"][1])
            short -= few * (result["steps"][1] + token)
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        memory = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1000
    return {"server": max(0.0, short - result["tokenizer"] - result["engine"]), "token": token, "memory": memory}


def load(folder: Path, found: Mapping[str, Any], seconds: float = 6.0, rounds: int = 3) -> list[dict[str, Any]]:
    """Returns what clients of a real server see, at three rates for each of two tasks.

    Of several rounds, the one with the lowest median counts, which other programs have disturbed the least.
    """
    points = []
    for task in ("embeddings", "chat"):
        path, new_tokens = bundles(folder)[task], TASKS[task][1]
        costs = costs_of(task, {"tasks": found})
        for share in (0.4, 0.7, 2.0):
            rate = share * costs.capacity(new_tokens, in_turn=True)
            count = int(seconds * rate)
            body = _body(path, "The Rabbit was late. " * 6, new_tokens)
            with serving(path) as (port, _):
                loads = [asyncio.run(_sent(port, *body, rate, count)) for _ in range(rounds)]
            seen = min(loads, key=lambda load: load.p50)
            points.append({"task": task, "rate": rate, "requests": count, "seen": asdict(seen)})
            print(points[-1], flush=True)
    return points


def least_disturbed(points: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns each point as it was seen with the lowest median, now or in an earlier call at the same rate."""

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return bool(one["task"] == other["task"] and np.isclose(one["rate"], other["rate"]))

    chosen = [[point, *(each for each in earlier if same(each, point))] for point in points]
    return [min(each, key=lambda point: point["seen"]["p50"]) for each in chosen]


class _Client:
    """A client with kept connections that costs little processor time, which it shares with the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, content: bytes = b"") -> tuple[int, bytes]:
        """Sends a request; returns the status and the body of its answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        while True:
            is_kept = bool(self._free)
            reader, writer = self._free.pop() if is_kept else await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(request)
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()  # the server has closed it after some seconds without a request
                if not is_kept:
                    raise
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            writer.close()
        else:
            self._free.append((reader, writer))
        return int(lines[0].split()[1]), body


async def _sent(port: int, way: str, body: Mapping[str, Any], rate: float, count: int) -> Load:
    """Sends requests at random times, whether earlier ones are answered or not."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1 / rate, count))
    client, content = _Client(port), json.dumps(body).encode()
    times: list[tuple[float, float]] = []
    refused = 0

    async def steps() -> tuple[float, float]:
        _, text = await client.ask("GET", "/metrics")
        values = re.findall(rb"^kerasformer_step_rows_(?:count|sum){.*} (\S+)$", text, re.MULTILINE)
        return (float(values[0]), float(values[1])) if values else (0.0, 0.0)

    async def one(arrival: float) -> None:
        nonlocal refused
        await asyncio.sleep(start + arrival - time.perf_counter())
        status, answer = await client.ask("POST", way, content)
        if status == 200:
            times.append((arrival, time.perf_counter() - start))
        elif status == 503:
            refused += 1
        else:
            raise RuntimeError(f"the server answered {status}: {answer[:200]!r}")

    for _ in range(50):  # what is made at the first calls
        await client.ask("POST", way, content)
    before = await steps()
    start = time.perf_counter() + 0.1
    await asyncio.gather(*map(one, arrivals.tolist()))
    after = await steps()
    first, last = arrivals[count // 10], arrivals[-1]
    latencies = [end - arrival for arrival, end in times if arrival >= first]
    answered = sum(first <= end <= last for _, end in times) / float(last - first)
    calls = after[0] - before[0]
    seen = Load.of(rate, answered, latencies, refused, [])
    return replace(seen, rows=(after[1] - before[1]) / calls if calls else 0.0)


def _described() -> str:
    """Returns the processor and its number of cores."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def main(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit status."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    if arguments and arguments[0] in ("measure", "load"):
        folder = Path(arguments[1])
        if arguments[0] == "measure":
            figures |= {"machine": _described(), "tasks": measure(folder)}
        else:
            figures["points"] = least_disturbed(load(folder, figures["tasks"]), figures.get("points", []))
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return 0
    before = PAGE.read_text(encoding="utf-8")
    new = page(before, figures)
    if "--write" in arguments:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    for table in TABLES.values():
        print(table(figures), end="\n\n")
    return int(new != before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
