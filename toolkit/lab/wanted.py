"""The lab that is asked for: by its nodes, or by the fabric that is to be rehearsed in it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.lab.rehearsable import WORDS, needs_machines
from toolkit.lab.sources import over_of, release_for
from toolkit.lab.spec import DEFAULT_NAME, LabSpec, make_spec

NODES = 4
RATE_GBPS = 1.0


@dataclass(frozen=True)
class WantedLab:
    """The lab that the options of `lab up` mean. `command` is how a user asks for it."""

    name: str = DEFAULT_NAME
    count: int = NODES
    rate_gbps: float = RATE_GBPS
    os_name: str | None = None
    vms: bool = False
    command: str = "toolkit lab up"
    bmc: bool = False
    switch: bool = False
    mirror: str = ""
    storage: bool = False

    def spec(self) -> LabSpec:
        """As far as it is known before it is made."""
        release = release_for(self.os_name)
        title, over = release.title, over_of(release)
        parts = (self.bmc, self.switch, self.mirror, self.storage)
        return make_spec(self.name, 0, self.count, self.rate_gbps, title, self.vms, over, *parts)


@dataclass(frozen=True)
class LabRequest:
    """The options of `lab up` and `lab needs` as they were given. `nodes`: how many, and whether GPU servers are
    virtual machines; None for what the fabric needs.
    """

    fabric: str | None
    nodes: tuple[int, bool] | None
    rate_gbps: float
    os_name: str | None
    name: str
    bmc: bool = False
    switch: bool = False
    mirror: Path | None = None
    storage: bool = False

    def checked(self) -> WantedLab:
        """The lab that the options mean: --nodes, else what the fabric needs.

        LabError for a fabric that no lab can rehearse, UsageFault where --nodes contradicts it.
        """
        count, vms = self.nodes or (NODES, False)
        if self.fabric:
            vms = self._of_fabric(self.fabric)
        mirror = str(self.mirror.resolve()) if self.mirror else ""
        parts = (vms, self._command(), self.bmc, self.switch, mirror, self.storage)
        return WantedLab(self.name, count, self.rate_gbps, self.os_name, *parts)

    def _of_fabric(self, fabric: str) -> bool:
        """Whether the fabric needs virtual machines."""
        from validation.rules.fabric import load_fabric  # here, for `toolkit lab ssh` need not wait for it

        needed = needs_machines(load_fabric(fabric))
        if self.nodes and self.nodes[1] != needed:
            there, made = (WORDS["vm" if machines else "container"] for machines in (needed, self.nodes[1]))
            raise UsageFault(
                f"--fabric {fabric} is rehearsed with {there}, but {shlex.join(self._nodes())} asks for {made}; "
                "leave one of the two away"
            )
        return needed

    def _nodes(self) -> list[str]:
        return ["--nodes", "vm" if self.nodes[1] else str(self.nodes[0])] if self.nodes else []

    def _command(self) -> str:
        words = [*(["--fabric", self.fabric] if self.fabric else []), *self._nodes()]
        words += ["--rate", f"{self.rate_gbps:g}"] if self.rate_gbps != RATE_GBPS else []
        words += ["--os", self.os_name] if self.os_name else []
        words += ["--bmc"] if self.bmc else []
        words += ["--switch"] if self.switch else []
        words += ["--storage"] if self.storage else []
        words += ["--mirror", str(self.mirror)] if self.mirror else []
        words += ["--name", self.name] if self.name != DEFAULT_NAME else []
        return shlex.join(["toolkit", "lab", "up", *words])
