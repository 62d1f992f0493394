"""Facts of GPUs in a container (kind gpu-container)."""

from __future__ import annotations

from typing import Literal

from validation.model.base import Model
from validation.model.facts import Count, Facts


class ContainerGpus(Model):
    """GPUs that a program in the container saw; `said`: why none."""

    gpus: Count
    said: str = ""


class GpuContainerFacts(Facts):
    """A container's GPUs before and after `systemctl daemon-reload`. `unmade`: why nothing was asked, or not again.

    `host`: GPUs that nvidia-smi lists outside; `left`: the container could not be taken away.
    """

    type: Literal["gpu-container"] = "gpu-container"
    docker: str
    toolkit: str
    cgroups: str  # Docker's driver and version of control groups
    host: Count
    image: str
    unmade: str
    before: ContainerGpus | None
    after: ContainerGpus | None
    left: bool
