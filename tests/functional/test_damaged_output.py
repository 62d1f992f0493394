"""Every parser, with every recording, and one thing damaged: the same samples, or ParseError; never better ones."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import damage
from tests.support.recordings import RECORDINGS
from validation.kinds import KINDS, parse
from validation.kinds.parsing import ParseError
from validation.model import Sample
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes

DIRECTION = {c.metric: c.direction for c in load_criteria() if c.metric and c.method != "spread"}
LOWER = ("latency", "rtt", "pingpong", "round_trip", "_us", "breaches", "gone_s", "holes", "memory_error", "ib_error",
         "retransmits", "loss", "_lost", "hours")  # fmt: skip
"""In the names of metrics where less is better, for those on which no criterion says it."""
TIME = re.compile(r"(?<!_gb)(?<!_per)_s$")
"""Ends the names of metrics that are times: less is better."""
NEITHER = (
    "allreduce_ratio",
    "held_ratio",
    "leased_ratio",
    "gpu_utilization_ratio",
    "gpu_memory_ratio",
    "ib_links",
    "path_mtu_bytes",
    "active_mtu_bytes",
)
"""Shares that are reported, and what must equal a plan: more is not better."""
UNTOLD = re.compile(r"facts: (peer\.)?counters(\.\S+ dropped| = '\{\}')")
"""Only counters that moved are listed, so one that is not there has not moved: retransmits, which are not judged."""
AGREEMENT = 0.011
"""How far figures of one output may differ from each other, by the parsers' own tolerances."""


@functools.cache
def damages(name: str) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    doc, _ = RECORDINGS[name]
    others = [other["stdout"] for other, _ in RECORDINGS.values() if other["kind"] == doc["kind"]]
    return damage.of(doc, tuple(others))


def better(samples: list[Sample], whole: list[Sample]) -> str:
    """The metric whose best, middle or worst sample the damage made better; "" where none is."""
    for metric in {s.metric for s in samples}:
        found, was = ([s.value for s in part if s.metric == metric] for part in (samples, whole))
        if metric in NEITHER or not was:
            continue
        said = DIRECTION.get(metric)
        less = TIME.search(metric) is not None or any(word in metric for word in LOWER)
        lower = said == "lower" if said in ("lower", "higher") else less
        sign = -1 if lower else 1
        for one in (max, statistics.median, min):
            after, before = one(sign * v for v in found), one(sign * v for v in was)
            if after > before + AGREEMENT * abs(before):
                return metric
    return ""


def check(name: str, number: int) -> None:
    doc, params = RECORDINGS[name]
    words, make = damages(name)[number]
    try:
        samples, _ = parse(doc["kind"], make(), params)  # type: ignore[arg-type]
    except ParseError:
        return
    except Exception as fault:
        pytest.fail(f"{name}: {words}: {type(fault).__name__}: {fault}")
    whole, _ = parse(doc["kind"], doc, params)  # type: ignore[arg-type]
    improved = better(samples, whole)
    if improved == "rdma_retransmits" and UNTOLD.fullmatch(words):
        return
    assert not improved, f"{name}: {words}: {improved} got better"


def test_every_parser_is_damaged() -> None:
    assert {doc["kind"] for doc, _ in RECORDINGS.values()} == set(KINDS)


@settings(max_examples=1000, deadline=None)
@given(name=st.sampled_from(sorted(RECORDINGS)), share=st.floats(0, 1, exclude_max=True))
def test_one_damage_never_makes_a_better_measurement(name: str, share: float) -> None:
    check(name, int(share * len(damages(name))))


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_no_damage_at_all_makes_a_better_measurement(name: str) -> None:
    for number in range(len(damages(name))):
        check(name, number)
