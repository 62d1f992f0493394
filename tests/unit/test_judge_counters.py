"""Counters of RDMA ports that are absent, fall, stick or contradict each other prove nothing (D1, D2, D3, D12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rdma_case import REAL, VMS, failed, judged, plan_of, results, verdict_of
from tests.support.site import criterion
from validation.measures.rdma.counters import HOST_QUEUES, STORMS, Change, changes
from validation.probes import rdma_ports_qos
from validation.probes.tool import Ran

Spoil = Callable[[dict[str, Any], bool], None]


def counters(before: dict[str, int] | None = None, after: dict[str, int] | None = None) -> Spoil:
    """Sets counters of gpu2's port in the first and in the second reading; the rest stays as it is."""

    def spoil(facts: dict[str, Any], last: bool) -> None:
        facts["ports"][0]["counters"].update((after if last else before) or {})

    return spoil


def only(*names: str, before: bool = True, after: bool = True) -> Spoil:
    """Nothing but these counters in the readings that are named."""

    def spoil(facts: dict[str, Any], last: bool) -> None:
        port = facts["ports"][0]
        if after if last else before:
            port["counters"] = {name: port["counters"][name] for name in names}

    return spoil


def of_gpu2(spoil: Spoil, id_: str, topology: Any = REAL) -> Any:
    verdict = judged(spoil, topology=topology)
    return next(j for j in criterion(verdict, id_).judgements if j.subject == "gpu2/fab0")


@pytest.mark.parametrize("which", [{}, {"before": False}, {"after": False}], ids=["both", "after", "before"])
def test_d1_without_counters_nothing_is_known_of_errors_and_losses(which: dict[str, bool]) -> None:
    verdict = judged(only(**which), topology=REAL)
    assert failed(verdict) == []
    for id_ in ("pf.rdmaport", "pf.lossless"):
        found = of_gpu2(only(**which), id_)
        assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
        assert "counter" in found.reason
    assert verdict.exit_code == 3


@pytest.mark.parametrize(
    ("kept", "id_", "words"),
    [
        (("out_of_sequence", "tx_pause_storm_error_events"), "pf.rdmaport", "no counter of link errors"),
        (("link_downed", "symbol_error", "tx_pause_storm_error_events"), "pf.lossless", "no counter of lost packets"),
        (("link_downed", "symbol_error", "out_of_sequence"), "pf.lossless", "no counter of pause storms"),
    ],
)
def test_d1_each_group_of_counters_must_be_there(kept: tuple[str, ...], id_: str, words: str) -> None:
    found = of_gpu2(only(*kept), id_)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_d1_a_counter_that_vanishes_between_the_readings_did_not_stand_still() -> None:
    left = ("symbol_error", "out_of_sequence", "tx_pause_storm_error_events")
    found = of_gpu2(only(*left, before=False), "pf.rdmaport")
    assert found.verdict == "not-measured"
    assert "link_downed in one of the two readings only" in found.reason


def test_d1_on_a_virtual_machine_too() -> None:
    verdict = judged(only(), topology=VMS)
    assert criterion(verdict, "pf.rdmaport").reason_code == "missing-metric"
    assert verdict.exit_code == 3


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"symbol_error": 9}, {"symbol_error": 3}),
        ({"link_downed": 2}, {"link_downed": 1}),
        ({"out_of_sequence": 500}, {"out_of_sequence": 7}),
        ({"rcvd_pkts": 90_000}, {"rcvd_pkts": 12}),
    ],
)
def test_d2_a_counter_that_fell_began_anew_and_says_nothing_of_the_run(
    first: dict[str, int], last: dict[str, int]
) -> None:
    """A driver or firmware that starts again in mid-run counts from zero, whatever there was before."""
    for id_ in ("pf.rdmaport", "pf.lossless"):
        found = of_gpu2(counters(first, last), id_)
        name = next(iter(first))
        assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
        assert f"{name} fell from {first[name]} to {last[name]}" in found.reason
    assert judged(counters(first, last), topology=REAL).exit_code == 3


def test_d2_a_gauge_may_fall() -> None:
    found = judged(counters({"active_qps": 9}, {"active_qps": 2}), topology=REAL)
    assert criterion(found, "pf.rdmaport").verdict == criterion(found, "pf.lossless").verdict == "pass"


def test_d2_errors_that_grew_outweigh_a_fall() -> None:
    found = of_gpu2(
        counters({"symbol_error": 9, "link_downed": 1}, {"symbol_error": 3, "link_downed": 2}), "pf.rdmaport"
    )
    assert found.verdict == "fail"
    assert "link_downed +1" in found.reason


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(("link_downed", 255), ("link_error_recovery", 255), ("port_xmit_constraint_errors", 255)),
        *(("symbol_error", 65535), ("port_rcv_errors", 65535), ("port_rcv_remote_physical_errors", 65535)),
        *(("local_link_integrity_errors", 15), ("excessive_buffer_overrun_errors", 15)),
    ],
)
def test_d3_a_counter_at_its_maximum_cannot_grow(name: str, most: int) -> None:
    """InfiniBand's counters stick (recorded: link_downed 255 of an H100 server, symbol_error 65535 of an SX6036)."""
    found = of_gpu2(counters({name: most}, {name: most}), "pf.rdmaport")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert f"{name} is at its maximum of {most}" in found.reason
    assert "perfquery -R" in found.reason


def test_d3_of_losses_too_and_below_the_maximum_all_is_well() -> None:
    assert of_gpu2(counters({"port_xmit_discards": 65535}, {"port_xmit_discards": 65535}), "pf.lossless").verdict == (
        "not-measured"
    )
    assert of_gpu2(counters({"link_downed": 254}, {"link_downed": 254}), "pf.rdmaport").verdict == "pass"


@pytest.mark.parametrize(
    "name",
    [
        *("port_xmit_discards", "rx_discards_phy", "tx_discards_phy", "out_of_buffer", "rx_prio3_discards"),
        *("rx_prio3_buf_discard", "rx_prio3_cong_discard", "rx_prio0_buf_discard"),
        *("tx_pause_storm_warning_events", "tx_pause_storm_error_events"),
    ],
)
def test_d12_discards_and_pause_storms_are_losses(name: str) -> None:
    found = of_gpu2(counters({name: 4}, {name: 1_000_004}), "pf.lossless")
    assert found.verdict == "fail"
    assert f"{name} +1000000" in found.reason
    old = of_gpu2(counters({name: 4}, {name: 4}), "pf.lossless")
    assert old.verdict == "pass"


CABLE = {
    "mlx5": (
        *("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "link_down_events_phy"),
        *("rx_in_range_len_errors_phy", "rx_fragments_phy", "rx_jabbers_phy"),
    ),
    "bnxt_en": ("rx_fcs_err_frames", "rx_pcs_symbol_err", "link_down_events"),
}
"""Counters of an Ethernet port's cable in the driver (`ethtool -S`), which sysfs's InfiniBand counters do not have."""


@pytest.mark.parametrize("name", [name for names in CABLE.values() for name in names])
def test_errors_of_an_ethernet_cable_are_link_errors(name: str) -> None:
    found = of_gpu2(counters({name: 4}, {name: 1_000_004}), "pf.rdmaport")
    assert found.verdict == "fail"
    assert f"{name} +1000000" in found.reason
    assert of_gpu2(counters({name: 4}, {name: 4}), "pf.rdmaport").verdict == "pass"
    assert of_gpu2(counters({name: 2**64 - 1}, {name: 2**64 - 1}), "pf.rdmaport").verdict == "not-measured"


@pytest.mark.parametrize("name", ["rx_corrected_bits_phy", "rx_err_lane_0_phy", "rx_bytes_phy"])
def test_what_error_correction_mends_is_no_error(name: str) -> None:
    assert of_gpu2(counters({name: 4}, {name: 1_000_004}), "pf.rdmaport").verdict == "pass"


def test_each_counter_of_the_driver_that_is_judged_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that the probe leaves out can grow as it will."""
    of_driver = {
        *STORMS,
        "rx_discards_phy",
        "tx_discards_phy",
        HOST_QUEUES,
        *(n for names in CABLE.values() for n in names),
    }
    said = "NIC statistics:\n     rx_bytes: 5\n" + "".join(f"     {name}: 7\n" for name in sorted(of_driver))
    monkeypatch.setattr(rdma_ports_qos, "run_tool", lambda *_, **__: Ran([], 0, said, ""))
    assert rdma_ports_qos.driver_counters("fab0") == dict.fromkeys(of_driver, 7)


def test_what_the_hosts_own_tcp_queues_could_not_hold_is_told_and_no_fault_of_the_fabric() -> None:
    found = of_gpu2(counters({"rx_out_of_buffer": 4}, {"rx_out_of_buffer": 316}), "pf.lossless")
    assert found.verdict == "pass"
    assert "reported, not judged: rx_out_of_buffer +312" in found.reason


def facts_of(change: dict[str, Any], after: bool = False) -> Any:
    """gpu2's judgements where its port, or what it says of RoCE, is changed in one reading."""

    def spoil(facts: dict[str, Any], last: bool) -> None:
        if last == after:
            port = facts["ports"][0]
            for key, value in change.items():
                (port["qos"] if key in port.get("qos", {}) else port if key in port else facts)[key] = value

    verdict = judged(spoil, topology=REAL)
    return {c.id: next((j for j in c.judgements if j.subject in ("gpu2/fab0", "gpu2")), None) for c in verdict.criteria}


def test_a_port_that_ends_slower_than_it_began_is_found() -> None:
    found = facts_of({"rate_gbps": 10.0}, after=True)["pf.rdmaport"]
    assert found.verdict == "fail"
    assert "runs at 10 Gbit/s at the end of the run, 40 wanted" in found.reason


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("change", [{"device": ""}, {"rate_gbps": None}, {"counters": {}}, {"gids": []}], ids=str)
def test_what_is_not_known_of_a_port_is_no_pass(change: dict[str, Any], after: bool) -> None:
    assert facts_of(change, after)["pf.rdmaport"].verdict != "pass"


@pytest.mark.parametrize("after", [False, True])
def test_a_reading_without_facts_is_no_pass(after: bool) -> None:
    plan = plan_of(REAL, ("preflight", "transport"), "roce40")
    wanted = "rdma-ports-after.gpu2" if after else "rdma-ports.gpu2"
    found = [r.model_copy(update={"facts": {}}) if r.measurement == wanted else r for r in results(REAL, plan)]
    verdict = verdict_of(REAL, plan, found, fabric="roce40")
    for id_ in ("pf.rdmaport", "pf.lossless"):
        mine = next(j for j in criterion(verdict, id_).judgements if j.subject == "gpu2/fab0")
        assert (mine.verdict, mine.reason_code) == ("not-measured", "missing-metric")
    if not after:
        mine = next(j for j in criterion(verdict, "pf.memlock").judgements if j.subject == "gpu2")
        assert mine.verdict == "not-measured"


def test_a_port_that_nobody_looked_at_is_not_measured() -> None:
    found = facts_of({"interface": "eth9"})["pf.rdmaport"]
    assert found.verdict == "not-measured"
    assert "did not look at fab0" in found.reason


def test_another_device_at_the_end_is_another_port() -> None:
    found = facts_of({"device": "mlx5_7"}, after=True)["pf.rdmaport"]
    assert found.verdict == "not-measured"
    assert "mlx5_7" in found.reason


@pytest.mark.parametrize("key", ["roce_mode", "tos", "trust", "dscp_prio", "pfc", "pause", "ecn"])
def test_a_setting_that_nobody_read_is_no_pass_of_lossless(key: str) -> None:
    found = facts_of({key: None})["pf.lossless"]
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason


def test_a_limit_that_contradicts_itself_is_not_measured() -> None:
    lock = {"bytes": -1, "user": "nobody", "unread": "runuser: not found"}
    assert facts_of({"memlock": lock})["pf.memlock"].verdict == "not-measured"


def test_a_counter_that_fell_is_a_field_of_the_change() -> None:
    first, last = {"link_downed": 3, "symbol_error": 9}, {"link_downed": 4, "symbol_error": 2}
    assert changes(first, last) == [Change("link_downed", 1, False), Change("symbol_error", -7, True)]
