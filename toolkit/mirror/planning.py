"""Makes the plan: the roles say which packages, apt and dnf say what comes with these."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.deploy.record import utc_now
from toolkit.errors import UsageFault
from toolkit.lab.sources import apt_proxies
from toolkit.mirror import apt_closure, dnf_closure, extras, sources
from toolkit.mirror.apt_closure import DISTRIBUTION, AptRoot
from toolkit.mirror.apt_index import Entry, plain
from toolkit.mirror.asking import Asked, Source, SystemWishes, ask, by_system
from toolkit.mirror.documents import Missing, Package, Plan, Repository
from toolkit.mirror.parts import Part
from toolkit.mirror.tools import ToolFault
from validation.base.temporary import room
from validation.rules.release import release

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What was asked. sources: file of entries by system. at: where this machine reaches a repository, by name."""

    inventory: Path
    sources: Mapping[str, Path] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    recorded: Path | None = None


def plan(wanted: Wanted, say: Say) -> Plan:
    """The plan. UsageFault in one sentence where roles, apt or dnf cannot be asked."""
    say("asking the roles which packages they install")
    answers = ask(wanted.inventory, wanted.recorded)
    upstream = next(iter(answers.values())).sources.upstream
    parts = []
    for wishes in by_system(answers):
        say(f"{wishes.system}: reading the indices of its repositories")
        with room("eai-mirror-plan") as folder:
            if wishes.system.startswith("el"):
                parts.append(dnf_closure.system_part(wishes, wanted.sources, wanted.at, upstream, folder))
            else:
                parts.append(_apt_part(wishes, wanted, upstream, folder))
    seconds = sum(part.seconds for part in parts)
    total = sum(part.index_bytes for part in parts)
    return Plan(
        site=wanted.inventory.resolve().name,
        made=utc_now(),
        release=release(),
        repositories=tuple(one for part in parts for one in part.repositories),
        missing=tuple(one for part in parts for one in part.missing),
        images=tuple(dict.fromkeys(image for one in answers.values() for image in one.outside.images)),
        engines=tuple(dict.fromkeys(engine for one in answers.values() for engine in one.outside.engines)),
        wheels=extras.wheels(),
        notes=_notes(answers),
        upstream=upstream,
        rate_bytes_s=total / seconds if total and seconds > 0.2 else None,
    )


def _notes(answers: Mapping[str, Asked]) -> tuple[str, ...]:
    by_note: dict[str, list[str]] = {}
    for node, one in answers.items():
        for note in one.packages.notes:
            by_note.setdefault(note, []).append(node)
    return tuple(f"{', '.join(nodes)}: {note}" for note, nodes in by_note.items())


def _apt_part(wishes: SystemWishes, wanted: Wanted, upstream: Mapping[str, Any], folder: Path) -> Part:
    moved = sources.reached(wishes, wanted.at)
    keys = {name: sources.key_of(one, upstream, folder) for name, one in moved.items()}
    texts = {name: sources.apt_stanza(one, keys[name]) for name, one in moved.items()}
    root = AptRoot(folder / "root", apt_closure.machine_architecture())
    root.make({DISTRIBUTION: sources.distribution(wishes.system, wanted.sources), **texts}, apt_proxies())
    began = time.monotonic()
    read = root.update()
    seconds = time.monotonic() - began
    missing, entries = [], {}
    for node, (packages, pins) in wishes.sets.items():
        for name, version in packages.items():
            if not root.index.has(name, version):
                there = tuple(root.index.versions.get(name, ()))
                missing.append(
                    Missing(system=wishes.system, role=wishes.roles[name], name=name, version=version, versions=there)
                )
        had = {name: version for name, version in packages.items() if root.index.has(name, version)}
        try:
            for entry in root.closure({**root.base(), **had}, pins):
                entries[entry.url] = entry
        except ToolFault as fault:
            raise UsageFault(f"{wishes.system}: the packages of {node} do not fit together: {fault}") from None
    made = _repositories(wishes, moved, keys, root, entries)
    return Part(made, list(dict.fromkeys(missing)), read, seconds)


def _repositories(
    wishes: SystemWishes, moved: Mapping[str, Source], keys: Mapping[str, Path], root: AptRoot,
    entries: Mapping[str, Entry],
) -> list[Repository]:  # fmt: skip
    """The files by the repository that has them. A vendor's is known by its address, the rest is the distribution's."""
    by_name: dict[str, list[Package]] = {DISTRIBUTION: [], **{name: [] for name in moved}}
    for url, entry in sorted(entries.items()):
        name = next((n for n, one in moved.items() if url.startswith(plain(one.url))), DISTRIBUTION)
        by_name[name].append(
            Package(
                name=entry.name, version=entry.version, architecture=entry.architecture, url=url,
                file=f"pool/{url.rsplit('/', 1)[-1]}", sha256=entry.sha256, size=entry.size,
            )
        )  # fmt: skip
    made = []
    for name, packages in by_name.items():
        source = moved.get(name)
        read = [
            one for url, one in root.found.items() if (plain(url).startswith(plain(source.url)) if source else True)
        ]
        if source is None:
            vendors = tuple(plain(one.url) for one in moved.values())
            read = [one for one in read if not plain(one.url).startswith(vendors)] if vendors else read
        made.append(
            Repository(
                name=name, system=wishes.system, architecture=root.architecture,
                suite=source.suite if source else sources.suite_of(wishes.system),
                components=source.components if source else "main",
                label=read[0].label if read else "", origin=read[0].origin if read else "",
                fingerprints=source.fingerprints if source else (),
                key=keys[name].read_text(encoding="ascii") if source else "", packages=tuple(packages),
            )
        )  # fmt: skip
    return made
