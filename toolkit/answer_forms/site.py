"""Answers of the commands of a site."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolkit.answer_forms.base import Form
from toolkit.scan.answer import Answer as ScanAnswer
from validation.measures.asbuilt.facts import CheckOutcome
from validation.model.built import Deployment
from validation.verdict.addendum import Addendum


class Trouble(Form):
    """A node that could not be used, and why."""

    node: str
    why: str


class InventoryInit(Form):
    """`toolkit inventory init`: what was written."""

    inventory: str
    files: list[str]
    nodes: list[str]
    to_look_at: int = Field(description="places that are marked CHECK")
    problems: list[Trouble]


class NodeDifference(Form):
    """What the inventory says of a node, and what is there."""

    node: str
    what: str
    inventory: str
    found: str


class InventoryScan(Form):
    """`toolkit inventory scan`: where nodes differ from the inventory."""

    differences: list[NodeDifference]
    problems: list[Trouble]
    new: list[str] = Field(description="nodes that are not in the inventory")
    answers: dict[str, ScanAnswer] = Field(description="address -> what was read there")


class CheckedNode(Form):
    """A node and its as-built checks."""

    node: str
    state: Literal["ok", "failed", "incomplete", "not-checked"]
    error: str | None
    checks: list[CheckOutcome]


class Check(Form):
    """`toolkit check`: whether the nodes hold what site.yml was to give them."""

    inventory: str
    nodes: list[CheckedNode]


class Deployed(Deployment):
    """`toolkit deploy` and `toolkit teardown`: what became of each node."""


class NodeMoved(Form):
    """`toolkit node add`, `replace` and `remove`."""

    node: str
    verb: Literal["add", "replace", "remove"]
    addendum: Addendum | None = Field(description="the node's acceptance; null for one that left")
