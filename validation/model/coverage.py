"""What a plan of pairs of fabric ports covers, and the chance that a single bad link escapes it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.model.base import Model

Method = Literal["all pairs", "by rail", "by leaf", "sampled"]

_Chance = Field(ge=0, le=1)


class Coverage(Model):
    """Which of the ports, pairs of ports and pairs of leaf switches of a site are measured. A pair is counted once.

    The four chances are those of one bad part, each part as likely as any other, which every measurement over it would
    show: of the way between a port and its leaf switch (`escape_port`); of what only two ports share (`escape_pair`);
    of what only two leaf switches share (`escape_leaves`); of one of a leaf switch's uplinks (`escape_uplink`), where
    it has as many as ports that are declared here, which is the most that a fabric without oversubscription has, and
    each flow takes one of them by chance. The last two are None where the inventory declares fewer than two leaf
    switches of one network.
    """

    what: str
    method: Method
    ports: int = Field(ge=0)
    ports_measured: int = Field(ge=0)
    pairs: int = Field(ge=0)
    pairs_possible: int = Field(ge=0)
    leaf_pairs: int = Field(default=0, ge=0)
    leaf_pairs_possible: int = Field(default=0, ge=0)
    escape_port: float = _Chance
    escape_pair: float = _Chance
    escape_leaves: float | None = Field(default=None, ge=0, le=1)
    escape_uplink: float | None = Field(default=None, ge=0, le=1)

    @property
    def whole(self) -> bool:
        """Every pair is measured."""
        return self.pairs == self.pairs_possible

    @property
    def extent(self) -> str:
        """How much of it is measured, in words."""
        leaves = f", {self.leaf_pairs} of {number_of(self.leaf_pairs_possible, 'pair')} of leaf switches"
        return (
            f"{self.what}, {self.method}: {self.ports_measured} of {number_of(self.ports, 'port')}, {self.pairs} of "
            f"{number_of(self.pairs_possible, 'pair')} of ports{leaves if self.leaf_pairs_possible else ''}"
        )

    @property
    def escapes(self) -> str:
        """The chances that a single bad link is not met, in words."""
        parts = [(self.escape_port, "between a port and its leaf switch"), (self.escape_pair, "between two ports only")]
        if self.escape_leaves is not None:
            parts.append((self.escape_leaves, "between two leaf switches only"))
        if self.escape_uplink is not None:
            parts.append((self.escape_uplink, "one of as many uplinks of a leaf switch as it has ports"))
        chances = ", ".join(f"{percent(chance)} {where}" for chance, where in parts)
        return f"chance that a single bad link escapes: {chances}"

    @property
    def brief(self) -> str:
        """What of the pairs is measured, where that is not all of them."""
        return f"pairs of {self.what}: {self.pairs} of {self.pairs_possible} are measured ({self.method})"

    @property
    def text(self) -> str:
        """Extent and chances."""
        return f"{self.extent}; {self.escapes}"


def percent(chance: float) -> str:
    """`0 %` and `100 %` of these exactly, and of nothing that is only near them."""
    if chance in (0, 1):
        return f"{100 * chance:.0f} %"
    if chance < 0.001:
        return "below 0.1 %"
    return "above 99.9 %" if chance > 0.999 else f"{100 * chance:.2g} %" if chance < 0.1 else f"{100 * chance:.1f} %"
