"""Answers of the commands of the lab."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from toolkit.answer_forms.base import Form


class LabNode(Form):
    """A node of a lab."""

    name: str
    group: str
    number: int
    kind: Literal["container", "vm"]


class LabMade(Form):
    """A lab that is up."""

    lab: str
    took_s: float
    name: str
    index: int
    nodes: list[LabNode]
    rate_gbps: float
    os: str
    over: str | None = Field(description="the system that really runs on nodes that imitate another one")
    accel: Literal["kvm", "tcg"] | None
    bmc: bool = Field(description="whether each node has an emulated BMC")
    switch: bool = Field(description="whether the fabric's switch announces its ports and shows its configuration")
    mirror: str = Field(description="folder of the mirror that is all that the nodes reach; empty without one")
    storage: bool = Field(description="whether the inventory declares the folder that nodes share as a storage")


class Lab(LabMade):
    """`toolkit lab up`."""

    inventory: str


class LabJoined(LabMade):
    """`toolkit lab up --add NODE`."""

    node: str


class LabNeeds(Form):
    """`toolkit lab needs`: packages."""

    lab: str
    fabric: str | None
    packages: list[str]
    nodes: list[LabNode]


class LabEnded(Form):
    """A lab that was to be taken down."""

    lab: str
    was_there: bool


class LabDown(Form):
    """`toolkit lab down`."""

    node: str | None = Field(description="the one node that left, with --node")
    labs: list[LabEnded]


class LabNodeStatus(Form):
    """A node of a lab, as it is now."""

    node: str
    group: str
    management: str
    fabric: str
    rate_gbps: float
    running: bool
    ssh: bool
    fault: str | None


class LabStatus(Form):
    """`toolkit lab status`."""

    lab: str
    os: str
    over: str | None
    nodes: list[LabNodeStatus]


class Fault(Form):
    """A fault that can be planted."""

    kind: str
    nodes: str
    found_by: list[str]
    about: str


class Faults(Form):
    """`toolkit lab fault list`."""

    faults: list[Fault]


class LabFault(Form):
    """`toolkit lab fault set` and `clear`."""

    lab: str
    node: str
    fault: str | None
    about: str | None


class Drilled(Form):
    """What came of a planted fault."""

    kind: str
    node: str
    found: bool
    localised: bool
    cause: bool
    blamed: list[str]
    said: str
    seconds: float
    trouble: str
    turn: str
    told: bool
    load: float
    refused: bool
    blamed_for: str


class LabDrill(Form):
    """`toolkit lab drill`."""

    lab: str
    drilled: list[Drilled]
    summary: str


class Engine(Form):
    """`toolkit lab engine build`."""

    path: str
    sha256: str
    engine: str
    release: str
    protocol: str
    glibc: str
    machine: str
    transports: list[str]
    #: Of the engine torch alone: minor releases of PyTorch that it has libraries for.
    torch: list[str] = Field(default_factory=list)
    #: Of the engine tensorflow alone: minor releases of TensorFlow that it knows.
    tensorflow: list[str] = Field(default_factory=list)


class EnginePack(BaseModel):
    """`toolkit lab engine pack`: what the archive's engine.json says, with path and hash."""

    model_config = ConfigDict(extra="allow")
    path: str
    sha256: str
    engine: str
    release: str
    machine: str
