"""The documents of a run are held against each other, and its results against their raw logs (D10, D11, D23, D24)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.edited import edit
from tests.support.report_fixture import make_run
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.run import raw_logs
from validation.run.read import Run, tied
from validation.run.rejudge import judge_files

BANDWIDTH = "tcp-bandwidth.gpu1-fab0.gpu2-fab0"


@pytest.fixture
def run(site_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(site_runs["clean"], tmp_path / "run"))


@pytest.fixture
def slow(site_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(site_runs["slow"], tmp_path / "slow"))


def edit_line(run: Path, change: Callable[[Any], Any], measurement: str = BANDWIDTH) -> None:
    """Change the line of a measurement."""
    lines = [json.loads(text) for text in (run / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["measurement"] == measurement:
            change(line)
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def lost(verdict: VerdictDoc, measurement: str = BANDWIDTH) -> str:
    """The verdict is worse, for this measurement proves nothing; why."""
    assert verdict.outcome != "passed"
    assert measurement in verdict.missing
    told = [j.reason for c in verdict.criteria for j in c.judgements if measurement in j.evidence]
    assert told
    return " ".join(told)


def test_a_good_run_is_judged_without_a_note_on_its_documents(run: Path) -> None:
    verdict = judge_files(run)
    assert verdict.outcome == "passed"
    assert verdict.missing == ()
    assert verdict.model_dump_json(indent=2) == (run / "verdict.json").read_text()


def fewer_pairs(plan: dict[str, Any]) -> None:
    plan["measurements"] = [m for m in plan["measurements"] if m["kind"] != "tcp-bandwidth" or m["id"] == BANDWIDTH]
    plan["rounds"] = [[i for i in ids if not i.startswith("tcp-bandwidth") or i == BANDWIDTH] for ids in plan["rounds"]]


def without_gpu2(plan: dict[str, Any]) -> None:
    plan["measurements"] = [m for m in plan["measurements"] if "gpu2" not in m["nodes"]]
    plan["rounds"] = [[i for i in ids if "gpu2" not in i] for ids in plan["rounds"]]


DOCUMENTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "one pair of twelve is left": ("plan.json", fewer_pairs, r"plan\.json: was changed since the run began"),
    "a node is not measured": ("plan.json", without_gpu2, r"plan\.json: was changed since the run began"),
    "criteria taken from measurements": (
        "plan.json",
        lambda d: [m.update(criteria=[]) for m in d["measurements"] if m["kind"] == "tcp-bandwidth"],
        r"plan\.json: was changed",
    ),
    "the lab's rate lowered": (
        "topology.json",
        lambda d: d["lab_link"].update(rate_gbps=0.1),
        r"topology\.json: was changed",
    ),
    "another fabric": ("run.json", lambda d: d.update(fabric="tcp25"), r"plan\.json:\d+: fabric: is 'tcp10', but run"),
    "another run": ("run.json", lambda d: d.update(run="2026-11-21T10-15-00Z-tcp25"), r"plan\.json:\d+: run: is "),
    "another site": ("run.json", lambda d: d.update(site="other"), r"topology\.json:\d+: site: is 'lab', but"),
    "other suites": ("run.json", lambda d: d.update(suites=["preflight"]), r"plan\.json:\d+: suites: is "),
    "begun on another day": (
        "run.json",
        lambda d: d.update(created="2025-11-21T10:15:00Z"),
        r"run\.json:\d+: created: 2025-11-21T10:15:00Z is not when run",
    ),
    "a hash taken away": (
        "run.json",
        lambda d: d["documents"].pop("plan.json"),
        r"run\.json:\d+: documents: plan\.json: is not listed",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_contradict_each_other_are_refused(slow: Path, name: str) -> None:
    file, change, words = DOCUMENTS[name]
    edit(slow / file, change)
    with pytest.raises(ConfigError, match=words) as caught:
        judge_files(slow)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", ["plan", "rounds"])
def test_a_plan_that_is_not_what_would_be_planned_is_refused_with_fresh_hashes_too(slow: Path, keep: str) -> None:
    """Whoever edits run.json as well gets as far as this: the plan follows from the run's other documents."""
    edit(slow / "plan.json", fewer_pairs if keep == "plan" else lambda d: d["rounds"].reverse())
    edit(slow / "run.json", lambda d: d.update(documents=tied(slow)))
    with pytest.raises(ConfigError, match=r"plan\.json: is not what .* would plan") as caught:
        judge_files(slow)
    assert ("not planned: tcp-bandwidth." in str(caught.value)) == (keep == "plan")


def test_a_plan_of_another_release_is_told_and_not_guessed_at(slow: Path) -> None:
    edit(slow / "run.json", lambda d: d.update(toolkit_version="0.0.9"))
    verdict = judge_files(slow)
    assert verdict.outcome == "failed"
    assert any("planned by toolkit 0.0.9, this is" in note for note in verdict.notes)


@pytest.mark.parametrize("how", ["deleted", "renamed", "emptied", "edited", "added"])
def test_a_file_of_criteria_that_is_not_what_the_run_began_with_is_refused(slow: Path, how: str) -> None:
    path = slow / "criteria" / "20-transport.yml"
    if how == "deleted":
        path.unlink()
    elif how == "renamed":
        path.rename(path.with_suffix(".yaml"))
    elif how == "emptied":
        path.write_text("")
    elif how == "edited":
        path.write_text(path.read_text().replace("required: true", "required: false"))
    else:
        text = path.read_text()
        (slow / "criteria" / "99-more.yml").write_text(text.replace("tr.", "zz."))
    with pytest.raises(ConfigError, match=r"criteria/\S+"):
        judge_files(slow)


@pytest.mark.parametrize("name", [".own.yml", "._10-preflight.yml", ".#20-transport.yml", ".hidden/own.yml"])
@pytest.mark.parametrize("content", [b"\x00\x05\x16\x07", None])
def test_what_is_hidden_in_the_criteria_decides_nothing(slow: Path, name: str, content: bytes | None) -> None:
    """A manifest has no hidden files, so that nobody signs them: a criterion in one was judged all the same."""
    before = judge_files(slow)
    text = (slow / "criteria" / "20-transport.yml").read_text().replace("id: tr.", "id: zz.")
    path = slow / "criteria" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if content is None else content)
    assert judge_files(slow) == before


def test_each_criteria_file_that_is_judged_is_tied_to_the_run(slow: Path) -> None:
    from validation.run.names import CRITERIA
    from validation.run.read import read

    (slow / CRITERIA / ".own.yml").write_text("criteria: []")
    run = read(slow)
    assert run.criteria
    assert {name for name in run._read if name.startswith(CRITERIA)} <= run.hashes.keys()


def test_a_criterion_that_the_plan_names_must_be_there_whatever_the_hashes_say(slow: Path) -> None:
    (slow / "criteria" / "20-transport.yml").unlink()
    edit(slow / "run.json", lambda d: d.update(documents=tied(slow)))
    with pytest.raises(ConfigError, match=r"plan\.json:\d+: measurements\.\d+\.criteria: tr\.\w+.*: in no file"):
        judge_files(slow)


def test_an_edited_fabric_profile_is_refused(slow: Path) -> None:
    path = slow / "fabric.yml"
    path.write_text(path.read_text().replace("mtu: 9000", "mtu: 1500"))
    with pytest.raises(ConfigError, match=r"fabric\.yml: was changed"):
        judge_files(slow)


def test_waivers_that_were_slipped_in_are_refused(slow: Path) -> None:
    (slow / "waivers.yml").write_text("waivers: []\n")
    with pytest.raises(ConfigError, match=r"waivers\.yml: was added after the run began"):
        judge_files(slow)


LINES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "two years before": (
        lambda d: d["provenance"].update(started="2024-11-21T10:20:00Z", ended="2024-11-21T10:20:04Z"),
        "before the run began",
    ),
    "ended before it started": (
        lambda d: d["provenance"].update(ended="2026-11-21T10:00:00Z"),
        "its times contradict each other",
    ),
    "took less than nothing": (lambda d: d["provenance"].update(duration_s=-31.0), "its times contradict each other"),
    "took longer than it can": (lambda d: d["provenance"].update(duration_s=31.0), "its times contradict each other"),
    "no time": (lambda d: d["provenance"].update(started="yesterday"), "its times are none"),
    "other machines": (lambda d: d["provenance"].update(nodes=["gpu1", "gpu7"]), "was measured on gpu1, gpu7"),
    "other ports": (lambda d: d["provenance"].update(devices=[]), "was measured between no ports"),
    "no raw logs": (lambda d: d["provenance"].update(raw=[]), "0 reports of its probe"),
    "no tool": (lambda d: d["provenance"].update(tool=""), "another tool"),
    "another tool's version": (lambda d: d["provenance"].update(tool_version="9"), "another tool"),
    "another command": (lambda d: d["provenance"].update(command=["iperf3"]), "another tool, command"),
    "a sample edited": (lambda d: d["samples"][0].update(value=0.99), "not what its raw logs give"),
    "a sample dropped": (lambda d: d["samples"].pop(), "not what its raw logs give"),
    "a sample twice": (lambda d: d["samples"].append(d["samples"][0]), "not what its raw logs give"),
    "a fact edited": (lambda d: d["facts"].update(receiver_mean_gbps=1.0), "not what its raw logs give"),
    "denied of its processor": (
        lambda d: d["denied"].append({"where": "gpu1", "seconds": 4.0, "steal": 0.23}),
        "not what its raw logs give",
    ),
    "a hash edited": (lambda d: d["provenance"]["raw"][0].update(sha256="0" * 64), "does not have the recorded hash"),
    "another's raw log": (
        lambda d: d["provenance"]["raw"][0].update(path="raw/facts.gpu1/gpu1.out"),
        "is not a raw log of it",
    ),
    "a traceback of a result": (
        lambda d: d["provenance"]["raw"].append(
            {"path": f"raw/{d['measurement']}/controller.err", "sha256": hashlib.sha256(b"").hexdigest()}
        ),
        "controller.err is not a raw log of it",
    ),
    "an attempt that never was": (lambda d: d.update(attempt=2), "says that it is attempt 2"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_contradicts_plan_or_raw_logs_costs_its_measurement(run: Path, name: str) -> None:
    change, words = LINES[name]
    edit_line(run, change)
    assert words in lost(judge_files(run))


def test_a_failure_that_is_edited_into_a_result_stays_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", dead="gpu2")
    edit_line(run, lambda d: d.update(status="ok", error=None))
    assert "cannot be read again" in lost(judge_files(run))


@pytest.mark.parametrize(
    "path", ["raw/a\0b/gpu1.out", f"raw/{BANDWIDTH}/gpu1\0.out", f"raw/{BANDWIDTH}/\0/gpu1.out", "\0"]
)
def test_a_raw_log_whose_name_no_file_can_have_costs_its_measurement(run: Path, path: str) -> None:
    edit_line(run, lambda line: line["provenance"]["raw"][0].update(path=path))
    lost(judge_files(run))


@pytest.mark.parametrize("report", ["[" * 100_000, "9" * 5000, "[" * 100_000 + "]" * 100_000, "\0"])
def test_a_raw_report_of_odd_json_costs_its_measurement(run: Path, report: str) -> None:
    import hashlib

    path = next((run / "raw" / BANDWIDTH).glob("*probe.json"))
    path.write_text(report)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.relative_to(run).as_posix()
    edit_line(run, lambda line: [log.update(sha256=digest) for log in line["provenance"]["raw"] if log["path"] == name])
    assert "raw logs" in lost(judge_files(run))


@pytest.mark.parametrize("how", ["changed", "cut", "missing", "a link"])
@pytest.mark.parametrize("suffix", ["out", "err", "probe.json"])
def test_raw_logs_that_changed_or_are_missing_cost_their_measurement(run: Path, how: str, suffix: str) -> None:
    path = run / "raw" / BANDWIDTH / f"gpu1.{suffix}"
    if how == "changed":
        path.write_text(path.read_text() + " ")
    elif how == "cut":
        path.write_text(path.read_text()[:-1] or "x")
    elif how == "missing":
        path.unlink()
    else:
        outside = run.parent / "outside"
        path.rename(outside)
        path.symlink_to(outside)
    words = lost(judge_files(run))
    said = f"evidence changed: raw/{BANDWIDTH}/gpu1.{suffix}" if how in ("changed", "cut") else "evidence is missing"
    assert said in words


def test_a_raw_log_is_read_whole_however_it_comes_and_none_without_end(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, whole = judge_files(run), os.read
    with monkeypatch.context() as patch:
        patch.setattr(raw_logs.os, "read", lambda file, most: whole(file, min(most, 7)))
        assert judge_files(run) == before
    monkeypatch.setattr(raw_logs, "LOG_BYTES", 100)
    with pytest.raises(ConfigError, match=r"raw/.* has more than .* MiB, which no raw log has"):
        judge_files(run)


def test_rates_of_before_that_are_damaged_are_told_by_file_and_line(run: Path) -> None:
    (run / "accepted.json").write_text('{"rates": 1}\n')
    info = Run(run).info.model_copy(update={"documents": tied(run)})
    (run / "run.json").write_text("".join(info.written()))
    with pytest.raises(ConfigError, match=r"accepted\.json:1: "):
        judge_files(run)


def test_a_healthy_line_after_one_below_the_floor_does_not_count(slow: Path, site_runs: dict[str, Path]) -> None:
    healthy = next(
        line for line in (site_runs["clean"] / "results.jsonl").read_text().splitlines() if BANDWIDTH in line
    )
    before = judge_files(slow)
    assert before.outcome == "failed"
    for attempt in (1, 2):
        text = (site_runs["slow"] / "results.jsonl").read_text()
        again = json.dumps(json.loads(healthy) | {"attempt": attempt})
        (slow / "results.jsonl").write_text(f"{text}{again}\n")
        verdict = judge_files(slow)
        assert verdict.outcome == "failed"
        assert BANDWIDTH in verdict.missing
        assert any(BANDWIDTH in note for note in verdict.notes) or lost(verdict)


def test_a_line_that_is_lost_after_another_attempt_is_missed(run: Path) -> None:
    folder = run / "raw" / BANDWIDTH
    for path in list(folder.iterdir()):
        node, _, suffix = path.name.partition(".")
        shutil.copy(path, folder / f"{node}.2.{suffix}")
    assert "is of a later attempt, for which there is no line" in lost(judge_files(run))


def test_a_torn_tail_is_a_note_in_the_verdict(run: Path) -> None:
    path = run / "results.jsonl"
    path.write_text(path.read_text() + '{"run": "2026-11-2')
    verdict = judge_files(run)
    assert verdict.outcome == "passed"
    assert any("torn last line" in note for note in verdict.notes)
    path.write_bytes(path.read_bytes()[:-18] + b"\0" * 100)
    assert any("torn last line" in note for note in judge_files(run).notes)


def test_a_judge_that_stumbles_is_one_line_and_not_a_traceback(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object, **__: object) -> VerdictDoc:
        raise ValueError("invalid literal")

    monkeypatch.setattr("validation.run.rejudge.judge", stumble)
    with pytest.raises(ConfigError, match=r"cannot be judged.*ValueError.*invalid literal") as caught:
        judge_files(run)
    assert "\n" not in str(caught.value)
