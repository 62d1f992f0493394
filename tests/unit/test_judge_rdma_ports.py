"""Faults of RDMA ports: each is found, named, and laid to the right criterion; no other criterion fails for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rdma_case import NO_DCB, PREFLIGHT, REAL, failed, gid, judged
from tests.support.site import criterion

MINE = ("pf.rdmaport", "pf.memlock", "pf.lossless", "pf.mtu")


def port(facts: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = facts["ports"][0]
    return found


def test_healthy_virtual_machines() -> None:
    verdict = judged()
    assert failed(verdict) == []
    assert {i: criterion(verdict, i).verdict for i in MINE} == {
        "pf.rdmaport": "pass",
        "pf.memlock": "pass",
        "pf.mtu": "pass",
        "pf.lossless": "not-measured",
    }
    assert criterion(verdict, "pf.rdmaport").coverage == "3/3 ports"
    lossless = criterion(verdict, "pf.lossless")
    assert lossless.reason_code == "virtual"
    for one in lossless.judgements:
        assert f"not judged because {NO_DCB}" in one.reason
        assert "type of service of RDMA-CM 106" in one.reason


def test_healthy_cards_pass() -> None:
    verdict = judged(topology=REAL)
    assert {i: criterion(verdict, i).verdict for i in MINE} == dict.fromkeys(MINE, "pass")
    assert "the switch must agree" in criterion(verdict, "pf.lossless").judgements[0].reason


def test_on_tcp_and_on_nodes_with_tcp_only_nothing_of_it_is_planned() -> None:
    verdict = judged(fabric="tcp10")
    assert {criterion(verdict, i).verdict for i in MINE[:3]} == {"not-applicable"}
    assert not any(j.subject.startswith("head") for j in criterion(judged(), "pf.rdmaport").judgements)


def no_device(facts: dict[str, Any], after: bool) -> None:
    facts["ports"] = [{k: port(facts)[k] for k in ("interface", "present", "operstate", "mtu")} | {"device": ""}]


def down(facts: dict[str, Any], after: bool) -> None:
    """As on a machine of the lab whose cable was pulled: the GID of the address goes with the link."""
    port(facts).update(state="DOWN", physical_state="Polling", operstate="down", gids=port(facts)["gids"][:1])


def down_later(facts: dict[str, Any], after: bool) -> None:
    if after:
        down(facts, after)


def gone_later(facts: dict[str, Any], after: bool) -> None:
    if after:
        no_device(facts, after)


def flapped(facts: dict[str, Any], after: bool) -> None:
    port(facts)["counters"]["link_downed"] = 3 if after else 2


def version_1(facts: dict[str, Any], after: bool) -> None:
    port(facts)["gids"] = [{**one, "type": "IB/RoCE v1"} for one in port(facts)["gids"]]


def no_gid(facts: dict[str, Any], after: bool) -> None:
    """Only the link-local one, as where the port has no address."""
    port(facts)["gids"] = port(facts)["gids"][:1]


def no_gid_later(facts: dict[str, Any], after: bool) -> None:
    if after:
        no_gid(facts, after)


def gid_of_another(facts: dict[str, Any], after: bool) -> None:
    port(facts)["gids"][1]["gid"] = gid("10.78.0.99")


def version_1_default(facts: dict[str, Any], after: bool) -> None:
    if not after:
        port(facts)["qos"]["roce_mode"] = "IB/RoCE v1"


def unmarked(facts: dict[str, Any], after: bool) -> None:
    if not after:
        port(facts)["qos"]["tos"] = 0


def no_policy(facts: dict[str, Any], after: bool) -> None:
    if not after:
        facts["policy"] = None
        port(facts)["qos"]["tos"] = 0


def low_memlock(facts: dict[str, Any], after: bool) -> None:
    if not after:
        facts["memlock"]["bytes"] = 65536


def small(facts: dict[str, Any], after: bool) -> None:
    port(facts)["mtu"] = 1500
    if not after:
        port(facts)["active_mtu_bytes"] = 1024


@pytest.mark.parametrize(
    ("spoil", "found_by", "subject", "words"),
    [
        (no_device, "pf.rdmaport", "gpu2/fab0", "no RDMA device on fab0 (fab0 is up)"),
        (down, "pf.rdmaport", "gpu2/fab0", "pf.rdmaport: rxe_fab0 is DOWN, Polling (fab0 down)"),
        (down_later, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 is DOWN, Polling at the end of the run (fab0 down)"),
        (gone_later, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 is gone at the end of the run"),
        (flapped, "pf.rdmaport", "gpu2/fab0", "link errors during the run: link_downed +1"),
        (version_1, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 has no RoCE v2 GID of 10.78.0.14"),
        (no_gid, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 has no RoCE v2 GID of 10.78.0.14"),
        (no_gid_later, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 has no RoCE v2 GID of 10.78.0.14 at the end of the run"),
        (gid_of_another, "pf.rdmaport", "gpu2/fab0", "rxe_fab0 has no RoCE v2 GID of 10.78.0.14"),
        (version_1_default, "pf.lossless", "gpu2/fab0", "RoCE version of RDMA-CM is IB/RoCE v1, RoCE v2 wanted"),
        (unmarked, "pf.lossless", "gpu2/fab0", "type of service of RDMA-CM is 0, 106 wanted"),
        (no_policy, "pf.lossless", "gpu2/fab0", "type of service of RDMA-CM is 0, 106 wanted"),
        (low_memlock, "pf.memlock", "gpu2", "a new session of nobody may lock 65536 bytes of memory, unlimited wanted"),
    ],
)
def test_a_fault_is_laid_to_its_criterion_and_node_and_to_nothing_else(
    spoil: Any, found_by: str, subject: str, words: str
) -> None:
    verdict = judged(spoil)
    assert failed(verdict) == [found_by]
    bad = [j for j in criterion(verdict, found_by).judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == [subject]
    assert [f.subject for f in verdict.findings] == [subject]
    assert words in verdict.findings[0].text
    assert verdict.findings[0].text == f"{found_by}: {bad[0].reason}"
    assert subject in verdict.headline
    for one in (j for i in MINE for j in criterion(verdict, i).judgements if j.verdict == "not-measured"):
        assert "because" in one.reason or "no RDMA device" in one.reason


@pytest.mark.parametrize("path_mtu", [1500, 9000])
def test_a_wrong_mtu_of_one_port_is_laid_to_that_port(path_mtu: int) -> None:
    """Where ping still passes (a switch port, a stale device) the RDMA MTU alone tells."""
    verdict = judged(small, mtu=path_mtu)
    assert failed(verdict) == ["pf.mtu"]
    assert [f.subject for f in verdict.findings] == ["gpu2/fab0"]
    bad = [j for j in criterion(verdict, "pf.mtu").judgements if j.verdict == "fail"]
    assert len(bad) == 6
    assert all("gpu2" in j.subject for j in bad)
    if path_mtu == 9000:
        said = {j.subject: j.reason for j in bad}
        assert "of RDMA: gpu1/fab0 4096, gpu2/fab0 1024 bytes, 4096 wanted" in said["gpu1/fab0>gpu2/fab0"]
        assert "of RDMA: gpu2/fab0 1024 bytes, 4096 wanted" in said["head/fab0>gpu2/fab0"]
        assert "pf.mtu rdma_mtu_bytes median 1024 bytes, 4096 wanted" in verdict.findings[0].text


def test_an_unknown_rdma_mtu_is_not_measured() -> None:
    def unread(facts: dict[str, Any], after: bool) -> None:
        if not after:
            port(facts).update(active_mtu_bytes=None, active_mtu_unread="ibv_devinfo is not installed on this node")

    found = criterion(judged(unread), "pf.mtu")
    assert found.verdict == "not-measured"
    assert "gpu2/fab0 is not known because ibv_devinfo is not installed" in found.reason


def test_the_rate_is_judged_on_hardware_only() -> None:
    def slow(facts: dict[str, Any], after: bool) -> None:
        port(facts)["rate_gbps"] = 10

    assert failed(judged(slow)) == []
    verdict = judged(slow, topology=REAL)
    assert failed(verdict) == ["pf.rdmaport"]
    assert "mlx5_0 runs at 10 Gbit/s, 40 wanted" in criterion(verdict, "pf.rdmaport").reason


def test_packets_lost_during_the_run_are_a_fault_on_hardware_and_told_on_a_virtual_switch() -> None:
    def lossy(facts: dict[str, Any], after: bool) -> None:
        for name in ("out_of_sequence", "out_of_seq_request"):
            if after and name in port(facts)["counters"]:
                port(facts)["counters"][name] += 12

    verdict = judged(lossy, topology=REAL)
    assert failed(verdict) == ["pf.lossless"]
    assert "lost packets or jams during the run: out_of_sequence +12" in criterion(verdict, "pf.lossless").reason
    verdict = judged(lossy)
    assert failed(verdict) == []
    said = [j.reason for j in criterion(verdict, "pf.lossless").judgements if j.subject == "gpu2/fab0"]
    assert "out_of_seq_request +12, which a virtual switch without flow control allows" in said[0]


def test_errors_from_before_the_run_are_nobodys_fault() -> None:
    def old(facts: dict[str, Any], after: bool) -> None:
        port(facts)["counters"].update(link_downed=9, out_of_sequence=500)

    assert failed(judged(old, topology=REAL)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trust": "pcp", "dscp_prio": {}}, "trust is pcp, dscp wanted; DSCP map is none, 26:3, 48:6 wanted"),
        ({"pfc": []}, "PFC priorities is none, 3 wanted"),
        ({"pause": {"rx": True, "tx": True}}, "global pause is rx on tx on, off wanted"),
        ({"ecn": False}, "ECN of RoCE is off"),
        ({"traffic_class": 4}, "traffic class is 4, 106 wanted"),
    ],
)
def test_a_lossy_setting_of_a_card_is_found(change: dict[str, Any], words: str) -> None:
    def spoil(facts: dict[str, Any], after: bool) -> None:
        if not after:
            port(facts)["qos"].update(change)

    verdict = judged(spoil, topology=REAL)
    assert failed(verdict) == ["pf.lossless"]
    assert words in criterion(verdict, "pf.lossless").reason


def test_without_a_load_no_growth_is_claimed() -> None:
    verdict = judged(topology=REAL, suites=PREFLIGHT)
    found = criterion(verdict, "pf.lossless")
    assert (found.verdict, found.reason_code) == ("not-measured", "not-selected")
    assert "read once" in criterion(verdict, "pf.rdmaport").judgements[0].reason


def test_a_second_reading_that_failed_withholds_the_pass() -> None:
    from tests.support.rdma_case import LOADED, plan_of, results, verdict_of

    plan = plan_of(REAL, LOADED, "roce40")
    kept = [r for r in results(REAL, plan) if r.measurement != "rdma-ports-after.gpu2"]
    verdict = verdict_of(REAL, plan, kept, fabric="roce40")
    for id_ in ("pf.rdmaport", "pf.lossless"):
        found = [j for j in criterion(verdict, id_).judgements if j.verdict != "pass"]
        assert [(j.subject, j.reason_code) for j in found] == [("gpu2/fab0", "missing-result")]


def test_a_limit_that_nobody_can_tell_is_not_measured() -> None:
    def unknown(facts: dict[str, Any], after: bool) -> None:
        if not after:
            facts["memlock"] = {"bytes": None, "user": "nobody", "unread": "runuser is not installed on this node"}

    found = criterion(judged(unknown), "pf.memlock")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
