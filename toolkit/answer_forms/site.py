"""Answers of the commands of a site."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolkit.answer_forms.base import Form
from toolkit.scan.answer import Answer as ScanAnswer
from validation.compare.model import SaidChange
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


class CheckedParts(Form):
    """Parts by serial number against the newest signed run of the site."""

    state: Literal["same", "different", "incomplete", "not-compared"]
    run: str | None = Field(description="the signed run; null: there is none")
    signed_on: str | None = Field(description="day of its last good signature; null: it is not as it was signed")
    why: str | None = Field(description="why nothing was compared; null where it was")
    signed_parts: int = Field(description="parts with a serial number that the signed run lists in these nodes")
    changes: list[SaidChange]
    doubled: list[str] = Field(description="serial numbers that more than one part has now, in words")
    last_day: str | None = Field(description="until when the signed paper holds; null: it names no day")
    expired: bool = Field(description="that day has passed")
    ended_by: list[str] = Field(description="firmware and GPU drivers that are not as signed, in words")


class Check(Form):
    """`toolkit check`: whether the nodes hold what site.yml was to give them, and the parts that were signed."""

    inventory: str
    nodes: list[CheckedNode]
    parts: CheckedParts


class Deployed(Deployment):
    """`toolkit deploy` and `toolkit teardown`: what became of each node."""


class PartChanged(Form):
    """A part whose version on record is not the wanted one."""

    part: str
    before: str
    after: str
    key: list[str] = Field(description="part and name in a release's set; empty for what no set brings back")
    pin: str
    reboot: bool


class NodeUpgraded(Form):
    """What an upgrade changes of a node."""

    node: str
    release: str = Field(description="the release on record")
    to: str
    changes: list[PartChanged]
    jobs: list[str] = Field(description="what ran there when it was planned")
    pool: bool = Field(description="whether Slurm knows it")
    kept: str = Field(description="why somebody else has it drained; empty where nobody has")
    waits: list[str] = Field(description="for what it waited to be rebooted when it was planned")
    reboots: list[str] = Field(description="for what it is rebooted: parts, and what it waited for")


class UpgradeBatch(Form):
    """Nodes that are upgraded at the same time."""

    nodes: list[str]
    step: Literal["", "drain", "deploy", "validate", "resume", "done"] = Field(description="the step begun last")
    failed: str
    run: str = Field(description="the folder of its validation")
    took_s: float | None


class Upgraded(Form):
    """`toolkit upgrade` and `toolkit rollback`: the plan, or how far it has come."""

    verb: Literal["upgrade", "rollback"]
    release: str
    state: Literal["planned", "nothing to do", "open", "done", "stopped", "failed"]
    nodes: list[NodeUpgraded]
    batches: list[UpgradeBatch]
    batch_s: float | None = Field(description="seconds a batch takes, by earlier runs of this site")
    estimated_from: str
    cannot_go_back: list[str]


class BackupHeader(Form):
    """What a backup of a head is of."""

    format: int
    made: str = Field(description="time in UTC")
    cluster: str
    head: str
    release: str = Field(description="of the toolkit that deployed the head")
    slurm: str = Field(description="version of its controller")
    parts: dict[str, int] = Field(description="bytes by part")
    missing: dict[str, str] = Field(description="part -> why it is not in it")


class BackupMade(Form):
    """`toolkit backup`."""

    file: str
    on_head: str
    bytes: int
    seconds: float
    kept: int = Field(description="how many the head keeps")
    header: BackupHeader
    unreadable: dict[str, str] = Field(description="backups on the head that cannot be read, and why")


class MirrorRepository(Form):
    """A repository of a mirror."""

    name: str
    system: str
    packages: int
    size_bytes: int


class MirrorMissing(Form):
    """A package that no repository has."""

    system: str
    role: str
    name: str
    version: str = Field(description='"" where any would do')


class MirrorPlan(Form):
    """`toolkit mirror plan`."""

    site: str
    size_bytes: int = Field(description="of all packages")
    download_up_to_s: float | None = Field(description="at the rate of the indices; null where that is not known")
    repositories: list[MirrorRepository]
    wheels: list[str]
    images: list[str]
    engines: list[str]
    missing: list[MirrorMissing]
    notes: list[str]


class MirrorChecked(Form):
    """`toolkit mirror verify`."""

    folder: str
    site: str | None
    signed: str | None = Field(description="time in UTC")
    key: str | None = Field(description="fingerprint of the key that signed it")
    signature: str = Field(description="what OpenSSH says of it")
    files: int
    size_bytes: int
    faults: list[str] = Field(description="a sentence for each file that is not the signed one; none: all are")


class JobFound(Form):
    """A job that was in the backup or ran on a node."""

    job: int
    user: str
    nodes: list[str]
    lease: bool
    state: Literal["goes on", "waits", "ended", "runs"]
    why: str


class HeadRestored(Form):
    """`toolkit restore`; of `--dry-run` with the jobs that run on the nodes now (state runs)."""

    header: BackupHeader
    minutes: float
    jobs: list[JobFound]
    not_asked: list[str] = Field(description="GPU servers that did not answer")
    replaced: str = Field(description='folder of the head with what was there before, "" where nothing was')


class RotatedKey(Form):
    """A key or certificate that machines share."""

    what: Literal["munge-key", "registry"]
    state: Literal["planned", "nothing to do", "done", "gone back", "open"]
    changes: dict[str, list[str]] = Field(description="node -> files and units; of --dry-run")
    cannot: list[str] = Field(description="what cannot be had without a pause; of --dry-run")
    left: dict[str, str] = Field(description="node -> why it is not done")
    jobs_running: int
    jobs_waiting: int
    jobs_lost: dict[str, str] = Field(description="job -> state in which it ended meanwhile")
    seconds: float
    paused_s: float = Field(description="how long no job started")
    why: str


class Rotated(Form):
    """`toolkit rotate`."""

    left_out: list[str] = Field(description="nodes that were left out")
    rotations: list[RotatedKey]


class StatusLine(Form):
    """A topic of a site."""

    topic: str
    state: Literal["ok", "note", "bad", "unknown"]
    words: str
    do: str = Field(description="what to do; empty where nothing is")
    about: list[str] = Field(description="the single things behind it, in words")


class Status(Form):
    """`toolkit status`."""

    site: str
    when: str
    lines: list[StatusLine]


class IncidentFound(Form):
    """A GPU server that failed, and how far its cure has come."""

    node: str
    began: str
    faults: list[str]
    step: Literal["drain", "support", "empty", "reset", "reboot", "accept", "resume", "waits", "done"]
    why: str = Field(description="for what it waits, or how it ended")
    file: str = Field(description="for support; empty where none was made")
    mended_by: str


class Incidents(Form):
    """`toolkit incidents --once`."""

    incidents: list[IncidentFound]


class NodeMoved(Form):
    """`toolkit node add`, `replace` and `remove`."""

    node: str
    verb: Literal["add", "replace", "remove"]
    addendum: Addendum | None = Field(description="the node's acceptance; null for one that left")


class SwitchDifference(Form):
    """What a host and its switch do not agree on."""

    what: Literal["port", "mtu", "dscp", "priority", "pfc", "ecn", "cnp", "pause", "lacp"]
    switch: str
    switch_port: str
    host: str = Field(description="node and port, empty without a map of cables")
    node: str = Field(description="the node alone, empty without a map of cables")
    words: str
    host_line: str
    switch_line: str


class SwitchCompared(Form):
    """A port of a switch that was compared with a host's. node, port: empty without a map of cables."""

    switch: str
    switch_port: str
    node: str
    port: str


class SwitchNotCompared(SwitchCompared):
    """A port of the map that was not compared, and why."""

    why: str


class SwitchRead(Form):
    """A switch whose configuration was read."""

    switch: str
    system: Literal["sonic", "os10"]
    source: str


class SwitchCheck(Form):
    """`toolkit switch check`: hosts and switches compared."""

    switches: list[SwitchRead]
    ports: int = Field(description="how many ports were compared")
    compared: list[SwitchCompared] = Field(description="which ports were compared")
    not_compared: list[SwitchNotCompared] = Field(description="ports of hosts in the map that were not, and why")
    differences: list[SwitchDifference]
    unchecked: list[str] = Field(description="what could not be compared, and why")


class SupportPart(Form):
    """A part of a node. "" or []: nobody reports it."""

    kind: str
    serial: str
    slot: str = Field(description="as the board or DMI names it")
    bmc_slot: str = Field(description="as the BMC names it")
    model: str
    firmware: str
    index: int | None = Field(description="of a GPU, as nvidia-smi counts")
    uuid: str
    pci: list[str]
    above: list[str] = Field(description="PCI ports above it")
    interfaces: list[str]
    rdma: list[str]
    macs: list[str]
    device: str = Field(description="of a drive")
    seen_by: list[str] = Field(description="who lists it: node, BMC, a run")


class SupportGap(Form):
    """Something that is not in the file, and why."""

    what: str
    why: str


class Support(Form):
    """`toolkit support`: the file that was written."""

    file: str
    bytes: int
    files: int
    node: str
    part: SupportPart | None
    run: str | None = Field(description="the last judged run with the node")
    not_asked: dict[str, str] = Field(description="node, bmc or part -> why it could not be asked")
    could_not_be_read: list[SupportGap]
    left_out: list[SupportGap]
    secrets_hidden: dict[str, int] = Field(description="kind of secret -> how often it was hidden")
