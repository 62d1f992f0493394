"""Xid lines of this node's kernel log: what the NVIDIA driver, and that of NVSwitches (SXid), reported of its devices.

From /dev/kmsg, which tells each line's time since the start; where this user may not read it, from the journal. Nothing
else of the log is kept. A log without a single line is none: a container sees its host's not.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from validation.probes.tool import run_tool

KMSG = "/dev/kmsg"
BOOT = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = ("journalctl", "--dmesg", "--boot", "--output=json", "--output-fields=MESSAGE", "--no-pager", "--quiet")
TIMEOUT_S = 60.0
MOST = 1000  # lines that are kept, the newest: a storm is told by its number
#: As NVIDIA's documents print them: "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus.",
#: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 ...".
XID = re.compile(r"(?P<switch>S)?Xid \((?:PCI:)?(?P<address>[0-9A-Fa-f:.]+)\): (?P<code>\d{1,6})\b,?\s*(?P<words>.*)")
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")


def xid(at_us: int, message: str) -> dict[str, Any] | None:
    """A line as validation.facts.XidLine; None where it is none of these."""
    found = XID.search(message)
    if found is None:
        return None
    kind = "sxid" if found["switch"] else "xid"
    address = found["address"].lower()
    if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}", address):
        address += ".0"  # of GPUs the driver leaves the function out
    return {
        "at_us": at_us,
        "kind": kind,
        "code": int(found["code"]),
        "address": address,
        "words": found["words"].strip()[:300],
    }


def read_kmsg(path: str = KMSG) -> list[tuple[int, str]]:
    """(microseconds since the start, message) of every line; OSError where it may not be read."""
    descriptor, data = os.open(path, os.O_RDONLY | os.O_NONBLOCK), []
    try:
        while True:
            try:
                chunk = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the line was overwritten before it was read; the next read goes on after it
                continue
            if not chunk:
                break
            data.append(chunk)
    finally:
        os.close(descriptor)
    lines = b"".join(data).decode("utf-8", "replace").splitlines()
    records = (_RECORD.match(line) for line in lines)
    return [(int(record[1]), record[2]) for record in records if record is not None]


def read_journal() -> tuple[list[tuple[int, str]], str]:
    """The same of the journal, and why there is nothing, in words."""
    ran, found = run_tool(JOURNAL, timeout_s=TIMEOUT_S), []
    for line in ran.stdout.splitlines():
        try:
            entry = json.loads(line)
            found.append((int(entry["__MONOTONIC_TIMESTAMP"]), str(entry.get("MESSAGE", ""))))
        except (ValueError, KeyError, TypeError):
            continue
    return found, ran.failure or ""


def collect(path: str = KMSG, journal: bool = True) -> dict[str, Any]:
    """The log as validation.facts.KernelLog."""
    why, lines = "", []
    try:
        lines = read_kmsg(path)
        why = "" if lines else f"{path} is empty: a container does not see the kernel's log"
    except OSError as fault:
        why = f"{path}: {fault.strerror}: this user may not read the kernel's log" if fault.errno == 1 else ""
        why = why or f"{path}: {fault.strerror}"
    if not lines and journal:
        lines, fault_of_journal = read_journal()
        why = f"{why}; journal: {fault_of_journal or 'it shows no line of the kernel'}"
    found = [one for one in (xid(*line) for line in lines) if one is not None]
    times = [at_us for at_us, _ in lines]
    return {
        "boot": BOOT.read_text().strip() if BOOT.is_file() else "",
        "oldest_us": min(times, default=None),
        "newest_us": max(times, default=None),
        "lines": found[-MOST:],
        "dropped": max(0, len(found) - MOST),
        "unread": "" if lines else why,
    }
