"""Xid lines of this node's kernel log: what the NVIDIA driver, and that of NVSwitches (SXid), reported of its devices,
GPUs that are lost without a number among them.

From /dev/kmsg, which tells each line's time since the start; where this user may not read it, from the journal. Nothing
else of the log is kept. A log without a single line is none: a container sees its host's not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from validation.probes.tool import run_tool

KMSG = "/dev/kmsg"
BOOT = Path("/proc/sys/kernel/random/boot_id")
JOURNAL = ("journalctl", "--dmesg", "--boot", "--output=json", "--output-fields=MESSAGE", "--no-pager", "--quiet")
TIMEOUT_S = 60.0
MOST = 1000  # lines that are kept, the newest: a storm is told by its number
#: As NVIDIA's documents print them: "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus.", of a part
#: of a GPU "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:02): 94, ...", of drivers before 195 "NVRM: Xid (0003:00): 13",
#: of a switch "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 ...".
XID = re.compile(
    r"(?P<switch>S)?Xid \((?:PCI:)?(?P<address>[0-9A-Fa-f:.]+)(?:[ ,][^()]*)?\): (?P<code>\d{1,6})\b,?\s*(?P<words>.*)"
)
#: A line that begins as one of these and goes on in another way: told, as one that nobody here can read.
LIKE_XID = re.compile(r"(?:NVRM: |nvidia-nvswitch\d*: )(?P<switch>S)?Xid\b(?P<words>.*)", re.IGNORECASE)
#: A GPU that is lost, in a line that has no number: "NVRM: GPU 0000:dc:00.0: GPU has fallen off the bus.", "NVRM: GPU
#: at 0000:dc:00.0 has fallen off the bus.", "NVRM: The NVIDIA GPU 0000:dc:00.0 (PCI ID: 10de:2330) installed in this
#: system has fallen off the bus and is not responding to commands.", "NVRM: nvCheckOkFailedNoLog: Check failed: GPU
#: lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from ...".
LOST = re.compile(
    r"(?:NVRM|nvidia)\b.*?(?P<words>(?:GPU )?(?:has )?fallen off the bus\b.*|GPU (?:is|has been) lost\b.*"
    r"|GPU lost from the bus\b.*)"
)
_ADDRESS = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?(?![0-9A-Fa-f])")
#: The begin of the last of these, where the driver writes it as lines of their own.
_BEGUN = re.compile(r"NVRM: The NVIDIA GPU [0-9A-Fa-f:.]+(?: \(PCI ID: [^)]*\))?(?: installed in this system has)?$")
_ON = re.compile(r"NVRM: +(?P<rest>\(PCI ID.*|installed in this system.*|fallen off the bus.*)")
#: kmsg: "level,sequence,microseconds,flags;message"; the flag "+" is of a line's further pieces.
_RECORD = re.compile(r"\d+,\d+,(?P<at>\d+),(?P<flag>[^,;]*)[^;]*;(?P<message>.*)")
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})")
FALLEN = 79  # Xid of a GPU that has fallen off the bus
SAME_S = 180.0  # a line without a number that comes so soon beside one with it says the same


def address_of(text: str) -> str:
    """`0000:3b:00.0` of each form: without domain or function, with a domain of eight digits; as it is of another."""
    found = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", text.lower())
    if found is None:  # drivers before 195 write the bus in four digits: 0003:00
        old = re.fullmatch(r"00([0-9a-f]{2}):([0-9a-f]{2})", text.lower())
        return f"0000:{old[1]}:{old[2]}.0" if old else text.lower()
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}"


def xid(at_us: int, message: str) -> dict[str, Any] | None:
    """A line as XidLine; None where it is none of these."""
    found, code, address = XID.search(message), None, ""
    if found is not None:
        kind, code, address = "sxid" if found["switch"] else "xid", int(found["code"]), address_of(found["address"])
    else:
        found = LOST.search(message)
        kind = "lost"
        if found is not None:
            address = next((address_of(one) for one in _ADDRESS.findall(message, found.start())), "")
        else:
            found = LIKE_XID.search(message)
            if found is None:
                return None
            kind = "sxid" if found["switch"] else "xid"
    return {"at_us": at_us, "kind": kind, "code": code, "address": address, "words": found["words"].strip()[:300]}


def whole(lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The same lines, those that the driver wrote as several put together."""
    joined: list[tuple[int, str]] = []
    for at_us, message in lines:
        for line in message.splitlines():
            on = _ON.search(line)
            if on is not None and joined and _BEGUN.search(joined[-1][1]):
                joined[-1] = (joined[-1][0], f"{joined[-1][1]} {on['rest']}")
            else:
                joined.append((at_us, line.rstrip()))
    return joined


def events(lines: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
    """What is told of devices; a loss that Xid 79 tells too is told once."""
    found = [one for one in (xid(*line) for line in whole(lines)) if one is not None]
    fallen = [(one["address"], one["at_us"]) for one in found if (one["kind"], one["code"]) == ("xid", FALLEN)]

    def twice(one: dict[str, Any]) -> bool:
        return one["kind"] == "lost" and any(
            one["address"] in (address, "") and abs(one["at_us"] - at_us) <= SAME_S * 1e6 for address, at_us in fallen
        )

    return [one for one in found if not twice(one)]


def records(text: str) -> list[tuple[int, str]]:
    """(microseconds since the start, message) of each record of kmsg: escapes resolved, pieces of a line together."""
    found: list[tuple[int, str]] = []
    for line in text.split("\n"):
        record = _RECORD.match(line)
        if record is None:  # a record's properties, each behind a space
            continue
        message = _ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), record["message"])
        if record["flag"] == "+" and found:
            found[-1] = (found[-1][0], found[-1][1] + message)
        else:
            found.append((int(record["at"]), message))
    return found


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
    return records(b"".join(data).decode("utf-8", "replace"))


def read_journal() -> tuple[list[tuple[int, str]], str]:
    """The same of the journal, and why there is nothing, in words."""
    ran, found = run_tool(JOURNAL, timeout_s=TIMEOUT_S), []
    for line in ran.stdout.splitlines():
        try:
            entry = json.loads(line)
            found.append((int(entry["__MONOTONIC_TIMESTAMP"]), _text(entry.get("MESSAGE"))))
        except (ValueError, KeyError, TypeError):
            continue
    return found, ran.failure or ""


def _text(message: object) -> str:
    """The journal writes bytes that are no text as a list of numbers."""
    if isinstance(message, list):
        return bytes(one for one in message if isinstance(one, int) and 0 <= one < 256).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""


def collect(path: str = KMSG, journal: bool = True) -> dict[str, Any]:
    """The log as KernelLog."""
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
    found = events(lines)
    times = [at_us for at_us, _ in lines]
    return {
        "boot": BOOT.read_text().strip() if BOOT.is_file() else "",
        "oldest_us": min(times, default=None),
        "newest_us": max(times, default=None),
        "lines": found[-MOST:],
        "dropped": max(0, len(found) - MOST),
        "unread": "" if lines else why,
    }
