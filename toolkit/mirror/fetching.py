"""Downloads what a mirror lacks, by the package managers' own ways, and takes a file only with the planned hash."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

from toolkit.mirror.apt_closure import HELPER
from toolkit.mirror.documents import Package, Repository, size_words
from toolkit.mirror.room import FULL_AT, is_full, sha256
from toolkit.mirror.tools import ToolFault, run
from toolkit.working import duration
from validation.base.counting import number_of

BATCH = 40
TRIES = 3
_SPARE = 64 << 10
"""Beyond a file's size: a longer one is seen to be another."""
Say = Callable[[str], None]


def fetch(lacking: Sequence[tuple[Repository, Package]], folder: Path, say: Say, pause_s: float = 3.0) -> None:
    """Have all of it. UsageFault where a server stops: what came stays, and the next run goes on there."""
    total, done, began = sum(package.size for _, package in lacking), 0, time.monotonic()
    for start in range(0, len(lacking), BATCH):
        batch = lacking[start : start + BATCH]
        _batch(batch, folder, len(lacking) - start, pause_s)
        done += sum(package.size for _, package in batch)
        took = time.monotonic() - began
        left = duration(took / done * (total - done)) if done else "?"
        say(f"{size_words(done)} of {size_words(total)}, {left} left")


def _batch(batch: Sequence[tuple[Repository, Package]], folder: Path, left: int, pause_s: float) -> None:
    waiting = list(batch)
    for attempt in range(1, TRIES + 1):
        fault = _tried(waiting, folder)
        waiting = [one for one in waiting if not _taken(*one, folder)]
        if not waiting:
            return
        if fault is not None and fault.clock:
            raise fault
        if is_full(folder, FULL_AT):
            break  # no second try mends that
        if attempt < TRIES:
            time.sleep(pause_s * attempt)
    repository, package = waiting[0]
    left -= len(batch) - len(waiting)
    why = str(fault) if fault is not None else f"what came of {package.url} is not the planned file (SHA-256)"
    raise ToolFault(
        f"{repository.name}: {package.file.rsplit('/', 1)[-1]} cannot be had: {why}; {number_of(left, 'file')} of the "
        "mirror are still to come; run the same command, which goes on where it ended"
    )


def _partial(repository: Repository, package: Package, folder: Path) -> Path:
    """Where a file is until it is whole. Its name says which it will be: another release's is not gone on with."""
    return folder / ".partial" / f"{package.sha256[:16]}-{package.file.rsplit('/', 1)[-1]}"


def _tried(waiting: Sequence[tuple[Repository, Package]], folder: Path) -> ToolFault | None:
    (folder / ".partial").mkdir(parents=True, exist_ok=True)
    largest = max(package.size for _, package in waiting)
    words = [*_at_most(largest), HELPER, "-oAPT::Sandbox::User=root", "-oAcquire::Retries=2", "download-file"]
    by_curl: list[tuple[str, Path, int]] = []
    asked = False
    for repository, package in waiting:
        target = _partial(repository, package, folder)
        if repository.suite and Path(HELPER).exists():
            words += [_quoted(package.url), str(target), f"SHA256:{package.sha256}"]
            asked = True
        else:
            by_curl.append((package.url, target, package.size))
    try:
        if asked:
            run(words)
        for one in by_curl:
            _copy(*one)
    except ToolFault as fault:
        return fault
    return None


def _quoted(url: str) -> str:
    return quote(url, safe=":/%?=&~+@")


def _at_most(size: int) -> list[str]:
    """A program that writes no longer file, whatever a server sends: it would fill the medium."""
    return ["prlimit", f"--fsize={size + _SPARE}"]


def _copy(url: str, target: Path, size: int) -> None:
    """A package of dnf's: by curl, which goes on with a part that is there."""
    if url.startswith("file:"):
        source = Path(url2pathname(unquote(urlsplit(url).path)))
        if source.is_file():
            target.write_bytes(source.read_bytes())
            return
        raise ToolFault(f"{source}: no such file")
    patience = ["--connect-timeout", "60", "--speed-limit", "1000", "--speed-time", "60"]
    words = ["curl", "-sS", "--fail", "--location", *patience, "--continue-at", "-", "--output", str(target)]
    run([*_at_most(size), *words, _quoted(url)])


def _taken(repository: Repository, package: Package, folder: Path) -> bool:
    """Put a file that came in its place, where it is the planned one; another is thrown away."""
    came, place = _partial(repository, package, folder), folder / repository.folder / package.file
    if came.is_symlink():  # of a repository that is a folder of this machine
        copy = came.with_suffix(f"{came.suffix}.copy")
        shutil.copyfile(came, copy)
        copy.replace(came)
    if not came.is_file():
        return place.is_file() and place.stat().st_size == package.size
    if came.stat().st_size < package.size:
        return False  # a part of it, with which the next attempt goes on
    if sha256(came) != package.sha256:
        came.unlink()
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    came.replace(place)
    return True
