"""pf.xid: Xids of the run alone, each burst once, by what they mean; a log that was not read passes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu_health_case import LOG, facts, read
from tests.support.site import (
    BOM,
    CRITERIA,
    REAL_FACTS,
    criterion,
    hardware,
    lab,
    plan_of,
    real_results,
    results_of,
    scaled,
    verdict_of,
    waive_all,
)
from validation.judging.case import Case
from validation.measures.gpu.xid_table import POLICY, meaning
from validation.model import Judgement, Measurement, Result, Topology
from validation.plan.suites import SUITES
from validation.probes import kernel_log
from validation.rules.fabric import load_fabric
from validation.rules.profile import load_profile
from validation.verdict.owed import Debt, decide

REAL = hardware(("gpu1", "gpu2"), bom=BOM.model_copy(update={"gpu_count": 4}))
AT = "0000:3b:00.0"
S = 1_000_000
ACTION = "GPU recovery action changed from"
#: Form of the lines: NVIDIA, Xid errors (documentation); NVIDIA Fabric Manager user guide (SXid).
KMSG = """\
6,1,100,-;Linux version 6.8.0
4,900,61000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
 SUBSYSTEM=pci
4,901,61000001,-;NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x2 (Reboot)
4,902,62000000,-;nvidia-nvswitch3: SXid (PCI:0000:C1:00.0): 24007, Fatal, Link 44 sourcetrack timeout error
6,903,62500000,-;usb 1-1: new device; it says Xid of nothing
"""


def line(code: int, at_s: float = 70.0, words: str = "", kind: str = "xid", address: str = AT) -> dict[str, Any]:
    return {"at_us": int(at_s * S), "kind": kind, "code": code, "address": address, "words": words}


def log(*lines: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The log at the end of the run, which began 60 s after the node's start."""
    return {**LOG, "newest_us": 200 * S, "lines": list(lines), **changes}


def judged(after: Any = None, before: Any = None, topology: Topology = REAL, emulated: bool = False) -> Judgement:
    """Of gpu2, whose logs these are; `after` False: only one reading was planned."""
    plan = plan_of(topology, ("preflight",) if after is False else ("preflight", "transport"))

    def spoil(m: Measurement) -> Result | None:
        if m.kind != "gpu-health":
            return None
        mine = (after or log()) if m.id.startswith("gpu-health-after") else (before or LOG)
        return read(m, {**facts(emulated=emulated), "kernel_log": mine if m.nodes == ("gpu2",) else LOG})

    own = REAL_FACTS if topology.lab_link is None else {}
    verdict = verdict_of(topology, plan, results_of(plan, spoil, facts=own))
    [mine] = [j for j in criterion(verdict, "pf.xid").judgements if j.subject == "gpu2"]
    return mine


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        ([line(79)], "fail", f"Xid 79 of {AT} (the GPU has fallen off the bus)"),
        ([line(48)], "fail", "an uncorrectable memory error"),
        ([line(94)], "fail", "a contained uncorrectable memory error"),
        ([line(119)], "fail", "the GPU's system processor does not answer"),
        ([line(145, words="RLW_CTRL Nonfatal XC0 i0 Link 00")], "pass", "which is no fault of a GPU"),
        ([line(145, words="RLW_CTRL Fatal XC0 i0 Link 00")], "fail", "an NVLink error"),
        ([line(154, words=f"{ACTION} 0x0 (None) to 0x2 (Node Reboot Required)")], "fail", "the driver asks: GPU"),
        ([line(154, words=f"{ACTION} 0x2 (Node Reboot Required) to 0x0 (None)")], "pass", "asks for nothing"),
        ([line(31)], "pass", f"during the run Xid 31 of {AT}"),
        ([line(13), line(43)], "pass", "Xid 43"),
        ([line(63)], "pass", "pf.gpuhealth judges"),
        ([line(9999)], "not-measured", "this release has no rule for it"),
        ([line(31), line(9999), line(79)], "fail", "Xid 79"),
        ([line(24007, words="Fatal, Link 44", kind="sxid")], "fail", "SXid 24007"),
        ([line(24007, words="Non-fatal, Link 44", kind="sxid")], "pass", "SXid 24007"),
        ([line(24007, words="Link 44", kind="sxid")], "not-measured", "no rule"),
        ([], "pass", "no Xid in the run"),
    ],
)  # fmt: skip
def test_what_came_up_is_judged_by_what_it_means(found: list[Any], verdict: str, said: str) -> None:
    mine = judged(log(*found))
    assert (mine.verdict, said in mine.reason) == (verdict, True), mine.reason


def test_an_xid_that_nobody_can_tell_the_meaning_of_withholds_an_acceptance_that_does_not_owe_it() -> None:
    plan = plan_of(REAL)
    training = load_profile("training", CRITERIA, SUITES)

    def one(m: Measurement, *found: dict[str, Any]) -> Result:
        if m.kind == "gpu-health":
            return read(m, {**facts(), "kernel_log": log(*found) if m.id.startswith("gpu-health-after") else LOG})
        return scaled(m)

    for found, outcome in (([], "ACCEPTED"), ([line(9999)], "INCOMPLETE")):
        results = real_results(plan, spoil=lambda m, found=found: one(m, *found))
        first = verdict_of(REAL, plan, results, profile=training)
        assert not criterion(first, "pf.xid").owed
        waivers = [w for w in waive_all(first) if w.criterion != "pf.xid"]
        assert verdict_of(REAL, plan, results, waivers, profile=training).sign_off == outcome


def test_what_stood_there_before_the_run_is_told_and_not_judged() -> None:
    old = line(79, at_s=30)
    mine = judged(log(old), {**LOG, "lines": [old]})
    assert mine.verdict == "pass"
    assert mine.reason == f"no Xid in the run. Before the run: Xid 79 of {AT} (the GPU has fallen off the bus)"


def test_lines_soon_after_each_other_are_one_event() -> None:
    storm = [line(79, at_s=70 + 100 * n) for n in range(4)]
    mine = judged(log(*storm, line(79, at_s=551), line(79, at_s=70, address="0000:3c:00.0")))
    assert mine.reason.count("Xid 79") == 3
    assert f"Xid 79 of {AT} (the GPU has fallen off the bus), 4 lines;" in mine.reason


def test_a_log_that_was_not_read_passes_nothing() -> None:
    why = "/dev/kmsg: Operation not permitted: this user may not read the kernel's log"
    closed = {**LOG, "oldest_us": None, "newest_us": None, "unread": why}
    for found in (judged(closed, closed), judged(log(), closed), judged(closed)):
        assert (found.verdict, found.reason) == ("not-measured", f"the kernel log was not read: {why}")
    assert judged(log(), {**LOG, "boot": "a"}).reason.startswith("the node was restarted during the run")
    assert judged(log(line(79), boot="c")).verdict == "fail"
    assert "the begin of it is gone" in judged(log(oldest_us=61 * S)).reason
    assert "left out" in judged(log(dropped=5)).reason
    once = judged(False)
    assert (once.verdict, once.reason_code) == ("not-measured", "not-selected")


def test_one_reading_withholds_no_acceptance_unless_somebody_owes_the_criterion() -> None:
    """A run that loads nothing reads the log once; what its other criteria say is left out here."""
    quick = load_profile("network-quick", CRITERIA, SUITES)
    plan = plan_of(REAL, quick.suites)
    others = {c.id for c in CRITERIA} - {"pf.mtu", "pf.gpuhealth", "pf.xid"}

    def outcome(owed: tuple[str, ...], kernel: Any = LOG) -> str:
        def spoil(m: Measurement) -> Result | None:
            return read(m, {**facts(), "kernel_log": kernel}) if m.kind == "gpu-health" else None

        found = results_of(plan, spoil, facts=REAL_FACTS)
        latest = {r.measurement: r for r in found}
        case = Case(REAL, plan, load_fabric("tcp10"), CRITERIA, latest, virtual=False)
        debt = Debt(frozenset(owed), dict.fromkeys(others, "left out"))
        verdicts = [v for v in verdict_of(REAL, plan, found).criteria if v.id not in others]
        return decide(case, debt, [v.model_copy(update={"owed": v.id in owed}) for v in verdicts], [])[0]

    assert outcome(("pf.mtu",)) == "passed"
    assert outcome(("pf.mtu", "pf.xid")) == "incomplete"
    assert outcome(("pf.mtu",), {**LOG, "unread": "/dev/kmsg: Operation not permitted"}) == "incomplete"


def test_of_emulated_gpus_no_driver_writes_but_what_is_planted_is_found() -> None:
    topology = lab(("gpu1", "gpu2"), emulated_gpus=4)
    none = judged(topology=topology, emulated=True)
    assert (none.verdict, none.reason_code) == ("not-measured", "virtual")
    assert judged(log(line(79)), topology=topology, emulated=True).verdict == "fail"


def test_every_number_has_one_meaning_and_what_asks_for_a_part_fails() -> None:
    numbers = [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 79, 48, 142, 54, 78, 74, 151, 94]
    assert {POLICY[number].meaning for number in numbers} == {"replace", "reset"}
    assert sorted(n for n, row in POLICY.items() if row.meaning in ("replace", "reset")) == sorted(numbers)
    assert meaning("xid", 150, "").meaning == "replace"
    assert meaning("xid", 12345, "").meaning == "unknown"


def test_lines_are_read_from_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(KMSG)
    found = kernel_log.collect(str(path))
    assert (found["oldest_us"], found["newest_us"], found["unread"], found["dropped"]) == (100, 62_500_000, "", 0)
    assert [(one["kind"], one["code"], one["address"], one["at_us"]) for one in found["lines"]] == [
        ("xid", 79, AT, 61_000_000),
        ("xid", 154, AT, 61_000_001),
        ("sxid", 24007, "0000:c1:00.0", 62_000_000),
    ]
    assert found["lines"][0]["words"].endswith("GPU has fallen off the bus.")


def test_an_empty_log_or_one_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "kmsg"
    empty.write_text("")
    assert kernel_log.collect(str(empty), journal=False)["unread"].endswith("a container does not see the kernel's log")
    missing = kernel_log.collect(str(tmp_path / "none"), journal=False)
    assert missing["unread"] == f"{tmp_path}/none: No such file or directory"

    def refuse(path: str) -> list[tuple[int, str]]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel_log, "read_kmsg", refuse)
    said = kernel_log.collect(journal=False)["unread"]
    assert said == "/dev/kmsg: Operation not permitted: this user may not read the kernel's log"


def test_the_journal_is_read_where_the_kernel_may_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "journalctl"
    message = "NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked for remapping"
    entries = f'{{"__MONOTONIC_TIMESTAMP":"5000000","MESSAGE":"{message}"}}\n{{"MESSAGE":null}}\nnot JSON\n'
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{entries}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = kernel_log.collect(str(tmp_path / "none"))
    assert (found["unread"], [one["code"] for one in found["lines"]]) == ("", [63])
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert "journal: journalctl ended with exit status 1" in kernel_log.collect(str(tmp_path / "none"))["unread"]
