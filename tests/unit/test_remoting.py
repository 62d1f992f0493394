"""Suite remoting: what is planned, what its reports must hold, and that a breach is never a pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.remoting_documents import (
    COPY,
    ISOLATE,
    MIB,
    PARTS,
    WHO,
    attempts_made,
    copybench,
    cut,
    doc,
    isolated,
)
from tests.support.site import criterion, healthy, lab, plan_of, result, verdict_of
from toolkit.lease.programs.copybench import rdma_packets
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import remoting_isolate_probe
from validation.measures.remoting.facts import (
    ATTEMPTS,
    Attempt,
    CopyFacts,
    CopyPair,
    FractionFacts,
    IsolationFacts,
    asked_attempts,
)
from validation.model import Measurement, Plan, Sample
from validation.probes import remoting, remoting_attempts
from validation.probes.tool import Ran

LAB = lab()
PLAN = plan_of(LAB, ("remoting",))


def planned(kind: str) -> list[Measurement]:
    return [m for m in PLAN.measurements if m.kind == kind]


def test_every_client_copies_and_every_server_is_tried() -> None:
    assert [m.nodes[0] for m in planned("remoting-copy")] == ["client1"]
    assert [m.params["server"] for m in planned("remoting-isolate")] == ["gpu1", "gpu2"]
    assert [m.params["elsewhere"] for m in planned("remoting-isolate")] == ["gpu2", "gpu1"]
    assert len(planned("remoting-fraction")) == 8
    assert all(len(r) == 1 for r in PLAN.rounds), "each measurement wants the servers to itself"


def test_one_server_alone_leaves_the_attempt_from_elsewhere_out_and_says_so() -> None:
    plan = plan_of(lab(("head", "client1", "gpu1")), ("remoting",))
    assert any("no attempt from a machine without a lease" in left.why for left in plan.left_out)


# --- copies ----------------------------------------------------------------------------------------------------


def copied(report: dict[str, Any], **facts: Any) -> Any:
    known = {"servers": ["gpu1", "gpu2"], "gpus": 2, **facts}
    return parse("remoting-copy", doc("remoting-copy", known, json.dumps(report)), COPY)


def test_a_whole_matrix_is_told_apart_by_kind_of_pair() -> None:
    samples, facts = copied(copybench())
    found = {s.metric: s.value for s in samples}
    assert found["client_to_gpu_bandwidth_gb_s"] == 1.0
    assert found["gpu_to_gpu_between_servers_latency_us"] == 80.0
    assert found["round_trip_us"] == 60.0
    assert found["holes"] == 0
    assert "gpu_to_gpu_same_server_latency_us" not in found
    assert isinstance(facts, CopyFacts)
    assert (facts.emulated, facts.engine) == (True, "reference")


def test_a_matrix_keeps_every_pair_for_the_report() -> None:
    facts = copied(copybench())[1]
    assert len(facts.matrix) == 8
    assert facts.matrix[0] == CopyPair(source=None, target=0, gb_s=1, us=80)
    assert facts.holes == []
    assert [device.server for device in facts.devices] == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verified": False, "wrong": ["H -> 0"]}, "data were wrong after copies: H -> 0"),
        ({"pairs": copybench()["pairs"][1:]}, "7 of 8 pairs"),
        ({"pairs": copybench()["pairs"] + copybench()["pairs"][:1]}, "pairs are there"),
        ({"devices": copybench()["devices"][:1]}, "1 device, 2 different"),
        ({"devices": [copybench()["devices"][0]] * 2}, "2 different ones are in the lease"),
        ({"pairs": [{**p, "verified": None} for p in copybench()["pairs"]]}, "not verified"),
        ({"pairs": [{**p, "bandwidth_gb_s": [1.0]} for p in copybench()["pairs"]]}, "3 planned"),
        ({"pairs": [{**p, "bytes": 4} for p in copybench()["pairs"]]}, "2097152 planned"),
        ({"pairs": [{**p, "latency_us": [0.0] * 20} for p in copybench()["pairs"]]}, "not a usable value"),
    ],
)
def test_a_matrix_with_a_hole_or_a_wrong_byte_is_none(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        copied(copybench(**changes))


def by(transport: str, sent: int, received: int) -> dict[str, Any]:
    servers = [{**server, "transport": transport} for server in copybench()["servers"]]
    return copybench(servers=servers, rdma_packets={"rxe_fab0/1": [sent, received], "rxe_other/1": [0, 0]})


def test_the_transport_is_named_and_verbs_by_the_ports_own_counters() -> None:
    """To and from each of two GPUs 3 copies of 2 MiB: 3072 packets of 4096 bytes at least each way."""
    assert copied(copybench())[1].transport == "", "an engine that does not say"
    assert copied(by("tcp", 0, 0))[1].transport == "tcp"
    assert copied(by("verbs", 3072, 3072))[1].transport == "verbs"
    for report, words in (
        (by("verbs", 3071, 9999), "as many packets"),
        (by("verbs", 9999, 0), "received as many packets"),
        ({**by("verbs", 0, 0), "rdma_packets": {}}, "sent as many packets"),
        (copybench(servers=[{"transport": "tcp"}, {"transport": "verbs"}]), "tcp and verbs carried"),
        (copybench(servers=[{"transport": "rsockets"}]), "rsockets carried"),
    ):
        with pytest.raises(ParseError, match=words):
            copied(report)


def test_ports_that_count_are_read_by_hardwares_and_by_soft_names(tmp_path: Path) -> None:
    for name, counts in (
        ("mlx5_0/ports/1/counters/port_xmit_packets", 7),
        ("mlx5_0/ports/1/counters/port_rcv_packets", 8),
        ("rxe_fab0/ports/1/hw_counters/sent_pkts", 9),
        ("rxe_fab0/ports/1/hw_counters/rcvd_pkts", 10),
        ("odd0/ports/1/counters/port_xmit_packets", 11),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{counts}\n")
    assert rdma_packets(tmp_path) == {"mlx5_0/1": [7, 8], "rxe_fab0/1": [9, 10]}
    assert rdma_packets(tmp_path / "none") == {}


def test_nothing_printed_is_no_matrix() -> None:
    with pytest.raises(ParseError, match="0 reports"):
        parse("remoting-copy", doc("remoting-copy", {"servers": ["gpu1", "gpu2"], "gpus": 2}, "lease 4: ..."), COPY)


# --- isolation -------------------------------------------------------------------------------------------------


def test_all_attempts_refused() -> None:
    samples, facts = parse("remoting-isolate", isolated(), ISOLATE)
    assert {s.metric: s.value for s in samples} == {"breaches": 0, "gone_s": 1.5}
    assert isinstance(facts, IsolationFacts)
    assert len(facts.attempts) == len(ATTEMPTS) + 1


@pytest.mark.parametrize("name", [*ATTEMPTS, "a connection from gpu2"])
def test_an_attempt_that_was_not_made_is_no_pass(name: str) -> None:
    with pytest.raises(ParseError, match="not attempted"):
        parse("remoting-isolate", isolated(without=(name,)), ISOLATE)


def test_a_breach_is_counted_and_named() -> None:
    samples, facts = parse("remoting-isolate", isolated("no token"), ISOLATE)
    assert samples[0].value == 1
    assert isinstance(facts, IsolationFacts)
    assert facts.breaches == ["no token"]


# --- fractions -------------------------------------------------------------------------------------------------


def test_parts_that_fill_the_whole() -> None:
    samples, facts = parse("remoting-fraction", cut(), PARTS)
    assert [(s.metric, s.value) for s in samples] == [("memory_error_mib", 0.0), ("context_mib", 0.5)]
    assert isinstance(facts, FractionFacts)
    assert sum(part.memory_mib for part in facts.parts) == facts.memory_mib
    samples, _ = parse("remoting-fraction", cut(total_bytes=[190 * MIB, 64 * MIB], taken_bytes=[190 * MIB, 64 * MIB]))
    assert samples[0].value == 2.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_bytes": [256 * MIB, 256 * MIB], "taken_bytes": [256 * MIB] * 2}, "together have 512 MiB of 256"),
        ({"uuids": ["GPU-0", "GPU-1"]}, "lay on 2 GPUs"),
        ({"taken_bytes": [192 * MIB, 12 * MIB]}, "could take 12"),
        ({"taken_bytes": [187 * MIB, 64 * MIB]}, "could take 187"),  # a page and a context below are 187.5
        ({"reserved_mib": 8}, "together have 256 MiB of 248"),
        ({"context_bytes": 64 * MIB}, "leaves nothing of a part"),
        ({"context_bytes": 0}, "not a usable value"),
        ({"taken_bytes": [194 * MIB, 64 * MIB]}, "could take 194"),
        ({"beyond": "running"}, "more than the whole was running"),
        ({"codes": [2]}, "1 codes of 2 parts"),
        ({"parts": ["1/2", "1/2"]}, "planned"),
    ],
)
def test_parts_that_do_not_hold(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-fraction", cut(**changes), PARTS)


# --- judging ---------------------------------------------------------------------------------------------------


def measured(plan: Plan, breaches: int = 0, error_mib: float = 0.0) -> list[Any]:
    values = {"remoting-copy": ("holes", 0, "count"), "remoting-isolate": ("breaches", breaches, "count")}
    values["remoting-fraction"] = ("memory_error_mib", error_mib, "MiB")
    figures = [
        Sample(metric="client_to_gpu_bandwidth_gb_s", value=0.12, unit="GB/s"),
        Sample(metric="round_trip_us", value=100.0, unit="us"),
    ]
    found = []
    for m in plan.measurements:
        if m.kind not in values:
            found.append(healthy(m))
            continue
        metric, value, unit = values[m.kind]
        more = figures if m.kind == "remoting-copy" else []
        facts: dict[str, Any] = {}
        if m.kind == "remoting-isolate":
            elsewhere = str(m.params["elsewhere"])
            tried = attempts_made(*list(ATTEMPTS)[:breaches], elsewhere=elsewhere)
            facts = {**WHO, "type": "isolation", "server": m.params["server"], "attempts": tried}
        elif m.kind == "remoting-copy":
            pairs = [{"source": a, "target": b, "gb_s": 1, "us": 2} for a, b in ((None, 0), (0, None), (0, 0))]
            device = {"name": "V100", "uuid": "GPU-0", "server": "gpu1"}
            facts = {**WHO, "type": "copies", "client": "client1", "servers": ["gpu1"]}
            facts |= {"devices": [device], "matrix": pairs}
        found.append(result(m, [Sample(metric=metric, value=value, unit=unit), *more], facts=facts))
    return found


def test_a_criterion_without_a_bound_by_intention_is_reported_and_leaves_the_run_whole() -> None:
    verdict = verdict_of(LAB, PLAN, measured(PLAN))
    copy = criterion(verdict, "rm.copy")
    assert (copy.verdict, copy.reason_code, copy.reason) == (
        "not-applicable",
        "reported",
        "reported, not judged: 0.12 GB/s",
    )
    assert copy.judgements[0].value == 0.12
    assert verdict.outcome == "passed"
    without = [r.model_copy(update={"samples": r.samples[:1]}) for r in measured(PLAN)]
    assert criterion(verdict_of(LAB, PLAN, without), "rm.copy").reason_code == "missing-metric"
    assert verdict_of(LAB, PLAN, without).outcome == "incomplete"


def test_what_was_tried_and_refused_passes_and_one_breach_fails() -> None:
    fine = verdict_of(LAB, PLAN, measured(PLAN))
    assert {i: criterion(fine, i).verdict for i in ("rm.isolate", "rm.memory", "rm.matrix")} == dict.fromkeys(
        ("rm.isolate", "rm.memory", "rm.matrix"), "pass"
    )
    bad = verdict_of(LAB, PLAN, measured(PLAN, breaches=1))
    assert criterion(bad, "rm.isolate").verdict == "fail"
    assert [j.subject for j in criterion(bad, "rm.isolate").judgements] == ["gpu1", "gpu2"]
    assert criterion(verdict_of(LAB, PLAN, measured(PLAN, error_mib=2)), "rm.memory").verdict == "fail"


def test_what_the_engine_does_not_promise_stands_in_the_verdict() -> None:
    results = measured(PLAN)
    for m, r in zip(PLAN.measurements, results, strict=True):
        if m.kind == "remoting-isolate":
            tried = [a | {"cuda": 0, "promised": False} if a["name"] == "no token" else a for a in
                     attempts_made(elsewhere=str(m.params["elsewhere"]))]  # fmt: skip
            facts = {**WHO, "type": "isolation", "server": m.params["server"], "attempts": tried, "engine": "lupine"}
            results[results.index(r)] = result(m, list(r.samples), facts=facts)
    found = criterion(verdict_of(LAB, PLAN, results), "rm.isolate")
    assert found.verdict == "pass"
    assert all("not promised by the engine lupine: no token" in j.reason for j in found.judgements)


def test_a_server_that_was_not_tried_is_not_passed() -> None:
    verdict = verdict_of(LAB, PLAN, [r for r in measured(PLAN) if r.measurement != "remoting-isolate.client1.gpu2"])
    assert criterion(verdict, "rm.isolate").verdict == "not-measured"


# --- the probes' own steps -------------------------------------------------------------------------------------


def test_a_connection_that_is_kept_is_told_from_one_that_is_refused() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        remoting_attempts.KEPT_S = 0.2
        assert remoting_attempts.connect("127.0.0.1", port)["how"] == "kept"
    assert remoting_attempts.connect("127.0.0.1", port)["how"] == "refused"


def test_a_control_that_fails_ends_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = remoting_isolate_probe.Tenant(7, remoting_isolate_probe.Asked(server="gpu1", elsewhere=""))
    monkeypatch.setattr(remoting_isolate_probe, "run_tool", lambda *_: Ran([], 0, '{"devices": []}\n', ""))
    with pytest.raises(remoting.Unmet, match="shows 0 devices"):
        tenant.control()


def test_a_command_that_prints_no_answer_is_named() -> None:
    with pytest.raises(remoting.Unmet, match="device: error: no such program"):
        remoting.answer(Ran([], 2, "", "error: no such program\n"), "device")


class Answers:
    """What the programs of a tenant print, whatever they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Ran) -> None:
        self.left = list(answers)
        monkeypatch.setattr(remoting_isolate_probe, "run_tool", lambda *_: self.left.pop(0))


def tenant() -> remoting_isolate_probe.Tenant:
    found = remoting_isolate_probe.Tenant(7, remoting_isolate_probe.Asked(server="gpu1", elsewhere="gpu2"))
    found.facts["uuid"] = "GPU-0"
    return found


def told(**document: Any) -> Ran:
    return Ran([], 0, json.dumps(document) + "\n", "")


GPU = told(devices=[{"uuid": "GPU-0"}])
NOT_TAKEN = Ran([], 1, "", "srun: error: Unable to allocate resources: Invalid account or partition\n")
WHERE = "10.78.0.13:7001"
UNMADE: list[tuple[str, tuple[Any, ...], list[Ran]]] = [
    ("memory", (True,), [told(code=-1, refused="libcuda.so.1: cannot open shared object file")]),
    ("memory", (True,), [told(code=2), told(first=0, code=-1)]),
    ("memory", (True,), [told(code="2")]),
    ("others", (), [told(code=-1, refused="libcuda.so.1: cannot open shared object file")]),
    ("stranger", (), [Ran([], 1, "", "setpriv: setgroups failed: Operation not permitted\n")]),
    ("stranger", (), [Ran([], -9, "", "")]),
    ("stranger", (), [Ran([], 1, "", "Traceback (most recent call last):\nImportError: no toolkit\n")]),
    ("natively", (), [told(code=100)]),  # nor has root a GPU there
    ("natively", (), [GPU, told(code=-1, refused="libcuda.so.1: cannot open shared object file")]),
    ("natively", (), [GPU, Ran([], 127, "", "setpriv: failed to execute srun: Permission denied\n")]),
    (
        "natively",
        (),
        [
            GPU,
            told(code=100),
            GPU,
            Ran(
                [],
                1,
                "",
                "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)\n",
            ),
        ],
    ),
    ("elsewhere", (WHERE,), [told(how="untried", why="Name or service not known", after_s=0.0)]),
    ("elsewhere", (WHERE,), [told(how="", after_s=0.0)]),
]


@pytest.mark.parametrize(("step", "given", "answers"), UNMADE)
def test_an_attempt_that_could_not_be_made_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch, step: str, given: tuple[Any, ...], answers: list[Ran]
) -> None:
    """D9: what did not run because something was missing was written down as refused."""
    Answers(monkeypatch, *answers)
    with pytest.raises(remoting.Unmet):
        getattr(tenant(), step)(*given)


def offered(monkeypatch: pytest.MonkeyPatch, secret: str) -> dict[str, Any]:
    """What `toolkit lease env` says, each time; secret: the file with the token, '' where there is none."""
    offer = {"environment": {"LD_LIBRARY_PATH": "/lib"}, "servers": [WHERE], "secret": secret}
    monkeypatch.setattr(remoting, "ask", lambda *_: offer)
    return offer


def test_wrong_tokens_that_were_not_tried_are_no_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    Answers(monkeypatch, told(devices=[{}]), told(code=-1, refused="no libcuda.so.1"))
    with pytest.raises(remoting.Unmet):
        tenant().tokens(offered(monkeypatch, str(tmp_path / "tokens")), tmp_path)


def test_what_was_refused_is_written_down_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    someone = tenant()
    Answers(
        monkeypatch,
        *(told(code=2), told(first=0, code=2), told(devices=[{"uuid": "GPU-0"}]), told(code=100), told(devices=[])),
        *(told(devices=[{}]), told(code=46), told(code=46), Ran([], 75, "", "error: lease 7 is root's\n")),
        *(GPU, told(code=304), GPU, NOT_TAKEN),
        told(how="refused", why="Connection refused"),
    )
    someone.memory(True)
    someone.others()
    someone.tokens(offered(monkeypatch, str(tmp_path / "tokens")), tmp_path)
    someone.stranger()
    someone.natively()
    someone.elsewhere(WHERE)
    assert [attempt["breach"] for attempt in someone.tried] == [False] * 11
    assert_borne_out(someone.tried)


def test_what_an_engine_does_not_promise_is_told_and_no_breach(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Lupine has no tokens, and MPS has a limit for each process."""
    someone = tenant()
    Answers(monkeypatch, told(code=2), told(first=0, code=0), *[told(devices=[{}])] * 3)
    someone.memory(False)
    someone.tokens(offered(monkeypatch, ""), tmp_path)
    assert not (tmp_path / "tokens").exists()
    tried = [Attempt.model_validate(attempt) for attempt in someone.tried]
    assert [(a.breach, a.got_through, a.promised) for a in tried] == [(False, False, True), *[(False, True, False)] * 3]
    assert all("not promised by the engine" in attempt.words for attempt in tried[1:])
    with pytest.raises(ValueError, match="every engine promises to refuse this"):
        Attempt.model_validate({**someone.tried[0], "promised": False})


def assert_borne_out(tried: list[dict[str, Any]]) -> None:
    asked = asked_attempts("gpu2")
    assert [(a.name, a.shown_by) for a in map(Attempt.model_validate, tried)] == list(asked.items())[: len(tried)]


def test_what_got_through_is_written_down_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    someone = tenant()
    strange = {"uuid": "GPU-1"}
    Answers(
        monkeypatch,
        *(told(code=0), told(first=0, code=0), *[told(devices=[strange])] * 3, told(devices=[{}])),
        *(told(devices=[{}]), told(devices=[]), Ran([], 0, "", ""), *[GPU] * 4, told(how="kept", why="after 3 s")),
    )
    someone.memory(True)
    someone.others()
    someone.tokens(offered(monkeypatch, str(tmp_path / "tokens")), tmp_path)
    someone.stranger()
    someone.natively()
    someone.elsewhere(WHERE)
    assert [attempt["breach"] for attempt in someone.tried] == [True] * 11
    assert_borne_out(someone.tried)


def test_a_name_that_nobody_knows_is_not_tried() -> None:
    assert remoting_attempts.connect("no-such-host.invalid", "7001")["how"] == "untried"
