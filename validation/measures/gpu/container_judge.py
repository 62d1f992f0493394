"""Judging whether a container keeps its GPUs when systemd reads its units anew."""

from __future__ import annotations

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.measures.gpu.container_facts import GpuContainerFacts
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.rules.criterion import Criterion

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
