"""Incast and all to all: planned, taken by real iperf3 over the loopback, joined, judged, shown."""

from __future__ import annotations

import copy
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.local_launcher import LocalLauncher, execute
from tests.support.site import criterion, hardware, lab, plan_of, switch_parsed, verdict_of
from tests.support.site import result as result_of
from tests.support.switch_documents import LOSS, joined, printed, switch_document
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.fabric import switch_load_probe
from validation.measures.fabric.serve_probe import listens
from validation.measures.fabric.switch_load_figures import switch_figures
from validation.measures.rdma import rdma_perftest_probe
from validation.model import Judgement, Measurement, Plan, Port, Result, Topology
from validation.model.load import read_results
from validation.probes import asked, rdma

KINDS = ("incast", "all-to-all")
iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here")


def of_kind(plan: Plan, kind: str) -> list[list[Measurement]]:
    """Rounds of that kind."""
    rounds = [[plan.measurement(id_) for id_ in ids] for ids in plan.rounds]
    return [one for one in rounds if one[0].kind == kind]


# --- planned ----------------------------------------------------------------------------------------------------------


def test_of_few_ports_each_receives_once_and_all_send_to_all_once() -> None:
    plan = plan_of(hardware(), ("transport",), "tcp10")
    incasts = [m for one in of_kind(plan, "incast") for m in one]
    assert sorted(m.endpoints[0].node for m in incasts) == ["client1", "gpu1", "gpu2", "head"]
    assert {len(set(m.endpoints)) for m in incasts} == {4}
    (whole,) = of_kind(plan, "all-to-all")
    assert [len(m.nodes) for m in whole] == [4]


def leaved(count: int, leaf: int) -> Topology:
    site = rdma_case.machines(count)
    nodes = []
    for number, node in enumerate(site.nodes):
        port = node.ports[0].model_copy(
            update={
                "leaf": f"leaf{number // leaf}",
                "address": f"10.9.{number // 200}.{number % 200 + 1}",
                "prefix": 16,
            }
        )
        nodes.append(node.model_copy(update={"ports": (port,)}))
    return site.model_copy(update={"nodes": tuple(nodes)})


def test_incasts_stay_inside_a_leaf_switch_and_all_to_all_spans_them() -> None:
    site = leaved(40, 10)
    plan, leaf = plan_of(site, ("transport",), "roce40"), {n.name: n.ports[0].leaf for n in site.nodes}
    rounds = of_kind(plan, "incast")
    assert sorted(m.endpoints[0].node for one in rounds for m in one) == sorted(leaf)
    for one in rounds:
        assert all(len({leaf[name] for name in m.nodes}) == 1 for m in one)
        assert len({name for m in one for name in m.nodes}) == sum(len(m.nodes) for m in one)
        assert {m.params["transport"] for m in one} == {"roce"}
    (whole,) = of_kind(plan, "all-to-all")
    assert sorted(name for m in whole for name in m.nodes) == sorted(leaf)
    assert all(len({leaf[name] for name in m.nodes}) == 4 and len(m.nodes) <= 16 for m in whole)


def test_of_a_fleet_one_of_each_set_receives_and_the_plan_says_how_many() -> None:
    plan = plan_of(leaved(90, 9), ("transport",), "roce40")
    assert [len(one) for one in of_kind(plan, "incast")] == [10]
    assert any("10 of 90 ports receive" in left.why for left in plan.left_out)


def test_what_is_no_test_of_a_switch_is_left_out_and_said() -> None:
    two = plan_of(hardware(("gpu1", "gpu2")), ("transport",))
    assert of_kind(two, "incast") == []
    assert any(
        "no 3 nodes have ports in one network" in left.why and "tr.incast" in left.criteria for left in two.left_out
    )
    quick = plan_of(hardware(), ("transport",), options={"quick": 1})
    assert not any(of_kind(quick, kind) for kind in KINDS)
    rehearsed = plan_of(lab(tuple(f"gpu{n}" for n in range(1, 31))), ("transport",))
    assert [sum(map(len, of_kind(rehearsed, kind))) for kind in KINDS] == [1, 1]


def test_a_port_that_carries_tcp_only_makes_its_set_one_of_tcp() -> None:
    site = rdma_case.machines(4)
    bare = site.nodes[0].model_copy(update={"ports": (site.nodes[0].ports[0].model_copy(update={"rdma": False}),)})
    plan = plan_of(site.model_copy(update={"nodes": (bare, *site.nodes[1:])}), ("transport",), "roce40")
    assert {m.params["transport"] for kind in KINDS for one in of_kind(plan, kind) for m in one} == {"tcp"}


@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_of_every_session_meet_at_one_port(kind: str) -> None:
    site = hardware()
    job = job_for(of_kind(plan_of(site, ("transport",), "roce40"), kind)[0][0], site)
    sent = {(a["address"], peer, port) for a in (s.call.params for s in job.sending)
            for peer, port in zip(a["peers"], a["ports"], strict=True)}  # fmt: skip
    served = {(peer, a["address"], port) for a in (s.call.params["asked"] for s in job.serving)
              for peer, port in zip(a["peers"], a["ports"], strict=True)}  # fmt: skip
    assert sent == served
    assert len(sent) == (3 if kind == "incast" else 12)
    assert job.probes == len(job.serving) + len(job.sending) == (4 if kind == "incast" else 8)
    for seat in (*job.sending, *job.serving):
        given = seat.call.params
        assert asked.make(switch_load_probe.Asked, given.get("asked", given))


# --- taken ------------------------------------------------------------------------------------------------------------


def loopback(kind: str, **params: Any) -> tuple[Topology, Plan]:
    """Three nodes that are this machine, by three addresses of its loopback."""
    site = hardware(("gpu1", "gpu2", "gpu3"))
    port = {"interface": "lo", "prefix": 8}
    nodes = tuple(
        n.model_copy(update={"ports": (Port(address=f"127.0.7.{at}", **port),)}) for at, n in enumerate(site.nodes, 1)
    )
    site = site.model_copy(update={"nodes": nodes})
    plan = plan_of(site, ("transport",), "tcp10")
    m = of_kind(plan, kind)[0][0]
    m = m.model_copy(update={"params": {**m.params, "seconds": 1, **params}})
    return site, plan.model_copy(update={"measurements": (m,), "rounds": ((m.id,),)})


@iperf3
@pytest.mark.parametrize("kind", KINDS)
def test_all_ends_send_at_the_same_time_and_are_one_result(tmp_path: Path, kind: str) -> None:
    site, plan = loopback(kind, port=21400 if kind == "incast" else 21420)
    launcher = LocalLauncher()
    execute(tmp_path, plan, site, launcher)
    (found,) = read_results(tmp_path / "results.jsonl", plan.run)[0]
    assert found.status == "ok", found.error
    facts: Any = found.facts
    assert len(facts.sessions) == (2 if kind == "incast" else 6)
    assert [s.value > 0 for s in found.samples[: len(facts.receivers)]] == [True] * (1 if kind == "incast" else 3)
    assert len(launcher.started) == (3 if kind == "incast" else 6)
    assert all(remote.ended for remote in launcher.running)


@iperf3
def test_one_end_that_is_gone_costs_the_measurement_and_is_named(tmp_path: Path) -> None:
    site, plan = loopback("incast", port=21440)
    launcher = LocalLauncher({"gpu3": "does not answer"})
    execute(tmp_path, plan, site, launcher)
    (found,) = read_results(tmp_path / "results.jsonl", plan.run)[0]
    assert found.status == "unreachable"
    assert "gpu3" in str(found.error)
    assert all(remote.ended for remote in launcher.running)


def test_a_tool_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    given = switch_load_probe.Asked("lo", "127.0.7.1", ["127.0.7.2"], [21460], 1)
    for doc in (switch_load_probe.send("incast", given), switch_load_probe.serve("serve", given, lambda *_: False)):
        assert "iperf3 is not installed on this node" in str(doc["error"])


@iperf3
def test_a_port_that_somebody_else_has_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.7.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        given = switch_load_probe.Asked("lo", "127.0.7.1", ["127.0.7.2", "127.0.7.3"], [port + 1, port], 1)
        doc = switch_load_probe.serve("serve", given, listens)
    assert f"127.0.7.1:{port}" in str(doc["error"])


def test_over_rdma_each_session_is_an_ib_write_bw(monkeypatch: pytest.MonkeyPatch) -> None:
    device = rdma.Device("mlx5_0", 1, "fab0", "Ethernet", "ACTIVE", "", 3, "::", "RoCE v2")
    monkeypatch.setattr(rdma_perftest_probe, "look", lambda _: device)
    given = switch_load_probe.Asked("fab0", "10.0.0.1", ["10.0.0.2", "10.0.0.3"], [20001, 20002], 5, transport="roce")
    sends, serves = switch_load_probe.commands(given, False), switch_load_probe.commands(given, True)
    assert [(c[0], c[c.index("-p") + 1], c[-1]) for c in sends] == [
        ("ib_write_bw", "20001", "10.0.0.2"), ("ib_write_bw", "20002", "10.0.0.3")
    ]  # fmt: skip
    assert [one[:-1] for one in sends] == serves
    assert all(c[c.index("-D") + 1] == "5" and c[c.index("-d") + 1] == "mlx5_0" for c in sends)


# --- joined -----------------------------------------------------------------------------------------------------------


def one_of(kind: str, fabric: str = "roce40") -> Measurement:
    return of_kind(plan_of(hardware(), ("transport",), fabric), kind)[0][0]


def lose_one(found: dict[str, Any]) -> None:
    found["sending"].popitem()


def unserved(found: dict[str, Any]) -> None:
    next(iter(found["serving"].values()))["sessions"].pop()


def late(found: dict[str, Any]) -> None:
    next(iter(found["serving"].values()))["sessions"][0]["ended_s"] = 60.0


def counted_less(found: dict[str, Any]) -> None:
    one = next(iter(found["serving"].values()))
    one["after"]["rx_bytes"] = one["before"]["rx_bytes"] + 10


def twice(found: dict[str, Any]) -> None:
    one = next(iter(found["sending"].values()))
    one["sessions"].append(one["sessions"][0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose_one, "nobody served it|sessions were sent|addresses|session"),
        (unserved, "nobody served it|zip|sessions"),
        (late, "so that nothing was loaded by all of them"),
        (counted_less, "are said to have arrived there"),
        (twice, "nobody served it, or it stands twice"),
        (lambda f: next(iter(f["sending"].values()))["sessions"][0].update(bytes=0), "0 bytes"),
        (lambda f: next(iter(f["sending"].values()))["sessions"][0].update(seconds=0.5), "0.5 s of the 5 s"),
        (lambda f: next(iter(f["sending"].values())).update(seconds=9), "9"),
        (lambda f: next(iter(f["serving"].values())).pop("after"), "after"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_add_up_is_refused(kind: str, change: Any, words: str) -> None:
    m = one_of(kind, "tcp10")
    found = copy.deepcopy(printed(m, 9.0))
    assert parse(kind, {**switch_document(m, 9.0), "stdout": joined(found)}, m.params)  # type: ignore[arg-type]
    change(found)
    with pytest.raises(ParseError, match=words):
        parse(kind, {**switch_document(m, 9.0), "stdout": joined(found)}, m.params)  # type: ignore[arg-type]


def test_goodput_counts_the_whole_window_and_fairness_is_jains() -> None:
    m = one_of("incast", "tcp10")
    found = printed(m, 9.0)
    first = next(iter(found["sending"].values()))["sessions"][0]
    first["bytes"] = first["bytes"] // 2
    receiver = next(iter(found["serving"].values()))
    receiver["sessions"][0]["ended_s"] += 1.0
    facts: Any = parse("incast", {**switch_document(m, 9.0), "stdout": joined(found)}, m.params)[1]  # type: ignore[arg-type]
    assert facts.received(facts.receivers[0]) == pytest.approx(9.0 * (2.5 / 3) * 5 / 6, rel=1e-6)
    assert facts.fairness == pytest.approx(2.5**2 / (3 * 2.25))


# --- judged -----------------------------------------------------------------------------------------------------------


def judged(
    kind: str, gbps: float, change: Any = None, fabric: str = "roce40", topology: Topology | None = None
) -> Judgement:
    """The judgement on the first measurement of a kind; the others measured what is well."""
    site = topology or hardware()
    plan = plan_of(site, ("transport",), fabric)
    results: list[Result] = []
    mine = of_kind(plan, kind)[0][0]
    for m in plan.measurements:
        if m.kind not in KINDS:
            continue
        found = printed(m, gbps if m is mine or m.id == mine.id else 36.0)
        if m.id == mine.id and change is not None:
            change(found)
        samples, facts = parse(m.kind, {**switch_document(m, 1.0), "stdout": joined(found)}, m.params)  # type: ignore[arg-type]
        results.append(result_of(m, samples, facts=facts))
    name = "tr.incast" if kind == "incast" else "tr.alltoall"
    return next(
        j for j in criterion(verdict_of(site, plan, results, fabric=fabric), name).judgements if mine.id in j.evidence
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_switch_that_carries_it_passes_and_a_slow_one_fails(kind: str) -> None:
    well = judged(kind, 36.0)
    assert (well.verdict, well.reason_code) == ("pass", "within-bounds"), well.reason
    assert "fairness 1.000" in well.reason
    slow = judged(kind, 20.0)
    assert (slow.verdict, slow.reason_code) == ("fail", "below-floor")
    assert slow.value == pytest.approx(20.0, rel=1e-3)
    assert judged(kind, 60.0).reason_code == "above-ceiling"


def starve(found: dict[str, Any]) -> None:
    """One sender has nearly everything."""
    for number, end in enumerate(found["sending"].values()):
        for one in end["sessions"]:
            one["bytes"] = one["bytes"] * (2.6 if number == 0 else 0.2) // 1
            one["bytes"] = int(one["bytes"])


def drop(found: dict[str, Any]) -> None:
    next(iter(found["serving"].values()))["after"]["rx_discards_phy"] = 12


def blind(found: dict[str, Any]) -> None:
    for end in found["serving"].values():
        for when in ("before", "after"):
            end[when] = {key: value for key, value in end[when].items() if key not in LOSS}


def test_one_sender_that_takes_all_is_unfair() -> None:
    found = judged("incast", 36.0, starve)
    assert (found.verdict, found.reason_code) == ("fail", "below-floor")
    assert found.reason.startswith("shared unfairly")


def test_over_rdma_a_lost_packet_fails_and_one_that_nobody_counts_is_not_measured() -> None:
    lost = judged("incast", 36.0, drop)
    assert (lost.verdict, lost.reason_code) == ("fail", "not-working")
    assert "rx_discards_phy +12" in lost.reason
    unseen = judged("incast", 36.0, blind)
    assert (unseen.verdict, unseen.reason_code) == ("not-measured", "missing-metric")


def test_over_tcp_what_is_sent_again_is_told_and_not_judged() -> None:
    found = judged("incast", 9.0, drop, fabric="tcp10")
    assert found.verdict == "pass"
    assert "9 TCP segments sent again" in found.reason
    assert "rx_discards_phy" not in found.reason  # which this port did not count before


def test_in_a_lab_it_is_shown_and_not_judged() -> None:
    found = judged("incast", 0.2, fabric="tcp10", topology=lab())
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
    assert found.value == pytest.approx(0.2, rel=1e-3)


def test_a_result_without_its_facts_is_no_pass() -> None:
    site = hardware()
    plan = plan_of(site, ("transport",), "roce40")
    m = of_kind(plan, "incast")[0][0]
    bare = result_of(m, switch_parsed(m, 36.0)[0])
    found = criterion(verdict_of(site, plan, [bare], fabric="roce40"), "tr.incast").judgements
    assert {j.verdict for j in found} == {"not-measured"}


# --- shown ------------------------------------------------------------------------------------------------------------


def test_the_report_has_a_line_for_each_receiver_and_for_what_was_not_measured(tmp_path: Path) -> None:
    site = hardware()
    plan = plan_of(site, ("transport",), "tcp10")
    first, second = (of_kind(plan, kind)[0][0] for kind in KINDS)
    samples, facts = switch_parsed(second, 9.0)
    found = {second.id: result_of(second, samples, facts=facts)}
    documents: Any = SimpleNamespace(plan=plan, latest=found, lost=lambda _: "no result was recorded")
    (figure,) = switch_figures(documents)
    assert figure.table is not None
    lines = [row for row in figure.table.rows if row[0] == "all to all"]
    assert [row[1] for row in lines] == [str(end) for end in sorted(second.endpoints)]
    assert {row[2:4] for row in lines} == {("3", "9")}
    missing = next(row for row in figure.table.rows if row[1] == str(first.endpoints[0]) and row[0] == "incast")
    assert missing[3] == "not measured: no result was recorded"
