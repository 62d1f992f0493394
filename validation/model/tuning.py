"""Settings of a node's kernel and services that decide how evenly and how fast it computes."""

from __future__ import annotations

from validation.model.base import Model
from validation.model.facts import Count, Name


class Governor(Model):
    """A CPU frequency governor, and how many frequency policies have it."""

    name: Name
    policies: Count


class IdleState(Model):
    """An idle state that processors may enter: the kernel's own figure of how long leaving it takes, in microseconds
    (the most of all processors), and on how many processors it is on."""

    name: Name
    latency_us: Count
    processors: Count

    def __str__(self) -> str:
        """`C6 (190 us, on 64 processors)`."""
        return f"{self.name} ({self.latency_us} us, on {self.processors} processors)"


class Sysctl(Model):
    """A kernel parameter as provisioning wrote it down, and as the kernel has it; `found` None: it has none."""

    name: Name
    wanted: str
    found: str | None

    def __str__(self) -> str:
        """In words."""
        found = "not there" if self.found is None else f"{self.found!r}"
        return f"{self.name} is {found}, {self.wanted!r} was provisioned"


class ServiceLimit(Model):
    """How much memory a running service may lock, in bytes; None: no limit."""

    service: Name
    memlock_bytes: Count | None


class Tuning(Model):
    """What is set. Of what the node does not have: "", None or nothing; `unread`: what could not be looked at."""

    governors: tuple[Governor, ...]
    energy: tuple[str, ...] = ()  # energy performance preferences, each once
    governor_unit: str = ""  # what role tuning sets at every boot
    idle_driver: str = ""
    idle: tuple[IdleState, ...] = ()
    latency_limit_us: Count | None = None  # of PM QoS, which keeps processors from deeper states; None: not known
    numa_balancing: Count | None = None
    zone_reclaim: Count | None = None
    huge_pages: str = ""  # mode of transparent huge pages
    machine: str = ""  # as uname has it
    sysctls: tuple[Sysctl, ...] | None = None  # None: role tuning wrote none down
    memlock_wanted: str = ""  # systemd's DefaultLimitMEMLOCK as role tuning wrote it
    services: tuple[ServiceLimit, ...] = ()
    irqbalance: str = ""  # systemctl is-active
    tuned: str = ""  # systemctl is-active
    tuned_profile: str = ""
    tuned_governors: tuple[str, ...] = ()  # those that its profile tries, in order
    unread: str = ""
