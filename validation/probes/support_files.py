"""The toolkit's own records on a node, for `toolkit support`: an allow-list, for beside them are tokens and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from validation.probes.support_run import Kept, read

#: Below `toolkit/` of the package -> folder here, and the names that are taken of it.
RECORDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("provisioned", "etc/elastic-ai", ("provisioned.json", "roce.json", "taken_over.json")),
    ("slurm", "etc/elastic-ai/slurm", ("pool.json",)),
    ("remoting", "etc/elastic-ai/remoting", ("pool.json",)),
    ("state", "var/lib/elastic-ai", ("*.json",)),
    ("state/ledger", "var/lib/elastic-ai/ledger", ("*.json",)),
    ("state/fabric", "var/lib/elastic-ai/fabric", ("*.json",)),
    ("reboot-required", "run/elastic-ai/reboot-required", ("*",)),
    ("leases", "run/elastic-ai/leases", ("*/instance.json", "*/ending", "*/deadline")),
)
"""Of a lease its record and end: neither its token nor the endpoint that has it."""
MOST_FILES = 200
"""Of one folder. Project default."""
MOST_BYTES = 1 << 20
"""Of one record. Project default."""


def files(root: Path = Path("/")) -> Iterator[tuple[str, Kept]]:
    """Each record, as its name in the package and what is in it."""
    for name, folder, patterns in RECORDS:
        place = root / folder
        found = sorted({path for pattern in patterns for path in place.glob(pattern)})
        if not found:
            words = "is not there" if not place.is_dir() else "has no such record"
            yield f"toolkit/{name}", Kept(f"/{folder}/{' '.join(patterns)}", unread=words)
        for path in found[:MOST_FILES]:
            if any(one.is_symlink() for one in (path, *path.parents) if root in one.parents):
                yield f"toolkit/{name}/{path.name}", Kept(str(path), unread="is a link, which is not followed")
                continue
            kept = read(path, MOST_BYTES)
            yield f"toolkit/{name}/{path.relative_to(place)}", kept
        if len(found) > MOST_FILES:
            more = f"{len(found) - MOST_FILES} more, and at most {MOST_FILES} are taken"
            yield f"toolkit/{name}/more", Kept(f"/{folder}", unread=more)
