"""Lines of the kernel log in every form that drivers write: Xids of parts of GPUs, old and new forms, losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_judge_xid import AT, judged, line, log
from validation.kinds.parsing import as_facts
from validation.measures.gpu.kernel_log import KernelLog
from validation.measures.gpu.xid_table import meaning
from validation.probes import kernel_log

FALLEN = "GPU has fallen off the bus."


def read(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    path = tmp_path / "kmsg"
    path.write_text(text)
    found = kernel_log.collect(str(path), journal=False)
    as_facts(KernelLog, found, "kernel_log")
    lines: list[dict[str, Any]] = found["lines"]
    return lines


@pytest.mark.parametrize(
    ("message", "kind", "code", "address"),
    [
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=python3, Contained: CE", "xid", 94, AT),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 48, pid=9, name=a, DBE", "xid", 48, AT),
        ("NVRM: Xid (PCI:0000:3b:00.0 GPU-I:01): 31, pid=9, name=a, Ch 00000002", "xid", 31, AT),
        ("NVRM: Xid (PCI:0000:3b:00.0): 31, pid=9", "xid", 31, AT),
        ("NVRM: Xid (PCI:00000000:3B:00): 13, pid=9", "xid", 13, AT),
        ("NVRM: Xid (PCI:00000008:06:00.0): 13, pid=9", "xid", 13, "0008:06:00.0"),
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101, intr 10000000", "xid", 31, "0000:03:00.0"),
        ("NVRM: Xid (3b:00): 13, 0003 00000000", "xid", 13, AT),
        ("NVRM: Xid (003b:00): 13, 0003 00000000", "xid", 13, AT),
        ("NVRM: Xid (PCI:0000:3b:00): 62, 0cb5(1ea8) 00000000 00000000", "xid", 62, AT),
        ("NVRM: Xid (PCI:0000:3b:00): 43", "xid", 43, AT),
        ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 02 (0x004c1 0x0)", "xid", 149, AT),
        ("[  812.338211] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, " + FALLEN, "xid", 79, AT),
        ("[Tue Nov 25 10:00:00 2025] NVRM: Xid (PCI:0000:3b:00): 74, pid=1", "xid", 74, AT),
        ("2025-11-25T10:00:00,123456+00:00 NVRM: Xid (PCI:0000:3b:00): 74, pid=1", "xid", 74, AT),
        ("kern  :err   : [  1.2] [T1234] NVRM: Xid (PCI:0000:3b:00): 74, pid=1", "xid", 74, AT),
        ("Nov 25 10:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:3b:00): 74, pid=1", "xid", 74, AT),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44", "sxid", 24007, "0000:c1:00.0"),
        ("nvidia-nvswitch0: SXid (PCI:00000000:C1:00.0): 11004, Non-fatal, Link 28", "sxid", 11004, "0000:c1:00.0"),
        (f"NVRM: GPU 0000:3b:00.0: {FALLEN}", "lost", None, AT),
        ("NVRM: GPU at 0000:3b:00.0 has fallen off the bus.", "lost", None, AT),
        (f"NVRM: GPU at PCI:0000:3b:00: {FALLEN}", "lost", None, AT),
        (f"NVRM: GPU 00000000:3B:00.0: {FALLEN}", "lost", None, AT),
        (
            "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus "
            "and is not responding to commands.",
            "lost",
            None,
            AT,
        ),
        (f"NVRM: {FALLEN}", "lost", None, ""),
        (
            "NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) "
            "returned from rpcRecvPoll(pGpu, pRpc) @ rpc.c:1",
            "lost",
            None,
            "",
        ),
        (f"[Tue Nov 25 10:00:00 2025] NVRM: {FALLEN}", "lost", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): what nobody has seen", "xid", None, ""),
        ("NVRM: Xid of a form to come: 171", "xid", None, ""),
        ("nvidia-nvswitch3: SXid [0000:c1:00.0] 24007", "sxid", None, ""),
    ],
)
def test_every_form_of_a_line_is_read(message: str, kind: str, code: int | None, address: str) -> None:
    found = kernel_log.xid(1, message)
    assert found is not None
    assert (found["kind"], found["code"], found["address"]) == (kind, code, address)


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: GPU at PCI:0000:ab:00: GPU-11111111-2222-3333-4444-555555555555",
        "NVRM: GPU Board Serial Number: 1650000000001",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
        "usb 1-1: it says Xid of nothing, and GPU has fallen asleep",
        "program[12]: Xid of a transaction (12): 3",
    ],
)
def test_other_lines_are_none(message: str) -> None:
    assert kernel_log.xid(1, message) is None


def test_a_loss_that_an_xid_tells_too_is_told_once_and_another_gpus_stays(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "6,1,1000,-;NVRM: GPU at PCI:0000:ab:00: GPU-11111111-2222-3333-4444-555555555555\n"
        "6,2,1500,-;NVRM: GPU Board Serial Number: 1650000000001\n"
        f"3,3,2000,-;NVRM: Xid (PCI:0000:ab:00): 79, pid=1234, name=x, {FALLEN}\n"
        f"3,4,2001,-;NVRM: GPU 0000:ab:00.0: {FALLEN}\n"
        f"3,5,2002,-;NVRM: GPU 0000:dc:00.0: {FALLEN}\n",
    )
    said = [(one["kind"], one["code"], one["address"]) for one in found]
    assert said == [("xid", 79, "0000:ab:00.0"), ("lost", None, "0000:dc:00.0")]


@pytest.mark.parametrize(
    "text",
    [
        "3,4,2001,-,caller=T12;NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)\\x0aNVRM: installed in this "
        "system has fallen off the bus and is not responding to commands.\n",
        "3,4,2001,-;NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:1b80) installed in this system has\\x0a"
        "NVRM: fallen off the bus and is not responding to commands.\n SUBSYSTEM=pci\n",
        "3,4,2001,-;NVRM: The NVIDIA GPU 0000:3b:00.0\n3,5,2002,-;NVRM: (PCI ID: 10de:1b80) installed in this system "
        "has\n3,6,2003,-;NVRM: fallen off the bus and is not responding to commands.\n",
        "3,4,2001,c;NVRM: GPU 0000:3b:00.0: \n3,5,2002,+;GPU has fallen off the bus.\n",
    ],
)
def test_lines_that_the_kernel_took_as_several_are_one(tmp_path: Path, text: str) -> None:
    [found] = read(tmp_path, text)
    assert (found["kind"], found["address"], found["at_us"]) == ("lost", AT, 2001)


def test_the_journals_lines_of_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "journalctl"
    spelled = list(b"NVRM: Xid (PCI:0000:3b:00): 79, \xff")
    tool.write_text(f'#!/bin/sh\necho \'{{"__MONOTONIC_TIMESTAMP":"5000000","MESSAGE":{spelled}}}\'\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = kernel_log.collect(str(tmp_path / "none"))
    assert [one["code"] for one in found["lines"]] == [79]


def test_a_loss_fails_and_a_line_that_cannot_be_read_passes_nothing() -> None:
    lost = {**line(0, kind="lost"), "code": None}
    unread = {**line(0), "code": None, "address": ""}
    mine = judged(log(lost))
    assert (mine.verdict, f"the loss of {AT} (the GPU has fallen off the bus)" in mine.reason) == ("fail", True)
    mine = judged(log(unread))
    assert (mine.verdict, "the line cannot be read" in mine.reason) == ("not-measured", True)
    assert meaning("lost", None, "").meaning == "replace"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([line(145, words="RLW Nonfatal XC0"), line(145, at_s=71, words="RLW Fatal XC0")], "an NVLink error"),
        (
            [
                line(154, words="GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"),
                line(154, at_s=71, words="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
            ],
            "GPU Reset Required",
        ),
        (
            [
                line(24007, words="Non-fatal, Link 4", kind="sxid"),
                line(24007, at_s=71, words="Fatal, Link 4", kind="sxid"),
            ],
            "a fatal error of an NVSwitch",
        ),
    ],
)
def test_an_event_is_as_grave_as_the_gravest_of_its_lines(lines: list[dict[str, Any]], said: str) -> None:
    mine = judged(log(*lines))
    assert (mine.verdict, said in mine.reason) == ("fail", True), mine.reason


@pytest.mark.parametrize(("how", "verdict"), [("Non-fatal", "pass"), ("Fatal", "fail"), ("", "not-measured")])
def test_lines_that_a_switchs_driver_adds_change_no_meaning(how: str, verdict: str) -> None:
    """As NVIDIA's Fabric Manager user guide prints them."""
    words = ("Severity 0 Engine instance 44 Sub-engine instance 00", "Data {0x00000000, 0x00000000, 0x80000000}")
    first = f"{how}, Link 44 sourcetrack timeout error (First)" if how else words[0]
    lines = [line(24007, at_s=70 + n / 1e3, words=text, kind="sxid") for n, text in enumerate((first, *words))]
    mine = judged(log(*lines))
    assert mine.verdict == verdict, mine.reason
