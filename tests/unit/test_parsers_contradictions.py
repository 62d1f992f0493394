"""Output held against itself: figures that contradict each other or stand there twice are no measurement."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rdma_documents import CASES, HARDWARE, WRITE, end, said
from tests.support.rdma_documents import doc as rdma_doc
from tests.support.remoting_documents import ISOLATE, isolated
from tests.support.tool_documents import BANDWIDTH, DATA, SOCKPERF_FACTS, values
from tests.support.tool_documents import doc as tcp_doc
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.tcp import tcp_bandwidth_probe, tcp_latency_probe
from validation.probes import rdma_ports_qos
from validation.probes.tool import Ran

SOCKPERF = (DATA / "sockperf/3.7-tcp.out").read_text()
IPERF = json.loads((DATA / "iperf3/3.12-1stream.json").read_text())
LONG = {**WRITE, "size_bytes": 8388608, "iterations": 0, "qps": 4, "seconds": 5}


# --- perftest (D7, D19) ----------------------------------------------------------------------------------------


def long_run(*changes: tuple[str, str], params: dict[str, Any] = LONG) -> Any:
    """perftest 24.07 on a card, by time: 7012 messages of 8 MiB, 97.31 Gbit/s, 0.001450 million messages per second."""
    text = said("constructed-24.07-write_bw.out")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse("rdma-bandwidth", rdma_doc("rdma-bandwidth", text, {**HARDWARE, "peer": end(14, **HARDWARE)}), params)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("7012", "0   ")], "0 messages"),
        ([("97.31", "363.0")], "363 Gbit/s in its output, 97.3"),
        ([("0.001450", "0.000145")], "97.31 Gbit/s in its output, 9.73"),
        ([("97.31", "363.0"), ("0.001450", "0.005409")], "1.3 s"),
        ([("7012", "10  ")], "0.0069 s"),
        ([("7012", "-701")], "messages|figures"),
        ([("97.31", "-97.3"), ("0.001450", "-0.00145")], "not a usable value"),
    ],
)
def test_a_rate_is_that_of_the_messages_and_of_the_time(changes: list[tuple[str, str]], words: str) -> None:
    assert long_run()[0][0].value == 97.31
    with pytest.raises(ParseError, match=words):
        long_run(*changes)


@pytest.mark.parametrize(
    "name", ["4.5-write_bw", "4.5-write_lat", "4.5-write_bw-sweep", "pingpong", "ucx-1.13-put_lat"]
)
def test_two_reports_in_one_output_are_none(name: str) -> None:
    kind, text, facts, params = CASES[name]
    assert parse(kind, rdma_doc(kind, text, facts), params)
    with pytest.raises(ParseError, match=r"2 times|expected"):
        parse(kind, rdma_doc(kind, text + text, facts), params)


def test_a_sweep_is_of_all_sizes_each_once() -> None:
    kind, text, facts, params = CASES["4.5-write_bw-sweep"]
    lines = text.splitlines(keepends=True)
    last = next(i for i, line in enumerate(lines) if line.startswith(" 8388608"))
    lines[last] = lines[last - 1]
    with pytest.raises(ParseError, match="sizes"):
        parse(kind, rdma_doc(kind, "".join(lines), facts), params)


# --- ucx_perftest (D16) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "params", "words"),
    [
        ("constructed-ucx-1.13-tag_bw", {"ucx_test": "tag_lat"}, "tag match bandwidth.* tag match latency"),
        ("ucx-1.13-put_lat", {"ucx_test": "put_bw"}, "put latency.* put bandwidth"),
    ],
)
def test_another_ucx_test_than_planned(case: str, params: dict[str, Any], words: str) -> None:
    kind, text, facts, planned = CASES[case]
    facts = {**facts, "sent_bytes": 10**12, "received_bytes": 10**12}
    with pytest.raises(ParseError, match=words):
        parse(kind, rdma_doc(kind, text, facts), {**planned, **params})


def test_ucx_figures_are_of_the_kind_that_the_test_measures() -> None:
    kind, text, facts, planned = CASES["ucx-1.13-put_lat"]
    with pytest.raises(ParseError, match="overhead"):
        parse(kind, rdma_doc(kind, text.replace(" latency (usec)", "overhead (usec)"), facts), planned)
    kind, text, facts, planned = CASES["constructed-ucx-1.13-tag_bw"]
    with pytest.raises(ParseError, match="115314 MB/s"):
        parse(kind, rdma_doc(kind, text.replace("   11531.36   11531.36", "  115313.60  115313.60"), facts), planned)


# --- sockperf (D17, D19) ---------------------------------------------------------------------------------------


def rtt(text: str = SOCKPERF, **facts: Any) -> Any:
    return parse("tcp-latency", tcp_doc("tcp-latency", text, {**SOCKPERF_FACTS, **facts}), {"seconds": 1})


@pytest.mark.parametrize(
    "blocks",
    [
        [1.0] * 19 + [45.0],
        [*SOCKPERF_FACTS["block_medians_us"][:-1], 1.0],
        [*SOCKPERF_FACTS["block_medians_us"][:-1], 1e6],
        [14.8] * 15 + [17.0] * 5,
        [14.8] * 5 + [17.0] * 15,
    ],
)
def test_block_medians_are_held_against_every_percentile_of_the_output(blocks: list[float]) -> None:
    assert len(values(rtt()[0], "tcp_rtt_us")) == 20
    with pytest.raises(ParseError, match="block"):
        rtt(block_medians_us=blocks)


@settings(max_examples=150, deadline=None)
@given(number=st.integers(40, 1500), seed=st.integers(0, 10**6), spread=st.floats(0, 3), steps=st.integers(1, 8))
def test_no_log_of_the_probe_is_refused(number: int, seed: int, spread: float, steps: int) -> None:
    """Round trips of any shape, in stretches as a busy host makes them, and as few as an emulated machine has."""
    dice = random.Random(seed)
    levels = [10 * dice.lognormvariate(0, spread) for _ in range(steps)]
    said_by_a_log(
        [round(levels[i * steps // number] * dice.lognormvariate(0, spread / 3) + 1, 3) for i in range(number)]
    )


def test_blocks_of_two_observations_are_no_contradiction() -> None:
    """11 of 20 medians are 5, and yet fewer than a quarter of all times are below 9: many stand in no block."""
    said_by_a_log([1.0, 9.0] * 11 + [10.0] * 37)


def said_by_a_log(times: list[float]) -> None:
    """What sockperf prints of these times, and what the probe makes of its log, is accepted."""
    number, dice = len(times), random.Random(1)
    text = re.sub(r"Total \d+ observations", f"Total {number} observations", SOCKPERF)
    for name in ("99.999", "99.990", "99.900", "99.000", "90.000", "75.000", "50.000", "25.000"):
        value = sorted(times)[min(number - 1, int(number * float(name) / 100) - dice.randint(0, 1))]
        text = re.sub(rf"percentile {name} =\s+[\d.]+", f"percentile {name} = {value:.3f}", text)
    text = re.sub(r"<MAX> observation =\s+[\d.]+", f"<MAX> observation = {max(times):.3f}", text)
    text = re.sub(r"<MIN> observation =\s+[\d.]+", f"<MIN> observation = {min(times):.3f}", text)
    facts = {"observations": number, "block_medians_us": tcp_latency_probe.block_medians(times)}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        facts[f"{name}_us"] = tcp_latency_probe.percentile(times, share)
        around = [tcp_latency_probe.percentile(times, share + side) for side in (-0.03, 0.03)]
        facts[f"{name}_around_us"] = around
    assert len(values(rtt(text, **facts)[0], "tcp_rtt_us")) == 20


@pytest.mark.parametrize("count", ["duplicated", "out-of-order", "dropped"])
def test_messages_that_tcp_does_not_lose_or_double(count: str) -> None:
    with pytest.raises(ParseError, match=f"3 .*{count}|{count}.* 3"):
        rtt(SOCKPERF.replace(f"# {count} messages = 0", f"# {count} messages = 3"))


def test_two_sockperf_runs_in_one_output_are_none() -> None:
    with pytest.raises(ParseError, match="2 times"):
        rtt(SOCKPERF + SOCKPERF)


# --- iperf3 (D18) ----------------------------------------------------------------------------------------------


def measured(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [i["sum"] for i in report["server_output_json"]["intervals"] if not i["sum"]["omitted"]]


def _rate(report: dict[str, Any]) -> None:
    measured(report)[3]["bits_per_second"] *= 1.2


def _bytes(report: dict[str, Any]) -> None:
    measured(report)[3]["bytes"] //= 2


def _twice(report: dict[str, Any]) -> None:
    intervals = report["server_output_json"]["intervals"]
    intervals.insert(8, intervals[8])


def _swapped(report: dict[str, Any]) -> None:
    intervals = report["server_output_json"]["intervals"]
    intervals[7], intervals[9] = intervals[9], intervals[7]


def _gone(report: dict[str, Any]) -> None:
    del report["server_output_json"]["intervals"][8]


def _span(report: dict[str, Any]) -> None:
    measured(report)[4]["seconds"] *= 0.5
    measured(report)[4]["bits_per_second"] *= 2


def _long(report: dict[str, Any]) -> None:
    received = report["server_output_json"]["end"]["sum_received"]
    received["seconds"] *= 4
    received["bytes"] *= 4


def _whole(report: dict[str, Any]) -> None:
    report["server_output_json"]["end"]["sum_received"]["bytes"] *= 2


def _start(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def spoil(report: dict[str, Any]) -> None:
        report["server_output_json"]["start"]["test_start"][key] = value

    return spoil


def _cookie(report: dict[str, Any]) -> None:
    report["server_output_json"]["start"]["cookie"] = "another"


def _connected(report: dict[str, Any]) -> None:
    report["server_output_json"]["start"]["connected"] *= 2


@pytest.mark.parametrize(
    "spoil",
    [
        _rate, _bytes, _twice, _swapped, _gone, _span, _long, _whole, _cookie, _connected, _start("protocol", "UDP"),
        _start("duration", 30), _start("num_streams", 8), _start("omit", 0), _start("reverse", 1),
    ],
)  # fmt: skip
def test_iperf3_reports_that_contradict_themselves(spoil: Callable[[dict[str, Any]], None]) -> None:
    report = copy.deepcopy(IPERF)
    assert parse("tcp-bandwidth", tcp_doc("tcp-bandwidth", json.dumps(report)), BANDWIDTH)
    spoil(report)
    with pytest.raises(ParseError, match="iperf3"):
        parse("tcp-bandwidth", tcp_doc("tcp-bandwidth", json.dumps(report)), BANDWIDTH)


@pytest.mark.parametrize(("name", "samples"), [("1stream", 9), ("late", 10)])
def test_intervals_that_ran_together_while_the_machine_stood_still_are_measured(name: str, samples: int) -> None:
    """Recorded while both ends were stopped for up to 0.3 s at a time: no time is missing, so nothing is."""
    text = (DATA / f"iperf3/stalled-3.12-{name}.json").read_text()
    asked = tcp_bandwidth_probe.Asked(source="127.0.0.1", destination="127.0.0.1", port=5201, seconds=3, omit_s=1)
    assert tcp_bandwidth_probe.wrong(asked, text) is None
    found, _ = parse("tcp-bandwidth", tcp_doc("tcp-bandwidth", text), BANDWIDTH)
    assert len(values(found, "tcp_bandwidth_gbps")) == samples


# --- isolation (D9) --------------------------------------------------------------------------------------------


NOT_TRIED = {"breach": False, "words": "not tried: tool missing"}


def without_evidence(attempt: dict[str, Any]) -> dict[str, Any]:
    return {"name": attempt["name"], **NOT_TRIED}


@pytest.mark.parametrize(
    "change",
    [
        lambda made: [without_evidence(a) for a in made],
        lambda made: [without_evidence(made[0]), *made[1:]],
        lambda made: [*made[:-1], without_evidence(made[-1])],
        lambda made: made[::-1],
        lambda made: [made[1], made[0], *made[2:]],
        lambda made: [*made, {**made[0], "name": "extra"}],
        lambda made: [*made, made[0]],
        lambda made: [{**a, "breach": not a["breach"]} for a in made],
        lambda made: [{**a, "name": b["name"]} for a, b in zip(made, [*made[1:], made[0]], strict=True)],
        lambda made: [{**a, "name": a["name"].replace("gpu2", "gpu3")} for a in made],
        lambda made: [{**a, "cuda": None, "strange": 0} if "cuda" in a else a for a in made],
        lambda made: [{**a, "cuda": 46, "strange": 0} for a in made],
        lambda made: [{**a, "status": 1} if "status" in a else a for a in made],
        lambda made: [{**a, "connection": "untried"} if "connection" in a else a for a in made],
    ],
)
def test_attempts_that_are_not_those_asked_for_or_that_nothing_shows(change: Any) -> None:
    """A report in which nothing was tried, or in another order, had no breaches and so passed."""
    doc = isolated()
    assert parse("remoting-isolate", doc, ISOLATE)[0][0].value == 0
    doc["facts"]["attempts"] = change(doc["facts"]["attempts"])
    with pytest.raises(ParseError, match="isolation"):
        parse("remoting-isolate", doc, ISOLATE)


@pytest.mark.parametrize(
    "change",
    [
        {"words": ""}, {"words": None}, {"breach": None}, {"breach": "no"}, {"breach": 0}, {"name": ""},
        {"name": "no token"}, {"outcome": "refused"},
    ],
    ids=str,
)  # fmt: skip
def test_an_attempt_that_does_not_say_how_it_ended_is_refused(change: dict[str, Any]) -> None:
    doc = isolated()
    assert parse("remoting-isolate", doc, ISOLATE)[0][0].value == 0
    doc["facts"]["attempts"][0] |= change  # of another name it is there twice
    with pytest.raises(ParseError, match="isolation"):
        parse("remoting-isolate", doc, ISOLATE)


# --- the pool's readings (D15) ---------------------------------------------------------------------------------


def readings(**changes: Any) -> Any:
    facts = {"leased_ratio": [0.5] * 100, "gpu_utilization_ratio": [0.25] * 100, "gpu_memory_ratio": [], "days": 30,
             "leased_ratio_from_s": 1500, "step_s": 15, "emulated": False, **changes}  # fmt: skip
    return parse("utilisation", tcp_doc("utilisation", facts=facts))


def test_a_reading_that_is_undefined_is_left_out_and_told() -> None:
    nan = float("nan")
    samples, facts = readings(leased_ratio=[0.5] * 50 + [nan, 1.0000000002, 0.5], gpu_utilization_ratio=[nan, 0.5])
    assert values(samples, "leased_ratio") == [0.5] * 50 + [1.0, 0.5]
    assert values(samples, "gpu_utilization_ratio") == [0.5]
    assert facts["undefined"] == ["leased_ratio: 1 of 53 readings", "gpu_utilization_ratio: 1 of 2 readings"]
    assert "step_s" not in facts, "readings that are left out within leave others in wrong places"
    oldest = readings(leased_ratio=[nan, nan, 0.5, 0.5])[1]
    assert oldest["step_s"] == 15
    assert readings()[1]["undefined"] == []


@pytest.mark.parametrize("bad", [1.01, -0.01, float("inf"), "0.5", True, None])
def test_what_is_no_share_is_refused(bad: Any) -> None:
    with pytest.raises(ParseError):
        readings(leased_ratio=[0.5, bad])
    with pytest.raises(ParseError, match="nothing recorded yet"):
        readings(leased_ratio=[float("nan")] * 3)


# --- counters of pauses (D12) ----------------------------------------------------------------------------------


def test_pause_and_discard_counters_are_read_with_a_blank_before_the_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "NIC statistics:\n     rx_packets: 5\n     tx_pause_storm_warning_events : 3\n     rx_prio3_pause: 7\n"
        "     tx_pause_storm_error_events : 0\n     rx_discards_phy: 11\n     rx_prio3_buf_discard : 2\n"
        "     rx_prio3_cong_discard: 4\n     rx_out_of_buffer: 9\n     rx_prio3_pause_duration: 1\n"
    )
    monkeypatch.setattr(rdma_ports_qos, "run_tool", lambda *a, **k: Ran([], 0, text, ""))
    assert rdma_ports_qos.driver_counters("fab0") == {
        "tx_pause_storm_warning_events": 3, "rx_prio3_pause": 7, "tx_pause_storm_error_events": 0,
        "rx_discards_phy": 11, "rx_prio3_buf_discard": 2, "rx_prio3_cong_discard": 4, "rx_out_of_buffer": 9,
        "rx_prio3_pause_duration": 1,
    }  # fmt: skip
