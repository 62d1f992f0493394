"""Every fact of a healthy hardware run matters to a verdict or to the sign-off, or is listed here as mere words.

A fact that is dropped, or is of another kind than it was, never leaves its criterion passed in silence.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support import rdma_case, site
from tests.support.site import criterion, healthy_rdma, plan_of, verdict_of
from validation.measures.rdma.ports import RdmaPortsFacts
from validation.model import Measurement, Plan, Result, VerdictDoc

WORDS = {
    "facts": {
        *("rdma_devices", "not_applicable"),  # shown, and looked at before anything is measured
        *("cpu_model", "cpu_sockets", "cpu_cores", "memory_gib"),  # judged where they are declared, and shown
        *(
            "nvlink",
            "nvlink_unread",
            "nvswitches",
            "fabric_manager_state",
            "driver_loaded",
            "driver_module",
            "driver_libraries",
            "gpudirect",
        ),  # judged of nodes with GPUs, which these have not: test_trees.py
        "parts",  # judged beside a BMC, of which this site declares none: test_hardware_judged.py
        *("numa_nodes",),  # words of how far a NUMA node is
        *("memory_beside_gib",),  # what memory at no processor says: test_judge_inventory.py
        *("cpu_count", "training_nccl", "training_cudnn", "training_image", "clock_offset_s"),  # shown
    },
    "rdma-ports": {
        *("operstate", "mtu", "present", "port", "rate_words", "firmware", "board", "driver", "active_mtu_unread"),
        "policy",  # else the guidance
        "traffic_class",  # absent where nothing overrides the type of service
    },
    "rdma-first-light": set(),
    "rdma-bandwidth": {"peer_active_mtu"},  # perftest negotiates one for both ends
    "rdma-latency": {"peer_active_mtu"},
    "rdma-ucx": {"active_mtu", "peer_active_mtu"},  # which does not say it
}
SITE = rdma_case.machines(2)
PLAN = plan_of(SITE, ("preflight", "transport"), "roce40")
CARD = rdma_case.card(SITE.nodes[0].ports[0])["device"]


def healthy() -> list[Result]:
    found = rdma_case.results(SITE, PLAN)
    have = {r.measurement for r in found}

    def one(m: Measurement) -> Result:
        return site.healthy(m) if m.kind == "cabling" else healthy_rdma(m, device=CARD)

    return [*found, *(one(m) for m in PLAN.measurements if m.id not in have)]


HEALTHY = healthy()


def verdict(results: list[Result], plan: Plan = PLAN) -> VerdictDoc:
    return verdict_of(SITE, plan, results, fabric="roce40")


def places(facts: Any) -> dict[str, tuple[str | int, ...]]:
    """Name of a fact -> where it stands: those of the one RDMA port and of its settings one by one."""
    found: dict[str, tuple[str | int, ...]] = {key: (key,) for key in dict(facts) if key not in ("type", "ports")}
    if isinstance(facts, RdmaPortsFacts):
        port = facts.ports[0]
        found |= {key: ("ports", 0, key) for key, value in port if key != "qos" and value not in (None, "")}
        found |= {key: ("ports", 0, "qos", key) for key, _ in port.qos or ()}
    return found


def cases() -> list[tuple[str, str]]:
    found: dict[tuple[str, bool, str], tuple[str, str]] = {}
    for r in HEALTHY:
        kind = PLAN.measurement(r.measurement).kind
        for key in places(r.facts).keys() - WORDS.get(kind, set()):
            if "-after" not in r.measurement or key not in ("memlock", "interface"):
                found.setdefault((kind, "-after" in r.measurement, key), (r.measurement, key))
    return sorted(found.values())


def changed(id_: str, key: str, value: Any) -> VerdictDoc:
    """The verdict where a fact is of that value, or is dropped (None); ValidationError where it cannot be read."""

    def spoil(r: Result) -> Result:
        found = Result.model_validate_json(r.model_dump_json()).model_dump(mode="json")
        *way, last = places(r.facts)[key]
        at: Any = found["facts"]
        for step in way:
            at = at[step]
        at[last] = value
        if value is None and isinstance(r.facts, dict):
            del at[last]
        return Result.model_validate(found)

    return verdict([spoil(r) if r.measurement == id_ else r for r in HEALTHY])


def same(one: VerdictDoc, other: VerdictDoc) -> bool:
    return [(c.id, c.verdict) for c in one.criteria] == [(c.id, c.verdict) for c in other.criteria]


WHOLE = verdict(HEALTHY)


def test_the_run_is_healthy_so_that_the_rest_means_something() -> None:
    passed = {c.id for c in WHOLE.criteria if c.verdict == "pass"}
    assert passed >= {"pf.bom", "pf.stack", "pf.pcie", "pf.numa", "pf.rdmaport", "pf.memlock", "pf.mtu", "pf.lossless"}
    assert passed >= {"tr.rdmafn", "tr.rdmabw", "tr.tcpbw", "tr.netlat"}


@pytest.mark.parametrize(("id_", "key"), cases(), ids=[f"{i.split('.')[0]} {k}" for i, k in cases()])
def test_a_fact_that_is_gone_or_of_another_kind_is_noticed(id_: str, key: str) -> None:
    for value in (None, ["odd"]):
        try:
            bad = changed(id_, key, value)
        except ValidationError:
            continue  # refused when it is read
        assert not same(bad, WHOLE) or bad.notes != WHOLE.notes, f"{key} = {value!r} changes nothing"


def test_a_result_that_is_ok_and_tells_an_error_is_no_result() -> None:
    odd = [r.model_copy(update={"error": "it failed"}) if r.measurement == "facts.gpu2" else r for r in HEALTHY]
    found = verdict(odd)
    assert "facts.gpu2" in found.missing
    assert criterion(found, "pf.bom").verdict == "not-measured"


@pytest.mark.parametrize("id_", ["pf.rdmaport", "pf.lossless"])
def test_a_load_without_a_second_reading_planned_leaves_the_ports_unjudged(id_: str) -> None:
    kept = tuple(m for m in PLAN.measurements if m.id != "rdma-ports-after.gpu2")
    cut = PLAN.model_copy(update={"measurements": kept})
    found = criterion(verdict([r for r in HEALTHY if r.measurement != "rdma-ports-after.gpu2"], cut), id_)
    assert [j.subject for j in found.judgements if j.verdict != "pass"] == ["gpu2/fab0"]
