"""What a switch does with RoCE at each of its ports, the same form for every system."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from toolkit.switches.keys import System
from toolkit.switches.lines import Line
from validation.model.cables import plain_port

T = TypeVar("T")


class Said(NamedTuple, Generic[T]):
    """A value, and the line that it is in."""

    value: T
    line: Line


@dataclass
class Port:
    """A port. What has no entry is not configured; `lacking` says in words which map a port does not have.

    dscp: DSCP -> traffic class. queue: traffic class -> queue. pfc: priorities with flow control. paused: priority ->
    queue that its pause frames stop. group: traffic class -> priority group whose room counts, and group_of: priority
    -> that group. ecn, strict, dropped: queues that mark, that are sent first, and that drop early without marking.
    """

    name: str
    line: Line
    down: Line | None = None
    mtu: Said[int] | None = None
    channel: Said[int] | None = None
    lacp: bool = False
    dscp: dict[int, Said[int]] = field(default_factory=dict)
    queue: dict[int, Said[int]] = field(default_factory=dict)
    pfc: dict[int, Line] = field(default_factory=dict)
    paused: dict[int, Said[int]] = field(default_factory=dict)
    group: dict[int, Said[int]] = field(default_factory=dict)
    group_of: dict[int, Said[int]] = field(default_factory=dict)
    ecn: dict[int, Line] = field(default_factory=dict)
    strict: dict[int, Line] = field(default_factory=dict)
    dropped: dict[int, Line] = field(default_factory=dict)
    pause: list[Line] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)


@dataclass
class Switch:
    """A switch's configuration: its name, its system, its ports but those that bundle others."""

    name: str
    system: System
    source: str
    ports: list[Port]

    def port(self, name: str) -> Port | None:
        """The port of that name, however it is written."""
        return next((port for port in self.ports if plain_port(port.name) == plain_port(name)), None)
