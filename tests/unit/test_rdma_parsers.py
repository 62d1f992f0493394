"""RDMA parsers: figures only with the proof of both ends' counters, on the planned device, GID and RoCE version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rdma_documents import CASES, EXPECTED, HARDWARE, WRITE, doc, end, said
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.rdma import tools_output

PACKETS = 16  # of a message of 64 KiB at an RDMA MTU of 4096


def parsed(case: str, facts: dict[str, Any] | None = None, params: dict[str, Any] | None = None, **changes: Any) -> Any:
    kind, text, known, planned = CASES[case]
    if facts and isinstance(facts.get("peer"), dict) and "stdout" in known.get("peer", {}):
        facts = {**facts, "peer": {**facts["peer"], "stdout": known["peer"]["stdout"]}}
    return parse(kind, doc(kind, text, {**known, **(facts or {})}, **changes), {**planned, **(params or {})})


@pytest.mark.parametrize("case", CASES)
def test_figures_and_what_they_were_measured_on(case: str) -> None:
    samples, facts = parsed(case)
    found = {s.metric: s.value for s in samples}
    assert found == pytest.approx(EXPECTED[case])
    assert facts["device"] == facts["peer_device"] == "rxe_fab0"
    assert facts["roce_version"] == facts["peer_roce_version"] == "RoCE v2"
    assert facts["active_mtu"] == 4096 or "ucx" in case
    assert facts["tool_transport"]
    assert "json" not in facts


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"peer": None}, "serving end reported nothing"),
        ({"roce_version": "IB/RoCE v1"}, "instead of RoCE v2"),
        ({"peer": end(14, roce_version="IB/RoCE v1")}, "serving end used a GID of type IB/RoCE v1"),
        ({"peer": end(14, received_packets=0, sent_packets=0)}, "did not go over|nothing proves"),
        ({"sent_packets": 3, "received_packets": 3}, "did not go over"),
        ({"sent_packets": None, "received_packets": None}, "no counters"),
    ],
    ids=["no-peer", "gid-v1", "peer-gid-v1", "peer-idle", "idle", "no-counters"],
)
def test_nothing_counts_without_its_proof(case: str, facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parsed(case, facts)


def test_a_read_is_proved_in_the_direction_in_which_data_flow() -> None:
    payload = 100 * PACKETS
    asks = {"sent_packets": 100, "received_packets": payload}
    gives = end(14, received_packets=100, sent_packets=payload)
    parsed("4.5-read_bw-rdma_cm", {**asks, "peer": gives})
    with pytest.raises(ParseError, match="server's device sent 100 packets"):
        parsed(
            "4.5-read_bw-rdma_cm",
            {"sent_packets": payload, "received_packets": payload, "peer": end(14, sent_packets=100)},
        )


def test_bytes_count_where_the_device_counts_them() -> None:
    text = said("constructed-24.07-write_bw.out")
    params = {**WRITE, "size_bytes": 8388608, "iterations": 0, "qps": 4, "seconds": 5}
    facts = {**HARDWARE, "peer": end(14, **HARDWARE), "json": said("constructed-24.07-write_bw.json")}
    samples, found = parse("rdma-bandwidth", doc("rdma-bandwidth", text, facts), params)
    assert samples[0].value == 97.31
    assert (found["report"], found["qps"], found["messages"]) == ("json", 4, 7012)
    facts["peer"] = end(14, **{**HARDWARE, "received_bytes": 10**9})
    with pytest.raises(ParseError, match="server's device received 1000000000 bytes"):
        parse("rdma-bandwidth", doc("rdma-bandwidth", text, facts), params)


def test_json_must_agree_with_the_text_and_what_is_no_json_is_left_aside() -> None:
    _, facts = parsed("4.5-write_bw", {"json": said("constructed-4.5-write_bw.json")})
    assert facts["report"] == "text"
    text, json = said("constructed-24.07-write_bw.out"), said("constructed-24.07-write_bw.json")
    facts = {**HARDWARE, "peer": end(14, **HARDWARE), "json": json.replace("97.31", "79.31")}
    with pytest.raises(ParseError, match=r"BW_average is 79\.31 in its JSON"):
        parse("rdma-bandwidth", doc("rdma-bandwidth", text, facts), {**WRITE, "size_bytes": 8388608, "qps": 4})


@pytest.mark.parametrize(
    ("case", "params"),
    [
        ("4.5-write_bw", {"op": "read"}),
        ("4.5-write_bw", {"qps": 1}),
        ("4.5-write_bw", {"size_bytes": 4096}),
        ("4.5-write_bw", {"iterations": 1000}),
        ("4.5-write_bw", {"bidirectional": True}),
        ("4.5-write_bw", {"cm": "rdma_cm"}),
        ("4.5-write_bw", {"size_bytes": 0}),
        ("4.5-write_bw", {"transport": "ib"}),
        ("4.5-write_bw-bidirectional", {"bidirectional": 0}),
        ("4.5-write_lat", {"iterations": 1000}),
        ("4.5-write_lat", {"size_bytes": 8}),
        ("pingpong", {"mtu": 1024}),
        ("pingpong", {"iterations": 1000}),
        ("pingpong", {"size_bytes": 64}),
        ("ucx-1.13-put_lat", {"size_bytes": 64}),
        ("ucx-1.13-put_lat", {"ucx_test": "tag_lat"}),
        ("ucx-1.13-put_lat", {"iterations": 1000}),
    ],
)
def test_a_tool_that_did_something_else_than_planned(case: str, params: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        parsed(case, None, params)


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        ("4.5-write_bw", {"device": "rxe_mgmt0"}),
        ("4.5-write_bw", {"gid_index": 0}),
        ("pingpong", {"gid": "fe80::1"}),
        ("pingpong", {"peer": end(14, gid="fe80::1")}),
        ("pingpong", {"peer": end(14, active_mtu=1024)}),
    ],
)
def test_another_device_gid_or_mtu_than_the_ports(case: str, facts: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        parsed(case, facts)


@pytest.mark.parametrize(
    ("old", "new"), [("0.10 ", "inf "), ("0.10 ", "nan "), ("0.10 ", "0.00 "),
     ("Transport type : IB", "Transport type : iWARP")]
)  # fmt: skip
def test_figures_that_are_none_and_another_transport(old: str, new: str) -> None:
    text = said("constructed-4.5-write_bw.out")
    assert old in text
    with pytest.raises(ParseError):
        parse("rdma-bandwidth", doc("rdma-bandwidth", text.replace(old, new)), WRITE)


def test_retransmits_of_both_ends_are_a_sample() -> None:
    moved = {"hw_counters/out_of_seq_request": 3, "hw_counters/sent_pkts": 900, "hw_counters/rcvd_seq_err": 2}
    samples, facts = parsed(
        "4.5-write_bw", {"counters": moved, "peer": end(14, counters={"hw_counters/out_of_seq_request": 3})}
    )
    assert {s.metric: s.value for s in samples}["rdma_retransmits"] == 8
    assert facts["counters"] == moved
    assert tools_output.retransmits({"counters": {}, "peer": end(14)}) == 0


def test_the_sweep_keeps_every_size() -> None:
    _, facts = parsed("4.5-write_bw-sweep")
    assert isinstance(facts["sweep"], dict)
    assert list(facts["sweep"]) == [str(2**power) for power in range(1, 24)]
    assert all(rate > 0 for rate in facts["sweep"].values())


def test_a_run_that_broke_off_has_no_figures_even_where_its_exit_status_were_lost() -> None:
    params = {**WRITE, "bidirectional": 1}
    with pytest.raises(ParseError, match="cut in the figures"):
        parse("rdma-bandwidth", doc("rdma-bandwidth", said("broken-4.5-bidirectional.out")), params)
