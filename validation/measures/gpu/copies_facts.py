"""Facts of kind gpu-copies: copies between the host memory and all GPUs of a node, and between these."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.base.counting import be, number_of
from validation.measures.gpu.watch import GpuWatch
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive, once
from validation.model.nvlink import NvGpu
from validation.model.pci import PciCard

What = Literal[
    "h2d", "d2h", "both", "local", "peer", "pair", "gather", "scatter", "sm_local", "sm_read", "sm_write", "sync",
    "kernel",
]  # fmt: skip
"""Host to GPU, GPU to host, both at once, inside a GPU, GPU to GPU, both ways between two at once, all others to one at
once, one to all others at once; by a GPU's SMs inside it, from another's memory, to another's memory; a synchronisation
with nothing to wait for; an empty kernel."""
TOGETHER: tuple[What, ...] = ("pair", "gather", "scatter")
BY_SMS: tuple[What, ...] = ("sm_local", "sm_read", "sm_write")


class CopyGpu(Model):
    """A GPU, and what it said of itself while it worked; None: it did not say.

    `untaken`: why nothing was copied to or from it, "" where it was; `held`: because somebody else has it.
    `beside`: whose processes are there too, without working on it as far as anybody can tell.
    `near`: the process ran on the processors of its NUMA node. `card`: its links from sysfs; `generation` and `lanes`
    those of its PCI Express link from NVML. `watch`: what it was doing during its turn.
    """

    name: str
    uuid: Name
    address: str
    memory_bytes: Count
    untaken: str = ""
    held: bool = False
    beside: str = ""
    near: bool
    card: PciCard | None = None
    generation: Count | None = None
    lanes: Count | None = None
    sm_mhz: Count | None = None
    sm_max_mhz: Count | None = None
    throttle_reasons: tuple[str, ...] | None = None
    watch: GpuWatch | None = None


class GpuCell(Model):
    """From where to where: a GPU's number, None for the host memory. `access`: with peer access.

    `error`: the words of the call that failed; "" where it worked.
    """

    what: What
    source: Count | None
    target: Count | None
    access: bool = False
    error: str = ""

    @property
    def words(self) -> str:
        """`H to GPU 0`, `inside GPU 0`."""
        if self.what == "sync":
            return f"synchronisation of GPU {self.target}"
        if self.what == "kernel":
            return f"an empty kernel on GPU {self.target}"
        if self.what == "local":
            return f"inside GPU {self.target}"
        if self.what == "both":
            return f"H and GPU {self.target} at once"
        if self.what == "pair":
            return f"GPU {self.source} and GPU {self.target} at once"
        if self.what == "gather":
            return f"all others to GPU {self.target} at once"
        if self.what == "scatter":
            return f"GPU {self.source} to all others at once"
        if self.what == "sm_local":
            return f"inside GPU {self.target} by its SMs"
        if self.what == "sm_read":
            return f"GPU {self.target} reads from GPU {self.source} by its SMs"
        if self.what == "sm_write":
            return f"GPU {self.source} writes to GPU {self.target} by its SMs"
        return " to ".join("H" if end is None else f"GPU {end}" for end in (self.source, self.target))


_CELL: dict[What, What] = {"h2d": "peer", "d2h": "peer", "sm_local": "local", "sm_read": "peer", "sm_write": "peer"}
"""What is copied -> what the cell of the matrix is called that it belongs to."""


class GpuCopy(GpuCell):
    """Copies of one size: the rate of each, by the GPU's events from 1 MiB on and below that by the clock.

    Inside a GPU bytes are counted twice, read and written; of several copies at once all are counted. `bytes`: of each.
    `ways`: how many there are at once.
    """

    memory: Literal["pinned", "pageable", ""] = ""
    bytes: Count
    ways: Count = 1
    gb_s: tuple[Positive, ...] = ()
    verified: bool = False

    @property
    def fault(self) -> str:
        """Why it is no cell of a matrix, "" where it is one."""
        return self.error or ("" if self.verified else "its data were wrong")


class GpuWait(GpuCell):
    """Latency of 4 bytes, a synchronisation or a kernel: median and 95 % interval in microseconds, 0 where it failed.

    `started`: of a kernel, whether the GPU took its code.
    """

    us: float = Field(default=0, ge=0, allow_inf_nan=False)
    low_us: float = Field(default=0, ge=0, allow_inf_nan=False)
    high_us: float = Field(default=0, ge=0, allow_inf_nan=False)
    samples: Count = 0
    started: bool = True


class GpuPeer(Model):
    """Whether the driver gives one GPU access to another's memory, and why not."""

    source: Count
    target: Count
    access: bool
    why: str = ""


class GpuCopyFacts(Facts):
    """All copies of a node. `declared`: GPUs that it is said to have, 0 where nobody says. `why`: why there is none.

    `silent`: in words, GPUs that do not answer NVML. `no_sm_copies`: why nothing was copied by SMs, "" where it was, or
    by a probe that does not have them.
    """

    type: Literal["gpu-copies"] = "gpu-copies"
    emulated: bool
    driver: str
    cuda: Count
    declared: Count
    why: str = ""
    silent: tuple[str, ...] = ()
    largest_bytes: Count
    gpus: tuple[CopyGpu, ...]
    peers: tuple[GpuPeer, ...]
    copies: tuple[GpuCopy, ...]
    waits: tuple[GpuWait, ...]
    no_sm_copies: str = ""
    nvlink: tuple[NvGpu, ...] | None = None
    nvlink_unread: str = ""

    @field_validator("gpus")
    @classmethod
    def _gpus_once(cls, gpus: tuple[CopyGpu, ...]) -> tuple[CopyGpu, ...]:
        return once(gpus, "uuid")

    def copy_of(
        self, what: What, source: int | None, target: int | None, memory: str = "", access: bool = False
    ) -> GpuCopy | None:
        """The copies of the largest size from one end to the other; None where there are none."""
        key = (what, source, target, memory, access)
        mine = [c for c in self.copies if (c.what, c.source, c.target, c.memory, c.access) == key]
        return max(mine, key=lambda c: c.bytes, default=None)

    def wait_of(self, what: What, source: int | None, target: int | None, access: bool = False) -> GpuWait | None:
        """The latency from one end to the other; None where there is none."""
        key = (what, source, target, access)
        return next((w for w in self.waits if (w.what, w.source, w.target, w.access) == key), None)

    def path(self, source: int, target: int) -> GpuPeer | None:
        """What the driver said of a pair."""
        return next((p for p in self.peers if (p.source, p.target) == (source, target)), None)

    def cell(self, source: int | None, target: int | None) -> tuple[GpuCopy | None, GpuWait | None]:
        """Bandwidth and latency of a cell of the matrix: pinned memory; between GPUs the best path that there is."""
        if source is not None and target is not None:
            pair = self.path(source, target) if source != target else None
            access, what = bool(pair and pair.access), "local" if source == target else "peer"
            return self.copy_of(what, source, target, "", access), self.wait_of(what, source, target, access)  # type: ignore[arg-type]
        what = "h2d" if source is None else "d2h"
        return self.copy_of(what, source, target, "pinned"), self.wait_of(what, source, target)  # type: ignore[arg-type]

    def nvlinks_between(self, one: int, other: int) -> int:
        """NVLinks that are up between two GPUs; behind switches all that both have."""
        of = {gpu.address: gpu for gpu in self.nvlink or ()}
        a, b = (of.get(self.gpus[number].address) for number in (one, other))
        if a is None or b is None:
            return 0
        return min(a.peers["switch"], b.peers["switch"]) or a.peers[b.address]

    def way(self, source: int, target: int) -> str:
        """`P2P over 2 NVLinks`, `P2P over PCIe`, `through the host`."""
        pair = self.path(source, target)
        if pair is None or not pair.access:
            return "through the host"
        links = self.nvlinks_between(source, target)
        return f"P2P over {links} NVLink{'s' if links > 1 else ''}" if links else "P2P over PCIe"

    def path_words(self, source: int, target: int) -> str:
        """The way, and why it is through the host, where it is."""
        pair, way = self.path(source, target), self.way(source, target)
        if pair is None or not pair.access:
            return f"{way}: {pair.why if pair else 'nobody asked the driver'}"
        return way

    @property
    def holes(self) -> list[str]:
        """In words, what the matrix of H and all GPUs lacks: GPUs, cells, verified data. `held` GPUs are left out."""
        found = [gpu.untaken for gpu in self.gpus if gpu.untaken and not gpu.held]
        told: set[tuple[What, int | None, int | None]] = set()  # cells of which a fault is among them
        ends = (None, *(number for number, gpu in enumerate(self.gpus) if not gpu.untaken))
        if self.declared > len(self.gpus):
            found.append(
                "; ".join(
                    [f"{len(self.gpus)} of {number_of(self.declared, 'GPU')} {be(len(self.gpus))} there", *self.silent]
                )
            )
        elif not self.declared:
            found += self.silent
        for source in ends:
            for target in ends:
                if source is None and target is None:
                    continue
                copy, wait = self.cell(source, target)
                cell = GpuCell(what="local" if source == target else "peer", source=source, target=target)
                if copy is None or wait is None:
                    found.append(f"{cell.words}: nothing was measured")
                elif fault := copy.fault or wait.error:
                    found.append(f"{cell.words}: {fault}")
                else:
                    continue
                told.add((cell.what, source, target))
        kernels = [w for w in self.waits if w.what == "kernel" and w.error and w.started and w.target in ends]
        found = [*(f"{w.words}: {w.error}" for w in kernels), *found]  # what follows in its context is its error, too
        wrong = [c for c in self.copies if c.fault and (_CELL.get(c.what, c.what), c.source, c.target) not in told]
        wrong = [c for c in wrong if {c.source, c.target} <= set(ends)]
        if len(ends) < 4:  # without two others that are taken, several at once cannot be
            wrong = [c for c in wrong if c.what not in ("gather", "scatter")]
        return [*found, *(f"{c.words}, {number_of(c.bytes, 'byte')}: {c.fault}" for c in wrong)]
