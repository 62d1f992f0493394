"""What runs on the node for `toolkit support`: bounded, given up where it hangs, and changes nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from toolkit.support import node, package, reports, secret_filter
from validation.base.project import ROOT
from validation.probes import support_files, support_parts, support_run, support_sources
from validation.probes.support_run import Kept, read, run


def text(kept: Kept) -> bytes:
    return b"".join(kept.pieces())


def test_of_too_much_the_newest_or_the_first_is_kept() -> None:
    count = ["seq", "1", "100000"]
    newest = run(count, most=1000, newest=True)
    assert (text(newest)[-7:], newest.size, newest.total) == (b"100000\n", 1000, 588895)
    first = run(["seq", "1", "1000"], most=1000)
    assert (text(first)[:4], first.size, first.total) == (b"1\n2\n", 1000, 3893)


def test_what_prints_without_an_end_is_ended() -> None:
    endless = run(["yes"], most=1000, timeout_s=60)
    assert endless.size == 1000
    assert "ended" in endless.note


def test_what_says_nothing_is_ended_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_run, "GIVE_UP_S", 0.5)
    assert (
        run(["sleep", "60"], timeout_s=0.3).unread
        == "sleep: ended after 0.3 s, before its own end, and printed nothing"
    )
    late = run(["sh", "-c", "echo half; (sleep 60)"], timeout_s=0.5)
    assert (text(late), late.note) == (b"half\n", "ended after 0.5 s, before its own end")


def test_a_program_that_cannot_be_ended_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi beside a GPU that has fallen off the bus; here KILL is not sent."""
    monkeypatch.setattr(support_run, "GIVE_UP_S", 0.3)
    monkeypatch.setattr(support_run, "_HUNG", {})
    monkeypatch.setattr(support_run.os, "killpg", lambda *_: None)
    assert "cannot be ended" in run(["sleep", "3"], timeout_s=0.2).unread
    assert run(["sleep", "3"]).unread == "not run: sleep 3 hangs and cannot be ended"


def test_a_tool_that_is_missing_or_fails_is_reported() -> None:
    assert run(["no-such-tool"]).unread == "no-such-tool is not installed on this node"
    assert run(["false"]).unread == "false: ended with exit status 1, and printed nothing"
    assert run(["sh", "-c", "echo x; exit 3"]).note == "ended with exit status 3"


def test_only_wanted_lines_are_kept() -> None:
    kept = run(["printf", "a Xid\\nb\\nc xid end"], wanted=re.compile(rb"xid", re.IGNORECASE))
    assert text(kept) == b"a Xid\nc xid end\n"


def test_no_link_pipe_or_device_is_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert "is a link" in read(tmp_path / "link").unread
    assert read(tmp_path / "pipe").unread == "is no plain file"
    assert read(Path("/dev/zero")).unread == "is no plain file"
    assert read(tmp_path / "none").unread == "No such file or directory"
    (tmp_path / "large").write_bytes(b"a" * 50 + b"b" * 50)
    assert text(read(tmp_path / "large", 50, newest=True)) == b"b" * 50
    assert (text(read(tmp_path / "large", 50)), read(tmp_path / "large", 50).total) == (b"a" * 50, 100)
    assert "at most" in read(tmp_path / "large", 50, whole=True).unread


def test_records_are_taken_and_no_token_among_them(tmp_path: Path) -> None:
    lease = tmp_path / "run/elastic-ai/leases/17"
    lease.mkdir(parents=True)
    for name in ("instance.json", "token", "peer-token", "endpoint.json", "ending"):
        (lease / name).write_text(name)
    ledger = tmp_path / "var/lib/elastic-ai/ledger"
    ledger.mkdir(parents=True)
    (ledger / "slurm.files.json").write_text("{}")
    (ledger / "planted.json").symlink_to("/etc/shadow")
    found = dict(support_files.files(tmp_path))
    assert {name for name, kept in found.items() if not kept.unread} == {
        "toolkit/leases/17/instance.json", "toolkit/leases/17/ending", "toolkit/state/ledger/slurm.files.json",
    }  # fmt: skip
    assert "is a link" in found["toolkit/state/ledger/planted.json"].unread


def test_a_gpu_that_nvidia_smi_does_not_list_is_a_part(tmp_path: Path) -> None:
    function = tmp_path / "sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0"
    function.mkdir(parents=True)
    (function / "vendor").write_text("0x10de\n")
    (function / "class").write_text("0x030200\n")
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:3b:00.0").symlink_to(function)
    slot = tmp_path / "sys/bus/pci/slots/31"
    slot.mkdir(parents=True)
    (slot / "address").write_text("0000:3b:00\n")
    proc = tmp_path / "proc/0000:3b:00.0"
    proc.mkdir(parents=True)
    (proc / "information").write_text("Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-????????\nVideo BIOS: \t ??.??\n")
    assert support_parts.kernel_gpus(tmp_path / "sys", tmp_path / "proc") == [
        {"kind": "gpu", "pci": "0000:3b:00.0", "above": ["0000:3a:01.0"], "slot": "31", "model": "NVIDIA H200",
         "uuid": None, "firmware": None}
    ]  # fmt: skip


def test_lines_of_nvidia_smi_that_are_no_gpu_are_left_out() -> None:
    said = "3, GPU-1, 165, 00000000:3B:00.0, NVIDIA H200, 96.00\nUnable to determine the device handle for GPU 4\n"
    assert [(one["index"], one["pci"]) for one in support_parts.listed_gpus(said)] == [(3, "0000:3b:00.0")]


def test_a_bug_report_that_hangs_is_made_in_safe_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin/nvidia-bug-report.sh"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\n[ "$1" = --safe-mode ] || exec sleep 60\n'
        'while [ $# -gt 1 ]; do [ "$1" = --output-file ] && out=$2; shift; done\necho safe > "$out.gz"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(support_sources, "BUG_REPORT_S", 0.5)
    kept = next(iter(support_sources.reports(tmp_path))).read()
    assert (text(kept), "--safe-mode" in kept.source) == (b"safe\n", True)


def test_the_page_has_the_limits_that_are_kept() -> None:
    limits = (ROOT / "docs/how-to/support.md").read_text().partition("## Limits")[2]
    for words in (
        f"{support_run.MOST_BYTES >> 20} MiB, the first", f"{support_sources.LOG_BYTES >> 20} MiB, the newest",
        f"{support_sources.BUG_REPORT_S / 60:g} minutes, then {support_sources.SAFE_MODE_S:g} seconds in its safe "
        f"mode; {support_sources.BUG_REPORT_BYTES >> 20} MiB, unpacked {reports.TEXT_BYTES >> 20} MiB",
        f"{support_sources.SOS_S / 60:g} minutes; {support_sources.SOS_BYTES >> 20} MiB, unpacked "
        f"{reports.UNPACKED_BYTES >> 30} GiB, a file in it {reports.MEMBER_BYTES >> 20} MiB; "
        f"{support_sources.SOS_ROOM_BYTES >> 30} GiB have",
        f"{support_run.TIMEOUT_S:g} seconds, a log {support_sources.LOG_TIMEOUT_S:g};",
        f"{secret_filter.ONE_LOOK_S / 60:g} minutes a file, {secret_filter.ALL_LOOKS_S / 60:g} minutes in all",
        f"more than {secret_filter.LONGEST_LINE >> 10} KiB",
        f"{node.ALL_S / 60:g} minutes; {package.ALL_BYTES >> 20} MiB, {package.MOST_FILES} files",
    ):  # fmt: skip
        assert words in limits, words
    assert max(support_run.MOST_BYTES, support_sources.LOG_BYTES) <= package.FILE_BYTES
    assert max(support_sources.SOS_BYTES, support_sources.BUG_REPORT_BYTES) <= package.REPORT_BYTES
