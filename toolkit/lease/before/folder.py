"""The folder of a program that goes to a GPU server by itself, where the two have no file system in common."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from toolkit.lease import LeaseError
from validation.base.counting import number_of

#: No larger folder goes there without a word of its user (--sync), for it goes there and back in every run.
MOST_BYTES, MOST_FILES = 1 << 30, 20_000
#: What a program does not read, or what its Python here made for itself.
LEFT = frozenset({
    ".git", ".hg", ".svn", "__pycache__", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox",
    ".ipynb_checkpoints", "node_modules", ".venv", "venv",
})  # fmt: skip
#: A folder with this file is an environment of Python, whatever its name is: it has this machine's paths in it.
ENVIRONMENT = "pyvenv.cfg"
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_words(size_bytes: int) -> str:
    """3 kB: in powers of ten, as df -H has it."""
    value, unit = float(size_bytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


@dataclass(frozen=True)
class FolderCopy:
    """What goes there and comes back. left_out: paths in the folder that do neither."""

    folder: Path
    files: int
    size_bytes: int
    left_out: tuple[str, ...] = ()

    def words(self) -> str:
        """For its user."""
        names = list(dict.fromkeys(Path(one).name for one in self.left_out))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        without = f", without {shown}" if names else ""
        return f"this folder ({number_of(self.files, 'file')}, {size_words(self.size_bytes)}{without}) is copied"


def _left(path: Path, home: Path) -> bool:
    # A home has keys and settings that no program on another machine is to have by accident.
    hidden = path.parent == home and path.name.startswith(".")
    return path.name in LEFT or hidden or (os.access(path, os.X_OK) and (path / ENVIRONMENT).is_file())


def measure(folder: Path, home: Path | None = None) -> FolderCopy:
    """What of a folder goes there. LeaseError where it is too large, or cannot go and come back."""
    whole, home = folder.resolve(), (home or Path.home()).resolve()
    other = "change to the program's own folder, or give --sync DIR for the one to be copied"
    if not os.access(whole, os.R_OK | os.W_OK | os.X_OK):
        raise LeaseError(f"{whole} has to be copied to the server and back, and you may not read and write it; {other}")
    files = size = 0
    left: list[str] = []
    ahead = [whole]
    while ahead:
        try:
            entries = sorted(os.scandir(ahead.pop()), key=lambda one: one.name)
        except OSError as fault:
            raise LeaseError(
                f"{whole} cannot be copied to the server: {fault.filename}: {fault.strerror}; {other}"
            ) from None
        for entry in entries:
            path = Path(entry.path)
            mode = entry.stat(follow_symlinks=False).st_mode
            if _left(path, home):
                left.append(str(path.relative_to(whole)))
            elif stat.S_ISDIR(mode):
                ahead.append(path)
            elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise LeaseError(f"{whole} cannot be copied to the server: {path} is a device; {other}")
            elif stat.S_ISREG(mode) and not os.access(path, os.R_OK):
                raise LeaseError(f"{whole} cannot be copied to the server: you may not read {path}; {other}")
            else:
                files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
        if files > MOST_FILES or size > MOST_BYTES:
            most = f"{MOST_FILES} files or {size_words(MOST_BYTES)}"
            raise LeaseError(
                f"{whole} has more than {most}, the most that is copied to a server by itself; {other} "
                "(--sync . copies all of this one)"
            )
    return FolderCopy(whole, files, size, tuple(left))
