"""The folder of a storage that is measured: what it is, whether it may be written to, and our own folder in it.

What touches a storage runs in a process of its own, for a mount that hangs stops whoever touches it: see
`storage_watch`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

OURS = ".toolkit-storage-"
MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})
SYSTEM = frozenset({"dev", "proc", "sys", "boot", "run", "etc", "usr"})
LEAST_LEFT = 256 << 20  # bytes that stay free beside what is written. Project default
LEAST_INODES = 1000
MARK = "owner.json"
OTHERS_WRITE = 0o022
PROC = Path("/proc")
MACHINE_ID = Path("/etc/machine-id")
BDI = Path("/sys/class/bdi")


class Refused(Exception):
    """Nothing is written here; the words say why."""


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def mount_of(path: str, table: str) -> dict[str, str]:
    """Device, type, source and options of the mount that `path` (resolved) is on, by the kernel's table of mounts."""
    best: tuple[int, dict[str, str]] = (-1, {"device": "", "filesystem": "", "source": "", "options": ""})
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 6 or len(right) < 3:
            continue
        point = _unescaped(left[4])
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= best[0]:  # of two on one point the later one is on top
            options = ",".join(dict.fromkeys([*left[5].split(","), *right[2].split(",")]))
            best = len(point), {
                "device": left[2], "filesystem": right[0], "source": _unescaped(right[1]), "options": options,
            }  # fmt: skip
    return best[1]


def readahead_kb(device: str) -> int | None:
    """What the kernel reads ahead of a mount, in KiB; None where it does not say."""
    try:
        return int((BDI / device / "read_ahead_kb").read_text())
    except (OSError, ValueError):
        return None


def looked_at(path: str, wanted: str | None) -> dict[str, Any]:
    """What is at `path`; Refused where it is no folder that may be written to, or not the file system `wanted`."""
    try:
        found = os.stat(path)  # noqa: PTH116  # one look, whatever it is
    except FileNotFoundError:
        raise Refused(f"{path} does not exist on this node") from None
    except OSError as fault:
        raise Refused(f"{path}: {fault.strerror}") from None
    if stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode):
        raise Refused(f"{path} is a device, and only folders are measured: nothing was written")
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{path} is no folder")
    real = os.path.realpath(path)
    if real == "/" or real.split("/")[1] in SYSTEM:
        raise Refused(f"{path} leads to {real}, a folder of the system: nothing was written")
    mount = mount_of(real, (PROC / "self/mountinfo").read_text())
    if mount["filesystem"] in MEMORY:
        raise Refused(f"{path} is in memory ({mount['filesystem']}), and no storage")
    if wanted is not None and mount["filesystem"] != wanted:
        raise Refused(
            f"{path} is on {mount['filesystem']} ({mount['source']}), the inventory wants {wanted}: is it mounted?"
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise Refused(f"{path} cannot be written to by this user")
    return {**mount, "read_ahead_kb": readahead_kb(mount["device"])}


def room(path: str, need_bytes: int, need_files: int) -> dict[str, int]:
    """How much room there is; Refused where it is too little."""
    found = os.statvfs(path)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    if free < need_bytes + LEAST_LEFT:
        need = f"{need_bytes / 1e9:.3g} GB to be written and {LEAST_LEFT / 1e9:.2g} GB left over"
        raise Refused(f"{path} has too little room: {free / 1e9:.3g} GB free, needed are {need}; nothing was written")
    if found.f_files and found.f_favail < need_files + LEAST_INODES:
        raise Refused(f"{path} has room for {found.f_favail} more files, needed is one for {need_files + LEAST_INODES}")
    return {"free_bytes": free, "total_bytes": total}


def _machine() -> str:
    try:
        return MACHINE_ID.read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this machine began, in the kernel's ticks; "" where there is none."""
    try:
        return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def mark(folder: Path) -> None:
    """Say whose the folder is, so that a later run on this machine can remove what a killed one left."""
    pid = os.getpid()
    (folder / MARK).write_text(json.dumps({"machine": _machine(), "pid": pid, "started": _started(pid)}))


def ours_and_dead(folder: Path) -> bool:
    """Whether a folder was made by a run on this machine that is no longer there."""
    try:
        owner = json.loads((folder / MARK).read_text())
        mine = owner["machine"] == _machine() and bool(owner["machine"])
        return mine and (_started(int(owner["pid"])) != owner["started"] or not owner["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def clear(path: str) -> list[str]:
    """Remove what killed runs of this machine left below `path`; the folders that were removed."""
    gone = []
    for whole in sorted(Path(path).glob(f"{OURS}*")):
        if whole.is_symlink() or not whole.is_dir():
            continue
        for folder in sorted(whole.iterdir()):
            if folder.is_dir() and not folder.is_symlink() and ours_and_dead(folder):
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(f"{whole.name}/{folder.name}")
        with contextlib.suppress(OSError):
            whole.rmdir()  # where it is empty
    return gone


class Own:
    """Our folder in a storage, for this node. It is removed however the work ends; TERM ends it as an exception."""

    def __init__(self, path: str, token: str, node: str) -> None:
        """`token` names the measurement, and is the same on all nodes."""
        self.whole = Path(path) / f"{OURS}{token}"
        self.folder = self.whole / f"node-{node}"
        self.meet = self.whole / "meet"

    def __enter__(self) -> Own:
        """Make it; Refused where another run has it."""
        for _ in range(20):
            with contextlib.suppress(FileExistsError):
                self.whole.mkdir(mode=0o700)
            if self.whole.is_symlink() or (self.whole.exists() and not self.whole.is_dir()):
                raise Refused(f"{self.whole} is no folder: somebody put it there; remove it")
            try:
                self.folder.mkdir(mode=0o700)
                break
            except FileNotFoundError:  # another node removed the empty folder meanwhile
                continue
            except FileExistsError:
                raise Refused(f"{self.folder} is there: another run measures here, or left it; remove it") from None
        whole, mine = (path.lstat() for path in (self.whole, self.folder))
        if whole.st_uid != mine.st_uid or stat.S_IMODE(whole.st_mode) & OTHERS_WRITE:
            self.folder.rmdir()
            raise Refused(f"{self.whole} is somebody else's, who could lead what is written elsewhere; remove it")
        mark(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it, and the folder of all nodes where nothing else is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.whole.rmdir()
