"""Whatever happens to one thing in a good run: the same verdict, a worse one, or one clear error; never a better one.

The order of verdicts: what counts towards an acceptance is better than what does not. `fail` and `not-measured` stand
on the same step: where evidence of a failure is lost nobody can say that it failed, and neither accepts anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.damage_case import (
    WAIVED,
    Files,
    agreed_run,
    damage,
    damages,
    files_of,
    put,
    rdma_run,
    small_run,
)
from tests.support.damage_kinds import kinds_run, walked_run
from tests.support.damage_runs import expired_run, lost_run, wobbly_run
from tests.support.signing_case import FORMATS, NEEDS_SSH, make_key, sign
from toolkit import acceptance
from toolkit.cli import main
from validation.model import Measurement, Result, VerdictDoc
from validation.model.load import ConfigError
from validation.report.formats import write_formats
from validation.run import log_state, raw_logs
from validation.run import remembered as kept
from validation.run.rejudge import judge_files
from validation.signing.verify import verify

pytestmark = pytest.mark.computes

PASSED = ("pf.ibfabric", "pf.rdmaport", "co.membw", "co.exact", "rm.isolate")
STEP = {"pass": 2, "waived": 2, "not-applicable": 1, "fail": 0, "not-measured": 0}
WAIVERS = "waivers:\n- {criterion: tr.tcpbw, who: A. Example, when: 2026-11-20, why: accepted, expires: 2027-01-01}\n"
STEP_S = 0.01
"""More than a step in which the kernel counts the times of files."""
EXAMPLES = 60
COSTLY = {"kinds": 25, "wobbly": 30, "walked": 30}
"""Runs that take the longest to judge have fewer in the half hour; `--all` has three times as many of each."""
CALM = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Workbench:
    """A run on the disk, whose files are changed and put back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.good: Files = files_of(folder)
        self.before = judge_files(folder)
        self._now = dict(self.good)

    def put(self, files: Files) -> None:
        for name in self._now.keys() | files.keys():
            if self._now.get(name) != files.get(name):
                put(self.folder / name, files.get(name))
        self._now = dict(files)


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workbench]:
    shared = Path("/dev/shm")
    base = tmp_path_factory.mktemp("runs")
    if os.access(shared, os.W_OK):
        base = shared / f"elastic-ai-damage-{os.getpid()}"
        base.mkdir()
    made = {
        "lab": small_run(base / "lab", virtual=True),
        "slow": small_run(base / "slow", virtual=True, slow="gpu2"),
        "hardware": small_run(base / "hardware", virtual=False),
        "agreed": agreed_run(base / "agreed"),
        "rdma": rdma_run(base / "rdma"),
        "expired": expired_run(base / "expired"),
        "lost": lost_run(base / "lost"),
        "wobbly": wobbly_run(base / "wobbly"),
        "walked": walked_run(base / "walked"),
        "kinds": kinds_run(base / "kinds"),
    }
    yield {name: Workbench(folder) for name, folder in made.items()}
    shutil.rmtree(base)


def no_better(before: VerdictDoc, after: VerdictDoc) -> None:
    assert (after.outcome == "passed") <= (before.outcome == "passed")
    assert (after.sign_off == "ACCEPTED") <= (before.sign_off == "ACCEPTED")
    assert after.planned == before.planned
    assert after.measured <= before.measured
    assert set(before.missing) <= set(after.missing)
    assert [(c.id, c.required, c.statement) for c in after.criteria] == [
        (c.id, c.required, c.statement) for c in before.criteria
    ]
    for old, new in zip(before.criteria, after.criteria, strict=True):
        assert STEP[new.verdict] <= STEP[old.verdict], f"{new.id}: {old.verdict} became {new.verdict}"
        were = {j.subject: j for j in old.judgements}
        for j in new.judgements:
            # What did not concern a node, and so was not listed, may become unknown; no more than that.
            was = were[j.subject].verdict if j.subject in were else "not-measured"
            assert STEP[j.verdict] <= STEP[was], f"{new.id}: {j.subject}"
            if j.verdict == "pass":
                assert (j.value, j.low, j.high, j.bound) == (
                    were[j.subject].value, were[j.subject].low, were[j.subject].high, were[j.subject].bound
                )  # fmt: skip


def test_the_good_runs_are_good(benches: dict[str, Workbench]) -> None:
    found = {name: (b.before.sign_off, b.before.outcome) for name, b in benches.items()}
    assert found == {
        "lab": ("REHEARSAL", "passed"),
        "slow": ("REHEARSAL", "failed"),
        "hardware": ("INCOMPLETE", "incomplete"),  # criteria without a probe
        "agreed": ("ACCEPTED", "passed"),
        "rdma": ("INCOMPLETE", "incomplete"),
        "expired": ("INCOMPLETE", "incomplete"),
        "lost": ("INCOMPLETE", "incomplete"),
        "wobbly": ("REJECTED", "failed"),
        "walked": ("ACCEPTED", "passed"),
        "kinds": ("INCOMPLETE", "incomplete"),  # criteria without a probe
    }
    kinds = {c.id: c.verdict for c in benches["kinds"].before.criteria}
    assert [kinds[id_] for id_ in PASSED] == ["pass"] * len(PASSED)
    assert benches["kinds"].before.missing == ()
    agreed = benches["agreed"].before
    assert {c.id for c in agreed.criteria if c.verdict == "waived"} == {WAIVED}
    bandwidth = {j.subject: j.reason for c in agreed.criteria if c.id == "tr.tcpbw" for j in c.judgements}
    assert "attempt 2, without 1 of 2 meanwhile disturbed" in bandwidth["gpu1/fab0>gpu2/fab0"]
    hardware = {c.id: c.verdict for c in benches["hardware"].before.criteria}
    assert (hardware["tr.tcpbw"], hardware["tn.intra"], hardware["pf.mtu"]) == ("pass", "pass", "pass")
    rdma = {c.id: c.verdict for c in benches["rdma"].before.criteria}
    assert (rdma["pf.rdmaport"], rdma["pf.lossless"], rdma["pf.memlock"]) == ("pass", "pass", "pass")


@pytest.mark.parametrize(
    "name", ["lab", "slow", "hardware", "agreed", "rdma", "expired", "lost", "wobbly", "walked", "kinds"]
)
def test_no_single_damage_makes_a_verdict_better(
    name: str, benches: dict[str, Workbench], pytestconfig: pytest.Config
) -> None:
    bench = benches[name]

    @settings(CALM, max_examples=EXAMPLES * 3 if pytestconfig.getoption("--rest") else COSTLY.get(name, EXAMPLES))
    @given(data=st.data())
    def damaged(data: st.DataObject) -> None:
        what, files = data.draw(damages(bench.good, WAIVERS))
        bench.put(files)
        error, after = "", bench.before
        try:
            after = judge_files(bench.folder)
        except ConfigError as fault:
            error = str(fault)
        finally:
            bench.put(bench.good)
        if error:
            assert "\n" not in error, what
            assert error.startswith(str(bench.folder)), what
        else:
            no_better(bench.before, after)

    damaged()


def said(folder: Path, again: bool) -> VerdictDoc | str:
    """The verdict, or the error that there is instead."""
    try:
        return judge_files(folder, again)
    except ConfigError as fault:
        return str(fault)


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Runs of any size are remembered, at once; the measurements whose raw logs are read."""
    read: list[str] = []
    faults = raw_logs.line_faults

    def line_faults(m: Measurement, result: Result, raw: Mapping[str, bytes | None]) -> list[str]:
        read.append(m.id)
        return faults(m, result, raw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(kept, "LEAST", 1)
        patch.setattr(log_state, "SETTLED_NS", 0)
        patch.setattr(raw_logs, "line_faults", line_faults)
        yield read


@pytest.mark.parametrize("name", ["lab", "slow", "agreed", "rdma", "wobbly", "kinds"])
def test_no_damage_gains_by_what_was_read_before(
    name: str, benches: dict[str, Workbench], remembered: list[str]
) -> None:
    """Judged by what is known from before the damage, a run says what it says when everything is read."""
    bench, spared = benches[name], []

    @settings(CALM, max_examples=8 if name in COSTLY else 20)
    @given(data=st.data())
    def damaged(data: st.DataObject) -> None:
        assert said(bench.folder, again=True) == bench.before
        what, files = data.draw(damages(bench.good, WAIVERS))
        time.sleep(STEP_S)
        try:
            bench.put(files)
            remembered.clear()
            after, read = said(bench.folder, again=True), len(remembered)
            remembered.clear()
            assert after == said(bench.folder, again=False), what
            spared.append(len(remembered) - read)
        finally:
            bench.put(bench.good)

    damaged()
    assert max(spared) > 1  # it was judged by what was known, in some of these cases


def command_line(*arguments: str) -> int:
    """The exit code of the command line, without a process of its own; anything but an exit comes through."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
        patch.setattr(sys, "argv", ["toolkit", *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@settings(CALM, max_examples=30)
@given(data=st.data(), judged=st.booleans())
def test_no_damage_ends_the_report_with_a_traceback(
    benches: dict[str, Workbench], data: st.DataObject, judged: bool
) -> None:
    bench = benches["hardware"]
    verdict = bench.before.model_dump_json(indent=2).encode()
    what, files = data.draw(damages({**bench.good, "verdict.json": verdict} if judged else bench.good, WAIVERS))
    bench.put(files)
    try:
        code = command_line("report", str(bench.folder), "--format", "json", "--out", str(bench.folder.parent / "out"))
    finally:
        for name in ("verdict.json", ".lock"):
            (bench.folder / name).unlink(missing_ok=True)
        bench.put(bench.good)
    assert code in (0, 2), what


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, Path]:
    """A signed run with its reports, and the file of allowed signers."""
    folder = tmp_path_factory.mktemp("signed")
    run, key = small_run(folder / "run", virtual=False), make_key(folder / "key")
    acceptance.judge_run(run)
    write_formats(run, FORMATS)
    sign(run, key)
    (folder / "signers").write_text(f"a@example.com {key.with_suffix('.pub').read_text()}")
    return Workbench(run), folder / "signers"


@NEEDS_SSH
def test_the_signed_run_is_verified(signed: tuple[Workbench, Path]) -> None:
    bench, signers = signed
    found = verify(bench.folder, signers)
    assert found.good, found.faults
    assert found.judged_again


@NEEDS_SSH
@settings(CALM, max_examples=60)
@given(data=st.data())
def test_verify_finds_any_single_damage(signed: tuple[Workbench, Path], data: st.DataObject) -> None:
    """Of a signed run, its manifest, statement and signature among the files."""
    bench, signers = signed
    seals = [name for name in sorted(bench.good) if name.startswith(("signatures/", "MANIFEST"))]
    sealed = st.sampled_from(seals).flatmap(lambda name: damage(bench.good, name))
    what, files = data.draw(st.one_of(damages(bench.good, WAIVERS), sealed))
    if files == bench.good:  # swapped with itself, set to what it was
        return
    bench.put(files)
    try:
        found = verify(bench.folder, signers)
    finally:
        bench.put(bench.good)
    assert not found.good, what
    assert found.difference or found.faults or any(s.state == "bad" for s in found.signatures), what


@NEEDS_SSH
@pytest.mark.parametrize("change", [lambda sig: sig + b"\0", lambda sig: sig[:-1], lambda sig: b"\n" + sig])
def test_verify_finds_what_ssh_keygen_passes_over(
    signed: tuple[Workbench, Path], change: Callable[[bytes], bytes]
) -> None:
    bench, signers = signed
    name = next(name for name in bench.good if name.endswith(".sig"))
    bench.put({**bench.good, name: change(bench.good[name])})
    try:
        found = verify(bench.folder, signers)
    finally:
        bench.put(bench.good)
    assert not found.good
    assert [s.state for s in found.signatures] == ["bad"]
