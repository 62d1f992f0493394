"""Where packages come from: the distribution's by this machine's own entries or a file, the vendors' by the roles."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolkit.errors import LabError, UsageFault, or_nearest
from toolkit.lab.sources import RELEASES, machine_release, os_key, served, sources_for
from toolkit.lab.spec import VENDOR_HOST
from toolkit.lab.standin import repositories
from toolkit.loudness import progress
from toolkit.mirror import openpgp
from toolkit.mirror.asking import Source, SystemWishes
from toolkit.mirror.tools import CLOCK, clock_words

_KEY_BYTES = 4 << 20


def distribution(system: str, given: Mapping[str, Path]) -> str:
    """The entries that serve a system's own packages: those of the file that was named, else this machine's.

    UsageFault where this machine runs another system, and no file was named.
    """
    if system in given:
        try:
            return given[system].read_text(encoding="utf-8")
        except OSError as fault:
            raise UsageFault(f"--sources {system}={given[system]}: cannot be read: {fault.strerror}") from None
    own = machine_release()
    if os_key(own.title) != system:
        kind = "a .repo file" if system.startswith("el") else "a .sources file"
        raise UsageFault(
            f"the inventory has nodes of {system}, and this machine runs {own.title}: name {kind} that serves {system} "
            f"with --sources {system}=FILE"
        )
    if system.startswith("el"):
        return "\n".join(file.read_text() for file in sorted(Path("/etc/yum.repos.d").glob("*.repo")))
    try:
        text = sources_for(own)
        return served(text) if own.id == "debian" else text
    except LabError as fault:
        raise UsageFault(f"{fault}; or name a file: --sources {system}=FILE") from None


def by_words(given: tuple[str, ...], option: str, known: tuple[str, ...] = ()) -> dict[str, str]:
    """`NAME=VALUE` of a repeated option, by name. UsageFault."""
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name or not value:
            raise UsageFault(f"{option} {one}: has the form NAME=VALUE")
        if known and name not in known:
            raise UsageFault(f"{option} {one}: {or_nearest(name, known)}")
        found[name] = value
    return found


def suite_of(system: str) -> str:
    """The suite of a system's own packages, `bookworm`."""
    return RELEASES[system].codename


def systems() -> tuple[str, ...]:
    """Systems that nodes can have."""
    return tuple(RELEASES)


def key_of(source: Source, upstream: Mapping[str, Any], folder: Path) -> Path:
    """The declared keys of a repository as a file: from the site's folder of keys, else from its maker. UsageFault for
    a key that is not declared, or cannot be had."""
    kept = Path(str(upstream.get("repos_key_dir") or "")) / f"{source.name}.asc"
    raw, target = folder / f"{source.name}.raw", folder / f"{source.name}.asc"
    if upstream.get("repos_key_dir"):
        if not kept.is_file():
            raise UsageFault(f"{kept}: no such file; put the key of repository {source.name} there (repos_key_dir)")
        raw.write_bytes(kept.read_bytes())
    else:
        raw.write_bytes(_fetched(source))
    openpgp.only(raw, source.fingerprints, source.name, target)
    return target


def _fetched(source: Source) -> bytes:
    try:
        with urllib.request.urlopen(source.key_url, timeout=60) as answer:  # noqa: S310 - an address of the inventory
            return bytes(answer.read(_KEY_BYTES))
    except (OSError, ValueError) as fault:
        words = clock_words() if CLOCK.search(str(fault)) else f"repository {source.name}"
        raise UsageFault(
            f"{words}: its key cannot be had from {source.key_url}: {fault}; put it as {source.name}.asc into a "
            "folder, and name that in repos_key_dir"
        ) from None


def reached(wishes: SystemWishes, at: Mapping[str, str]) -> dict[str, Source]:
    """The vendors' repositories at the addresses at which this machine reaches them: a lab's stand-ins as files."""
    found = {}
    for name, one in wishes.sources.items():
        url = at.get(name, one.url)
        if urlsplit(url).hostname == VENDOR_HOST:
            url = f"file://{repositories(wishes.system, progress).folder}/{name}/{wishes.system}/"
        found[name] = one.model_copy(update={"url": url})
    return found


def apt_stanza(source: Source, key: Path) -> str:
    """A vendor's repository as apt reads it."""
    components = f"Components: {source.components}\n" if source.components else ""
    return (
        f"Types: deb\nURIs: {source.url}\nSuites: {source.suite}\n{components}"
        f"Architectures: {source.architecture}\nSigned-By: {key}\n"
    )


def dnf_section(source: Source, key: Path) -> str:
    """A vendor's repository as dnf reads it."""
    return f"[{source.name}]\nname={source.name}\nbaseurl={source.url}\nenabled=1\ngpgcheck=1\ngpgkey=file://{key}\n"
