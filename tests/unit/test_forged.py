"""One edit of a run that would make it better: an equal instant in another zone, a claim to be virtual, a lost line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.damage_runs import expired_run, lost_run, wobbly_run
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.model.times import day_of, moment
from validation.run.read import read
from validation.run.rejudge import judge_files

JOB = "training-short.1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")
    builders: dict[str, Callable[[Path], Path]] = {"expired": expired_run, "lost": lost_run, "wobbly": wobbly_run}
    return {name: build(base / name) for name, build in builders.items()}


@pytest.fixture
def run(made: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(made[request.param], tmp_path / "run"))


def edit(run: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the lines of results.jsonl."""
    lines = [json.loads(text) for text in (run / "results.jsonl").read_text().splitlines()]
    change(lines)
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def of(verdict: VerdictDoc) -> dict[str, str]:
    return {c.id: c.verdict for c in verdict.criteria}


# --- the time of a run -----------------------------------------------------------------------------------------

ELSEWHERE = (
    "2026-11-20T22:15:00-12:00", "2026-11-20T23:15:00-11:00", "2026-11-21T10:15:00", "20261121T101500Z",
    "2026-W47-6T10:15:00Z", "2026-11-21 10:15:00Z", "2026-11-21T10:15:00z", "2026-11-21T10:15:00+00:00:00",
)  # fmt: skip


@pytest.mark.parametrize("run", ["expired"], indirect=True)
@pytest.mark.parametrize("created", ELSEWHERE)
def test_a_run_cannot_be_moved_to_another_day_by_the_zone_of_its_time(run: Path, created: str) -> None:
    before = judge_files(run)
    assert before.sign_off == "INCOMPLETE"
    assert any("it expired on 2026-11-20" in note for note in before.notes)
    path = run / "run.json"
    path.write_text(path.read_text().replace("2026-11-21T10:15:00Z", created))
    with pytest.raises(ConfigError, match=r"run\.json:\d+: created: .* is not a time in UTC") as caught:
        judge_files(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [*ELSEWHERE, "", "2026-11-21", "٢٠٢٦-11-21T10:15:00Z", "2026-13-21T10:15:00Z"])
def test_a_time_in_another_form_is_none(text: str) -> None:
    assert moment(text) is None


def test_a_time_in_utc_and_its_day() -> None:
    for text in ("2026-11-21T10:15:00Z", "2026-11-21T10:15:00+00:00", "2026-11-21T10:15:00.000+00:00"):
        assert moment(text) == moment("2026-11-21T10:15:00.0Z")
    assert str(day_of("2026-11-21T00-00-00Z-tcp10", "2026-11-20T23:59:59.5Z")) == "2026-11-21"
    assert str(day_of("run-1", "2026-11-21T23:59:59Z")) == "2026-11-21"
    assert day_of("2026-11-21T00-00-00Z-tcp10", "2026-11-21") is None


# --- who is virtual --------------------------------------------------------------------------------------------


def claims(**facts: Any) -> Callable[[list[dict[str, Any]]], Any]:
    """One node's own facts, edited."""
    return lambda lines: next(d for d in lines if d["measurement"] == "facts.gpu1")["facts"].update(facts)


@pytest.mark.parametrize("run", ["wobbly"], indirect=True)
@pytest.mark.parametrize(
    "facts", [{"virt": "kvm"}, {"virt": "noe"}, {"virt": "docker"}, {"lab": "lab"}, {"stand_ins": ["ofed"]}]
)
def test_who_only_claims_to_be_virtual_is_judged_by_the_bounds_of_hardware(run: Path, facts: dict[str, Any]) -> None:
    before = judge_files(run)
    assert (before.sign_off, before.outcome, of(before)["tn.short"]) == ("REJECTED", "failed", "fail")
    edit(run, claims(**facts))
    after = judge_files(run)
    assert "facts.gpu1" in after.missing
    assert (after.sign_off, after.outcome) == ("REHEARSAL", "failed")  # and no acceptance, whichever of the two is true
    assert {id_: v for id_, v in of(after).items() if id_.startswith("tn.")} == {
        id_: v for id_, v in of(before).items() if id_.startswith("tn.")
    }
    assert [c.judgements[0].bound for c in after.criteria if c.id == "tn.short"] == [
        c.judgements[0].bound for c in before.criteria if c.id == "tn.short"
    ]


@pytest.mark.parametrize("run", ["wobbly"], indirect=True)
def test_facts_of_a_result_that_is_none_decide_no_bounds(run: Path) -> None:
    def no_result(lines: list[dict[str, Any]]) -> None:
        claims(virt="kvm")(lines)
        next(d for d in lines if d["measurement"] == "facts.gpu1").update(status="failed", error="gone")

    edit(run, no_result)
    after = judge_files(run)
    assert (after.sign_off, after.outcome, of(after)["tn.short"]) == ("REHEARSAL", "failed", "fail")


# --- what was measured and lost --------------------------------------------------------------------------------


def drop(lines: list[dict[str, Any]]) -> None:
    del lines[-1]


def excuse(lines: list[dict[str, Any]]) -> None:
    lines[-1]["denied"] = [{"where": "gpu1", "seconds": 4.0, "cpus": 8, "steal": 0.5}]


def rename(lines: list[dict[str, Any]]) -> None:
    lines[-1]["measurement"] = "training-short.intra"


def forget(lines: list[dict[str, Any]]) -> None:
    lines[-1]["measurement"] = "training-short.9"


def without_logs(lines: list[dict[str, Any]]) -> None:
    excuse(lines)
    lines[-1]["provenance"]["raw"] = []


@pytest.mark.parametrize("run", ["lost"], indirect=True)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop, "is of a later attempt, for which there is no line"),
        (excuse, "what its machines were denied is not what its raw logs say"),
        (rename, "is of a later attempt, for which there is no line"),
        (forget, "is of a later attempt, for which there is no line"),
        (without_logs, "0 reports of its probe among its raw logs"),
    ],
)
def test_the_line_of_a_last_attempt_that_was_lost_is_missed(
    run: Path, change: Callable[[list[dict[str, Any]]], None], words: str
) -> None:
    before = judge_files(run)
    assert (before.outcome, before.missing) == ("incomplete", (JOB,))
    edit(run, change)
    after = judge_files(run)
    assert after.outcome == "incomplete"
    assert JOB in after.missing
    told = [j.reason for c in after.criteria for j in c.judgements if JOB in j.evidence]
    assert any(words in reason for reason in told), told


@pytest.mark.parametrize("run", ["lost"], indirect=True)
def test_a_last_attempt_whose_line_is_torn_is_missed(run: Path) -> None:
    path = run / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    after = judge_files(run)
    assert (after.outcome, after.missing) == ("incomplete", (JOB,))
    assert any("torn last line" in note for note in after.notes)


@pytest.mark.parametrize("run", ["wobbly"], indirect=True)
def test_a_result_whose_line_is_lost_is_named_while_its_raw_logs_stay(run: Path) -> None:
    edit(run, lambda lines: lines.remove(next(d for d in lines if d["measurement"] == "facts.gpu2")))
    (note,) = (note for note in judge_files(run).notes if note.startswith("facts.gpu2: "))
    assert "its line is lost" in note
    assert "raw/facts.gpu2/gpu2.probe.json" in note


# --- times with an upper side ----------------------------------------------------------------------------------


def of_times(**times: str) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines[-1]["provenance"].update(times)


@pytest.mark.parametrize("run", ["expired"], indirect=True)
@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"started": "2036-11-21T10:15:00Z", "ended": "2036-11-21T10:15:30Z"}, "its raw logs are of another time"),
        ({"ended": "2036-11-21T10:15:00Z"}, "cannot have taken so long"),
        ({"ended": "9999-12-31T23:59:59Z"}, "cannot have taken so long"),
        ({"ended": "9999-12-31T23:59:59-23:59"}, "its times are none"),
        ({"started": "2026-11-21T20:15:00+10:00"}, "its times are none"),
    ],
)
def test_the_times_of_a_result_have_an_end(run: Path, times: dict[str, str], words: str) -> None:
    edit(run, of_times(**times))
    after = judge_files(run)
    (last,) = (id_ for id_ in after.missing)
    assert any(words in j.reason for c in after.criteria for j in c.judgements if last in j.evidence)


@pytest.mark.parametrize("run", ["expired"], indirect=True)
@pytest.mark.parametrize("day", ["2026-10-21", "2026-11-23", "yesterday"])
def test_raw_logs_of_another_day_are_those_of_another_run(run: Path, day: str) -> None:
    """Of last month's run, with hashes that fit."""

    def older(lines: list[dict[str, Any]]) -> None:
        line = next(d for d in lines if d["measurement"] == "facts.gpu1")
        (log,) = (log for log in line["provenance"]["raw"] if log["path"].endswith("probe.json"))
        path = run / log["path"]
        path.write_text(path.read_text().replace("2026-11-21", day))
        log["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()

    edit(run, older)
    after = judge_files(run)
    assert after.missing == ("facts.gpu1",)
    assert any("are of another time" in j.reason for c in after.criteria for j in c.judgements)


# --- logs that are no files of the run -------------------------------------------------------------------------


def _outside(run: Path) -> Path:
    """The raw logs of gpu2's facts, moved out of the run."""
    away = run.parent / "away"
    shutil.move(run / "raw/facts.gpu2", away)
    return away


def _linked_folder(run: Path) -> None:
    (run / "raw/facts.gpu2").symlink_to(_outside(run))


def _linked_files(run: Path) -> None:
    away = _outside(run)
    (run / "raw/facts.gpu2").mkdir()
    for path in away.iterdir():
        (run / "raw/facts.gpu2" / path.name).symlink_to(path)


def _linked_raw(run: Path) -> None:
    shutil.move(run / "raw", run.parent / "raw")
    (run / "raw").symlink_to(run.parent / "raw")


@pytest.mark.parametrize("run", ["wobbly"], indirect=True)
@pytest.mark.parametrize("change", [_linked_folder, _linked_files, _linked_raw])
def test_a_link_to_logs_outside_the_run_is_no_evidence(run: Path, change: Callable[[Path], None]) -> None:
    assert "facts.gpu2" not in read(run).evidence().faults
    change(run)
    assert "evidence is missing: raw/facts.gpu2/" in read(run).evidence().faults["facts.gpu2"]


@pytest.mark.parametrize("run", ["wobbly"], indirect=True)
def test_a_link_inside_the_run_leads_to_its_log(run: Path) -> None:
    log = run / "raw/facts.gpu2/gpu2.probe.json"
    log.rename(run / "kept")
    log.symlink_to(run / "kept")
    assert "facts.gpu2" not in read(run).evidence().faults
