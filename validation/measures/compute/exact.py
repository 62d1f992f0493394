"""Exact arithmetic: every processor of a node computes the same digest as whoever reads its report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, count, expect, json_object
from validation.kinds.record import Kind, OnEach, on_node
from validation.measures.compute.exact_compute_probe import turn
from validation.model import Job, Measurement, Node, Param, Sample, Topology
from validation.probes import ProbeDoc

SECONDS = 10.0
SHORT_S = 2.0  # virtual nodes share a host, and what they prove of its processors is little
METRIC = "wrong_digests"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WHAT = "exact compute"


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _params(node: Node) -> dict[str, Param]:
    return {"seconds": SHORT_S if node.virtual else SECONDS}


@cache
def reference() -> str:
    """What a turn gives here."""
    return turn()


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`wrong_digests` of each processor: how many of its turns came to another result than here."""
    report = json_object(doc["stdout"], f"{_WHAT}: the report")
    cpus = int(count(report["cpus"], f"{_WHAT}: cpus"))
    expect(params, "seconds", report["seconds"], f"{_WHAT}: seconds")
    mine: Any = report["processors"]
    if cpus < 1 or len(mine) != cpus or len({int(count(one["cpu"], f"{_WHAT}: cpu")) for one in mine}) != cpus:
        raise ParseError(f"{_WHAT}: {len(mine)} reports of {cpus} processors")
    samples, wrong, turns = [], [], 0
    for one in mine:
        digests = {key: int(count(times, f"{_WHAT}: turns of a digest")) for key, times in one["digests"].items()}
        taken = int(count(one["turns"], f"{_WHAT}: turns"))
        if taken < 1 or sum(digests.values()) != taken or not all(digests.values()):
            raise ParseError(
                f"{_WHAT}: processor {one['cpu']}: {number_of(taken, 'turn')} are not those of its digests"
            )
        if not all(_DIGEST.fullmatch(key) for key in digests):
            raise ParseError(f"{_WHAT}: processor {one['cpu']}: a digest is no SHA-256")
        bad = taken - digests.get(reference(), 0)
        samples.append(Sample(metric=METRIC, value=bad, unit="count"))
        wrong += [str(one["cpu"])] if bad else []
        turns += taken
    if doc["facts"].get("turns") != turns or doc["facts"].get("cpus") != cpus:
        raise ParseError(f"{_WHAT}: {number_of(turns, 'turn')} of {cpus} processors, which its facts contradict")
    return samples, {"cpus": cpus, "turns": turns, "wrong_processors": wrong}


KINDS = (
    Kind(
        name="exact-compute",
        title="Exact arithmetic on every processor",
        measures="Lets every processor compute the same digest at the same time and compares it with the right one.",
        tool="Python's integers, floats and SHA-256 in the probe",
        more="explanation/measuring/hosts.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        on_each=OnEach(_params, estimated_s=SECONDS + 1, quick={"seconds": SHORT_S}, quick_s=SHORT_S + 1),
    ),
)
