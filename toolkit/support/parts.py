"""Parts of a node under every name that a person may know one by: as the node, its BMC and the last run list them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.errors import UsageFault
from validation.base.visible import visible
from validation.probes.host_parts import serial

MOST_PARTS = 500
"""Of one node: a full server with its memory, drives and ports has about 150. Project default."""
_TEXT = 120
KINDS = ("server", "gpu", "nic", "drive", "dimm", "cpu", "psu", "fan")


@dataclass(frozen=True)
class Part:
    """A part. "" or empty: nobody reports it. `above`: PCI ports above it; `seen_by`: who lists it."""

    kind: str
    serial: str = ""
    slot: str = ""
    bmc_slot: str = ""
    model: str = ""
    firmware: str = ""
    index: int | None = None
    uuid: str = ""
    pci: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    rdma: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    device: str = ""
    seen_by: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """All words that name it, in lower case."""
        words = {self.serial, self.slot, self.bmc_slot, self.uuid, self.device, *self.interfaces, *self.rdma}
        words |= {*self.macs, *(form for address in self.pci for form in _forms(address))}
        if self.index is not None:
            words |= {str(self.index), f"gpu{self.index}"}
        return {word.lower() for word in words if word}

    @property
    def label(self) -> str:
        """How it is named in the name of a file: letters, digits and dashes."""
        gpu = "" if self.index is None else f"gpu{self.index}"
        first = next(filter(None, (gpu, *self.interfaces, self.device, self.slot, self.bmc_slot, *self.pci)), self.kind)
        return re.sub(r"[^A-Za-z0-9]+", "-", first).strip("-")[:40] or self.kind

    def __str__(self) -> str:
        """`GPU 3, PCI 0000:3b:00.0, serial 1234, ...`."""
        what = {"gpu": "GPU", "nic": "network card", "dimm": "memory module", "cpu": "processor", "psu": "power supply"}
        first = what.get(self.kind, self.kind) + ("" if self.index is None else f" {self.index}")
        fields = (
            ("", ", ".join(self.interfaces)), ("", self.device), ("slot ", self.slot), ("BMC slot ", self.bmc_slot),
            ("PCI ", ", ".join(self.pci)), ("serial ", self.serial), ("", self.uuid), ("", self.model),
            ("firmware ", self.firmware),
        )  # fmt: skip
        return ", ".join([first, *(f"{word}{value}" for word, value in fields if value)])

    def document(self) -> dict[str, Any]:
        """Its fields."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def merged(self, other: Part) -> Part:
        """Both accounts of one part; where they differ the first counts."""
        mine, theirs = vars(self), vars(other)
        both: dict[str, Any] = {}
        for key, value in mine.items():
            if isinstance(value, tuple):
                both[key] = tuple(dict.fromkeys((*value, *theirs[key])))
            else:
                both[key] = theirs[key] if value in ("", None) else value
        return replace(self, **both)


def _forms(address: str) -> tuple[str, ...]:
    """`0000:3b:00.0` as people write it: also without domain, without function."""
    found = re.fullmatch(r"0*([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", address.lower())
    if found is None:
        return (address.lower(),)
    domain, bus, device, function = found.groups()
    base = f"{bus}:{device}"
    return (f"{domain}:{base}.{function}", f"0000{domain}:{base}.{function}", f"{domain}:{base}", f"{base}.{function}")


def _text(value: object) -> str:
    """A short text of a node's or BMC's answer, made visible."""
    return visible(str(value).strip())[:_TEXT] if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def _serial(value: object) -> str:
    """A serial number, "" for what firmware writes in place of one: two parts without one are two parts."""
    return serial(_text(value)) or ""


def _texts(value: object) -> tuple[str, ...]:
    each = value if isinstance(value, (list, tuple)) else [value]
    return tuple(filter(None, map(_text, each[:16])))


def _pci(value: object) -> tuple[str, ...]:
    return tuple(
        one for one in _texts(value) if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", one.lower())
    )


def of_node(said: Mapping[str, Any]) -> Part | None:
    """A part as the node's program lists it; None where it is none."""
    kind = said.get("kind")
    if kind not in KINDS:
        return None
    index = said.get("index")
    return Part(
        kind=str(kind), serial=_serial(said.get("serial")), slot=_text(said.get("slot")),
        model=_text(said.get("model")), firmware=_text(said.get("firmware")), uuid=_text(said.get("uuid")),
        pci=_pci(said.get("pci")),
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        above=_pci(said.get("above")), interfaces=_texts(said.get("interface")), rdma=_texts(said.get("rdma")),
        macs=_texts(said.get("macs")), device=_text(said.get("device")), seen_by=("node",),
    )  # fmt: skip


def of_bmc(said: Mapping[str, Any]) -> Part | None:
    """A part as the BMC lists it."""
    kind = said.get("kind")
    if kind not in KINDS:
        return None
    return Part(
        kind=str(kind), serial=_serial(said.get("serial")), bmc_slot=_text(said.get("slot")),
        model=_text(said.get("model")), firmware=_text(said.get("firmware")), macs=_texts(said.get("macs")),
        seen_by=("BMC",),
    )  # fmt: skip


def _same(one: Part, other: Part) -> bool:
    """Whether two accounts are of one part."""
    if one.kind != other.kind:
        return False
    if one.kind == "server" or (one.serial and one.serial == other.serial):
        return True
    cards = {address.rpartition(".")[0] for address in one.pci} & {address.rpartition(".")[0] for address in other.pci}
    alike = bool(set(one.macs) & set(other.macs)) or bool(set(one.interfaces) & set(other.interfaces))
    return bool(cards) or alike or (one.kind == "dimm" and bool(one.slot) and one.slot == other.slot)


def union(accounts: Iterable[Part]) -> list[Part]:
    """Each part once. A card with several ports is one part."""
    found: list[Part] = []
    for one in accounts:
        at = next((n for n, other in enumerate(found) if _same(other, one)), None)
        if at is not None:
            found[at] = found[at].merged(one)
        elif len(found) < MOST_PARTS:
            found.append(one)
    return sorted(found, key=lambda part: (KINDS.index(part.kind), part.index if part.index is not None else 99))


def listed(parts: Sequence[Part]) -> str:
    """All parts, one a line."""
    return "\n".join(f"  {part}" for part in parts)


def find(parts: Sequence[Part], word: str) -> Part | None:
    """The part that a word names; None where there is none, UsageFault where it names several. A plain number is the
    index of a GPU before it is a slot: slots have small numbers, too.
    """
    wanted = word.strip().lower()
    indexed = [part for part in parts if part.index is not None and wanted == str(part.index)]
    found = indexed or [part for part in parts if wanted in part.names]
    if len(found) > 1:
        raise UsageFault(f"{word} names {len(found)} parts; name one by its PCI address or serial:\n{listed(found)}")
    return found[0] if found else None


def lines_of(part: Part) -> str:
    """A regular expression that is found in log lines of a part, and of the PCI ports above it."""
    patterns = [re.escape(one) for one in (part.serial, part.uuid) if len(one) >= 6]
    patterns += [rf"\b{re.escape(one)}\b" for one in (*part.interfaces, *part.rdma)]
    patterns += [rf"\b{re.escape(part.device)}(?:n\d+)?\b"] if part.device else []
    for address in (*part.pci, *part.above):
        domain, bus, rest = address.lower().split(":")
        device, _, function = rest.partition(".")
        short = rf"(?<![0-9a-f:]){bus}:{device}\.{function}(?![0-9a-f])"
        patterns.append(rf"{domain}:{bus}:{device}(?![0-9a-f])|{short}")
    slots = [re.escape(one) for one in (part.slot, part.bmc_slot) if one]
    if part.kind == "dimm" and slots:
        patterns.append(rf"(?:EDAC|DIMM|memory|mce).*?(?<![a-z0-9])(?:{'|'.join(slots)})(?![a-z0-9])")
    return "|".join(patterns) or "(?!)"
