"""README.txt of a package: what an engineer of the vendor reads first, without this toolkit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.support.measured import LastRun, row_lines
from toolkit.support.package import Package
from toolkit.support.parts import Part
from validation.base import bounded
from validation.base.counting import number_of

WIDTH = 100
MOST_LINES = 20
MOST_ROWS = 20
FOLDERS = {
    "part/": "log lines, registers and tools' output of the part alone",
    "node/logs/": "kernel and driver: driver-lines.txt has Xid, AER, mlx5, EDAC and machine checks of all boots",
    "node/hardware/": "PCI, DMI, drives, event log by IPMI",
    "node/gpu/": "nvidia-smi, NVLink, fabric manager",
    "node/network/": "ports: driver and firmware, link, counters, transceiver",
    "node/system/": "operating system, kernel, packages",
    "node/reports/": "nvidia-bug-report.sh and sosreport",
    "bmc/": "the server's controller by Redfish: event log, inventory, firmware, sensors",
    "run/": "the last acceptance run: values, bounds, verdicts, beside those of other nodes",
    "toolkit/": "records on the node: what was installed, state, ledgers, leases of GPUs",
    "controller/": "what the installing machine knows of the node",
}


@dataclass(frozen=True)
class Told:
    """What the README begins with. `events`: of the BMC's log, None where it was not read."""

    node: str
    word: str
    part: Part | None
    parts: Sequence[Part]
    made: str
    release: str
    faults: Mapping[str, str]
    events: Sequence[Mapping[str, Any]] | None = None


def readme(told: Told, package: Package, last: LastRun) -> str:
    """The text."""
    lines = [f"Support package of {told.node}" + (f", part {told.word}" if told.word else ""), ""]
    lines += [f"Made {told.made} by Elastic AI Toolkit {told.release}.", ""]
    lines += _part(told)
    for what, why in told.faults.items():
        lines.append(f"NOT READ: {what}: {why}")
    lines += ["", *_measured(told, last), *_log(package), *_events(told), *_contents(package), *_missing(package)]
    return "\n".join(lines) + "\n"


def _heading(words: str) -> list[str]:
    return ["", words, "-" * len(words)]


def _part(told: Told) -> list[str]:
    server = next((part for part in told.parts if part.kind == "server"), None)
    lines = [f"Server: {str(server).removeprefix('server, ')}"] if server is not None else []
    if told.part is not None:
        lines.append(f"Part:   {told.part}")
        lines.append(f"        listed by: {', '.join(told.part.seen_by)}")
        if "node" not in told.part.seen_by and not told.faults.get("node"):
            lines.append("        THE NODE ITSELF DOES NOT LIST IT NOW")
    elif told.word:
        lines.append(f"Part:   {told.word}: nobody who could be asked lists it")
    return lines


def _measured(told: Told, last: LastRun) -> list[str]:
    lines = _heading("What the last run measured")
    if last.run is None:
        return [*lines, "There is no judged run of this node on the controller."]
    bad = [row for row in last.rows if row.bad]
    lines.append(f"Run {last.run.folder.name}: {len(last.rows)} judgements of this node, {len(bad)} did not pass.")
    mine = set(told.part.interfaces) if told.part else set()
    for row in sorted(bad, key=lambda row: not mine.intersection(row.ports))[:MOST_ROWS]:
        lines += row_lines(row)
    if len(bad) > MOST_ROWS:
        lines.append(f"... and {len(bad) - MOST_ROWS} more")
    return [*lines, "All of them: run/measurements.txt"]


def _log(package: Package) -> list[str]:
    entry = next((package.entries[name] for name in ("part/log-lines.txt", "part/dmesg-lines.txt",
                                                    "node/logs/driver-lines.txt") if name in package.entries
                  and package.entries[name].size), None)  # fmt: skip
    if entry is None:
        return [*_heading("Log lines of kernel and driver"), "None were found, or the log could not be read."]
    newest = entry.path.read_bytes()[-(1 << 16) :].decode("utf-8", "replace").splitlines()[-MOST_LINES:]
    return [*_heading(f"Log lines of kernel and driver: the newest of {entry.name}"), *newest]


def _events(told: Told) -> list[str]:
    """The newest entries of the BMC's event log that report something."""
    if told.events is None:
        return []
    wrong = [one for one in told.events if one.get("severity") not in (None, "OK")]
    newest = sorted(wrong, key=lambda one: str(one.get("at")))[-MOST_LINES:]
    lines = [f"{one.get('at')}  {one.get('severity')}  {one.get('message')}" for one in newest]
    return [*_heading("The BMC's event log: the newest entries that are not OK"), *(lines or ["There is none."])]


def _contents(package: Package) -> list[str]:
    lines = _heading("What is in this file")
    for folder, words in FOLDERS.items():
        count = sum(name.startswith(folder) for name in package.entries)
        if count:
            lines.append(f"{folder:<16} {number_of(count, 'file'):<9}  {words}")
    return [*lines, "manifest.json lists each file with its size, SHA-256, source and time, and everything below."]


def _missing(package: Package) -> list[str]:
    lines = _heading("What was left out, cut, or could not be read")
    lines += [f"could not be read: {one['what']}: {one['why']}" for one in package.unreads]
    lines += [f"left out: {one['what']}: {one['why']}" for one in package.left]
    lines += [
        f"cut: {entry.name}: {entry.kept}" for _, entry in sorted(package.entries.items()) if entry.kept != "whole"
    ]
    lines += [f"note: {entry.name}: {entry.note}" for _, entry in sorted(package.entries.items()) if entry.note]
    secrets = ", ".join(f"{count} x {what}" for what, count in sorted(package.hidden.items()))
    lines.append(f'Secrets are looked for and replaced by "...": {secrets or "none was found"}.')
    return lines


def size_words(size: int) -> str:
    """`3.2 MiB`."""
    return f"{size / bounded.MIB:.1f} MiB" if size >= bounded.MIB else f"{size / 1024:.0f} KiB"


Head = Mapping[str, Any]
