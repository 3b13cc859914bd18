"""The simulation behind docs/scale.md, and the page's tables."""

from __future__ import annotations

import json

import pytest

from benchmarks import scale
from benchmarks.scale import Costs, simulate
from kerasformer.server.limits import Limits

ENDLESS = Limits(max_running=1000, max_waiting=100_000)
DECODER = Costs(0.001, 0.004, 0.0001, {1: 0.001, 2: 0.002, 8: 0.003})


def test_the_page_is_up_to_date() -> None:
    figures, text = json.loads(scale.FIGURES.read_text()), scale.PAGE.read_text(encoding="utf-8")
    assert scale.page(text, figures) == text, f"run: {scale.COMMAND}"


@pytest.mark.parametrize("utilisation", [0.3, 0.6])
def test_the_time_in_a_queue_is_that_of_theory(utilisation: float) -> None:
    """A station of constant duration with random arrivals (M/D/1): Pollaczek and Khinchine's mean."""
    engine = 0.01
    load = simulate(Costs(0.0, engine), utilisation / engine, limits=ENDLESS, requests=10_000)
    assert load.mean == pytest.approx(engine * (1 + utilisation / (2 * (1 - utilisation))), rel=0.05)
    assert load.refused == 0


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_lone_request_takes_what_it_costs(in_turn: bool) -> None:
    load = simulate(DECODER, 0.001, new_tokens=10, requests=20, in_turn=in_turn)
    assert load.p50 == pytest.approx(0.001 + 0.004 + 10 * (0.001 + 0.0001))
    assert load.rows == 1


def test_steps_are_shared_under_load() -> None:
    capacity = DECODER.capacity(10)
    assert capacity == pytest.approx(1 / (0.004 + 10 * 0.003 / 8))
    load = simulate(DECODER, 2 * capacity, new_tokens=10, requests=600)
    assert load.rows > 4 and load.refused > 0.3
    assert 0.6 * capacity < load.throughput < 1.05 * capacity  # the engine also waits for texts
    # The queue is full: a client waits for all that are before it.
    limits = Limits()
    assert load.p99 == pytest.approx((limits.max_running + limits.max_waiting) / load.throughput, rel=0.15)


def test_replicas_and_turns() -> None:
    costs = Costs(0.002, 0.003)
    one = simulate(costs, 2000, requests=600)
    assert one.throughput == pytest.approx(1 / 0.003, rel=0.05)
    assert simulate(costs, 2000, requests=600, in_turn=True).throughput == pytest.approx(1 / 0.005, rel=0.05)
    assert simulate(costs, 4000, 4, requests=2400).throughput == pytest.approx(4 * one.throughput, rel=0.1)
    assert simulate(costs, 100, seed=1) == simulate(costs, 100, seed=1) != simulate(costs, 100, seed=2)


def test_the_least_disturbed_round_is_kept() -> None:
    def point(rate: float, p50: float) -> dict[str, object]:
        return {"task": "chat", "rate": rate, "seen": {"p50": p50}}

    earlier = [point(10.0, 0.2), point(20.0, 0.5), point(30.0, 0.1)]
    assert scale.least_disturbed([point(10.0, 0.3), point(20.0, 0.4)], earlier) == [point(10.0, 0.2), point(20.0, 0.4)]
