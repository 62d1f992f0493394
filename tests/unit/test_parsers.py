"""Parsers against recorded output: whole output gives its numbers, anything less is refused."""

from __future__ import annotations

import json
import re
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recordings import RECORDINGS
from tests.support.tool_documents import BANDWIDTH, DATA, FACTS, SOCKPERF_FACTS, TRAINING_PARAMS, doc, training, values
from validation.kinds import KINDS, parse
from validation.kinds.parsing import ParseError
from validation.model.node_facts import NodeFacts
from validation.plan.suites import SUITES


@pytest.mark.parametrize("path", sorted((DATA / "iperf3").glob("[0-9]*.json")), ids=lambda p: p.stem)
def test_iperf3_gives_the_receivers_rate(path):
    samples, facts = parse("tcp-bandwidth", doc("tcp-bandwidth", path.read_text()), BANDWIDTH)
    report = json.loads(path.read_text())
    rates = values(samples, "tcp_bandwidth_gbps")
    assert 11 <= len(rates) <= 13
    whole = report["end"]["sum_received"]["bits_per_second"] / 1e9
    assert statistics.fmean(rates) == pytest.approx(whole, rel=0.05)
    assert facts["receiver_mean_gbps"] == pytest.approx(whole, rel=1e-3)
    assert values(samples, "retransmits") == [report["end"]["sum_sent"]["retransmits"]]
    assert {s.unit for s in samples} == {"Gbit/s", "count"}


def test_the_tools_artefact_after_the_omitted_time_is_no_sample():
    # 3.9 reports the first measured interval with bytes of 0.5 s over a span of 1 ms: half the true rate
    samples, _ = parse("tcp-bandwidth", doc("tcp-bandwidth", (DATA / "iperf3/3.9-1stream.json").read_text()))
    assert min(values(samples, "tcp_bandwidth_gbps")) > 15


def test_a_link_of_known_rate_reads_as_its_payload_rate():
    text = (DATA / "iperf3/3.12-shaped-1gbit.json").read_text()
    rates = values(parse("tcp-bandwidth", doc("tcp-bandwidth", text))[0], "tcp_bandwidth_gbps")
    assert statistics.median(rates) == pytest.approx((9000 - 52) / (9000 + 14), rel=0.01)  # tbf counts 14 of the 38


@pytest.mark.parametrize("path", sorted((DATA / "iperf3").glob("broken*")), ids=lambda p: p.stem)
def test_broken_iperf3_is_refused(path):
    with pytest.raises(ParseError, match="iperf3"):
        parse("tcp-bandwidth", doc("tcp-bandwidth", path.read_text()))


@pytest.mark.parametrize(
    "params", [{"seconds": 30}, {"streams": 8}, {"omit_s": 0}, {"interval_s": 0.05}], ids=lambda p: next(iter(p))
)
def test_iperf3_that_did_something_else_than_planned(params):
    with pytest.raises(ParseError):
        parse("tcp-bandwidth", doc("tcp-bandwidth", (DATA / "iperf3/3.12-1stream.json").read_text()), params)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"bits_per_second":	', '"bits_per_second":	1e999, "x":	'),
        ('"bits_per_second":	', '"bits_per_second":	NaN, "x":	'),
        ('"retransmits":	', '"retransmits":	-1, "x":	'),
    ],
)
def test_numbers_that_are_none(old, new):
    text = (DATA / "iperf3/3.12-1stream.json").read_text().replace(old, new)
    with pytest.raises(ParseError):
        parse("tcp-bandwidth", doc("tcp-bandwidth", text))


def test_sockperf_gives_block_medians():
    text = (DATA / "sockperf/3.7-tcp.out").read_text()
    samples, facts = parse("tcp-latency", doc("tcp-latency", text, SOCKPERF_FACTS), {"seconds": 1})
    assert values(samples, "tcp_rtt_us") == SOCKPERF_FACTS["block_medians_us"]
    assert values(samples, "tcp_rtt_p99_us") == [SOCKPERF_FACTS["p99_us"]]
    assert facts["observations"] == 8184
    assert "block_medians_us" not in facts


@pytest.mark.parametrize("path", sorted((DATA / "sockperf").glob("broken*")), ids=lambda p: p.stem)
def test_broken_sockperf_is_refused(path):
    with pytest.raises(ParseError, match="sockperf"):
        parse("tcp-latency", doc("tcp-latency", path.read_text(), SOCKPERF_FACTS))


@pytest.mark.parametrize(
    "facts",
    [
        {"observations": 17},
        {"block_medians_us": [1.0] * 20},
        {"block_medians_us": SOCKPERF_FACTS["block_medians_us"][:9]},
        {"block_medians_us": [0.0] * 20},
        {"p99_us": 50.0},
        {"p50_us": float("nan")},
        {"p99_around_us": [1.0, 2.0]},
        {"p50_around_us": [1.0, 1e6], "p50_us": 2e6},
    ],
)
def test_sockperf_log_that_does_not_fit_its_summary(facts):
    text = (DATA / "sockperf/3.7-tcp.out").read_text()
    with pytest.raises(ParseError):
        parse("tcp-latency", doc("tcp-latency", text, {**SOCKPERF_FACTS, **facts}))


@pytest.mark.parametrize("shift_us", [-0.002, 0.002])
def test_sockperf_cuts_its_log_to_nanoseconds(shift_us):
    """Seen on a busy machine: median 15.152 us in the output, 15.153 to 15.162 us around it in the log."""
    text = (DATA / "sockperf/3.7-tcp.out").read_text()
    said = float(re.search(r"percentile 50.000 =\s+([\d.]+)", text).group(1))
    around = {"p50_around_us": [said + shift_us] * 2, "p50_us": said + shift_us}
    parse("tcp-latency", doc("tcp-latency", text, {**SOCKPERF_FACTS, **around}), {"seconds": 1})


@pytest.mark.parametrize(("name", "mtu"), [("mtu9000", 9000), ("mtu1500", 1500), ("loopback-65535", 65535)])
def test_path_mtu(name, mtu):
    text = (DATA / f"ping/20221126-{name}.out").read_text()
    samples, _ = parse("path-mtu", doc("path-mtu", text, {"path_mtu_bytes": mtu}))
    assert [(s.metric, s.value, s.unit) for s in samples] == [("path_mtu_bytes", mtu, "bytes")]


def test_path_mtu_must_be_shown_from_both_sides():
    text = (DATA / "ping/20221126-mtu9000.out").read_text()
    one_side = text[: text.index("$ ping", 1)]
    with pytest.raises(ParseError, match="9001 was not tried"):
        parse("path-mtu", doc("path-mtu", one_side))
    with pytest.raises(ParseError, match="4000 bytes was not tried"):
        parse("path-mtu", doc("path-mtu", text), {"mtu": 4000})
    with pytest.raises(ParseError, match="reported by the probe"):
        parse("path-mtu", doc("path-mtu", text, {"path_mtu_bytes": 1500}))
    with pytest.raises(ParseError, match="no answer"):
        parse("path-mtu", doc("path-mtu", (DATA / "ping/broken-20221126-no-answer.out").read_text()))


def test_training_gives_every_measured_step():
    samples, facts = parse("training-short", doc("training-short", training()), TRAINING_PARAMS)
    assert len(values(samples, "images_per_s")) == 100
    assert facts.hosts == ("gpu1", "gpu1", "gpu2", "gpu2")
    assert values(samples, "loss") == []  # a program of an older release


def test_training_gives_the_loss_of_every_step_with_warmup():
    losses = [2.3 / (1 + i / 20) for i in range(110)]
    samples, facts = parse("training-short", doc("training-short", training(losses=losses)), TRAINING_PARAMS)
    assert values(samples, "loss") == losses
    assert {s.unit for s in samples if s.metric == "loss"} == {"nats"}
    assert facts.loss_last == 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {"world_size": 1, "hosts": ["gpu1"]},
        {"hosts": ["gpu1"] * 4},
        {"hosts": ["gpu1", "gpu2"]},
        {"steps": 99},
        {"images_per_s": [600.0] * 99},
        {"images_per_s": [600.0] * 100},
        {"images_per_s": [0.0] * 100},
        {"loss_finite": False},
        {"ranks_agree": False},
        {"batch": 32},
        {"step_s": None},
        {"losses": [1.0] * 109},
        {"losses": ["1"] * 110},
        {"losses": 3},
    ],
    ids=lambda c: "-".join(c),
)
def test_training_that_did_something_else(changes):
    with pytest.raises(ParseError):
        parse("training-short", doc("training-short", training(**changes)), TRAINING_PARAMS)


def test_ranks_that_do_not_know_of_each_other_are_not_one_job():
    with pytest.raises(ParseError, match="2 reports"):
        parse("training-short", doc("training-short", training() + training()))


def test_facts():
    samples, facts = parse("facts", doc("facts", facts=FACTS))
    assert not samples
    assert facts == NodeFacts.model_validate(FACTS)


@pytest.mark.parametrize("key", sorted(FACTS))
def test_a_fact_that_nobody_looked_at_is_refused(key):
    with pytest.raises(ParseError, match=key):
        parse("facts", doc("facts", facts={k: v for k, v in FACTS.items() if k != key}))
    with pytest.raises(ParseError, match=key):
        parse("facts", doc("facts", facts={**FACTS, key: None}))


@pytest.mark.parametrize("spoilt", [{"returncode": 1}, {"returncode": -15}, {"error": "crashed"}, {"kind": "other"}])
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_tool_that_failed_is_refused_whatever_it_printed(name, spoilt):
    whole, params = RECORDINGS[name]
    parse(whole["kind"], whole, params)
    with pytest.raises(ParseError):
        parse(whole["kind"], {**whole, **spoilt}, params)


def test_every_planned_kind_has_a_parser():
    from tests.support.site import lab, plan_of

    for fabric in ("tcp10", "roce40", "ib-edr"):
        assert {m.kind for m in plan_of(lab(), tuple(SUITES), fabric).measurements} <= set(KINDS)
    with pytest.raises(ParseError, match="no parser"):
        parse("nvbandwidth", doc("nvbandwidth"))


SINGLE_BYTES = 6500  # so long may an output be that is cut at each of its bytes
TEXTS = {name: case for name, case in RECORDINGS.items() if case[0]["kind"] != "facts" and case[0]["stdout"]}


def cut_at(name, length=None):
    """The samples of an output that ends there, with the facts of a fabric; None where it is refused."""
    whole, params = TEXTS[name]
    try:
        found = parse(whole["kind"], {**whole, "stdout": whole["stdout"][:length]}, params)
    except ParseError:
        return None
    return found if name.startswith("ib-") else found[0]


WHOLE = {name: cut_at(name) for name in TEXTS}


@settings(max_examples=700, deadline=None)
@given(name=st.sampled_from(sorted(TEXTS)), share=st.floats(0, 1))
def test_every_truncation_is_refused_or_means_the_same(name, share):
    assert WHOLE[name]
    assert cut_at(name, int(share * len(TEXTS[name][0]["stdout"]))) in (None, WHOLE[name])


@pytest.mark.parametrize(
    "name", [n for n in TEXTS if n.startswith(("sockperf", "ping", "training", "ib-fabric e", "pool-use"))]
)
def test_every_truncation_of_some_and_many_of_the_long(name):
    length = len(TEXTS[name][0]["stdout"])
    ends = range(0, length, 1 if length <= SINGLE_BYTES else length // 1000)  # each costs a parse of what is left
    found = [cut_at(name, end) for end in ends]
    assert all(samples in (None, WHOLE[name]) for samples in found)
    assert found.count(None) > len(ends) // 2
