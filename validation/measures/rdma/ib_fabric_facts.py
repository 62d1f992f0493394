"""Facts of an InfiniBand fabric (kind ib-fabric)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name

Guid = Annotated[str, Field(pattern=r"^0x[0-9a-f]+$")]


class SubnetManager(Model):
    """A subnet manager as sminfo names it; `state` MASTER, STANDBY ..."""

    state: Name
    lid: Count
    guid: Guid
    priority: Count

    def __str__(self) -> str:
        """`MASTER lid 1 guid 0xb8599f0300aa0001 priority 14`."""
        return f"{self.state} lid {self.lid} guid {self.guid} priority {self.priority}"


class IbPort(Model):
    """A port of the fabric and the name of its node."""

    node: str
    guid: Guid
    number: Count

    @property
    def key(self) -> tuple[str, int]:
        """What tells ports apart: nodes may share a name."""
        return self.guid, self.number

    def __str__(self) -> str:
        """`gpu3 mlx5_0 port 1 0xb8599f0300ac0001`."""
        return f"{self.node} port {self.number} {self.guid}"


class IbRate(Model):
    """Width and speed of a link as ibnetdiscover writes them: 4x EDR. `lanes` None where it gives no width."""

    lanes: Annotated[int, Field(gt=0)] | None
    speed: str

    def __str__(self) -> str:
        """`4x EDR`."""
        return f"{self.lanes or '?'}x {self.speed}"


class IbLink(Model):
    """A link, `there` None where nothing is behind the port. More than one rate: its ends or the asked ports differ."""

    here: IbPort
    there: IbPort | None = None
    rates: Annotated[tuple[IbRate, ...], Field(min_length=1)]

    @property
    def rate(self) -> str:
        """Its rate in words: `4x EDR`, or `4x EDR or 1x SDR`."""
        return " or ".join(map(str, self.rates))


class IbErrors(Model):
    """Counters of a port beyond ibqueryerrors' thresholds."""

    port: IbPort
    counters: dict[str, Count]


class IbFabricFacts(Facts):
    """An InfiniBand fabric as the asked ports show it.

    `subnets`: how many fabrics these are in; `links` each once; `unanswered` queries for error counters; `nodes`,
    `ports`: what ibnetdiscover listed at least; `..._checked`: what ibqueryerrors went through, of the asked port where
    most is missing.
    """

    type: Literal["ib-fabric"] = "ib-fabric"
    devices: tuple[str, ...]
    subnet_managers: tuple[SubnetManager, ...]
    subnets: Count
    links: tuple[IbLink, ...]
    errors: tuple[IbErrors, ...]
    unanswered: Count
    nodes: Count
    nodes_checked: Count
    ports: Count
    ports_checked: Count
