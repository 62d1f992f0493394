"""Faults of a lab's storage: a node whose reading and writing is slow, and one whose mount does not answer.

Slow by the kernel's own limit of the block layer, on the node's cgroup: what direct I/O of that node moves, of no
other. Without an answer by a FUSE file system on top of the shared folder, whose server never answers: anyone who
touches it waits, as at a hard NFS mount whose server is gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.host import detect
from toolkit.lab.nodes import CGROUP, SHARED, shared_folder, unit_name
from toolkit.lab.sh import run
from toolkit.lab.spec import STORAGE_GB_S, LabSpec, NodeSpec

SLOW_GB_S = STORAGE_GB_S / 4
"""So little that no busy machine is as slow, and so much that every step of a measurement still ends in its time."""
BLOCK = Path("/sys/dev/block")
LIMITS = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
"""Of cgroup v1. On v2 systemd sets `io.max`."""
UNIT = "elastic-ai-lab-fault"
SOURCE = "elastic-ai-lab-fault"

SERVER = f'''
import ctypes, os, signal, sys
file = os.open("/dev/fuse", os.O_RDWR)
words = f"fd={{file}},rootmode=40000,user_id=0,group_id=0,allow_other"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"{SOURCE}", b"{SHARED}", b"fuse", 6, words.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
signal.pause()
'''
"""Mounts (nosuid, nodev) and reads no question that the kernel asks. Its end is that of the mount's silence."""

HANG = f"""[ -e /dev/fuse ] || mknod -m 600 /dev/fuse c 10 229
cat >"$kept/server.py" <<'END'{SERVER}END
systemd-run --quiet --collect --unit={UNIT} python3 "$kept/server.py"
for _ in $(seq 50); do
    if grep -q ' - fuse {SOURCE} ' /proc/self/mountinfo; then exit 0; fi
    sleep 0.1
done
echo 'no FUSE file system could be mounted here' >&2
exit 1
"""
ANSWER = f"""systemctl stop {UNIT}.service 2>/dev/null || true
while grep -q ' {SHARED} .* - fuse {SOURCE} ' /proc/self/mountinfo; do umount --lazy {SHARED}; done
rm -f "$kept/server.py"
"""


@dataclass(frozen=True)
class StorageFault:
    """What it does, in words, words of the judgement that names it, and the criteria that find it."""

    about: str
    words: str
    found_by: tuple[str, ...]


STORAGE_FAULTS = {
    "storage-slow": StorageFault(
        f"the node reads and writes its storage at {SLOW_GB_S:g} GB/s, a quarter of what was ordered",
        "is below the floor",
        ("st.read", "st.write"),
    ),
    "storage-hangs": StorageFault(
        f"{SHARED} does not answer on the node: anyone who touches it waits", "did not answer", ("st.read",)
    ),
}


def disk(spec: LabSpec) -> str:
    """The disk that the lab's shared folder is on, `253:0`. LabError where it is on none that can be limited."""
    device = shared_folder(spec).stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    place = BLOCK / number
    if not place.exists():
        raise LabError(f"{shared_folder(spec)} is on no disk of its own ({number}), so that nothing limits it")
    if (place / "partition").exists():
        return (place.resolve().parent / "dev").read_text().strip()
    return number


def limit(spec: LabSpec, node: NodeSpec, bytes_per_s: int | None) -> None:
    """Let the node read and write so many bytes a second of the lab's disk; None: as many as the disk can."""
    number = disk(spec)
    if detect().systemd:
        rate = "infinity" if bytes_per_s is None else str(bytes_per_s)
        where = (BLOCK / number).resolve().name
        words = [f"{way}=/dev/{where} {rate}" for way in ("IOReadBandwidthMax", "IOWriteBandwidthMax")]
        run(["systemctl", "set-property", "--runtime", unit_name(spec.name, node.name), *words])
        return
    top = CGROUP / "blkio" / "elastic-ai-lab" / spec.name / node.name
    if not (top / LIMITS[0]).exists():
        raise LabError(f"this machine's cgroups limit no disk (there is no {top / LIMITS[0]})")
    for folder, _, _ in os.walk(top):  # on v1 a group is limited by itself alone
        for name in LIMITS:
            with contextlib.suppress(FileNotFoundError):  # a group may go meanwhile
                (Path(folder) / name).write_text(f"{number} {bytes_per_s or 0}")


Act = Callable[[LabSpec, NodeSpec, Callable[[str], None]], None]


def acts(kind: str, script: Callable[[str], Act]) -> tuple[Act, Act]:
    """How a fault is planted and cleared; `script` runs a text on the node."""
    if kind == "storage-hangs":
        return script(HANG), script(ANSWER)
    slow = round(SLOW_GB_S * 1e9)
    return lambda spec, node, say: limit(spec, node, slow), lambda spec, node, say: limit(spec, node, None)
