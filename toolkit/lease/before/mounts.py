"""Folders that are on another machine: by what the kernel says of its mounts."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from toolkit.lease.before.offers import is_text

MOUNTS = Path("/proc/self/mountinfo")
#: Kinds whose source names the place for every machine that mounts it, and that an administrator mounts.
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "gpfs", "wekafs", "glusterfs", "fuse.glusterfs",
           "9p", "virtiofs", "orangefs", "pvfs2")  # fmt: skip
#: NFS 3 and 4 of one export are the same files.
_SAME = {"nfs4": "nfs", "smb3": "cifs"}


def _plain(word: str) -> str:
    """Without the octal escapes of the kernel."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def _users_own(options: str) -> bool:
    """Whether a user mounted it, and chose all that the kernel says of it (fusermount)."""
    return any(one.startswith("user_id=") and one != "user_id=0" for one in options.split(","))


def read_mounts(text: str) -> dict[str, tuple[str, str]]:
    """Folder -> kind ("" where a user mounted it) and source with the folder in it that is mounted, of
    /proc/self/mountinfo; the last mount at a place hides those before it."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.split("\n"):  # the kernel escapes no other end of a line
        before, _, after = line.partition(" - ")
        words, more = before.split(" "), after.split(" ")
        if len(words) > 4 and len(more) > 1:
            root, kind = _plain(words[3]), "" if _users_own(more[-1]) else _SAME.get(more[0], more[0])
            source = _plain(more[1]).rstrip("/") or "/"
            found[_plain(words[4])] = (kind, source if root == "/" else f"{source}{root}")
    return found


def network_mounts(text: str | None = None) -> dict[str, str]:
    """Folder -> kind and source, of network file systems; without names that pool.json does not take."""
    known = read_mounts(MOUNTS.read_text(errors="replace") if text is None else text)
    kinds = {_SAME.get(kind, kind) for kind in NETWORK}
    found = {path: f"{kind} {source}" for path, (kind, source) in sorted(known.items()) if kind in kinds}
    return {path: where for path, where in found.items() if is_text(path) and is_text(where)}


def _place(folder: Path, mounts: Mapping[str, str], text: str) -> tuple[str, PurePosixPath] | None:
    """Source and path in it, where the innermost mount that has the folder is of a network."""
    whole = PurePosixPath(folder)
    everything = set(read_mounts(text)) if text else set(mounts)
    inner = max((path for path in everything if path == "/" or PurePosixPath(path) in (whole, *whole.parents)),
                key=len, default="/")  # fmt: skip
    return (mounts[inner], whole.relative_to(inner)) if inner in mounts else None


def _exported(source: str, own: frozenset[str]) -> str:
    """The folder of this machine that a server of files gives out as this source; "" where it is another machine's."""
    host, _, path = source.partition(" ")[2].partition(":")
    return path if host in own and path.startswith("/") else ""


def is_shared(
    folder: Path, there: Mapping[str, str], here: str | None = None, own: frozenset[str] | None = None
) -> bool:
    """Whether a server with these mounts has this folder under the same path. here: mountinfo of this machine; own:
    names and addresses of this machine, which may be the one that has the files."""
    text = MOUNTS.read_text(errors="replace") if here is None else here
    theirs = _place(folder, there, "")
    if theirs is None:
        return False
    mine = _place(folder, network_mounts(text), text)
    if mine is not None:
        return mine == theirs
    names = own_names() if own is None else own
    path = _exported(theirs[0], names)
    return bool(path) and PurePosixPath(path, theirs[1]) == PurePosixPath(folder)


def own_names() -> frozenset[str]:
    """By which other machines may know this one."""
    name = socket.gethostname()
    return frozenset({name, name.split(".")[0], socket.getfqdn()})
