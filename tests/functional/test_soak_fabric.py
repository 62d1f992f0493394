"""The fabric under load beside the burn-in: planned in a ring, sessions real and constructed, judged with the GPUs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import burn_in_case, rdma_case
from tests.support.engine_run import ROOT
from tests.support.site import criterion, hardware, lab, plan_of, result, verdict_of
from toolkit.commands.validate import validate
from toolkit.errors import UsageFault
from validation.kinds import KINDS, parse
from validation.kinds.parsing import ParseError
from validation.measures.fabric import soak_fabric_probe
from validation.model import Judgement, Measurement, Plan, Result, Topology
from validation.probes.tool import Ran

ID = "bi.fabric"
COUNTERS = {"carrier_changes": 3, "rx_errors": 0, "tx_errors": 0, "symbol_error": 2, "link_downed": 0}
SITE = rdma_case.machines(2)


# --- planned ----------------------------------------------------------------------------------------------------------


def traffic(plan: Plan) -> list[Any]:
    return [m for m in plan.measurements if m.kind == "soak-fabric"]


def test_every_port_sends_to_the_next_in_the_round_of_the_gpus() -> None:
    plan = plan_of(rdma_case.machines(3), ("burn-in",), "roce40", options={"minutes": 60})
    assert len(plan.rounds) == 1
    found = traffic(plan)
    assert [m.nodes for m in found] == [("gpu1", "gpu2"), ("gpu2", "gpu3"), ("gpu3", "gpu1")]
    assert {m.id for m in found} | {f"burn-in.gpu{n}" for n in (1, 2, 3)} == set(plan.rounds[0])
    assert {(m.params["seconds"], m.params["session_s"], m.params["transport"]) for m in found} == {
        (3600.0, 15, "roce")
    }
    assert len({m.params["port"] for m in found}) == 3


def test_in_a_lab_each_node_sends_while_it_burns_in_and_over_tcp() -> None:
    plan = plan_of(lab(("gpu1", "gpu2")), ("burn-in",), options={"minutes": 1})
    assert [sorted(ids) for ids in plan.rounds] == [
        ["burn-in.gpu1", traffic(plan)[0].id],
        ["burn-in.gpu2", traffic(plan)[1].id],
    ]
    assert {m.params["transport"] for m in traffic(plan)} == {"tcp"}


def test_one_node_has_no_neighbour_and_says_so() -> None:
    plan = plan_of(hardware(("gpu1",)), ("burn-in",), options={"minutes": 1})
    assert traffic(plan) == []
    assert any("no two nodes have ports in one network" in left.why and ID in left.criteria for left in plan.left_out)


@pytest.mark.parametrize(
    ("given", "minutes"), [(["--soak"], 480), (["--soak", "72h"], 4320), (["--soak", "168h"], 10080)]
)
def test_a_soak_is_a_burn_in_of_a_night_or_longer(given: list[str], minutes: int) -> None:
    done = CliRunner().invoke(validate, ["--here", *given, "--dry-run", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    burnt = [m for m in found["plans"][0]["measurements"] if m["kind"] == "burn-in"]
    assert [m["params"]["seconds"] for m in burnt] == [3600.0] * (minutes // 60)
    both = CliRunner().invoke(validate, ["--here", "--soak", "--minutes", "5"])
    assert isinstance(both.exception, UsageFault)


# --- measured ---------------------------------------------------------------------------------------------------------


def ask(**changes: Any) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends = {"interface": "lo", "address": "127.0.0.1", "peer": "127.0.0.1", "port": port}
    return {**ends, "seconds": 3.0, "session_s": 1, "streams": 1, "transport": "tcp", **changes}


def start(probe: str, asked: dict[str, Any]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", probe, json.dumps(asked)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def served() -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    asked = ask()
    server = start("serve", {"tool": "soak-fabric", "asked": asked})
    try:
        assert json.loads(server.stdout.readline()) == {"ready": True}  # type: ignore[union-attr]
        yield asked, server
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)


iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here")


@iperf3
def test_one_session_after_another_until_the_time_is_over_and_the_server_is_stopped(
    served: tuple[dict[str, Any], subprocess.Popen[str]],
) -> None:
    asked, _ = served
    out, err = start("soak-fabric", asked).communicate(timeout=60)
    doc = json.loads(out)
    assert doc["error"] is None, (doc, err)
    samples, facts = parse("soak-fabric", doc, {key: asked[key] for key in ("seconds", "session_s", "transport")})
    assert len(facts.sessions) == len(samples) >= 2  # type: ignore[union-attr]
    assert all(s.value > 0 for s in samples)


@iperf3
def test_a_server_that_dies_in_the_middle_costs_a_session_at_most(
    served: tuple[dict[str, Any], subprocess.Popen[str]],
) -> None:
    asked, server = served
    client = start("soak-fabric", {**asked, "seconds": 6.0})
    time.sleep(1.5)
    listening = subprocess.run(["pgrep", "-P", str(server.pid), "iperf3"], capture_output=True, text=True, check=False)
    for pid in listening.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    out, _ = client.communicate(timeout=90)
    facts: Any = parse("soak-fabric", json.loads(out), {"seconds": 6.0, "session_s": 1, "transport": "tcp"})[1]
    assert len(facts.lost) <= 1
    assert not facts.sessions[-1].error


def test_without_a_server_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_fabric_probe, "BACK_S", 0.0)
    monkeypatch.setattr(
        soak_fabric_probe, "run_tool", lambda *_, **__: Ran(["iperf3"], 1, '"error": "unable to connect"', "")
    )
    doc = soak_fabric_probe.probe(soak_fabric_probe.Asked(**ask(seconds=0.1)))
    assert "no session came to its end" in str(doc["error"])


def test_figures_of_perftest_are_read() -> None:
    text = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    text += " 1048576    70000            0.00               196.37               0.023409\n"
    args = soak_fabric_probe.Asked(**ask(transport="roce"))
    seconds, moved, error = soak_fabric_probe.carried(args, Ran(["ib_write_bw"], 0, text, ""))
    assert (moved, error) == (1048576 * 70000, "")
    assert moved * 8 / seconds / 1e9 == pytest.approx(196.37)
    assert soak_fabric_probe.carried(args, Ran(["ib_write_bw"], 0, "", ""))[2] == (
        "ib_write_bw printed 0 figures, exactly one is expected"
    )
    wrong = Ran(["ib_write_bw"], 1, "", " Couldn't connect to 192.0.2.1:18515\n")
    assert soak_fabric_probe.carried(args, wrong)[2]


# --- judged -----------------------------------------------------------------------------------------------------------


def report(seconds: float, session_s: float, **changes: Any) -> dict[str, Any]:
    count = int(seconds / session_s)
    sessions = [
        {"at_s": n * session_s, "seconds": session_s, "bytes": int(session_s * 4.5e9), "error": ""}
        for n in range(count)
    ]
    whole = {"seconds": seconds, "session_s": session_s, "took_s": seconds + 1, "sessions": sessions}
    return {**whole, "before": COUNTERS, "after": COUNTERS, **changes}


def document(found: dict[str, Any]) -> dict[str, Any]:
    """The probe's, around a report."""
    now = {"started": "", "ended": "", "duration_s": 1.0, "tool": "iperf3", "tool_version": "", "command": ["x"]}
    facts = {"sessions": len(found["sessions"])}
    return {"kind": "soak-fabric", "stdout": json.dumps(found), "stderr": "", "facts": facts, "error": None,
            "returncode": 0, **now}  # fmt: skip


def burned_in(m: Measurement, span: dict[str, str]) -> Result:
    """A healthy burn-in that took this long."""
    site = hardware(("gpu1",))
    own = plan_of(site, ("burn-in",), options={"minutes": 10}).measurements[0]
    samples, facts = parse("burn-in", burn_in_case.document(burn_in_case.report()), own.params)  # type: ignore[arg-type]
    of = result(m, samples, facts=facts)
    return of.model_copy(update={"provenance": of.provenance.model_copy(update=span)})


def judged(change: Any = None, burn_s: float = 600.0, burned: bool = True, topology: Topology = SITE) -> Judgement:
    """The judgement on the first port's traffic, whose report `change` changes."""
    plan = plan_of(topology, ("burn-in",), "roce40", options={"minutes": 10})
    results: list[Result] = []
    for m in plan.measurements:
        span = {"started": "2026-11-22T10:00:00.000+00:00", "ended": "2026-11-22T10:10:00.000+00:00"}
        if m.kind == "burn-in":
            minutes, seconds = divmod(int(burn_s), 60)
            span["ended"] = f"2026-11-22T10:{minutes:02}:{seconds:02}.000+00:00"
            if burned:
                results.append(burned_in(m, span))
            continue
        found = report(m.params["seconds"], m.params["session_s"])  # type: ignore[arg-type]
        if change is not None and m.nodes[0] == "gpu1":
            change(found)
        samples, facts = parse("soak-fabric", document(found), m.params)  # type: ignore[arg-type]
        of = result(m, samples, facts=facts)
        results.append(of.model_copy(update={"provenance": of.provenance.model_copy(update=span)}))
    mine = criterion(verdict_of(topology, plan, results, fabric="roce40"), ID).judgements
    return next(j for j in mine if any(".gpu1-" in id_ for id_ in j.evidence))


def test_traffic_beside_the_load_passes_and_tells_its_rate() -> None:
    found = judged()
    assert found.verdict == "pass", found.reason
    assert "36 Gbit/s in the first quarter and 36 in the last" in str(found.text)


def grown(name: str, by: int) -> Any:
    return lambda found: found.update(after={**COUNTERS, name: COUNTERS[name] + by})


def lose(found: dict[str, Any]) -> None:
    found["sessions"][30] = {**found["sessions"][30], "seconds": 0, "bytes": 0, "error": "iperf3: broken pipe"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (grown("carrier_changes", 2), "the link went down and up: carrier_changes +2"),
        (grown("symbol_error", 4), "symbol_error +4"),
        (grown("rx_errors", 1), "rx_errors +1"),
        (lose, "1 of 60 sessions failed, the first after 5.0 minutes: iperf3: broken pipe"),
    ],
)
def test_what_went_wrong_is_named_as_what_came_up_meanwhile(change: Any, words: str) -> None:
    found = judged(change)
    assert (found.verdict, found.reason_code) == ("fail", "not-working")
    assert found.reason.startswith(words)


def test_a_fabric_that_was_loaded_alone_is_no_soak() -> None:
    alone = judged(burned=False)
    assert (alone.verdict, alone.reason_code) == ("not-measured", "missing-result")
    assert "its fabric was loaded alone" in alone.reason
    short = judged(burn_s=300)
    assert short.verdict == "not-measured"
    assert "gpu1 was under load in 50% of the time alone" in short.reason


def test_an_interface_that_does_not_count_its_links_downs_is_no_pass() -> None:
    def without(found: dict[str, Any]) -> None:
        for when in ("before", "after"):
            found[when] = {key: value for key, value in COUNTERS.items() if key != "carrier_changes"}

    assert judged(without).verdict == "not-measured"
    assert (
        "restarted"
        in judged(lambda found: found.update(after={**COUNTERS, "link_downed": 0, "symbol_error": 1})).reason
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(seconds=10.0),
        lambda r: r.update(took_s=100.0),
        lambda r: r["sessions"].reverse(),
        lambda r: r["sessions"].clear(),
        lambda r: r["sessions"][0].update(bytes=0),
        lambda r: r["sessions"][0].update(seconds=0.0000001),
        lambda r: r["before"].update(carrier_changes=-1),
        lambda r: r.pop("after"),
    ],
)
def test_what_does_not_add_up_is_refused(change: Any) -> None:
    found = report(600.0, 10)
    change(found)
    with pytest.raises(ParseError):
        parse("soak-fabric", document(found), {"seconds": 600.0, "session_s": 10})  # type: ignore[arg-type]


def test_the_serving_end_is_stopped_and_both_ends_know_each_other() -> None:
    plan = plan_of(SITE, ("burn-in",), "roce40", options={"minutes": 10})
    job = KINDS["soak-fabric"].job(traffic(plan)[0], SITE)
    assert (job.node, job.server_node, job.server_ends) == ("gpu1", "gpu2", False)
    asked = job.server.params["asked"]  # type: ignore[union-attr]
    assert (asked["address"], asked["peer"]) == (job.probe.params["peer"], job.probe.params["address"])
    assert soak_fabric_probe.Asked(**asked).port == job.probe.params["port"]
