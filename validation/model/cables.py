"""A cable of a node, as the site wants it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator, Field

from validation.model.base import Model


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _quoted(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"{value} is a number, as which YAML also reads 1:7 (67); put the name in quotes")
    return value


_Name = Annotated[str, BeforeValidator(_text), Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/ -]{0,62}$")]


class Cable(Model):
    """A port of a node and the port of the switch that it belongs in. `rail`: what cards of one kind share."""

    node: _Name
    port: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,15}$")]
    switch: _Name
    switch_port: Annotated[_Name, BeforeValidator(_quoted)]
    rail: _Name | None = None

    def __str__(self) -> str:
        """`gpu3 eth2`."""
        return f"{self.node} {self.port}"


def same_port(one: str, other: str) -> bool:
    """Whether two names are of one port: `Ethernet 1/7`, `ethernet1/7` and `Eth1/7`."""
    return plain_port(one) == plain_port(other)


def same_switch(one: str, other: str) -> bool:
    """Whether two names are of one switch: `leaf1` and `Leaf1.example.net`, but not `leaf1.dc1` and `leaf1.dc2`."""
    one, other = one.lower(), other.lower()
    if one == other:
        return True
    if _is_address(one) or _is_address(other) or ("." in one and "." in other):
        return False
    return one.partition(".")[0] == other.partition(".")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def short_switch(name: str) -> str:
    """A switch's name without its domain; an address as it is."""
    return name if _is_address(name) else name.partition(".")[0]


def plain_port(name: str) -> str:
    """A port's name without what systems write differently."""
    plain = name.replace(" ", "").lower()
    return "eth" + plain.removeprefix("ethernet") if plain.startswith("ethernet") else plain
