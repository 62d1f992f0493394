"""Who may open the device files of this server's GPUs: root, one group, and users who are let in one by one.

The units of leases have the group, so a lease reaches a GPU through its engine alone: whatever its owner starts on the
server himself (a step in the lease's job, a job beside it, a login) cannot open the device. Owners of native jobs are
let in by an access list on the files of their GPUs while the job runs (module native).

Instances of a GPU that is divided by MIG have files of their own, and owners of programs on the server are let in to
those of their instance.

/dev/nvidia-uvm stays as it is: nvidia-modprobe, which every user may run, gives it back to all, and without
/dev/nvidiaN it reaches no GPU. Emulated GPUs of a lab are one file for all of them.
"""

from __future__ import annotations

import errno
import grp
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

GROUP = "elastic-ai-gpu"
DEV = Path("/dev")
EMULATED = Path("/dev/shm/elastic-ai-devices")  # noqa: S108 - the name is the lab's; what lies there is looked at
#: How the driver, and nvidia-modprobe for any user, makes device files: options NVreg_DeviceFile... of the module.
PARAMS = Path("/proc/driver/nvidia/params")
#: Which device file admits to an instance: NVIDIA Multi-Instance GPU User Guide, "Device Nodes and Capabilities".
CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
MODE, MODE_OF_ALL, MODE_OF_INSTANCES = 0o660, 0o666, 0o444
_OTHERS = stat.S_IROTH | stat.S_IWOTH
_XATTR = "system.posix_acl_access"
#: linux/posix_acl_xattr.h: a version, then (tag, permissions, id) in the order of the tags.
_VERSION, _OWNER, _USER, _OWNING_GROUP, _MASK, _OTHER, _NOBODY = 2, 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
_READ_WRITE = 6


def files() -> dict[Path, int | None]:
    """Device files by the GPU that they are of; None: of all GPUs. Nothing that a user could have put there."""
    found: dict[Path, int | None] = {DEV / "nvidiactl": None, EMULATED: None}
    found |= {p: int(p.name[6:]) for p in sorted(DEV.glob("nvidia[0-9]*")) if p.name[6:].isdigit()}
    return {path: index for path, index in found.items() if _is_device(path)}


def _is_device(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISCHR(seen.st_mode) or (path == EMULATED and stat.S_ISREG(seen.st_mode) and seen.st_uid == 0)


def access_list(uids: Iterable[int]) -> bytes:
    """An access list as the kernel takes it: owner, group and these users read and write, others nothing."""
    entries = [(_OWNER, _READ_WRITE, _NOBODY)]
    entries += [(_USER, _READ_WRITE, uid) for uid in sorted(set(uids))]
    entries += [(_OWNING_GROUP, _READ_WRITE, _NOBODY), (_MASK, _READ_WRITE, _NOBODY), (_OTHER, 0, _NOBODY)]
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _list_of(path: Path) -> bytes:
    try:
        return os.getxattr(path, _XATTR)
    except OSError as fault:
        if fault.errno in (errno.ENODATA, errno.ENOTSUP):
            return b""
        raise


def _set(path: Path, gid: int, mode: int, uids: set[int]) -> None:
    """Bring a file to that; nothing is written where it is so already."""
    wanted = access_list(uids) if uids else b""
    if not wanted and _list_of(path):
        os.removexattr(path, _XATTR)
    seen = path.stat()
    if (seen.st_uid, seen.st_gid) != (0, gid):
        os.chown(path, 0, gid)
    if stat.S_IMODE(seen.st_mode) != mode:
        path.chmod(mode)
    if wanted and _list_of(path) != wanted:
        os.setxattr(path, _XATTR, wanted)


def keep(users: Mapping[int, Iterable[int]], services: Iterable[int] = ()) -> list[str]:
    """Close all device files but to root, the group, `users` (uids by the index of their GPU) and `services` (uids
    that may open all). What could not be done, in words."""
    try:
        gid = grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return [f"there is no group {GROUP} on this server; run site.yml again"]
    left = []
    for path, index in files().items():
        of_index = users.values() if index is None else [users.get(index, ())]
        try:
            _set(path, gid, MODE, {*services, *(uid for uids in of_index for uid in uids)})
        except OSError as fault:
            left.append(f"{path}: {fault.strerror}")
    return left


def _instance_file(instance_access: Path) -> Path | None:
    """The device file that an `access` file of a MIG instance is about; None where there is none (yet)."""
    minor = re.search(r"^DeviceFileMinor: (\d+)$", instance_access.read_text(), re.MULTILINE)
    path = DEV / "nvidia-caps" / f"nvidia-cap{minor[1]}" if minor else None
    return path if path is not None and _is_device(path) else None


def keep_instances(users: Mapping[str, Iterable[int]]) -> list[str]:
    """Close the device files of all MIG instances but to root, the group and `users` (uids by the path of the file).
    What could not be done, in words.

    The driver makes them open to all; that nvidia-modprobe, which every user may run, leaves them closed is said to the
    driver by a line in the instance's own file in /proc (nv-caps.c of the driver's open modules).
    """
    try:
        gid = grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return [f"there is no group {GROUP} on this server; run site.yml again"]
    left = []
    for access in sorted(CAPABILITIES.glob("gpu*/mig/gi*/**/access")):
        try:
            path = _instance_file(access)
            if path is not None:
                access.write_text("DeviceFileModify: 0\n")
                _set(path, gid, MODE, set(users.get(str(path), ())))
        except OSError as fault:
            left.append(f"{access}: {fault.strerror}")
    return left


def instance_files() -> dict[Path, int | None]:
    """Device files of MIG instances by the GPU that they are of."""
    found: dict[Path, int | None] = {}
    for access in sorted(CAPABILITIES.glob("gpu*/mig/gi*/**/access")):
        try:
            path = _instance_file(access)
        except OSError:
            continue  # it was taken away meanwhile
        if path is not None:
            number = access.relative_to(CAPABILITIES).parts[0][3:]
            found[path] = int(number) if number.isdigit() else None
    return found


def _open_instances() -> list[str]:
    left = []
    for access in sorted(CAPABILITIES.glob("gpu*/mig/gi*/**/access")):
        try:
            path = _instance_file(access)
            if path is not None:
                _set(path, 0, MODE_OF_INSTANCES, set())
                access.write_text("DeviceFileModify: 1\n")
        except OSError as fault:
            left.append(f"{access}: {fault.strerror}")
    return left


def open_again() -> list[str]:
    """Give the device files back to all users, as the driver makes them. What could not be done, in words."""
    left = []
    for path in files():
        try:
            _set(path, 0, MODE_OF_ALL, set())
        except OSError as fault:
            left.append(f"{path}: {fault.strerror}")
    return left + _open_instances()


def gaps() -> list[str]:
    """What lets any user pass, in words: device files of GPUs that are open to all, a driver that would open them."""
    found = [f"{path} is open to all users" for path in files() if path.stat().st_mode & _OTHERS]
    try:
        told = dict(re.findall(r"^(\w+): (\d+)$", PARAMS.read_text(), re.MULTILINE))
    except OSError:
        return found
    if told.get("ModifyDeviceFiles", "1") != "0" and int(told.get("DeviceFileMode", MODE_OF_ALL)) & _OTHERS:
        found.append("the driver opens device files to all users until it is reloaded (restart the server)")
    return found
