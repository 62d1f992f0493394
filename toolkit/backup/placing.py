"""Files of a backup come into their places on a new head, and what is there is kept. Sent there with `there`; standard
library alone. Each step can be done again after a power cut."""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

BASE = Path("/var/lib/elastic-ai/restore")
NOTE, OWNERS, REPLACED = "restore.json", "owners.json", "replaced"
PART, GONE = ".elastic-ai-part", ".elastic-ai-gone"


class Refusal(Exception):
    """One sentence: what is wrong and what to do."""


def ran(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """A program, whose words are English."""
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    return subprocess.run(words, capture_output=True, check=False, env=english, **more)


def note(base: Path = BASE) -> dict[str, Any]:
    """How far a restoration has come; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((base / NOTE).read_text("utf-8")))
    return {}


def noted(base: Path, said: dict[str, Any]) -> None:
    """Write down how far it has come."""
    new = base / (NOTE + ".new")
    with new.open("w", encoding="utf-8") as out:
        out.write(json.dumps(said))
        out.flush()
        os.fsync(out.fileno())
    new.replace(base / NOTE)
    names_kept(base)


def names_kept(folder: Path) -> None:
    """Its names onto the disk, against a power cut."""
    handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replaced(base: Path) -> Path:
    """Where goes what this restoration replaces. Beside it, so that no other one and no end removes it."""
    there = note(base)
    return base.with_name(REPLACED) / str(there.get("replaced") or there.get("sha256", "")[:12])


def free(path: Path) -> Path:
    """A name that nothing has: what was kept before is not replaced either."""
    others = (path.with_name(f"{path.name}.{number}") for number in range(1, 1 << 20))
    return path if not os.path.lexists(path) else next(other for other in others if not os.path.lexists(other))


def room(folder: Path) -> Path:
    """The folder, which nobody but root looks into."""
    for path in (*reversed(folder.parents), folder):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def placed(base: Path, name: str, target: Path) -> None:
    """In the place of what is there, which is kept; owners as they were. What is not in the backup changes nothing;
    what was placed before a power cut gets its owners. A disk of its own stays where it is mounted."""
    target, new = Path(os.path.realpath(target)), base / name
    if new.exists():
        try:
            if begun := name in note(base).get("brings", {}):
                in_pieces(base, name, target)
            else:
                whole(new, target, replaced(base) / name)
        except OSError as fault:
            if begun or fault.errno not in (errno.EXDEV, errno.EBUSY, errno.ENOTEMPTY):
                raise
            in_pieces(base, name, target)
    owned(base, name, target)


def whole(new: Path, target: Path, kept: Path) -> None:
    """Both folders by their names, which no power cut comes between."""
    if os.path.lexists(target) and filled(target):
        room(kept.parent)
        target.rename(free(kept))
    target.parent.mkdir(parents=True, exist_ok=True)
    new.rename(target)


def in_pieces(base: Path, name: str, target: Path) -> None:
    """What is in the one folder into the other. Gone on from wherever it was cut off: a piece that came with the backup
    and is not in the backup's folder any more has its place already."""
    new, kept, said = base / name, replaced(base) / name, note(base)
    brings = said.get("brings", {}).get(name)
    if brings is None:
        brings = sorted(path.name for path in new.iterdir())
        noted(base, {**said, "brings": {**said.get("brings", {}), name: brings}})
    target.mkdir(parents=True, exist_ok=True)
    for folder in (new, target, kept):
        for left in (*folder.glob(f".*{PART}"), *folder.glob(f".*{GONE}")):
            removed(left)
    ours = {one for one in brings if not os.path.lexists(new / one)} | {"lost+found"}
    theirs = sorted(path for path in target.iterdir() if path.name not in ours)
    if theirs:
        fits(theirs, room(kept))
    for path in theirs:
        carried(path, free(kept / path.name))
    for path in sorted(new.iterdir()):
        if path.name != "lost+found":
            carried(path, target / path.name)
    shutil.rmtree(new)


def fits(paths: list[Path], kept: Path) -> None:
    """Refusal where what is to be kept would fill the disk of the system."""
    if paths[0].parent.stat().st_dev == kept.stat().st_dev:
        return
    inside = (one for path in paths for one in (path, *(path.rglob("*") if path.is_dir() else ())))
    size, left = sum(one.lstat().st_size for one in inside), shutil.disk_usage(kept).free
    if size > left:
        raise Refusal(
            f"{paths[0].parent} has {size >> 20} MiB, which are kept in {kept}, where {left >> 20} MiB are free; make "
            "room there, or take away what is in the way, and run the same command again"
        )


def carried(path: Path, where: Path) -> None:
    """There as a whole or not at all, and only then gone here; `where` has nothing yet."""
    room(where.parent)
    try:
        path.rename(where)
        return
    except OSError as fault:
        if fault.errno != errno.EXDEV:
            raise
    copied(path, where)
    gone = path.with_name(f".{path.name}{GONE}")
    path.rename(gone)
    removed(gone)


def copied(path: Path, where: Path) -> None:
    """There as a whole or not at all, with owners and times."""
    part = where.with_name(f".{where.name}{PART}")
    removed(part)
    done = ran("cp", "--archive", "--", str(path), str(part))
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise Refusal(f"{path} was not copied to {where}: {said}; mend that and run the same command again")
    os.sync()
    part.rename(where)


def removed(path: Path) -> None:
    """A file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def owned(base: Path, name: str, target: Path) -> None:
    """Owner and mode as they were, where this head knows the user."""
    owners = json.loads((base / OWNERS).read_text("utf-8"))
    for member, (user, group, mode) in owners.items():
        if member != name and not member.startswith(name + "/"):
            continue
        path = target / member[len(name) :].lstrip("/")
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(KeyError, PermissionError):
                os.chown(path, pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid)
            path.chmod(mode)


def merged(base: Path, name: str, target: Path) -> None:
    """What is not there yet: images are named by their content, and runs by their time. Owners of all, for a power cut
    may have come between the two."""
    for path in sorted((base / name).rglob("*")):
        inside = path.relative_to(base / name)
        if path.is_dir() and not path.is_symlink():
            (target / inside).mkdir(parents=True, exist_ok=True)
        elif not (target / inside).exists():
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(path), str(target / inside))
    owned(base, name, target)


def filled(path: Path) -> bool:
    """A file, or a folder with something in it; a new disk has one of its own."""
    return any(inside.name != "lost+found" for inside in path.iterdir()) if path.is_dir() else path.exists()
