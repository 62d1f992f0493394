"""The folder of a mirror as it is found: it may be another folder, or a medium that was in somebody's hands."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.documents import PLAN

PARTIAL = ".partial"
"""Files that are not whole yet; never served, and no part of the list."""
_OF_A_MIRROR = (PARTIAL, PLAN)
#: What systems put on a medium by themselves.
_OF_THE_SYSTEM = ("lost+found", "System Volume Information", "$RECYCLE.BIN")


def refuse_others(folder: Path) -> None:
    """UsageFault for a folder with files that are no mirror's: a build replaces, signs and serves what is there."""
    if not folder.is_dir() or any((folder / name).exists() for name in _OF_A_MIRROR):
        return
    others = sorted(path.name for path in folder.iterdir() if not _of_the_system(path.name))
    if others:
        raise UsageFault(
            f"{folder}: has files of something else ({', '.join(others[:3])}); name a folder that is empty or new"
        )


def refuse_links(folder: Path) -> None:
    """UsageFault for links of a medium: what a build writes and takes away through them is not the mirror's.

    Those that apt leaves in the folder of parts go.
    """
    for name, mode in entries(folder):
        if not stat.S_ISLNK(mode):
            continue
        if name.startswith(f"{PARTIAL}/") and name != f"{PARTIAL}/lock":
            (folder / name).unlink()
            continue
        raise UsageFault(f"{folder}/{name}: is a link, and a mirror has none; somebody put it there: take it away")


def refuse_inside(key: Path, folder: Path) -> None:
    """UsageFault for a private key that would be listed, carried away and served."""
    if folder.resolve() in key.resolve().parents:
        raise UsageFault(f"{key}: is in the mirror, which others get; keep it elsewhere")


def entries(folder: Path) -> Iterator[tuple[str, int]]:
    """All that is below, by name with its mode; no link is followed. What is no folder alone counts."""
    for root, folders, files in os.walk(folder, followlinks=False):
        above = Path(root).relative_to(folder)
        if above == Path():
            folders[:] = [name for name in folders if not _of_the_system(name)]
        for name in (*folders, *files):
            try:
                mode = (Path(root) / name).lstat().st_mode
            except OSError:
                mode = 0
            if not stat.S_ISDIR(mode):
                yield (above / name).as_posix(), mode


def _of_the_system(name: str) -> bool:
    return name in _OF_THE_SYSTEM or name.startswith(".Trash-")
