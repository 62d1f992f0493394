"""ssh's entry for leases in the user's own configuration: ~/.ssh/config.d/elastic-ai, and the line that includes it."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.shell import connection, keys

_INCLUDE = re.compile(r"^\s*Include\s+.*config\.d/(?:\*|elastic-ai)", re.IGNORECASE | re.MULTILINE)
INCLUDE = f"Include config.d/{connection.ENTRY}"


def ssh_folder() -> Path:
    """As ssh has it: of the user database, whatever HOME is."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"


def entry_file() -> Path:
    """For leases alone."""
    return ssh_folder() / "config.d" / connection.ENTRY


def planned() -> dict[Path, str]:
    """What is to be written: files with all their text, and of ssh's own configuration the line that goes first. Empty
    where everything is there."""
    keys.user_key()
    change: dict[Path, str] = {}
    entry = connection.entry()
    file, config = entry_file(), ssh_folder() / "config"
    if not file.exists() or file.read_text() != entry:
        change[file] = entry
    if not config.exists() or not _INCLUDE.search(config.read_text(errors="surrogateescape")):
        change[config] = f"{INCLUDE}\n"
    return change


def _put(path: Path, text: str) -> None:
    """In one rename, where a link leads too; its mode stays."""
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", errors="surrogateescape") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), mode)
    Path(new).replace(path)


def write(change: dict[Path, str]) -> None:
    """LeaseError where a file cannot be written. What ssh's configuration has stays, below the new line: an Include
    below a Host line would belong to it."""
    try:
        for path, text in change.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = path.read_text(errors="surrogateescape") if path != entry_file() and path.exists() else ""
            _put(path, text + (f"\n{before}" if before else ""))
    except OSError as fault:
        raise LeaseError(f"{fault.filename}: {fault.strerror}") from None
