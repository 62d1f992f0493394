"""Judging GPUDirect Storage: its rate against the order or the node's link, else recorded. Pure."""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.storage.facts import StorageFacts, StorageGds
from validation.measures.storage.judge import ORDERS, said
from validation.measures.storage.plan import declared
from validation.model import Judgement, Subject
from validation.rules.criterion import Criterion


def _text(one: StorageGds) -> str:
    through = (
        "nvidia-fs counts none (its counters are off, or cuFile went without it)" if not one.nvfs
        else f"nvidia-fs counted {number_of(one.nvfs, 'request')}"
    )  # fmt: skip
    how = f"to and from GPU 0 without a copy in the host, {number_of(one.threads, 'thread')}"
    return f"{one.gb_s:.4g} GB/s {how}, {one.latency_us / 1000:.3g} ms on average; {through}"


@method("storage-gds", "the rate between a storage and a GPU's memory against the order or the link")
def judge_gds(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each node with GPUs and storage."""
    judged = []
    for m in case.serving(criterion):
        about = Subject.node(m.nodes[0], str(m.params["name"]))
        facts = facts_for(case, criterion, about, m.id, StorageFacts, None)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        name = ORDERS[criterion.metric or ""][0]
        one = next((run for run in facts.node.gds if run.phase == name), None)
        if one is None:
            node = facts.node
            why = f"{node.node}: {node.gds_error or node.unmeasured or 'GPUDirect Storage was not measured'}"
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", why, [m.id]))
            continue
        summary = Summary(one.gb_s, 0.0, one.gb_s, one.gb_s, 1)
        storage = declared(case.topology.node(m.nodes[0]), facts.storage)
        judged.append(said(criterion, m, storage, summary, _text(one)))
    return judged
