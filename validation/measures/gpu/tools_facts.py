"""Facts of kind gpu-tools: what NVIDIA's own bandwidth tools measured between host memory and the GPUs of a node."""

from __future__ import annotations

from typing import Literal

from validation.measures.gpu.copies_facts import GpuCell
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive


class ToolCell(GpuCell):
    """A rate that a tool printed, as our copies count it: inside a GPU bytes read and written."""

    gb_s: Positive


class GpuTool(Model):
    """A tool. `path` "": not on the node. `trouble`: why it has no figures, "" where it has some.

    `addresses`: PCI addresses of its GPUs in its order, empty where it prints none: then its order is CUDA's, as ours.
    `gaps`: what it left out or could not measure, in words.
    """

    name: Name
    path: str
    version: str = ""
    trouble: str = ""
    addresses: tuple[str, ...] = ()
    cells: tuple[ToolCell, ...] = ()
    gaps: tuple[str, ...] = ()

    def place(self, gpu: Count, address: str) -> int | None:
        """Its number of our GPU; None where it has it not."""
        if not self.addresses:
            return gpu
        return self.addresses.index(address) if address in self.addresses else None


class GpuToolsFacts(Facts):
    """What the tools said. `why`: why none was run, "" where they were looked for."""

    type: Literal["gpu-tools"] = "gpu-tools"
    emulated: bool
    driver: str
    why: str = ""
    tools: tuple[GpuTool, ...] = ()
