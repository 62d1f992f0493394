"""What `toolkit support` asks a node: a table of commands and logs. None of them changes anything."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import SYSFS
from validation.probes.support_run import MIB, MOST_BYTES, TIMEOUT_S, Kept, read, run

LOG_BYTES = 16 * MIB
"""Of a log, the newest. Project default."""
LOG_TIMEOUT_S = 90.0
BUG_REPORT_BYTES = 64 * MIB
SOS_BYTES = 256 * MIB
"""Of a report that another program packs, whole or not at all. Project defaults."""
BUG_REPORT_S = 240.0
SAFE_MODE_S = 90.0
SOS_S = 600.0
"""How long each may take. sos needs 2 to 8 minutes on a server with 8 GPUs by its plugins' own limits; project
default."""
SOS_ROOM_BYTES = 2048 * MIB
"""What has to be free where sosreport writes. Project default."""
MOST_PORTS = 32
#: Lines that drivers and the kernel write of hardware: NVIDIA, PCI errors, ConnectX, memory, machine checks, drives.
DRIVERS = re.compile(
    rb"NVRM|nvidia|S?Xid|AER:|PCIe Bus Error|pcieport|mlx[45]_|infiniband|rdma|bnxt_en|ice |EDAC|mce:|"
    rb"Machine check|Hardware Error|nvme|I/O error|link (?:is )?(?:down|up)|hung task|soft lockup|thermal|throttl",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Source:
    """A file of the package: where it comes from, in words, and how it is read."""

    file: str
    source: str
    read: Callable[[], Kept]


def _command(
    file: str,
    *words: str,
    newest: bool = False,
    most: int = MOST_BYTES,
    timeout_s: float = TIMEOUT_S,
    wanted: re.Pattern[bytes] | None = None,
) -> Source:
    def ask() -> Kept:
        return run(words, most=most, timeout_s=timeout_s, newest=newest, wanted=wanted)

    return Source(file, " ".join(words), ask)


def _file(file: str, path: str, newest: bool = False, most: int = MOST_BYTES) -> Source:
    return Source(file, path, lambda: read(Path(path), most, newest))


def _log(file: str, *words: str, wanted: re.Pattern[bytes] | None = None) -> Source:
    return _command(file, *words, newest=True, most=LOG_BYTES, timeout_s=LOG_TIMEOUT_S, wanted=wanted)


def _system() -> Iterator[Source]:
    yield _command("node/system/uname.txt", "uname", "-a")
    yield _file("node/system/os-release.txt", "/usr/lib/os-release")
    yield _command("node/system/uptime.txt", "uptime")
    yield _file("node/system/cmdline.txt", "/proc/cmdline")
    yield _file("node/system/modules.txt", "/proc/modules")
    yield _command("node/system/lscpu.txt", "lscpu")
    yield _file("node/system/meminfo.txt", "/proc/meminfo")
    yield _command("node/system/failed-units.txt", "systemctl", "--failed", "--no-pager", "--plain")
    yield _command("node/system/dkms.txt", "dkms", "status")
    if shutil.which("dpkg-query"):
        yield _command("node/system/packages.txt", "dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\\n")
    else:
        yield _command("node/system/packages.txt", "rpm", "-qa")
    yield _command("node/hardware/dmidecode.txt", "dmidecode")
    yield _command("node/hardware/lspci.txt", "lspci", "-Dvvnn")
    yield _command("node/hardware/lspci-tree.txt", "lspci", "-Dtvnn")
    yield _command("node/hardware/lsblk.txt", "lsblk", "-o", "NAME,TYPE,SIZE,MODEL,SERIAL,REV,TRAN")
    yield _command("node/hardware/ipmi-sel.txt", "ipmitool", "sel", "elist", newest=True)
    yield _command("node/slurm/node.txt", "scontrol", "show", "node", os.uname().nodename.partition(".")[0])


def _gpus() -> Iterator[Source]:
    yield _file("node/gpu/driver-version.txt", "/proc/driver/nvidia/version")
    yield _command("node/gpu/nvidia-smi.txt", "nvidia-smi")
    yield _command("node/gpu/nvidia-smi-q.txt", "nvidia-smi", "-q", timeout_s=60.0)
    yield _command("node/gpu/topology.txt", "nvidia-smi", "topo", "-m")
    yield _command("node/gpu/nvlink-status.txt", "nvidia-smi", "nvlink", "-s")
    yield _command("node/gpu/nvlink-errors.txt", "nvidia-smi", "nvlink", "-e")
    yield _log("node/gpu/fabricmanager.log", "journalctl", "--no-pager", "-o", "short-iso-precise", "-u",
               "nvidia-fabricmanager")  # fmt: skip


def _network(interfaces: list[str]) -> Iterator[Source]:
    yield _command("node/network/links.txt", "ip", "-d", "-s", "link", "show")
    yield _command("node/network/rdma-links.txt", "rdma", "-d", "link", "show")
    yield _command("node/network/ibstat.txt", "ibstat")
    yield _command("node/network/ibv_devinfo.txt", "ibv_devinfo", "-v")
    for name in interfaces:
        yield _command(f"node/network/{name}/driver.txt", "ethtool", "-i", name)
        yield _command(f"node/network/{name}/link.txt", "ethtool", name)
        yield _command(f"node/network/{name}/counters.txt", "ethtool", "-S", name)
        yield _command(f"node/network/{name}/module.txt", "ethtool", "-m", name)
        yield _command(f"node/network/{name}/fec.txt", "ethtool", "--show-fec", name)


def _interfaces(sysfs: Path = SYSFS) -> list[str]:
    """Interfaces with a card of their own, virtual functions left out."""
    nets = sorted((sysfs / "class/net").glob("*/device"))
    found = [one.parent.name for one in nets if not (one / "physfn").exists()]
    return [name for name in found if re.fullmatch(r"[A-Za-z0-9_.-]{1,15}", name)][:MOST_PORTS]


def _logs(pattern: re.Pattern[bytes] | None) -> Iterator[Source]:
    kernel = ("journalctl", "--no-pager", "-o", "short-iso-precise", "_TRANSPORT=kernel")
    if pattern is not None:
        yield _log("part/log-lines.txt", *kernel, wanted=pattern)
        yield _log("part/dmesg-lines.txt", "dmesg", wanted=pattern)
    yield _log("node/logs/driver-lines.txt", *kernel, wanted=DRIVERS)
    yield _log("node/logs/dmesg.txt", "dmesg")
    yield _log("node/logs/kernel-this-boot.txt", "journalctl", "-k", "-b", "--no-pager", "-o", "short-iso-precise")
    yield _log("node/logs/kernel-boot-before.txt", "journalctl", "-k", "-b", "-1", "--no-pager", "-o",
               "short-iso-precise")  # fmt: skip
    yield _log("node/logs/errors-this-boot.txt", "journalctl", "-b", "-p", "err", "--no-pager", "-o",
               "short-iso-precise")  # fmt: skip


def _part(part: dict[str, Any]) -> Iterator[Source]:
    """Of the part alone: its own tool, its own registers."""
    if part.get("pci"):
        yield _command("part/lspci.txt", "lspci", "-Dvvvnn", "-s", part["pci"])
        for address in part.get("above", ()):
            yield _command(f"part/lspci-above-{address.replace(':', '-')}.txt", "lspci", "-Dvvnn", "-s", address)
    if part.get("uuid"):
        yield _command("part/nvidia-smi-q.txt", "nvidia-smi", "-q", "-i", part["uuid"])
    if part.get("device"):
        yield _command("part/smartctl.txt", "smartctl", "-x", f"/dev/{part['device']}")
    if str(part.get("device", "")).startswith("nvme"):
        yield _command("part/nvme-error-log.txt", "nvme", "error-log", f"/dev/{part['device']}")


def sources(asked: dict[str, Any]) -> Iterator[Source]:
    """All commands and logs. `asked`: `part`, its fields as `support_parts` has them, and `lines`, its pattern."""
    part = asked.get("part") or {}
    pattern = re.compile(asked["lines"].encode(), re.IGNORECASE) if asked.get("lines") else None
    yield from _logs(pattern)
    yield from _part(part)
    yield from _system()
    yield from _network(_interfaces())
    yield from _gpus()


def _written(folder: Path, name: str, most: int, source: str, ran: Kept) -> Kept:
    """The newest plain file that a program wrote into its folder, whose name has `name` in it."""
    there = [path for path in folder.iterdir() if name in path.name and not path.is_symlink() and path.is_file()]
    there = [path for path in there if not path.name.endswith((".md5", ".sha256"))]
    if not there:
        said = b"".join(ran.pieces())[-300:].decode("utf-8", "replace").strip().splitlines()
        ended = ran.note or "ended without a report"
        return Kept(source, unread=ran.unread or f"{ended}: {said[-1] if said else 'it printed nothing'}")
    kept = read(max(there, key=lambda path: path.stat().st_mtime), most, whole=True)
    kept.source, kept.note = source, ran.note
    return kept


def _bug_report(folder: Path) -> Kept:
    """nvidia-bug-report.sh; once more in its safe mode where a GPU that does not answer keeps it from ending."""
    own = folder / "bug"
    own.mkdir()
    words = ["nvidia-bug-report.sh", "--output-file", str(own / "nvidia-bug-report.log")]
    ran = run(words, timeout_s=BUG_REPORT_S, newest=True, most=MIB, cwd=str(own))
    if ran.late:
        words.insert(1, "--safe-mode")
        again = own / "safe"
        again.mkdir()
        words[-1] = str(again / "nvidia-bug-report.log")
        ran = run(words, timeout_s=SAFE_MODE_S, newest=True, most=MIB, cwd=str(again))
        own = again
    return _written(own, "nvidia-bug-report", BUG_REPORT_BYTES, " ".join(words), ran)


def _sos(folder: Path) -> Kept:
    """`sos report`, or sosreport of older systems."""
    own = folder / "sos"
    own.mkdir()
    words = ["sos", "report"] if shutil.which("sos") else ["sosreport"]
    words += ["--batch", "--quiet", "--tmp-dir", str(own), "--plugin-timeout", "60", "--compression-type", "gzip"]
    source = " ".join(words)
    if shutil.which(words[0]) is None:
        return Kept(source, unread="sos is not installed on this node (neither sos nor sosreport)")
    about = os.statvfs(own)
    if about.f_bavail * about.f_frsize < SOS_ROOM_BYTES:
        return Kept(source, unread=f"not run: less than {SOS_ROOM_BYTES // MIB} MiB are free in {folder.parent}")
    ran = run(words, timeout_s=SOS_S, newest=True, most=MIB, cwd=str(own))
    return _written(own, ".tar", SOS_BYTES, source, ran)


def reports(folder: Path) -> tuple[Source, ...]:
    """Reports that other programs pack, in a folder that is removed afterwards."""
    return (
        Source("node/reports/nvidia-bug-report.log.gz", "nvidia-bug-report.sh", lambda: _bug_report(folder)),
        Source("node/reports/sosreport.tar.gz", "sos report", lambda: _sos(folder)),
    )
