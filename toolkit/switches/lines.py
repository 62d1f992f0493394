"""The text of a running configuration as blocks of lines with their numbers, and whether it can be used at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from toolkit.switches.keys import NAMES, Key, OutOfRange, System, match
from validation.base.errors import ToolkitError

_MORE = re.compile(r"--\s?more\s?--", re.IGNORECASE)
_PROMPT = re.compile(r"^[\w.@:~()/-]{1,80}[#$>]\s*(?:exit|show .*)?$")
_SONIC_PORT = re.compile(r"interface (?:Eth\d+/\d+(?:/\d+)*|Ethernet\s?\d+|Eth \d+/\d+(?:/\d+)*)$")
_OS10_PORT = re.compile(r"interface ethernet\d+/\d+/\d+(?::\d+)?$")
#: Lines that stand once in a configuration: a hostname whatever it is, a port by its name.
_ONCE = re.compile(r"(hostname) |interface ")
#: What shows another system, to name it. The first that is found counts.
_OTHERS = (
    (re.compile(r"^\s*\{", re.S), "JSON, such as config_db.json of community SONiC"),
    (re.compile(r"^(?:feature \S+|\s*vrf context management|!Command: show running-config)", re.M), "Cisco NX-OS"),
    (
        re.compile(
            r"^! (?:device: .*EOS|Command: show running-config)|^\s*no aaa root$|^interface Ethernet\d+\n {3}\S", re.M
        ),
        "Arista EOS",
    ),
    (re.compile(r"^set (?:interfaces|class-of-service|system) ", re.M), "Juniper Junos"),
    (re.compile(r"^(?:nv set |- (?:header|set):)", re.M), "NVIDIA Cumulus Linux"),
    (re.compile(r"^interface TenGigabitEthernet |^dcb-map \S+|^! Version 9\.", re.M), "Dell OS9"),
)
#: Answers of a switch that gave no configuration.
_REFUSALS = re.compile(r"^%? ?(?:Error|Invalid|Unrecognized|Permission denied|Command not found|.*: command not found)",
                       re.IGNORECASE)  # fmt: skip


class SwitchFault(ToolkitError):
    """A switch, or a file of one, that cannot be used; one sentence with what to do."""


@dataclass
class Line:
    """A line of a configuration: where, its text, and the lines below it.

    form, values: of a line that the table of keys has; "" and nothing of all others.
    """

    source: str
    number: int
    text: str
    below: list[Line] = field(default_factory=list)
    form: str = ""
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`leaf1.txt:41: dscp 26 traffic-class 3`."""
        return f"{self.source}:{self.number}: {self.text}"

    def has(self, form: str) -> bool:
        """Whether a line of that form is below it."""
        return any(line.form == form for line in self.below)


def system_of(text: str, source: str) -> System:
    """Whose configuration a text is; SwitchFault for any that is of neither system."""
    lines = [line.rstrip() for line in text.splitlines()]
    known = f"the running configuration of {NAMES['sonic']} or {NAMES['os10']}"
    other = next((name for pattern, name in _OTHERS if pattern.search(text)), None)
    if other:
        raise SwitchFault(f"{source}: is not {known} but {other}; nothing of it was checked")
    if any(map(_OS10_PORT.match, lines)):
        return "os10"
    if any(map(_SONIC_PORT.match, lines)):
        return "sonic"
    said = next((line.strip() for line in lines if _REFUSALS.match(line.strip())), None)
    if said:
        raise SwitchFault(f"{source}: holds no configuration, the switch answered: {said[:120]}")
    raise SwitchFault(f"{source}: is not {known}: no port is in it; collect it with: show running-configuration")


def read(text: str, source: str) -> list[Line]:
    """The blocks of a configuration; SwitchFault where it was cut."""
    blocks: list[Line] = []
    depths: list[tuple[int, Line]] = []
    last = ""
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole.rstrip()
        if _MORE.search(line):
            raise SwitchFault(f"{source}:{number}: was cut by the pager; collect it with: show running-configuration "
                              "| no-more")  # fmt: skip
        if not line.strip() or _PROMPT.match(line):
            continue
        last = line
        if line.strip().startswith("!"):
            continue
        depth = len(line) - len(line.lstrip())
        while depths and depths[-1][0] >= depth:
            depths.pop()
        made = Line(source, number, " ".join(line.split()))
        if depths:
            depths[-1][1].below.append(made)
        elif depth == 0:
            blocks.append(made)
        depths.append((depth, made))
    begun = last[:1].isspace() or re.match(r"(?:interface|qos|qos-map|policy-map|class-map|trust|system|wred) ", last)
    if begun and not last.strip().startswith("!"):
        raise SwitchFault(f"{source}: was cut: its last line is inside a block ({last.strip()}); collect it again")
    return blocks


def understand(lines: list[Line], keys: tuple[Key, ...]) -> None:
    """Give each line the key of the table that it is of; SwitchFault for a value that cannot be."""
    for line in lines:
        try:
            found = match(keys, line.text)
        except OutOfRange as fault:
            raise SwitchFault(f"{line}: {fault}; is the file as the switch printed it?") from None
        if found is not None:
            line.form, line.values = found[0].form, found[1]
            understand(line.below, found[0].lines)


def once(blocks: list[Line]) -> None:
    """SwitchFault where a second configuration follows the first: the lines of both would be read as of one switch."""
    seen: dict[str, Line] = {}
    for line in blocks:
        found = _ONCE.match(line.text)
        if found is None:
            continue
        what = found[1] or line.text
        if what in seen:
            raise SwitchFault(f"{line}: `{what}` is at line {seen[what].number} too, so the file holds more than "
                              "one configuration; give each switch a file of its own")  # fmt: skip
        seen[what] = line


def block(heads: dict[str, Line], head: str, use: Line) -> Line:
    """The block that a line names; SwitchFault where it is not in the file."""
    found = heads.get(head)
    if found is None:
        raise SwitchFault(f"{use}: `{head}` is not in the file, so it was cut or is not whole; collect it again")
    return found
