"""Facts of kinds incast and all-to-all: what many ports carried at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive


def jain(rates: Sequence[float]) -> float:
    """The index of fairness: 1 where all are equal, 1/n where one has everything (Jain, Chiu and Hawe, 1984,
    DEC-TR-301)."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


class SwitchSession(Model):
    """What one node sent to another. `retransmits`: TCP segments that it sent again, None over RDMA."""

    sender: Name
    receiver: Name
    seconds: Positive
    bytes: Count = Field(gt=0)
    retransmits: Count | None = None

    @property
    def gbps(self) -> float:
        """Of the session by itself."""
        return self.bytes * 8 / self.seconds / 1e9


class SwitchPort(Model):
    """A node's port. `window_s`: from the first begin to the last end of what it received, None where it only sent;
    `at_once_s`: how much of that all of its senders sent. `before`, `after`: what the port counts."""

    node: Name
    before: dict[str, Count]
    after: dict[str, Count]
    window_s: Positive | None = None
    at_once_s: Positive | None = None


class SwitchLoadFacts(Facts):
    """`seconds`: asked of each session."""

    type: Literal["switch-load"] = "switch-load"
    tool: Literal["iperf3", "perftest"]
    seconds: Positive
    sessions: tuple[SwitchSession, ...] = Field(min_length=2)
    ports: tuple[SwitchPort, ...] = Field(min_length=2)

    def received(self, port: SwitchPort) -> float:
        """Gbit/s that arrived at a port, over its whole window: less than the sum of its sessions' rates."""
        assert port.window_s is not None
        return sum(s.bytes for s in self.sessions if s.receiver == port.node) * 8 / port.window_s / 1e9

    @property
    def receivers(self) -> list[SwitchPort]:
        """Ports at which something arrived."""
        return [port for port in self.ports if port.window_s is not None]

    @property
    def fairness(self) -> float:
        """Of all sessions."""
        return jain([one.gbps for one in self.sessions])

    def fairness_at(self, port: SwitchPort) -> float:
        """Of the sessions that a port received."""
        return jain([one.gbps for one in self.sessions if one.receiver == port.node])

    @property
    def retransmits(self) -> int | None:
        """Of all sessions; None where one does not count them."""
        found = [one.retransmits for one in self.sessions]
        return None if None in found else sum(one for one in found if one is not None)
