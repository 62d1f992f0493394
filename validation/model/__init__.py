"""The documents that flow through a run, each validated when it is read.

Every model is frozen and refuses unknown keys, so that a run directory written by another release or edited by
hand is refused with a clear error instead of being half understood.

Units stand in the field names: `_gbps` is 10^9 bit/s, `_us` microseconds, `_s` seconds, `_bytes` bytes.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, model_validator

from validation.model.base import (
    Endpoint,
    Model,
    Origin,
    Param,
    ReasonCode,
    ResultStatus,
    Scalar,
    SignOff,
    VerdictName,
    by_name,
)
from validation.model.cables import Cable
from validation.model.coverage import Coverage
from validation.model.judgement import Bound, Compared, Judgement, Subject, Waived
from validation.model.parts import Bmc
from validation.model.result import (
    CONTROLLER,
    DENIED,
    REPORT,
    Denied,
    Failure,
    Provenance,
    RawLog,
    Result,
    Sample,
    Share,
)
from validation.model.run_info import RunInfo, UnitPart
from validation.model.storage import Storage
from validation.model.verdict import (
    AgreedProfile,
    CriterionVerdict,
    Finding,
    LeftOut,
    VerdictDoc,
    WaiverUse,
)
from validation.model.witness import WitnessTest

__all__ = [
    "BOM_REQUIRED",
    "CONTROLLER",
    "DENIED",
    "REPORT",
    "AgreedProfile",
    "Bmc",
    "Bom",
    "Bound",
    "Cable",
    "Call",
    "Compared",
    "Coverage",
    "CriterionVerdict",
    "Denied",
    "Endpoint",
    "Failure",
    "Finding",
    "Found",
    "Job",
    "Judgement",
    "LabLink",
    "LeftOut",
    "Measurement",
    "Model",
    "Node",
    "Origin",
    "Param",
    "Plan",
    "Platform",
    "Port",
    "Provenance",
    "RawLog",
    "ReasonCode",
    "Result",
    "ResultStatus",
    "RunInfo",
    "Sample",
    "Scalar",
    "Share",
    "SignOff",
    "SshTarget",
    "Storage",
    "Subject",
    "Topology",
    "UnitPart",
    "VerdictDoc",
    "VerdictName",
    "Waived",
    "WaiverUse",
    "WitnessTest",
]


# --- what is validated -----------------------------------------------------------------------------------------


class SshTarget(Model):
    """How the controller reaches a node; the same arguments that Ansible uses. Holds paths, never secrets."""

    host: str
    port: int = 22
    user: str = "root"
    key_file: str | None = None
    extra_args: tuple[str, ...] = ()


class Port(Model):
    """A fabric port of a node. `rate_gbps` is what the inventory declares, None where it declares nothing.

    `rdma` False: the port carries TCP only, whatever the fabric, and RDMA is neither measured nor asked of it. `leaf`:
    the switch that it is connected to.
    """

    interface: str
    address: str  # without prefix length
    prefix: int
    rate_gbps: float | None = None
    rdma: bool = True
    leaf: str | None = None


class Bom(Model):
    """The bill of materials that the inventory declares for a node, in the words of the tools that are asked.

    None means not declared. What of it confirms no order as long as it is not declared: `BOM_REQUIRED`.
    """

    model: str | None = None
    gpu_model: str | None = None
    gpu_count: int | None = None
    nic_model: str | None = None
    fabric_port_count: int | None = None
    cpu_model: str | None = None
    cpu_sockets: int | None = Field(default=None, ge=1)
    cpu_cores: int | None = Field(default=None, ge=1)  # of all sockets, without hyper-threading
    memory_gib: float | None = Field(default=None, gt=0)  # of 2^30 bytes
    gpu_root_ports: int | None = Field(default=None, ge=1)  # host ports that the GPUs share: 1 behind one switch


BOM_REQUIRED = ("model", "gpu_model", "gpu_count", "nic_model", "fabric_port_count")
"""Parts without which a bill of materials is none. The others are judged where they are declared."""


class Platform(Model):
    """What the inventory declares of a node's platform and bounds are derived from; None means not declared."""

    sockets: int | None = Field(default=None, ge=1)
    memory_channels: int | None = Field(default=None, ge=1)  # of each socket, with memory in them
    memory_mts: int | None = Field(default=None, ge=1)  # million transfers per second of a channel, as it runs


class Node(Model):
    """A managed machine. `slots` = training ranks it takes (its GPUs; on the lab declared). `emulated`: its processor
    is emulated, so that what it computes or carries says nothing of a rate. `emulated_gpus`: GPUs of a lab's node that
    host memory stands in for, which no bill of materials has.
    """

    name: str
    groups: tuple[str, ...]
    ssh: SshTarget
    ports: tuple[Port, ...]
    slots: int = Field(default=1, ge=1)
    bom: Bom = Bom()
    platform: Platform = Platform()
    stack: dict[str, str] = Field(default={})  # component -> version that must be there, e.g. {"os": "debian 12"}
    virtual: str | None = None  # by what: "systemd-nspawn", "qemu"; None = real hardware
    emulated: bool = False  # a virtual machine whose processor is emulated
    hypervisor_host: str | None = None  # of a virtual machine: the host that it runs on; None = not declared
    emulated_gpus: int = Field(default=0, ge=0)
    mig: bool = False  # its GPUs are meant to be divided by MIG
    torch_engine: bool = False  # the inventory gives it the engine torch (remoting_engine_torch_artifact)
    tensorflow_engine: bool = False  # and the engine tensorflow (remoting_engine_tensorflow_artifact)
    remoting_transport: Literal["tcp", "verbs"] = "tcp"  # what leases of its GPUs go by (remoting_server_transport)
    trains: bool = True  # False: the inventory leaves the training out here (horovod_state: absent)
    os_stand_in: str | None = None  # what truly runs on a node that only shows its operating system, "debian 12"
    bmc: Bmc | None = None  # its controller, as the inventory declares it
    storage: tuple[Storage, ...] = ()  # folders whose storage is measured
    recovery_allowed: bool = True  # False: suite recovery never reboots it, whatever the run consents to

    @model_validator(mode="after")
    def _emulated_is_virtual(self) -> Node:
        if self.emulated and not self.virtual:
            raise ValueError("emulated, but not virtual: what emulates it must be said")
        if self.emulated_gpus and not self.virtual:
            raise ValueError("has emulated GPUs, but is not virtual")
        if self.os_stand_in and not self.virtual:
            raise ValueError("imitates another operating system, but is not virtual")
        return self

    @property
    def gpus(self) -> int:
        """GPUs that it is to have by the inventory, emulated ones among them; 0 where that declares none."""
        return (self.bom.gpu_count or 0) + self.emulated_gpus

    def component(self, key: str, version: str) -> str:
        """A component's version in words: of an operating system that is only shown, what it stands in over; of the
        number of GPUs, what host memory stands in for.
        """
        if key == "gpu_count" and self.emulated_gpus:
            return f"{version}, and {self.emulated_gpus} emulated"
        return f"{version} (stand-in over {self.os_stand_in})" if key == "os" and self.os_stand_in else version

    @property
    def virtual_words(self) -> str:
        """By what it is virtual, `qemu, emulated`, and what its operating system is a stand-in over; "" for real
        hardware."""
        if not self.virtual:
            return ""
        stand_in = f", operating system is a stand-in over {self.os_stand_in}" if self.os_stand_in else ""
        return f"{self.virtual}{', emulated' if self.emulated else ''}{stand_in}"


class LabLink(Model):
    """The known truth of the virtual lab's links: what `toolkit lab up` shaped them to.

    `emulated` True: nodes are emulated machines, whose processor and not whose link bounds what a port carries.
    """

    rate_gbps: float = Field(gt=0)
    rtt_max_us: float = Field(gt=0)
    emulated: bool = False


class Found(Model):
    """What one machine, which no inventory declares, showed of itself before anything of it was planned.

    `gpus`: NVIDIA's functions on its PCI buses. `gpu_trouble`: why these cannot be used, "" where they can or there is
    none. `torch`: version of the torch that was found, "" where there is none, and `torch_python` the interpreter that
    has it. `emulated`: the GPUs are those of a lab, which are on no bus. Looked for where remoting is measured alone:
    `engine`, the folder of the reference engine's programs, `engine_trouble`, why there are none; `torch_engine`, the
    folder of the engine for that torch, `torch_engine_trouble`, why there is none; `link_trouble`, why
    no network namespaces can be made, "" where they can; `delay_by`, what delays a link between them.
    """

    user: str
    gpus: int = Field(ge=0)
    gpu_trouble: str = ""
    emulated: bool = False
    torch: str = ""
    torch_python: str = ""
    engine: str = ""
    engine_trouble: str = ""
    torch_engine: str = ""
    torch_engine_trouble: str = ""
    link_trouble: str = ""
    delay_by: Literal["netem", "relay"] = "relay"


class Topology(Model):
    """All nodes under test. `site` is the inventory's folder name.

    `here`: the one node is the machine that ran the validation, as it was found; None: an inventory declares the nodes.
    `cables`: where the inventory wants the nodes' ports plugged in, none where it has no map.
    `switches`: names of those that it says how to ask. `witness`: the site's own witnessed tests.
    """

    site: str
    nodes: tuple[Node, ...]
    lab_link: LabLink | None = None
    here: Found | None = None
    cables: tuple[Cable, ...] = ()
    switches: tuple[str, ...] = ()
    witness: tuple[WitnessTest, ...] = ()

    @model_validator(mode="after")
    def _one_machine(self) -> Topology:
        if self.here is not None and (len(self.nodes) != 1 or self.lab_link is not None):
            raise ValueError("here: is of one machine that no inventory declares, and no other is under test")
        return self

    @model_validator(mode="after")
    def _names(self) -> Topology:
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"nodes: {twice} is there twice; each node has a name of its own")
        return self

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError if there is none."""
        return by_name(self.nodes, "name")[name]

    @property
    def virtual(self) -> bool:
        """True when any node or link is virtual: the run is then a rehearsal."""
        return self.lab_link is not None or any(n.virtual for n in self.nodes)


# --- what is planned -------------------------------------------------------------------------------------------


class Measurement(Model):
    """One thing to run. `id` is unique, stable between plans of the same topology, and safe as a file name.

    `kind` is a record of validation/kinds/, which says what runs, how it is read and what it is called.
    `nodes` take part, and are in no other measurement of the same round; `endpoints` is (source, destination) for a
    transport measurement of two ports, all ports of one of many (of an incast the receiver first), and empty otherwise.
    """

    id: str
    suite: str
    kind: str
    nodes: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] = ()
    params: dict[str, Param] = Field(default={})
    criteria: tuple[str, ...]
    estimated_s: float
    timeout_s: float


class Call(Model):
    """A probe and the parameters that it is given, as one JSON object."""

    probe: str
    params: dict[str, Any]

    @property
    def words(self) -> tuple[str, str]:
        """The arguments of `python -m validation.probes`."""
        return self.probe, json.dumps(self.params)


class Seat(Model):
    """One of many ends of a measurement: a probe and its node."""

    node: str
    call: Call


class Job(Model):
    """What takes a measurement: the probe that measures, on its node, and the serving end that it needs, if any.

    `server_ends` False: the serving end does not end with its client, it is stopped. `serving` and `sending`: of a
    measurement with many ends all of them, in place of the two; those that send begin at the same moment, when all
    that serve are ready. `node` and `probe` are the first that sends then.
    """

    node: str
    probe: Call
    server_node: str | None = None
    server: Call | None = None
    server_ends: bool = True
    serving: tuple[Seat, ...] = ()
    sending: tuple[Seat, ...] = ()

    @property
    def probes(self) -> int:
        """How many probes it starts."""
        return len(self.serving) + len(self.sending) or 1 + (self.server is not None)


class Plan(Model):
    """Everything that is going to be measured, written before anything runs.

    `rounds` holds measurement ids; the measurements of one round run at the same time. `left_out`: what was not planned
    and why. `coverage`: how much of the ports, pairs and leaf switches the pairs of fabric ports meet.
    """

    run: str
    fabric: str
    suites: tuple[str, ...]
    measurements: tuple[Measurement, ...]
    rounds: tuple[tuple[str, ...], ...]
    left_out: tuple[LeftOut, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    estimated_s: float

    def measurement(self, id_: str) -> Measurement:
        """The measurement with that id; KeyError if there is none."""
        return by_name(self.measurements, "id")[id_]
