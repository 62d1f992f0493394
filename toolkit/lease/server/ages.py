"""How old things on a server are, by its monotonic clock: setting the other clock makes nothing older, nor does a
controller whose clock is another.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from toolkit.lease.fields import DamagedDocument, Fields
from toolkit.lease.machine.host import Host

BORN, SEEN = "born", ".seen"


def born(host: Host, folder: Path) -> None:
    """A lease's folder is made now."""
    (folder / BORN).write_text(f"{host.clock.monotonic()}\n")


def age_s(host: Host, folder: Path) -> float:
    """Seconds since a lease's folder was made, 0 where it is gone."""
    try:
        return host.clock.monotonic() - float((folder / BORN).read_text())
    except (OSError, ValueError):  # made this very moment
        return host.clock.time() - folder.stat().st_mtime if folder.exists() else 0.0


def seen_for_s(host: Host, names: Collection[str]) -> dict[str, float]:
    """For how many seconds each of the names has been among those of every call, 0 for a new one."""
    path, now = host.run_dir / SEEN, host.clock.monotonic()
    try:
        fields = Fields.in_file(path)
        since = {name: fields.seconds(name) if fields.has(name) else now for name in names}
    except (FileNotFoundError, DamagedDocument):
        since = dict.fromkeys(names, now)
    scratch = path.with_name(f"{SEEN}.new")
    scratch.write_text(json.dumps(since))
    scratch.replace(path)
    return {name: now - first for name, first in since.items()}
