"""Machines that no role can serve: ARM, accelerators of other makers. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.scan.answer import Answer, Gpu

LEAVE = "leave the node out of the list"


@dataclass(frozen=True)
class Served:
    """What stacks/compatibility.yml says of it. `models`: PCI device id (and that of the subsystem, after a blank) ->
    model; `machines`: why not, by hardware; `makers`: of accelerators, by PCI vendor."""

    models: Mapping[str, str] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Served:
        """Of the whole table."""
        models = {**known["gpu_models"], **known["gpu_boards"]}
        return cls(models, known["not_served"]["machines"], known["not_served"]["makers"])

    def model(self, gpu: Gpu) -> str:
        """`H100 SXM5 80GB`, or `PCI device 0x2399` of an id that the table lacks."""
        named = self.models.get(f"{gpu.device} {gpu.subsystem}") or self.models.get(gpu.device)
        return named or f"PCI device {gpu.device}"

    def why_not(self, answer: Answer, group: str | None) -> str | None:
        """Why a node cannot be in an inventory, in one sentence; None where it can. `group`: that the list says."""
        if answer.machine in self.machines:
            return f"is {answer.machine}, and {self.machines[answer.machine]}: {LEAVE}"
        if (group or "gpu_servers") != "gpu_servers":  # gets no driver
            return None
        return self._others(answer)

    def _others(self, answer: Answer) -> str | None:
        """A machine with accelerators, and none of NVIDIA's among them."""
        makers = {f"{vendor[2:]}": name for vendor, name in self.makers.items()}
        counted = Counter(one for one in answer.accelerators if one.split(":")[0] in makers)
        if answer.gpus or not counted:
            return None
        named = ", ".join(f"{makers[one.split(':')[0]]} {one} ({number})" for one, number in sorted(counted.items()))
        return (
            f"its accelerators ({named}) are not NVIDIA's, which alone are served: {LEAVE}, or name its group there "
            "(heads, clients)"
        )
