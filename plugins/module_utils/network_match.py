"""Which link a [Match] section of systemd.network(5) takes. Runs on nodes: Python 3.9, standard library."""

from __future__ import annotations

import fnmatch
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Pairs = list[tuple[str, str]]

#: Keys of which only a wireless port has a value.
WIRELESS = ("WLANInterfaceType", "SSID", "BSSID")
#: Keys of a link, each with a list of patterns.
OF_LINK = ("Name", "OriginalName", "Driver", "Path", "Type", "Kind", "Property", *WIRELESS)
HARDWARE = ("MACAddress", "PermanentMACAddress")
#: Keys of the machine and not of a link, each with one condition in the words of systemd.unit(5).
OF_MACHINE = (
    "Host", "Virtualization", "KernelCommandLine", "KernelVersion", "Version", "Credential", "Architecture", "Firmware",
)  # fmt: skip
#: What uname calls an architecture, where systemd has another name for it.
ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "arm64", "i686": "x86", "i386": "x86", "ppc64le": "ppc64-le"}


def mac(text: str) -> str:
    """A hardware address (Ethernet, InfiniBand) as hexadecimal digits alone, "" of what is none.

    systemd.network(5) has it in groups of two digits with colons or hyphens, or of four with dots; old keyfiles of
    NetworkManager have a list of decimal numbers.
    """
    numbers = text.strip().rstrip(";").split(";")
    if len(numbers) in (6, 20) and all(one.isdigit() and int(one) < 256 for one in numbers):
        return "".join(f"{int(one):02x}" for one in numbers)
    for separator, digits in ((":", 2), ("-", 2), (".", 4)):
        groups = text.strip().lower().split(separator)
        if len(groups) * digits in (12, 40) and all(re.fullmatch(f"[0-9a-f]{{1,{digits}}}", one) for one in groups):
            return "".join(one.zfill(digits) for one in groups)
    return ""


def macs(link: Mapping[str, Any], *keys: str) -> set[str]:
    """A link's hardware addresses by these keys of `ip`."""
    return {mac(str(link[key])) for key in keys if link.get(key)} - {""}


def own_macs(link: Mapping[str, Any]) -> set[str]:
    """The address that the hardware came with; where `ip` does not say that it is another, the present one."""
    return macs(link, "permaddr") or macs(link, "address")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _words(value: str) -> list[str]:
    """Words of a value, quoted ones as one."""
    try:
        return shlex.split(value)
    except ValueError:  # a quote that does not end
        return value.split()


def _listed(match: Pairs) -> dict[str, list[str]]:
    """Patterns of each key of a link: a key that comes again goes on, an empty one begins anew.

    A `!` before the list inverts each of its words.
    """
    found: dict[str, list[str]] = {}
    for key, value in match:
        sign = "!" if value.startswith("!") else ""
        words = [sign + word for word in _words(value[len(sign) :])]
        found[key] = [*found.get(key, []), *words] if value else []
    return {key: words for key, words in found.items() if words}


def _takes(patterns: Sequence[str], said: set[str]) -> bool:
    """Whether one of the wanted patterns is of this, and none of the inverted ones."""
    wanted = [one for one in patterns if not one.startswith("!")]
    refused = [one[1:] for one in patterns if one.startswith("!")]
    fits = lambda many: any(fnmatch.fnmatchcase(name, one) for name in said for one in many)  # noqa: E731
    return not fits(refused) and (not wanted or fits(wanted))


def _properties(link: Mapping[str, Any], root: Path) -> set[str] | None:
    """What udev knows of a link, each as KEY=value; None where its record is not there."""
    record = _text(root / f"run/udev/data/n{link.get('ifindex', '')}")
    if not record:
        return None
    return {line[2:] for line in record.splitlines() if line.startswith("E:")}


def _has_properties(patterns: Sequence[str], said: set[str]) -> bool:
    """Every wanted property is there, and none of the inverted ones."""
    return all((one.lstrip("!") in said) != one.startswith("!") for one in patterns)


def _virtualization(asked: str, root: Path) -> bool | None:
    container = _text(root / "run/systemd/container")
    processor = _text(root / "proc/cpuinfo")
    machine = bool(re.search(r"^flags\s*:.*\bhypervisor\b", processor, re.MULTILINE)) if processor else None
    virtual = True if container else machine
    if asked.lower() in ("yes", "true", "on", "1", "no", "false", "off", "0"):
        wanted = asked.lower() in ("yes", "true", "on", "1")
        return None if virtual is None else virtual == wanted
    if asked == "container" or container:
        return asked in ("container", container) and bool(container)
    if machine is False:
        return False  # neither one nor the other
    return machine if asked == "vm" else None


def _release(asked: str, root: Path) -> bool | None:
    """Comparisons and patterns of the kernel's release, of which each has to hold."""
    release = _text(root / "proc/sys/kernel/osrelease")
    if not release:
        return None
    for one in re.findall(r"(?:[<>=!]=?\s*)?[^\s<>=!]+", asked):
        sign, version = re.match(r"([<>=!]*)\s*(.*)", one).groups()  # type: ignore[union-attr]
        numbers = [[int(part) for part in re.findall(r"\d+", text.split("-")[0])] for text in (release, version)]
        here, there = numbers
        holds = {
            "": fnmatch.fnmatchcase(release, version), "=": fnmatch.fnmatchcase(release, version), "==": here == there,
            "!=": here != there, "<": here < there, "<=": here <= there, ">": here > there, ">=": here >= there,
        }.get(sign)  # fmt: skip
        if not holds:
            return holds
    return True


def _holds(key: str, asked: str, root: Path) -> bool | None:
    """Whether this machine is as a condition asks; None where that is not known."""
    if key == "Host":
        if re.fullmatch(r"[0-9a-fA-F]{32}|[0-9a-fA-F-]{36}", asked):
            number = _text(root / "etc/machine-id")
            return asked.replace("-", "").lower() == number if number else None
        name = _text(root / "proc/sys/kernel/hostname")
        return fnmatch.fnmatchcase(name, asked) if name else None
    if key == "KernelCommandLine":
        line = _text(root / "proc/cmdline")
        words = _words(line)
        return (
            (asked in words or ("=" not in asked and asked in {w.partition("=")[0] for w in words})) if line else None
        )
    if key == "Architecture":
        here = platform.machine()
        return asked in ("native", ARCHITECTURES.get(here, here))
    if key == "Virtualization":
        return _virtualization(asked, root)
    if key in ("KernelVersion", "Version"):
        return _release(asked, root)
    if key == "Firmware":
        there = {"uefi": "sys/firmware/efi", "device-tree": "sys/firmware/devicetree"}.get(asked)
        return (root / there).exists() if there else None
    return (root / "run/credentials/@system" / asked).exists()


def _conditions(match: Pairs, root: Path) -> Iterator[bool]:
    """Whether each of a section's conditions of the machine holds; what is not known counts as fitting.

    `!` inverts a condition; of those with `|` before them one is enough.
    """
    found: dict[str, list[tuple[bool, bool]]] = {}
    for key, value in match:
        if key in OF_MACHINE:
            trigger, text = value.startswith("|"), value.lstrip("|").strip()
            inverted, text = text.startswith("!"), text.lstrip("!").strip()
            holds = _holds(key, text, root) if text else None
            fits = holds is None or holds != inverted
            found[key] = [*found.get(key, []), (trigger, fits)] if value else []
    every = [one for many in found.values() for one in many]
    yield all(fits for trigger, fits in every if not trigger)
    yield not any(trigger for trigger, _ in every) or any(fits for trigger, fits in every if trigger)


def matches(match: Pairs, link: Mapping[str, Any], driver: str, place: str = "", root: Path = Path("/")) -> bool:
    """Whether a [Match] section of systemd.network(5) takes this link: every key has to.

    place: its ID_PATH of udev, "" where that is not known. A key that systemd-networkd does not know it leaves out,
    and a section without any other takes no link.
    """
    asked = [(key, value) for key, value in match if key in (*OF_LINK, *HARDWARE, *OF_MACHINE)]
    if not any(value for _, value in asked) or link["ifname"] == "lo":
        return False
    kind = str((link.get("linkinfo") or {}).get("info_kind", ""))
    said: dict[str, set[str] | None] = {
        "Name": {str(link["ifname"]), *map(str, link.get("altnames") or ())},
        "OriginalName": {str(link["ifname"])},
        "Driver": {driver or kind},
        "Path": {place} if place else None,
        "Type": {str(link["link_type"]), kind} - {""} if link.get("link_type") else None,
        "Kind": {kind} - {""},  # Kind=!* is of whatever nobody made
        "MACAddress": macs(link, "address"),
        "PermanentMACAddress": own_macs(link),
        **{key: set() for key in WIRELESS},  # a port with a cable has none
    }
    for key, words in _listed([pair for pair in asked if pair[0] not in OF_MACHINE]).items():
        if key == "Property":
            known = _properties(link, root)
            if known is not None and not _has_properties(words, known):
                return False
        elif key in HARDWARE:
            if not (said[key] or set()) & {mac(word) for word in words}:
                return False
        else:
            names = said[key]
            if names is not None and not _takes(words, names):
                return False
    return all(_conditions(asked, root))
