"""Judging NVLinks: each GPU has as many up as its model has, or where that is not known as its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.model.nvlink import NvGpu, joined
from validation.rules.criterion import Criterion
from validation.rules.gpus import nvlinks

DISABLED = "the driver was loaded with NVreg_NvLinkDisable=1 (/proc/driver/nvidia/params, /etc/modprobe.d)"


@method("nvlink", "NVLinks of each GPU that are up, as NVML says")
def judge_nvlink(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with GPUs. Where no node has a GPU with NVLink, the criterion does not apply to this site."""

    def judge(node: Node, facts: NodeFacts) -> Said:
        text = "; ".join(map(_words, facts.nvlink or ())) or None
        return Said(*_judge(case, node, facts), text=text, bound=_bound(criterion, facts))

    return on_each_node(case, criterion, NodeFacts, judge)


def _bound(criterion: Criterion, facts: NodeFacts) -> Bound:
    row = nvlinks(facts.gpu_model)
    return Bound(
        metric="nvlinks_up",
        unit="",
        equal=f"{row.links} of each GPU" if row else "as many of each GPU as of the others, and all that it has",
        derivation=(f"{facts.gpu_model}: {row.source}" if row else "this release knows no figure of this GPU model",),
        source=criterion.source,
    )


def _words(gpu: NvGpu) -> str:
    """`GPU 0000:1a:00.0: 6 NVLinks up`."""
    down = f", down: {', '.join(map(str, gpu.down))}" if gpu.down else ""
    return f"GPU {gpu.address}: {gpu.up} NVLinks up{down}"


def _judge(case: Case, node: Node, facts: NodeFacts) -> tuple[VerdictName, ReasonCode, str]:
    counted, gpus = max(facts.gpu_count, node.bom.gpu_count or 0), facts.nvlink
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    row = nvlinks(facts.gpu_model)
    emulated = any(gpu.emulated for gpu in gpus or ())  # all links that are described are wired
    on_board = row is not None or "SXM" in facts.gpu_model or emulated  # a card in a slot has them where it was ordered
    if not counted and not gpus:
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    if gpus is None:
        return "not-measured", missing, f"NVLinks cannot be read: {facts.nvlink_unread or 'NVML was not asked'}"
    if emulated and not case.virtual:
        return "not-measured", "missing-metric", "the GPUs are emulated"
    if len(gpus) < counted:
        return "not-measured", missing, f"NVML shows {len(gpus)} of {number_of(counted, 'GPU')}"
    if not on_board and not any(gpu.up for gpu in gpus):
        return "not-applicable", "not-applicable", f"{facts.gpu_model or 'the GPUs'}: no NVLink"
    why = DISABLED if facts.nvlink_disabled else ""
    if case.virtual and not any(gpu.links for gpu in gpus):
        of = why or "no GPU shows an NVLink, as those that were passed through without their NVSwitches"
        return "not-measured", "virtual", f"{node.name} is virtual: {of}"
    if on_board and why and not any(gpu.up for gpu in gpus):
        return "fail", "not-equal", f"no GPU has an NVLink: {why}"
    wrong = _wrong(gpus, row.links if row else None) if on_board else []
    if wrong:
        return "fail", "not-equal", "; ".join(wrong)
    if row is None and any(gpu.down for gpu in gpus):
        each = "; ".join(map(_words, gpus))
        why = f"it is unknown how many NVLinks this server wires between its {facts.gpu_model}: {each}"
        return "not-measured", "no-bound", why
    return "pass", "within-bounds", "; ".join(map(_words, gpus)) + ("; the GPUs are emulated" if emulated else "")


def _wrong(gpus: Sequence[NvGpu], wanted: int | None) -> list[str]:
    """GPUs with fewer links up than wanted, by default than the best of the node, and the pairs that lack them."""
    usual = wanted if wanted is not None else max(gpu.up for gpu in gpus)
    odd = [gpu for gpu in gpus if gpu.up != usual]
    found = []
    for gpu in odd:
        down = f" (down: {', '.join(map(str, gpu.down))})" if gpu.down else ""
        found.append(f"GPU {gpu.address}: {gpu.up} of {usual} NVLinks up{down}")
    most = max(joined(gpus).values(), default=0)
    for (one, other), number in joined(odd).items():
        if number < most:
            found.append(f"{number} between {one} and {other}, up to {most} between others")
    return found
