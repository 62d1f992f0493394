"""Facts of kind gpu-load: copies of GPUs from a chosen NUMA node, and of all GPUs of a node at the same time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive
from validation.model.pci import PciCard

Way = Literal["h2d", "d2h"]


class LoadGpu(Model):
    """A GPU, its link while it copied, and its NUMA node; None: nobody knows."""

    name: str
    uuid: Name
    address: str
    numa: Count | None = None
    card: PciCard | None = None
    generation: Count | None = None
    lanes: Count | None = None


class LoadNode(Model):
    """A NUMA node with processors. `usable`: this process might run there. `distances`: to all of them in order."""

    number: Count
    usable: bool
    distances: tuple[Count, ...] = ()


class NodeCopy(Model):
    """Copies of one GPU from or to memory of one node, by the GPU's events.

    `placed`: share of the memory that does lie there, None where the kernel does not say. `fault`: why there are none.
    """

    gpu: Count
    node: Count
    what: Way
    placed: Annotated[float, Field(ge=0, le=1)] | None = None
    gb_s: tuple[Positive, ...] = ()
    fault: str = ""


class AllAtOnce(Model):
    """Rounds of all GPUs in one direction: the sum of all by the clock, and the median of each GPU by its events."""

    what: Way
    gb_s: tuple[Positive, ...] = ()
    each_gb_s: tuple[Positive, ...] = ()
    fault: str = ""


class GpuLoadFacts(Facts):
    """All of a node. `why`: why there is no GPU."""

    type: Literal["gpu-load"] = "gpu-load"
    emulated: bool
    driver: str
    why: str = ""
    bytes: Count = 0
    copies: Count = 0
    nodes: tuple[LoadNode, ...] = ()
    gpus: tuple[LoadGpu, ...] = ()
    cells: tuple[NodeCopy, ...] = ()
    together: tuple[AllAtOnce, ...] = ()

    def of(self, gpu: int, what: Way) -> dict[int, NodeCopy]:
        """Copies of a GPU in one direction by the node of the memory."""
        return {cell.node: cell for cell in self.cells if (cell.gpu, cell.what) == (gpu, what)}
