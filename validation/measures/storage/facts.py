"""Facts of storage: what a node read and wrote there, alone and beside the others, and what nodes saw of each other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive, once
from validation.model.parts import Figure

OpName = Literal["write", "read", "one-write", "one-read", "randwrite", "randread"]
Phase = Literal["create", "open", "list", "remove"]
MILLION = 1_000_000


class StoragePlace(Model):
    """What is at the path, by the kernel's table of mounts."""

    filesystem: Name
    source: str
    options: str
    read_ahead_kb: Count | None
    free_bytes: Count
    total_bytes: Count


class StorageOp(Model):
    """One of fio's runs. `low`, `high`: bounds of what its intervals say of the rate. `error`: why it has no figure,
    everything else is 0 then. `late`: nodes that were not there when it began.
    """

    name: OpName
    bytes: Count = 0
    ios: Count = 0
    seconds: Figure = 0.0
    bytes_per_s: Figure = 0.0
    p99_us: Figure = 0.0
    error: str = ""
    late: tuple[Name, ...] = ()

    @property
    def gb_s(self) -> float:
        """10^9 bytes a second."""
        return self.bytes_per_s / 1e9

    @property
    def iops(self) -> float:
        """Requests a second."""
        return self.ios / self.seconds if self.seconds else 0.0


class StorageFiles(Model):
    """A phase of many small files."""

    phase: Phase
    count: Count
    seconds: Positive

    @property
    def per_s(self) -> float:
        """Files a second."""
        return self.count / self.seconds

    @property
    def million_s(self) -> float:
        """Seconds for 1,000,000 files at that rate: derived, never measured."""
        return MILLION / self.per_s if self.count else float("inf")


class StoragePictures(Model):
    """A pass of the training's loader: pictures, their bytes, and how many of these really came from the storage."""

    phase: Literal["read", "decoded"]
    count: Count
    per_s: Positive
    bytes: Count
    from_storage: Count
    processes: Count


class StorageGds(Model):
    """A run of gdsio between the storage and GPU 0. `nvfs`: what nvidia-fs counted meanwhile, None without it."""

    phase: Literal["write", "read"]
    bytes: Count
    seconds: Positive
    threads: Count
    latency_us: Figure
    nvfs: Count | None = None

    @property
    def gb_s(self) -> float:
        """10^9 bytes a second."""
        return self.bytes / self.seconds / 1e9


class StorageNode(Model):
    """One node at one storage. `unmeasured`: why something, or all, was not measured; "" where nothing is missing."""

    node: Name
    path: Name
    unmeasured: str = ""
    place: StoragePlace | None = None
    engine: str = ""
    file_bytes: Count = 0
    ops: tuple[StorageOp, ...] = ()
    files: tuple[StorageFiles, ...] = ()
    pictures: tuple[StoragePictures, ...] = ()
    pictures_kind: str = ""
    pictures_error: str = ""
    gds: tuple[StorageGds, ...] = ()
    gds_error: str = ""

    def op(self, name: str) -> StorageOp | None:
        """One of its runs that has a figure."""
        return next((one for one in self.ops if one.name == name and not one.error), None)

    def why_not(self, name: str) -> str:
        """Why a run has no figure, in words."""
        failed = next((one.error for one in self.ops if one.name == name and one.error), "")
        return f"{self.node}: {failed or self.unmeasured or f'{name} was not measured'}"

    def phase(self, name: str) -> StorageFiles | None:
        """A phase of small files."""
        return next((one for one in self.files if one.phase == name), None)


class StorageFacts(Facts):
    """A node alone. `storage`: its name in the inventory."""

    type: Literal["storage"] = "storage"
    storage: Name
    fio: str
    node: StorageNode


class StorageBeside(Model):
    """A node that sends over the fabric, alone and while all read the storage; bytes a second. `late`: nodes that were
    not there when that began."""

    node: Name
    error: str = ""
    net_alone: Figure = 0.0
    net_both: Figure = 0.0
    read_both: Figure = 0.0
    late: tuple[Name, ...] = ()


class StorageTogetherFacts(Facts):
    """All nodes at the same time."""

    type: Literal["storage-together"] = "storage-together"
    storage: Name
    nodes: tuple[StorageNode, ...] = Field(min_length=1)
    beside: tuple[StorageBeside, ...] = ()

    @field_validator("nodes")
    @classmethod
    def _once(cls, nodes: tuple[StorageNode, ...]) -> tuple[StorageNode, ...]:
        return once(nodes, "node")


class StorageWrite(Model):
    """What one node wrote for the others: `seconds` until it had read the answer of each, `unseen`: who did not
    answer in time, `deaf`: who did not come to listen."""

    writer: Name
    what: Literal["content", "new"]
    seconds: dict[Name, Figure]
    unseen: tuple[Name, ...] = ()
    deaf: tuple[Name, ...] = ()


class StorageWatcher(Model):
    """What one node has to say: which nodes it met; `meanwhile` and `after`, what it was told while another held the
    lock and when that let go ("" of the holder, and of one that did not get so far); `done` of `turns` turns at
    counting, after which it read `total`, with `late`: who had not finished then."""

    node: Name
    unmeasured: str = ""
    present: tuple[Name, ...] = ()
    holder: str = ""
    meanwhile: str = ""
    after: str = ""
    turns: Count = 0
    done: Count = 0
    total: Count = 0
    fault: str = ""
    late: tuple[Name, ...] = ()


class StorageSharedFacts(Facts):
    """What nodes saw of each other."""

    type: Literal["storage-shared"] = "storage-shared"
    storage: Name
    nodes: tuple[StorageWatcher, ...] = Field(min_length=1)
    writes: tuple[StorageWrite, ...] = ()

    @field_validator("nodes")
    @classmethod
    def _once(cls, nodes: tuple[StorageWatcher, ...]) -> tuple[StorageWatcher, ...]:
        return once(nodes, "node")
