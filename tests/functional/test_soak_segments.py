"""A soak in segments: how it is cut, load that changes, and what all segments together come to."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import burn_in_case, rdma_case
from tests.support.figures_case import added
from tests.support.report_fixture import make_run
from tests.support.site import criterion, hardware, plan_of, result, verdict_of
from validation.analysis.mtbf import interval, proved
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.compute import burn_in_probe
from validation.measures.compute.burn_in_figures import burn_figures
from validation.measures.compute.segments import full_share
from validation.measures.compute.segments_figures import segment_figures
from validation.measures.storage import soak_storage_probe
from validation.model import CriterionVerdict, Plan, Result, Storage
from validation.probes.power_steps import Pace, steps_of
from validation.report.documents import read_run
from validation.rules.soak import Soak, soak

SITE = hardware(("gpu1",))
RECORDING = json.loads((Path(__file__).parents[1] / "data/kinds/soak-storage.json").read_text())


def three() -> Plan:
    return plan_of(SITE, ("burn-in",), options={"minutes": 30, "segment_s": 600})


def results(plan: Plan, spoil: Callable[[int, dict[str, Any]], object] = lambda *_: None) -> list[Result]:
    found = []
    for number, m in enumerate((m for m in plan.measurements if m.kind == "burn-in"), 1):
        report = burn_in_case.report()
        spoil(number, report)
        samples, facts = parse("burn-in", burn_in_case.document(report), m.params)  # type: ignore[arg-type]
        found.append(result(m, samples, facts=facts))
    return found


def gone(of: Result, why: str, minutes: int = 9) -> Result:
    """An attempt that came to no end after so many minutes."""
    times = {"started": "2026-11-21T10:00:00+00:00", "ended": f"2026-11-21T10:{minutes:02}:00+00:00"}
    lost = {"status": "unreachable", "error": why, "samples": (), "facts": None}
    return of.model_copy(update={**lost, "provenance": of.provenance.model_copy(update=times)})


def judged(id_: str, found: list[Result], plan: Plan) -> CriterionVerdict:
    return criterion(verdict_of(SITE, plan, found), id_)


# --- how it is cut ----------------------------------------------------------------------------------------------------


def test_what_is_longer_than_a_segment_is_cut_and_each_segment_is_a_measurement_by_itself() -> None:
    plan = plan_of(rdma_case.machines(2), ("burn-in",), "roce40", options={"minutes": 150})
    burnt = [m for m in plan.measurements if m.kind == "burn-in"]
    assert [m.params["seconds"] for m in burnt] == [3600.0, 3600.0, 3600.0, 3600.0, 1800.0, 1800.0]
    assert [m.id for m in burnt][::2] == ["burn-in-001.gpu1", "burn-in-002.gpu1", "burn-in-003.gpu1"]
    assert len(plan.rounds) == 3
    assert all(m.params["steps"] == soak().words for m in burnt)
    for number, ids in enumerate(plan.rounds, 1):
        mine = [m for m in plan.measurements if m.id in ids]
        assert {m.params["segment"] for m in mine} == {number}
        assert sorted(m.kind for m in mine) == ["burn-in", "burn-in", "soak-fabric", "soak-fabric"]
    whole = plan_of(SITE, ("burn-in",), options={"minutes": 60}).measurements
    assert [(m.id, "steps" in m.params) for m in whole] == [("burn-in.gpu1", False)]


def test_storage_that_is_declared_is_used_in_every_segment_and_none_is_said() -> None:
    home = Storage(name="home", path="/srv/home", size_gib=0.5)
    site = hardware(("gpu1",), storage=(home,))
    plan = plan_of(site, ("burn-in",), options={"minutes": 30, "segment_s": 600})
    found = [m for m in plan.measurements if m.kind == "soak-storage"]
    assert (found[0].id, found[0].params["size_mib"]) == ("soak-storage-001-home.gpu1", 512)
    assert len(found) == 3
    assert any("no storage is declared" in left.why and "bi.storage" in left.criteria for left in three().left_out)


def test_a_schedule_that_begins_idle_is_refused() -> None:
    with pytest.raises(ValueError, match="begin with load"):
        Soak.model_validate({"segment_minutes": 60, "steps": [{"share": 0, "seconds": 1}]})
    with pytest.raises(ValueError, match="begins with load"):
        steps_of(["0:1", "1:1"])


# --- load that changes ------------------------------------------------------------------------------------------------


def test_what_works_rests_as_the_schedule_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by naps and work alone."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    pace = Pace(("1:10", "0:5", "0.5:10"), 1050.0)
    while clock[0] < 1050.0:
        worked = min(pace.slice_s(), 1.0)
        clock[0] += worked
        pace.rest(worked)
    shares = {share: (lasted, work) for share, (lasted, work) in pace.spent.items()}
    assert shares["1"] == pytest.approx((20, 20), abs=2)
    assert shares["0"] == pytest.approx((10, 0), abs=2)
    assert shares["0.5"] == pytest.approx((20, 10), abs=3)
    full = Pace((), 2000.0)
    full.rest(5.0)
    assert (full.spent, full.slice_s()) == ({}, float("inf"))


def test_processors_work_by_the_schedule_and_it_is_in_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    asked = burn_in_probe.Asked(1.5, device="cpu", python="", steps=["1:0.5", "0:0.25", "0.5:0.5"])
    doc = burn_in_probe.probe(asked)
    found: Any = parse("burn-in", doc, {"seconds": 1.5, "gpus": 0})[1]
    (one,) = found.devices
    assert set(one.steps) >= {"1", "0"}
    assert one.steps["0"][1] == 0
    assert one.wrong == sum(one.bad.values()) == 0
    longer = json.loads(doc["stdout"])
    longer["devices"][0]["steps"] = {"1": [99.0, 99.0]}
    with pytest.raises(ParseError, match="steps of more than"):
        parse("burn-in", {**doc, "stdout": json.dumps(longer)}, {"seconds": 1.5, "gpus": 0})


# --- what all segments come to ----------------------------------------------------------------------------------------


def test_it_passes_where_every_segment_does_and_is_not_measured_where_it_was_shorter() -> None:
    plan = three()
    whole = results(plan)
    found = judged("bi.exact", whole, plan)
    assert (found.verdict, len(found.judgements)) == ("pass", 4)
    assert found.judgements[0].reason.startswith("3 segments, each as it has to be")
    assert found.judgements[0].evidence == tuple(m.id for m in plan.measurements)
    for shorter in ([], whole[:1], whole[:2], whole[1:]):
        for id_ in ("bi.exact", "bi.events", "bi.clocks", "bi.rate"):
            assert judged(id_, shorter, plan).verdict == "not-measured"
        for id_ in ("bi.exact", "bi.clocks"):
            assert {j.verdict for j in judged(id_, shorter, plan).judgements} == {"not-measured"}
    left = judged("bi.exact", whole[:1], plan).judgements
    assert [j.subject for j in left] == [f"gpu1, GPU {n}" for n in range(4)]
    assert all("segment 2 of 3: burn-in-002.gpu1 was planned" in j.reason for j in left)


def test_a_gpu_that_a_segment_did_not_have_was_not_measured_in_it() -> None:
    plan = three()
    found = judged("bi.exact", results(plan, lambda n, r: n == 2 and r["devices"].pop() and None), plan)
    assert [j.verdict for j in found.judgements] == ["pass", "pass", "pass", "not-measured"]
    assert found.judgements[3].reason == "segment 2 of 3: GPU 3 was not loaded in it"


def test_one_wrong_bit_in_one_segment_fails_its_gpu_and_the_segment_is_named() -> None:
    plan = three()
    found = judged("bi.exact", results(plan, lambda n, r: n == 2 and r["devices"][1].update(wrong=1)), plan)
    assert [j.verdict for j in found.judgements] == ["pass", "fail", "pass", "pass"]
    assert found.judgements[1].reason.startswith("segment 2 of 3: GPU 1")


def test_a_first_result_that_differs_from_the_first_segments_is_silent_corruption() -> None:
    def first(number: int, report: dict[str, Any]) -> None:
        for device in report["devices"]:
            device["first"] = "a" * 64
        if number == 3:
            report["devices"][2]["first"] = "b" * 64

    plan = three()
    found = judged("bi.exact", results(plan, first), plan)
    assert [j.verdict for j in found.judgements] == ["pass", "pass", "fail", "pass"]
    assert "segment 3 of 3: GPU 2" in found.judgements[2].reason
    assert "that of segment 1 of 3 was aaaa" in found.judgements[2].reason


def test_a_segment_that_was_measured_again_after_its_node_went_down_is_remarked_upon() -> None:
    plan = three()
    whole = results(plan)
    down = gone(whole[1], "ssh to gpu1 failed")
    for id_ in ("bi.exact", "bi.events"):
        found = judged(id_, [whole[0], down, *whole[1:]], plan)
        assert (found.verdict, found.reason_code) == ("pass", "remarked")
        assert "of segment 2 of 3: " in found.judgements[0].reason
        assert "a remark: 1 attempt of it came to no end: ssh to gpu1 failed" in found.judgements[0].reason
        assert judged(id_, whole, plan).reason_code == "within-bounds"
        refused = gone(whole[1], "GPU 0 is in use by process 41", minutes=0)
        assert judged(id_, [whole[0], refused, *whole[1:]], plan).reason_code == "within-bounds"


@pytest.mark.parametrize(("seconds", "share"), [(1500, 35 / 375), (3600, 600 / 900), (600, 1.0)])
def test_full_load_is_looked_for_by_the_schedule(seconds: float, share: float) -> None:
    assert full_share(soak().words, seconds * 3 / 4, seconds) == pytest.approx(share)
    assert full_share(soak().words, 0, seconds / 4) == 1
    assert full_share((), 0, seconds) == 1


def test_a_rate_at_less_than_full_load_is_held_against_none_at_full_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn_in_case, "SECONDS", 1500.0)
    plan = plan_of(SITE, ("burn-in",), options={"minutes": 50, "segment_s": 1500})
    found = []
    for m in (m for m in plan.measurements if m.kind == "burn-in"):
        report = burn_in_case.report()
        samples, facts = parse("burn-in", burn_in_case.document(report), m.params)  # type: ignore[arg-type]
        found.append(result(m, samples, facts=facts))
    rate = judged("bi.rate", found, plan)
    assert rate.verdict == "not-measured"
    assert "the end of the segment is mostly at less than full load by its schedule" in rate.judgements[0].reason


def test_what_is_proved_of_failures_counts_silent_corruption_and_is_silent_after_a_lost_attempt(tmp_path: Path) -> None:
    def first(number: int, report: dict[str, Any]) -> None:
        for device in report["devices"]:
            device["first"] = "a" * 64
        if number == 3:
            report["devices"][2]["first"] = "b" * 64

    plan, run = three(), read_run(make_run(tmp_path))

    def caption(found: list[Result]) -> str:
        pairs = [(next(m for m in plan.measurements if m.id == r.measurement), r) for r in found]
        return burn_figures(added(run, pairs))[0].caption

    assert "No failure in " in caption(results(plan))
    assert "1 failure in " in caption(results(plan, first))
    lost = results(plan)
    down = gone(lost[1], "the node was gone")
    said = caption([lost[0], down, *lost[1:]])
    assert "No failure" not in said
    assert (
        "No mean time between failures: of segment 2 of 3 of gpu1 1 attempt of it came to no end: the node was" in said
    )
    said = caption([lost[0], down, gone(lost[2], "the node was gone")])
    assert "; attempts of 1 more segment were lost too." in said
    vanished = [gone(one, "NVML shows 3 of 4 GPUs", minutes=0) for one in lost[1:]]
    said = caption([lost[0], *vanished])
    assert "No failure" not in said
    assert "no result of segment 2 of 3 of gpu1: NVML shows 3 of 4 GPUs; 1 more segment gave none either." in said
    assert "No failure in 0.6667 GPU-hours" in caption(lost[:1])  # the rest was not begun


def test_the_report_has_a_row_for_each_segment_and_says_what_failed_when(tmp_path: Path) -> None:
    plan = three()
    found = results(plan, lambda n, r: n == 2 and r["devices"][1].update(wrong=1))[:2]
    run = read_run(make_run(tmp_path))
    assert segment_figures(run) == ()
    by_id = {r.measurement: r for r in found}
    pairs: list[Any] = [(m, by_id.get(m.id)) for m in plan.measurements]
    documents = added(run, [(m, r) for m, r in pairs if r is not None])
    documents = dataclasses.replace(
        documents,
        plan=documents.plan.model_copy(
            update={"measurements": (*documents.plan.measurements, *(m for m, r in pairs if r is None))}
        ),
    )
    (figure,) = segment_figures(documents)
    assert "2 of 3 segments" in figure.caption
    assert "passes nothing" in figure.caption
    assert figure.table is not None
    assert [(row[0], row[6]) for row in figure.table.rows] == [("1 of 3", "0"), ("2 of 3", "1"), ("3 of 3", "0")]


@pytest.mark.parametrize(
    ("failures", "low", "high"),
    # chi-square of a table: 2 r + 2 degrees at 0.95, 2 r at 0.05: 4.605 (at 0.90); 9.488, 0.1026; 12.592, 0.7107
    [(0, 2000 / 4.6052, None), (1, 2000 / 9.4877, 2000 / 0.10259), (2, 2000 / 12.5916, 2000 / 0.71072)],
)
def test_the_interval_is_that_of_chi_square(failures: int, low: float, high: float | None) -> None:
    found = interval(1000, failures)
    assert found[0] == pytest.approx(low, rel=1e-3)
    assert found[1] is None if high is None else found[1] == pytest.approx(high, rel=1e-3)
    assert ("at least 434 hours" in proved(1000, failures, 1)) == (not failures)


# --- storage beside it ------------------------------------------------------------------------------------------------


def stored(**changes: Any) -> soak_storage_probe.Asked:
    asked = {"name": "home", "path": "/srv/home", "node": "gpu1", "token": "t", "seconds": 0.01, "size_mib": 2}
    return soak_storage_probe.Asked(**{**asked, **changes})


def test_a_block_that_is_not_what_was_written_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "soak"
    assert soak_storage_probe.one_pass(file, "t", 0, 3, lambda _: None)["wrong"] == 0
    whole = os.read

    def flipped(descriptor: int, size: int) -> bytes:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        data = bytearray(whole(descriptor, size))
        if at <= (1 << 20) + 5 < at + len(data):
            data[(1 << 20) + 5 - at] ^= 1
        return bytes(data)

    monkeypatch.setattr(os, "read", flipped)
    assert soak_storage_probe.one_pass(file, "t", 1, 3, lambda _: None)["wrong"] == 1


def test_what_a_worker_says_is_on_the_storage_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow storage flushes a gigabyte for longer than a worker may be silent."""
    happened: list[object] = []
    monkeypatch.setattr(soak_storage_probe.os, "fsync", lambda _: happened.append("flushed"))
    monkeypatch.setattr(soak_storage_probe, "SAID_EACH", 2)
    soak_storage_probe.one_pass(tmp_path / "soak", "t", 0, 5, lambda number: happened.append(number))
    assert happened == [0, 1, "flushed", 2, 3, "flushed", 4, "flushed", 0, 1, 2, 3, 4]


def test_blocks_of_passes_and_places_differ() -> None:
    one, other = (soak_storage_probe.own_bytes("t", turn) for turn in (0, 1))
    assert len(soak_storage_probe.block(one, 0, 0)) == soak_storage_probe.BLOCK
    assert one != other
    assert one == soak_storage_probe.own_bytes("t", 0)
    assert soak_storage_probe.block(one, 0, 0) != soak_storage_probe.block(one, 1, 0)


@pytest.mark.parametrize(
    ("spoil", "verdict", "said"),
    [
        (lambda r: None, "pass", "GB written and read back"),
        (lambda r: r["passes"][1].update(wrong=2), "fail", "2 blocks of 1 MiB read back wrong"),
        (lambda r: r["passes"][1].update(bytes=0, write_s=0, read_s=0, error="Input/output error"), "fail",
         "failed, the first after 0.0 minutes: Input/output error"),
    ],
)  # fmt: skip
def test_storage_is_judged(spoil: Callable[[dict[str, Any]], object], verdict: str, said: str) -> None:
    site = hardware(("gpu1",), storage=(Storage(name="home", path="/srv/home"),))
    plan = plan_of(site, ("burn-in",), options={"minutes": 10})
    (m,) = [m for m in plan.measurements if m.kind == "soak-storage"]
    report = json.loads(RECORDING["document"]["stdout"])
    spoil(report)
    samples, facts = parse("soak-storage", {**RECORDING["document"], "stdout": json.dumps(report)}, RECORDING["params"])
    mine = result(m, samples, facts=facts)
    found = criterion(verdict_of(site, plan, [mine, *results(plan)]), "bi.storage")
    assert found.verdict == verdict
    assert said in found.judgements[0].reason
    alone = criterion(verdict_of(site, plan, [mine]), "bi.storage")  # nothing burned in beside it
    assert alone.verdict == ("not-measured" if verdict == "pass" else verdict)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.update(took_s=0.5),
        lambda r: r.update(passes=[]),
        lambda r: r["passes"].reverse(),
        lambda r: r["passes"][0].update(bytes=5),
        lambda r: r["passes"][0].update(wrong=10**6),
        lambda r: r["passes"][0].update(read_s=0),
        lambda r: r.update(name="scratch"),
    ],
)
def test_what_does_not_add_up_of_a_storage_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    report = json.loads(RECORDING["document"]["stdout"])
    spoil(report)
    with pytest.raises(ParseError):
        parse("soak-storage", {**RECORDING["document"], "stdout": json.dumps(report)}, RECORDING["params"])


def test_a_folder_that_is_not_there_is_refused() -> None:
    assert "does not exist" in str(soak_storage_probe.probe(stored(path="/srv/nothing-here"))["error"])
