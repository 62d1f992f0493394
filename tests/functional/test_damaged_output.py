"""Every parser, with every recording, and one thing damaged: the same samples, or ParseError; never better ones."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import damage
from tests.support.ib_documents import ERRORS
from tests.support.ib_documents import document as fabric
from tests.support.rdma_case import PORT, card, document
from tests.support.rdma_documents import CASES, RECORDED
from tests.support.rdma_documents import doc as rdma_doc
from tests.support.remoting_documents import COPY, ISOLATE, PARTS, copybench, cut, isolated
from tests.support.remoting_documents import doc as remoting_doc
from tests.support.tool_documents import BANDWIDTH, DATA, FACTS, SOCKPERF_FACTS, TRAINING_PARAMS, training
from tests.support.tool_documents import doc as tcp_doc
from validation.kinds import KINDS, parse
from validation.model import Sample
from validation.parsers import ParseError

Recording = tuple[dict[str, Any], dict[str, Any]]
LOWER = ("latency", "rtt", "pingpong", "round_trip", "_us", "breaches", "gone_s", "holes", "memory_error", "ib_error",
         "retransmits", "loss")  # fmt: skip
NEITHER = (
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

KINDS_DATA = Path(__file__).parents[1] / "data/kinds"


def recordings() -> dict[str, Recording]:
    found: dict[str, Recording] = {}
    for path in sorted([*(DATA / "iperf3").glob("[0-9]*.json"), *(DATA / "iperf3").glob("stalled*.json")]):
        found[f"iperf3 {path.stem}"] = tcp_doc("tcp-bandwidth", path.read_text()), BANDWIDTH
    found["sockperf"] = (
        tcp_doc("tcp-latency", (DATA / "sockperf/3.7-tcp.out").read_text(), SOCKPERF_FACTS),
        {"seconds": 1},
    )
    for mtu, name in ((1500, "mtu1500"), (9000, "mtu9000")):
        text = (DATA / f"ping/20221126-{name}.out").read_text()
        found[f"ping {mtu}"] = tcp_doc("path-mtu", text, {"path_mtu_bytes": mtu}), {"mtu": mtu}
    losses = [round(2.3 / (1 + i / 20), 5) for i in range(110)]
    found["training"] = tcp_doc("training-short", training(losses=losses)), TRAINING_PARAMS
    found["facts"] = tcp_doc("facts", facts=FACTS), {}
    for name, (kind, text, facts, params) in CASES.items():
        found[name] = rdma_doc(kind, text, facts), params
    found["rdma-ports rxe"] = RECORDED, {}
    limit = {"bytes": -1, "user": "nobody", "unread": ""}
    found["rdma-ports card"] = document({"ports": [card(PORT)], "memlock": limit, "policy": None}), {}
    found["ib-fabric clean"], found["ib-fabric errors"] = (fabric(), {}), (fabric(ERRORS), {})
    report = json.dumps(copybench())
    found["copies"] = remoting_doc("remoting-copy", {"servers": ["gpu1", "gpu2"], "gpus": 2}, report), COPY
    found["isolation"], found["breached"] = (isolated(), ISOLATE), (isolated("no token"), ISOLATE)
    found["fractions"] = cut(total_bytes=[190 << 20, 64 << 20], taken_bytes=[190 << 20, 64 << 20]), PARTS
    found["utilisation"] = tcp_doc("utilisation", facts={
        "leased_ratio": [0.5, 0.25, 1.0], "gpu_utilization_ratio": [0.1, 0.2, 0.3], "gpu_memory_ratio": [],
        "leased_ratio_from_s": 45, "days": 30, "step_s": 15, "emulated": False}), {}  # fmt: skip
    for path in sorted(
        (DATA / "kinds").glob("*.json")
    ):  # a kind's own recording: what its probe printed, and its params
        recorded = json.loads(path.read_text())
        found[path.stem] = recorded["document"], recorded["params"]
    return found


RECORDINGS = recordings()


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
        sign = -1 if any(word in metric for word in LOWER) else 1
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
