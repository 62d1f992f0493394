"""Raw logs that did not change since this user's toolkit read them are not read once more; whatever changed is."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.remembered import Read, all_of, file_of, judged, lines_read, linked
from tests.support.report_fixture import RUNS
from tests.unit.test_documents import BANDWIDTH, edit, edit_line, lost
from toolkit.acceptance import judge_run, write_report
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.run import log_state, remembered
from validation.run import read as reading
from validation.run.read import Run
from validation.run.rejudge import judge_files
from validation.signing.again import judged_again


@pytest.fixture
def run(site_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(site_runs["clean"], tmp_path / "run"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    return lines_read(monkeypatch, tmp_path)


def test_what_did_not_change_is_read_once(run: Path, read: Read) -> None:
    first = judged(run, read)
    assert sorted(read) == all_of(run)
    second = judged(run, read)
    assert read == []
    assert first == second == judge_files(run)
    assert first.outcome == "passed"


def test_a_verdict_that_fails_is_the_same_from_the_columns(site_runs: dict[str, Path], run: Path, read: Read) -> None:
    for name in RUNS:
        other = Path(shutil.copytree(site_runs[name], run.parent / name))
        assert judged(other, read) == judged(other, read) == judge_files(other), name


def test_columns_hold_what_the_lines_say(run: Path, read: Read) -> None:
    judged(run, read)
    files = Run(run)
    before = files.known
    assert before is not None
    assert before.columns is not None
    assert len(before.columns.results()) == len(files.results) > 10
    for kept, line in zip(before.columns.results(), files.results, strict=True):
        for metric in {s.metric for s in line.samples}:
            assert kept.values(metric) == line.values(metric)
            assert kept.samples_in(metric) == line.samples_in(metric)
            assert "samples" not in vars(kept)  # from the columns, not from the line
        assert kept.values("no such metric") == []
        assert kept.model_copy(update={"samples": ()}).values("tcp_bandwidth_gbps") == []
        assert type(kept.facts) is type(line.facts)
        assert {name: getattr(kept, name) for name in type(line).model_fields} == dict(line)


def worse(path: Path) -> None:
    """Other bytes of the same number, with the times that were there before."""
    was = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], Any]] = {
    "changed behind its times": worse,
    "cut": lambda path: os.truncate(path, 3),
    "gone": Path.unlink,
    "a link": linked,
    "replaced by its copy, cut": lambda path: (path.unlink(), path.write_bytes(b"")),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_log_that_changed_is_read_again_and_no_other(run: Path, read: Read, how: str) -> None:
    judged(run, read)
    CHANGES[how](run / "raw" / BANDWIDTH / "gpu1.out")
    after = judged(run, read)
    assert read == [BANDWIDTH]
    lost(after)
    assert after == judge_files(run)
    assert judged(run, read) == after  # by what is known of the damage


def test_a_log_that_is_added_is_seen(run: Path, read: Read) -> None:
    judged(run, read)
    (run / "raw" / BANDWIDTH / "gpu1.2.out").write_text("")
    assert "is of a later attempt" in lost(judged(run, read))


def behind_its_times(folder: Path, change: Callable[[], Any]) -> None:
    """Do it, and give the folder the times that it had, as far as a user can."""
    was = folder.stat()
    change()
    os.utime(folder, ns=(was.st_atime_ns, was.st_mtime_ns))


def exchanged(folder: Path) -> None:
    one, other, third = folder / "gpu1.out", folder / "gpu1.err", folder / "third"
    one.rename(third)
    other.rename(one)
    third.rename(other)


NAMES: dict[str, Callable[[Path], Any]] = {
    "a later attempt": lambda folder: (folder / "gpu1.2.out").write_text(""),
    "two exchanged": exchanged,
    "a folder of this name again": lambda folder: shutil.copytree(folder.rename(folder.with_name("gone")), folder),
    "gone as a whole": lambda folder: folder.rename(folder.parents[1] / "gone"),
    "a link to where it went": lambda folder: folder.symlink_to(folder.rename(folder.parents[1] / "gone")),
}


@pytest.mark.parametrize("how", NAMES)
def test_names_that_change_are_seen_though_no_folder_is_listed(run: Path, read: Read, how: str) -> None:
    judged(run, read)
    folder = run / "raw" / BANDWIDTH
    before = Run(run).known
    assert before is not None
    assert log_state.untouched(run, before.state)
    NAMES[how](folder)
    assert not log_state.untouched(run, before.state)
    assert judged(run, read) == judge_files(run)


def test_a_log_that_is_added_behind_the_times_of_its_folder_is_seen(run: Path, read: Read) -> None:
    judged(run, read)
    folder = run / "raw" / BANDWIDTH
    behind_its_times(folder, lambda: (folder / "gpu1.2.out").write_text(""))
    assert "is of a later attempt" in lost(judged(run, read))


def test_what_did_not_change_is_not_listed(run: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    first = judged(run, read)
    monkeypatch.setattr(log_state, "_state", lambda _: pytest.fail("listed once more"))
    monkeypatch.setattr(reading, "conflicts", lambda *_: pytest.fail("documents held against each other once more"))
    assert judged(run, read) == first


def test_young_logs_are_read_again(run: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_state, "SETTLED_NS", 3600 * 10**9)
    for _ in range(2):
        judged(run, read)
        assert sorted(read) == all_of(run)


def test_an_edited_line_makes_everything_be_read_again(run: Path, read: Read) -> None:
    judged(run, read)

    def better(line: Any) -> None:
        line["samples"][0]["value"] += 0.01

    edit_line(run, better)
    assert "are not what its raw logs give" in lost(judged(run, read))
    assert sorted(read) == all_of(run)


def test_documents_are_held_against_each_other_again_once_one_changed(run: Path, read: Read) -> None:
    judged(run, read)
    edit(run / "plan.json", lambda plan: plan["measurements"].pop())
    with pytest.raises(ConfigError, match="was changed since the run began"):
        judged(run, read)


def test_nothing_is_known_under_another_plan_or_another_beginning(run: Path, read: Read) -> None:
    judged(run, read)
    assert Run(run).known is not None
    plan = (run / "plan.json").read_bytes()
    (run / "plan.json").write_bytes(plan + b" ")
    assert Run(run).known is None
    (run / "plan.json").write_bytes(plan)
    assert Run(run).known is not None
    edit(run / "run.json", lambda info: info.update(created="2026-11-21T10:15:01Z"))
    assert Run(run).known is None


def test_what_was_found_without_a_look_at_the_documents_says_nothing_of_them(run: Path, read: Read) -> None:
    edit(run / "topology.json", lambda topology: topology.update(site="other"))
    files = Run(run)
    files.evidence(again=True)  # as when a run is continued
    with pytest.raises(ConfigError, match="restore"):
        judged(run, read)


DOCUMENTS = ("run.json", "results.jsonl", "plan.json", "topology.json", "criteria/10-preflight.yml")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_cannot_be_read_is_the_same_error_as_ever(run: Path, read: Read, name: str) -> None:
    judged(run, read)
    (run / name).unlink()
    (run / name).mkdir()
    with pytest.raises(ConfigError) as known:
        judged(run, read)
    with pytest.raises(ConfigError) as whole:
        judge_files(run)
    assert str(known.value) == str(whole.value)


def test_lines_that_were_appended_are_read_and_no_others(run: Path, read: Read) -> None:
    path = run / "results.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    judged(run, read)
    path.write_bytes(whole)
    after = judged(run, read)
    assert sorted(read) == sorted(result.measurement for result in Run(run).results[-3:])
    assert judged(run, read) == after == judge_files(run)


def test_what_is_kept_is_plain_sqlite(run: Path, read: Read) -> None:
    """Any program reads it: no packed bytes, and what stands in it is what the lines say."""
    judged(run, read)
    with contextlib.closing(sqlite3.connect(file_of(run))) as base:
        base.text_factory = str
        for (table,) in base.execute("SELECT name FROM sqlite_master").fetchall():
            for row in base.execute(f"SELECT * FROM {table}"):
                assert not any(isinstance(value, bytes) for value in row)
        asked = "SELECT j.value FROM samples s, json_each(s.sample_values) j WHERE metric = 'tcp_bandwidth_gbps'"
        kept = [value for (value,) in base.execute(asked)]
    assert kept == [value for result in Run(run).results for value in result.values("tcp_bandwidth_gbps")]
    sums = subprocess.run(["sha256sum", "--check", file_of(run, ".sha256").name], cwd=file_of(run).parent, check=False)
    assert sums.returncode == 0


def test_another_toolkit_reads_everything_itself(run: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(run, read)
    monkeypatch.setattr(reading, "toolkit", lambda: "another one")
    judged(run, read)
    assert sorted(read) == all_of(run)


def test_a_copy_of_a_run_is_read_whole(run: Path, read: Read) -> None:
    judged(run, read)
    kept = run.with_name("kept")
    run.rename(kept)
    shutil.copytree(kept, run)  # times of change are new, those of the content are not
    judged(run, read)
    assert sorted(read) == all_of(run)


def test_a_log_elsewhere_in_the_run_is_read_each_time(run: Path, read: Read) -> None:
    path = run / "raw" / BANDWIDTH / "gpu1.out"
    path.rename(run / "elsewhere")
    path.symlink_to(run / "elsewhere")
    for _ in range(2):
        assert judged(run, read).outcome == "passed"
        assert BANDWIDTH in read
    worse(run / "elsewhere")  # which no folder of logs shows
    lost(judged(run, read))


def test_logs_behind_a_link_are_read_each_time(run: Path, read: Read) -> None:
    outside = run.parent / "elsewhere"
    (run / "raw").rename(outside)
    (run / "raw").symlink_to(outside)
    for _ in range(2):
        judged(run, read)
        assert sorted(read) == all_of(run)


def test_whoever_signs_or_verifies_reads_everything(run: Path, read: Read) -> None:
    judged(run, read)
    judged(run, read)
    assert read == []
    assert judged_again(run)[1] is None
    assert sorted(read) == all_of(run)


@pytest.mark.parametrize("name", RUNS)
def test_the_report_of_what_was_just_judged_is_the_same_to_the_byte(
    site_runs: dict[str, Path], tmp_path: Path, read: Read, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(site_runs[name], tmp_path / name))
    judge_run(folder)
    formats = ("html", "json", "junit", "prom")
    alone = {path.name: path.read_bytes() for path in write_report(folder, formats, tmp_path / "alone").paths.values()}
    assert len(alone) == len(formats)
    read_once: list[type] = []
    load = reading.load_json
    monkeypatch.setattr(reading, "load_json", lambda *what: (read_once.append(what[1]), load(*what))[1])
    for known in (False, True):
        if not known:
            file_of(folder).unlink(missing_ok=True)  # so that all raw logs are read
        run = Run(folder)
        read_once.clear()
        judge_run(run)
        written = write_report(run, formats, tmp_path / "shared")
        assert {path.name: path.read_bytes() for path in written.paths.values()} == alone
        assert len(set(read_once)) == len(read_once)
        assert VerdictDoc not in read_once


def test_nothing_is_kept_of_a_small_run_or_without_a_home(
    run: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "LEAST", 10_000)
    judged(run, read)
    assert not file_of(run).exists()
    monkeypatch.setattr(remembered, "LEAST", 1)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "nowhere")  # not absolute
    assert judged(run, read).outcome == "passed"
    assert sorted(read) == all_of(run)


def test_of_many_runs_the_oldest_are_forgotten(run: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "KEPT", 2)
    for name in ("one", "two", "three"):
        judged(Path(shutil.copytree(run, run.with_name(name))), read)
    kept = [Run(run.with_name(name)).known is not None for name in ("one", "two", "three")]
    assert kept == [False, True, True]
    ends = sorted(path.suffix for path in file_of(run).parent.iterdir())
    assert ends == [".sha256", ".sha256", ".sqlite", ".sqlite"]
