"""Confirmed host keys go into known_hosts, at its end: what stands there stays."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.scan.contact import HostKey

_FILE = re.compile(r"(?:-o)?\s*UserKnownHostsFile[\s=]+[\"']?([^\s\"'%]+)", re.IGNORECASE)


def of_inventory(arguments: Sequence[str]) -> Path | None:
    """The file that an inventory has ssh keep host keys in (-o UserKnownHostsFile=...), None where it names none."""
    for words in arguments:
        if (found := _FILE.match(words)) and found[1] not in ("/dev/null", "none"):
            return Path(found[1]).expanduser()
    return None


def add(keys: Sequence[HostKey], file: Path) -> None:
    """Add keys, in one write."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(handle).st_size
            start = b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
            os.write(handle, start + "".join(f"{key.line}\n" for key in keys).encode())
        finally:
            os.close(handle)
    except OSError as fault:
        raise UsageFault(f"{file}: {fault.strerror}; name another file with --known-hosts") from None
