"""Whatever a tool or probe prints, it costs its own measurement: `unparseable` with the place, never a traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_launcher import LocalLauncher, execute
from tests.support.rdma_case import PORT, card, document
from tests.support.rdma_documents import CASES
from tests.support.rdma_documents import doc as rdma_doc
from tests.support.rdma_run import LIGHT, ends, one, planned
from tests.support.run_case import plan, topology
from tests.support.tool_documents import DATA, FACTS, SOCKPERF_FACTS, training
from tests.support.tool_documents import doc as tcp_doc
from validation import kinds
from validation.execute import Output, Remote
from validation.execute.measure import read
from validation.execute.store import RESULTS
from validation.kinds import KINDS, parse
from validation.kinds.parsing import ParseError
from validation.model import DENIED, REPORT, Denied
from validation.model.load import read_results
from validation.run.raw_logs import line_faults

pytestmark = pytest.mark.computes

M = plan(topology(2)).measurement("facts.gpu1")
GOOD = {**tcp_doc("facts", facts=FACTS), "started": "2026-11-22T01:00:00.000+00:00",
        "ended": "2026-11-22T01:00:01.000+00:00"}  # fmt: skip
SOCKPERF = (DATA / "sockperf/3.7-tcp.out").read_text()
IPERF = json.loads((DATA / "iperf3/3.12-1stream.json").read_text())
WRITE = CASES["4.5-write_bw"]
HUGE = "9" * 400


def printed(value: Any, code: int = 0) -> Output:
    return Output(code, json.dumps(value).encode() + b"\n", b"")


def spoilt_iperf(**changes: Any) -> Any:
    server = IPERF["server_output_json"]
    first, *others = server["intervals"]
    intervals = [{**first, "sum": {**first["sum"], "omitted": False, **changes}}, *others]
    return json.dumps({**IPERF, "server_output_json": {**server, "intervals": intervals}})


def ported(**changes: Any) -> Any:
    port = {**card(PORT), **changes}
    return document({"ports": [port], "memlock": {"bytes": 1, "user": "nobody", "unread": ""}, "policy": None})


def ucx(old: str, new: str) -> Any:
    kind, text, facts, _ = CASES["ucx-1.13-put_lat"]
    return rdma_doc(kind, text.replace(old, new), facts)


ODD = {
    "perftest-messages": rdma_doc(WRITE[0], WRITE[1].replace(" 200 ", f" {HUGE} "), WRITE[2]),
    "perftest-qps": rdma_doc(WRITE[0], WRITE[1].replace("Number of qps   : 2", f"Number of qps   : {'9' * 5000}")),
    "perftest-json": rdma_doc(WRITE[0], WRITE[1], {**WRITE[2], "json": '{"results": {"BW_peak": "much"}}'}),
    "sockperf-run-time": tcp_doc("tcp-latency", SOCKPERF.replace("RunTime=1.000", "RunTime=1.0.0"), SOCKPERF_FACTS),
    "sockperf-p50": tcp_doc("tcp-latency", SOCKPERF, {**SOCKPERF_FACTS, "p50_us": int(HUGE)}),
    "sockperf-said": tcp_doc("tcp-latency", SOCKPERF.replace("16.694", "16.6.94"), SOCKPERF_FACTS),
    "ucx-figure": ucx("774.000", "7.74.000"),
    "ucx-iterations": ucx("  100 ", f"  {HUGE} "),
    "pingpong": rdma_doc(
        "rdma-first-light", CASES["pingpong"][1].replace("21457.54", "2.1.4"), CASES["pingpong"][2]
    ),
    "fraction": {**tcp_doc("remoting-fraction"), "facts": {"parts": ["1/0"]}},
    "utilisation": {**tcp_doc("utilisation"), "facts": {"leased_ratio": [int(HUGE)]}},
    "iperf3-seconds": tcp_doc("tcp-bandwidth", spoilt_iperf(seconds="soon")),
    "iperf3-start": tcp_doc("tcp-bandwidth", spoilt_iperf(start="soon")),
    "ports-port": ported(port="first"),
    "ports-rate": ported(rate_gbps="fast"),
    "ports-mtu": ported(active_mtu_bytes="all"),
    "training-batch": tcp_doc("training-short", training(batch=int(HUGE))),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_odd_number_is_refused_by_the_parser(name: str) -> None:
    with pytest.raises(ParseError):
        parse(ODD[name]["kind"], ODD[name])


def test_what_no_parser_foresaw_is_refused_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(doc: Any, params: Any) -> Any:
        raise ZeroDivisionError("division by\nzero")

    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "facts": replace(KINDS["facts"], parse=broken)})
    with pytest.raises(ParseError, match=r"facts: .*test_odd_documents\.py:\d+ in broken: ZeroDivisionError: division"):
        parse("facts", GOOD)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), [1], {"a": "1"}, {"a": float("nan")}, [None]], ids=repr)
def test_what_a_result_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(
        kinds, "KINDS", {**KINDS, "facts": replace(KINDS["facts"], parse=lambda *_: ([], {"size": value}))}
    )
    with pytest.raises(ParseError, match="size"):
        parse("facts", GOOD)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("facts", None), ("facts", []), ("facts", "none"), ("kind", 3), ("tool", None), ("tool_version", 3.12),
        ("command", "iperf3"), ("command", [1]), ("returncode", "0"), ("returncode", False), ("stdout", None),
        ("stderr", ["x"]), ("started", 1), ("started", "soon"), ("ended", None), ("duration_s", "1"),
        ("duration_s", float("nan")), ("duration_s", -1.0), ("error", False),
    ],
)  # fmt: skip
def test_a_document_with_a_wrong_type_costs_its_measurement(key: str, value: Any) -> None:
    assert read(M, "gpu1", printed(GOOD)).status == "ok"
    taken = read(M, "gpu1", printed({**GOOD, key: value}))
    assert (taken.status, taken.samples, taken.facts, taken.doc) == ("unparseable", (), {}, None)
    assert f"gpu1: the probe's report: {key}: " in str(taken.error)


@pytest.mark.parametrize("changes", [{"tool_version": "\ud800"}, {"facts": {"model": "\ud800"}}], ids=repr)
def test_text_that_no_result_can_hold_costs_its_measurement(changes: dict[str, Any]) -> None:
    taken = read(M, "gpu1", printed({**GOOD, **changes}))
    assert (taken.status, taken.doc) == ("unparseable", None)
    assert "no Unicode" in str(taken.error)


def test_facts_that_are_none_on_either_end_of_an_rdma_measurement(tmp_path: Path) -> None:
    """D4: `plain(doc["facts"])` of a document whose facts are null or a list ended the whole run."""
    client, server = ends("4.5-write_bw")
    for number, (mine, others) in enumerate([(None, server["facts"]), ([], server["facts"]), (client["facts"], None)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = one(folder, {**client, "facts": mine}, {**server, "facts": others}, iterations=100)
        assert result.status == "unparseable"
        assert result.samples == ()


def test_nested_too_deeply_to_be_read_is_no_report() -> None:
    taken = read(M, "gpu1", Output(0, b'{"facts":' + b"[" * 100_000 + b"\n", b""))
    assert (taken.status, "printed no report" in str(taken.error)) == ("unparseable", True)


class Broken(LocalLauncher):
    """Starting a probe on gpu2 fails in a way that nobody foresaw."""

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        if node == "gpu2":
            await asyncio.sleep(0)
            raise ValueError("too many\nopen files")
        return await super().start(node, probe)


def test_an_unexpected_exception_costs_one_measurement_and_keeps_its_traceback(tmp_path: Path) -> None:
    topo = topology(3)
    whole = plan(topo)
    ids = ("facts.gpu1", "facts.gpu2", "facts.gpu3")
    whole = whole.model_copy(update={"measurements": tuple(map(whole.measurement, ids)), "rounds": (ids,)})
    progress = execute(tmp_path, whole, topo, Broken())
    assert {i: r.status for i, r in progress.results.items()} == {
        "facts.gpu1": "ok", "facts.gpu2": "failed", "facts.gpu3": "ok",
    }  # fmt: skip
    result = progress.results["facts.gpu2"]
    assert "ValueError: too many open files" in str(result.error)
    assert "test_odd_documents.py:" in str(result.error)
    logs = [(tmp_path / log.path).read_text() for log in result.provenance.raw]
    assert any("Traceback (most recent call last)" in log and "too many\nopen files" in log for log in logs)
    assert (tmp_path / RESULTS).read_bytes().count(b"\n") == 3


class Gone(LocalLauncher):
    """gpu1 ends without a report, gpu2 cannot be started on, and does not answer afterwards."""

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        if node == "gpu2":
            raise ConnectionError("gone")
        return await Remote.spawn(node, ["sh", "-c", "echo half a rep; exit 255"])


def test_an_attempt_that_came_to_no_end_leaves_a_report_too(tmp_path: Path) -> None:
    """Without one, nothing but its line would tell that it was made, and a line is easily lost."""
    topo = topology(2)
    whole = plan(topo)
    ids = ("facts.gpu1", "facts.gpu2")
    rounds = tuple((i,) for i in (*ids, *ids))
    whole = whole.model_copy(update={"measurements": tuple(map(whole.measurement, ids)), "rounds": rounds})
    execute(tmp_path, whole, topo, Gone({"gpu1": "does not answer"}))
    lines, _ = read_results(tmp_path / RESULTS, "test")
    assert [(r.measurement, r.attempt, r.status) for r in lines] == [
        ("facts.gpu1", 1, "unreachable"), ("facts.gpu2", 1, "failed"),
        ("facts.gpu1", 2, "unreachable"), ("facts.gpu2", 2, "failed"),
    ]  # fmt: skip
    for r in lines:
        (log,) = (log for log in r.provenance.raw if log.path.endswith(f".{REPORT}"))
        assert Path(log.path).name == f"{r.provenance.nodes[0]}.{'2.' if r.attempt == 2 else ''}{REPORT}"
        said = json.loads((tmp_path / log.path).read_text())
        assert list(said) == [DENIED]
        assert said[DENIED] == [denied.model_dump() for denied in r.denied]
        raw = {one.path: (tmp_path / one.path).read_bytes() for one in r.provenance.raw}
        assert line_faults(whole.measurement(r.measurement), r, raw) == []
        excused = r.model_copy(update={"denied": (Denied(where="gpu1", seconds=4, steal=0.5),)})
        assert "denied" in "".join(line_faults(whole.measurement(r.measurement), excused, raw))


def test_a_parser_that_breaks_costs_its_measurement_and_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(doc: Any, params: Any) -> Any:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "facts": replace(KINDS["facts"], parse=broken)})
    topo = topology(2)
    whole = plan(topo)
    ids = ("facts.gpu1", "facts.gpu2")
    whole = whole.model_copy(update={"measurements": tuple(map(whole.measurement, ids)), "rounds": (ids,)})
    progress = execute(tmp_path, whole, topo)
    assert {r.status for r in progress.results.values()} == {"unparseable"}
    result = progress.results["facts.gpu2"]
    logs = [(tmp_path / log.path).read_text() for log in result.provenance.raw]
    assert any('"virt"' in log for log in logs), "the tool's output is kept"
    assert any("RuntimeError: nobody thought of this" in log for log in logs)


def test_first_light_with_an_odd_document_does_not_end_the_run(tmp_path: Path) -> None:
    client, server = ends("pingpong")
    result = one(tmp_path, {**client, "facts": {**client["facts"], "active_mtu": "all"}}, server, LIGHT, iterations=100)
    assert result.status == "unparseable"
    assert planned(LIGHT)[0].measurements[0].id == result.measurement


class Silent(LocalLauncher):
    """gpu2's connection is lost, and looking at it again fails in a way that nobody foresaw."""

    async def alive(self, node: str) -> str | None:
        raise OSError(24, "Too many open files")


def test_a_node_that_cannot_even_be_looked_at_is_out_and_the_others_go_on(tmp_path: Path) -> None:
    topo = topology(3)
    whole = plan(topo)
    ids = ("facts.gpu2", "facts.gpu3")
    whole = whole.model_copy(
        update={"measurements": tuple(map(whole.measurement, ids)), "rounds": tuple((i,) for i in ids)}
    )
    progress = execute(tmp_path, whole, topo, Silent({"gpu2": "does not answer"}))
    assert [progress.results[i].status for i in ids] == ["unreachable", "ok"]
    assert any("gpu2: " in line and "Too many open files" in line for line in progress.lines)


def test_a_number_of_any_length_is_no_fact() -> None:
    for key in ("cpu_count", "gpu_count"):
        taken = read(M, "gpu1", printed({**GOOD, "facts": {**FACTS, key: 10**400}}))
        assert taken.status == "unparseable"
        assert key in str(taken.error)
