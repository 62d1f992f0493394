"""Makes a mirror, or brings one to a new plan: what is there stays, and nothing is trusted before all of it is."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror import extras, images, manifest, medium, openpgp
from toolkit.mirror.documents import PLAN, Plan
from toolkit.mirror.fetching import fetch
from toolkit.mirror.publishing import publish
from toolkit.mirror.room import lacking, medium_said, refuse_limits, refuse_too_small, still_to_come
from validation.base.files import replace
from validation.base.temporary import room
from validation.signing import ssh

Say = Callable[[str], None]
KEYS = "keys"


@dataclass(frozen=True)
class Built:
    """What came of it. came: files that were downloaded, `size` their bytes; notes: what is not in the mirror."""

    came: int
    size: int
    published: int
    fingerprint: str
    notes: tuple[str, ...]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One build of a mirror at a time. UsageFault where another goes on; OSError where the folder cannot be made."""
    medium.refuse_others(folder)
    folder.mkdir(parents=True, exist_ok=True)
    medium.refuse_links(folder)
    (folder / medium.PARTIAL).mkdir(exist_ok=True)
    with (folder / medium.PARTIAL / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageFault(f"{folder}: another build of it is going on; wait for its end") from None
        yield


def build(plan: Plan, folder: Path, key: ssh.Key, say: Say) -> Built:
    """Have all of the plan in the folder, sign the indices, and sign the list of all files.

    UsageFault in one sentence for a folder that is no mirror's, a medium that is full, read-only or of too small a file
    system, a server that stops, a key that cannot sign; what came stays.
    """
    medium.refuse_inside(key.path, folder)
    with medium_said(folder, lambda: still_to_come(plan, folder)), locked(folder):
        wanted = lacking(plan, folder)
        size = sum(package.size for _, package in wanted)
        refuse_too_small(folder, size)
        refuse_limits(plan, folder)
        manifest.unsign(folder)
        fetch(wanted, folder, say)
        fingerprint = openpgp.own_key()
        _without_others(plan, folder)
        published = sum(publish(one, folder, fingerprint, say) for one in plan.repositories)
        _write_keys(plan, folder, fingerprint)
        extras.take_wheels(folder, say)
        notes = images.take_images(plan.images, folder, say)
        extras.take_files(plan.engines, folder)
        replace(folder / PLAN, plan.model_dump_json(indent=1).encode())
        say("listing and signing all files")
        manifest.write(folder, plan, fingerprint, key)
    return Built(len(wanted), size, published, fingerprint, tuple(notes))


def _without_others(plan: Plan, folder: Path) -> None:
    """Take away repositories that are no longer planned."""
    known = {folder / one.folder for one in plan.repositories}
    for other in (folder / "packages").glob("*/*"):
        if other not in known:
            shutil.rmtree(other)


def _write_keys(plan: Plan, folder: Path, fingerprint: str) -> None:
    """NAME.asc of each repository: the mirror's key, which signs its index, and those that sign its packages (dnf)."""
    keys = folder / KEYS
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir()
    with room("eai-mirror-keys") as private:
        openpgp.own_public(private / "own.asc")
        for name, prints in fingerprints(plan, fingerprint).items():
            texts = {one.key for one in plan.repositories if one.name == name and one.key}
            files = [private / "own.asc"]
            for number, text in enumerate(sorted(texts)):
                files.append(private / f"{number}.asc")
                files[-1].write_text(text, encoding="ascii")
            openpgp.join(files, prints, keys / f"{name}.asc")


def fingerprints(plan: Plan, own: str) -> dict[str, list[str]]:
    """By repository, of the keys that nodes are to trust: with apt the mirror's, with dnf those of packages too."""
    found: dict[str, list[str]] = {}
    for one in plan.repositories:
        prints = found.setdefault(one.name, [own])
        prints += [other for other in one.fingerprints if not one.suite and other not in prints]
    return found
