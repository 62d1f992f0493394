"""What a mirror holds beside packages: wheels of the toolkit, engines, documentation."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.tools import run
from validation.base import project

Say = Callable[[str], None]
WHEELS, ENGINES, DOCUMENTS = "wheels", "engines", "docs"
_LOCK = "requirements.lock"
_PINNED = re.compile(r"([\w.\[\]-]+)==([\w.!+-]+)")


def wheels() -> tuple[str, ...]:
    """Names and versions of the packages that the toolkit itself needs; none where it came as a wheel."""
    lock = project.ROOT / _LOCK
    if not lock.is_file():
        return ()
    found = (_PINNED.match(line) for line in lock.read_text(encoding="utf-8").splitlines())
    return tuple(f"{one[1]} {one[2]}" for one in found if one is not None)


def take_wheels(folder: Path, say: Say) -> None:
    """Have the wheels that the lock names, each with a hash of it; what is there is not downloaded again."""
    lock, target = project.ROOT / _LOCK, folder / WHEELS
    if not lock.is_file():
        return
    made = target / ".made"
    recipe = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    if made.is_file() and made.read_text() == recipe:
        return
    say(f"downloading the wheels of {_LOCK}")
    target.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "--requirement", str(lock), "--dest", str(target)], package="python3-pip")
    shutil.copyfile(lock, target / _LOCK)
    made.write_text(recipe)


def take_files(engines: Sequence[str], folder: Path) -> None:
    """The engines' archives that the inventory names, and this documentation."""
    for engine in engines:
        source = Path(engine)
        if not source.is_file():
            raise UsageFault(f"{engine}: no such file, and the inventory names it as the archive of an engine")
        (folder / ENGINES).mkdir(exist_ok=True)
        shutil.copyfile(source, folder / ENGINES / source.name)
    pages = project.ROOT / "docs"
    if pages.is_dir():
        shutil.rmtree(folder / DOCUMENTS, ignore_errors=True)
        for page in pages.rglob("*.md"):
            target = folder / DOCUMENTS / page.relative_to(pages)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, target)
