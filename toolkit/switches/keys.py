"""The lines of a switch's configuration that matter to lossless RoCE: our own table of keys and their ranges.

What is read and what is written both go through it, so neither has a line that the other does not know. A block is a
line without indentation with the lines below it; `[[...]]` are the lines of a block inside a block. Made after the
public command references and examples of Enterprise SONiC and SmartFabric OS10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

System = Literal["sonic", "os10"]
NAMES: dict[System, str] = {"sonic": "Enterprise SONiC", "os10": "SmartFabric OS10"}

#: field -> smallest and largest value; a name ending in `s` is a list of them such as 0-3,26.
RANGES = {
    "dscp": (0, 63), "class": (0, 7), "queue": (0, 7), "group": (0, 7), "priority": (0, 7),
    "mtu": (1280, 9216), "kb": (1, 1_048_576), "percent": (0, 100), "weight": (1, 100), "channel": (1, 4096),
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """A block or line: its form with fields in braces, and the lines that it can hold."""

    form: str
    lines: tuple[Key, ...] = ()
    fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The names of its fields, in their order."""
        object.__setattr__(self, "fields", tuple(re.findall(r"{(\w+)}", self.form)))


def _keys(*forms: str) -> tuple[Key, ...]:
    return tuple(map(Key, forms))


_PFC = "pfc-priority {prioritys}"
SONIC: tuple[Key, ...] = (
    Key("hostname {name}"),
    Key("qos map dscp-tc {name}", _keys("dscp {dscps} traffic-class {class}")),
    Key("qos map tc-queue {name}", _keys("traffic-class {classs} queue {queue}")),
    Key("qos map tc-pg {name}", _keys("traffic-class {classs} priority-group {group}")),
    Key("qos map pfc-priority-queue {name}", _keys(f"{_PFC} queue {{queue}}")),
    Key("qos map pfc-priority-pg {name}", _keys(f"{_PFC} pg {{group}}")),
    Key("qos wred-policy {name}", _keys(
        "green minimum-threshold {kb} maximum-threshold {kb} drop-probability {percent}", "ecn {word}")),
    Key("qos scheduler-policy {name}", (Key("queue {queue}", _keys("type {word}", "weight {weight}")),)),
    Key("interface {port}", _keys(
        "description {rest}", "mtu {mtu}", "shutdown", "no shutdown", "channel-group {channel}", "mode {word}",
        "queue {queue} wred-policy {name}", "scheduler-policy {name}", "qos-map dscp-tc {name}",
        "qos-map tc-queue {name}", "qos-map tc-pg {name}", "qos-map pfc-priority-queue {name}",
        "qos-map pfc-priority-pg {name}", "priority-flow-control priority {priority}")),
    Key("interface {port} mode {word}", _keys("mtu {mtu}", "shutdown", "no shutdown")),
)  # fmt: skip
OS10: tuple[Key, ...] = (
    Key("hostname {name}"),
    Key("wred {name}", _keys(
        "random-detect color green minimum-threshold {kb} maximum-threshold {kb} drop-probability {percent}",
        "random-detect ecn")),
    Key("class-map type network-qos {name}", _keys("match qos-group {group}")),
    Key("class-map type queuing {name}", _keys("match queue {queue}")),
    Key("trust dscp-map {name}", _keys("qos-group {group} dscp {dscps}")),
    Key("qos-map traffic-class {name}", _keys("queue {queue} qos-group {groups}")),
    Key("policy-map type network-qos {name}", (Key("class {name}", _keys("pause", "pfc-cos {prioritys}")),)),
    Key("policy-map type queuing {name}", (Key("class {name}", _keys(
        "bandwidth percent {percent}", "priority", "random-detect {name}")),)),
    Key("system qos", _keys(
        "trust-map dscp {name}", "qos-map traffic-class {name}", "ets mode on",
        "service-policy input type network-qos {name}", "service-policy output type queuing {name}")),
    Key("interface {port}", _keys(
        "description {rest}", "mtu {mtu}", "shutdown", "no shutdown", "channel-group {channel} mode {word}",
        "flowcontrol receive {word}", "flowcontrol transmit {word}", "priority-flow-control mode {word}",
        "service-policy input type network-qos {name}", "service-policy output type queuing {name}",
        "qos-map traffic-class {name}", "trust-map dscp {name}", "ets mode on")),
)  # fmt: skip
TABLES: dict[System, tuple[Key, ...]] = {"sonic": SONIC, "os10": OS10}


class OutOfRange(ValueError):
    """A line of a known form with a value that no switch takes."""


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """Names are taken as they are; of the numbers, only what looks like one makes a line one of this form."""
    parts = re.split(r"({\w+})", form)
    made = ""
    for part in parts:
        name = part[1:-1] if part.startswith("{") else None
        if name is None:
            made += re.escape(part).replace(r"\ ", r"\s+")
        elif name == "rest":
            made += "(.+)"
        elif name == "port":
            made += r"((?:\S+|[A-Za-z-]+ \d[\d/:]*))"
        else:
            made += r"([\d,-]+)" if _range(name) else r"(\S+)"
    return re.compile(made)


def _range(name: str) -> tuple[int, int] | None:
    return RANGES.get(name) or (RANGES.get(name.removesuffix("s")) if name.endswith("s") else None)


def numbers(words: str) -> list[int]:
    """`0-2,26` as numbers."""
    found: list[int] = []
    for part in words.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _fault(name: str, said: str) -> str | None:
    limits = _range(name)
    if limits is None:
        return None
    low, high = limits
    single = name in RANGES
    try:
        values = [int(said)] if single else numbers(said)
    except ValueError:
        values = []
    if values and all(low <= value <= high for value in values):
        return None
    kind = name if single else name.removesuffix("s")
    return f"{said} is no {kind} from {low} to {high}"


def match(keys: tuple[Key, ...], text: str) -> tuple[Key, tuple[str, ...]] | None:
    """The key that a line is of, and the texts of its fields; OutOfRange where one has a value that cannot be."""
    for key in keys:
        found = _pattern(key.form).fullmatch(text)
        if found is None:
            continue
        for name, said in zip(key.fields, found.groups(), strict=True):
            if fault := _fault(name, said):
                raise OutOfRange(fault)
        return key, found.groups()
    return None


def known(system: System, path: tuple[str, ...]) -> None:
    """OutOfRange where the table does not have a line below those blocks."""
    keys = TABLES[system]
    for text in path:
        found = match(keys, text)
        if found is None:
            raise OutOfRange(f"{NAMES[system]} has no line `{text}` there")
        keys = found[0].lines
