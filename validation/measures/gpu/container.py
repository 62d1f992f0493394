"""Facts of GPUs in a container (kind gpu-container)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind, on_node
from validation.model import Bound, Job, Judgement, Measurement, Node, ReasonCode, Sample, Scalar, Topology, VerdictName
from validation.model.base import Model
from validation.model.facts import Count, Facts
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion


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


# --- GPUs of a container before and after a reload of systemd's units ------------------------------------------------


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many GPUs were there after it, where it was asked, and the facts, which stand in the report too."""
    facts = as_facts(GpuContainerFacts, doc["facts"], "gpu-container")
    if json_object(doc["stdout"], "gpu-container: the report") != doc["facts"]:
        raise ParseError("gpu-container: the facts are not those of the report")
    if facts.after is not None and (facts.before is None or facts.unmade):
        raise ParseError("gpu-container: asked after a reload that was not made")
    if facts.before is None and not facts.unmade:
        raise ParseError("gpu-container: nothing was asked, and nothing says why")
    after = [] if facts.after is None else [Sample(metric="gpus_after_reload", value=facts.after.gpus, unit="count")]
    return after, facts


# --- Judging whether a container keeps its GPUs when systemd reads its units anew ------------------------------------


ABSENT = (
    "no Docker",
    "no NVIDIA container toolkit that answers",
    "no training container, whose image would be taken",
)
"""What makes the criterion meaningless on a node, in the probe's words."""


@method("gpu-container", "GPUs in a container before and after a reload of systemd's units")
def judge_gpu_container(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node that is to have GPUs. Without Docker or the container toolkit on any it does not apply."""
    bound = Bound(
        metric="gpus_after_reload",
        unit="count",
        equal="as many GPUs in the container as on the node, before the reload and after it",
        source=criterion.source,
    )
    return on_each_node(case, criterion, GpuContainerFacts, lambda node, facts: Said(*_judge(case, node, facts)), bound)


def _judge(case: Case, node: Node, facts: GpuContainerFacts) -> tuple[VerdictName, ReasonCode, str]:
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if facts.unmade in ABSENT:
        return "not-applicable", "not-applicable", f"{facts.unmade} on {node.name}"
    before, after = facts.before, facts.after
    wrong = ["the container could not be taken away"] if facts.left else []
    if before is not None and before.gpus < facts.host:
        said = f" ({before.said})" if before.said else ""
        wrong.append(f"{before.gpus} of {number_of(facts.host, 'GPU')} in a container by CDI{said}")
    if before is not None and after is not None and after.gpus < before.gpus:
        said = f" ({after.said})" if after.said else ""
        wrong.append(f"{after.gpus} of {number_of(before.gpus, 'GPU')} after systemctl daemon-reload{said}")
    if wrong:
        return "fail", "not-equal", "; ".join([*wrong, f"Docker {facts.docker}, {facts.toolkit}, {facts.cgroups}"])
    if before is None or after is None or facts.unmade:
        return "not-measured", missing, facts.unmade or "nothing was asked"
    if not after.gpus:
        return "not-measured", missing, "nvidia-smi lists no GPU on the node"
    return (
        "pass",
        "within-bounds",
        f"{number_of(after.gpus, 'GPU')} before and after; Docker {facts.docker}, {facts.cgroups}",
    )


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


KINDS = (
    Kind(
        name="gpu-container",
        title="GPUs of a container, before and after a reload of systemd's units",
        measures="Counts the GPUs that a container sees before and after a reload of systemd.",
        tool="Docker, the NVIDIA container toolkit and systemctl",
        more="explanation/measuring/nodes.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
