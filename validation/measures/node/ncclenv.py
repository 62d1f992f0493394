"""Judging what is set for NCCL and UCX on a node."""

from __future__ import annotations

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.node.ncclenv_table import GUIDE, pinned
from validation.model import Bound, Judgement, ReasonCode, VerdictName
from validation.model.node_facts import LibraryEnv, NodeFacts
from validation.rules.criterion import Criterion


@method("library-env", "what is set for NCCL and UCX, against settings that nobody should leave")
def judge_library_env(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node, for a job takes the environment of the node that starts it along."""
    judged = []
    for measurement in case.serving(criterion):
        name = measurement.nodes[0]
        facts = facts_for(case, criterion, name, measurement.id, NodeFacts, None)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        verdict, code, why = _judge(facts.library_env, rdma=case.fabric.transport != "tcp")
        bound = Bound(
            metric="library_env",
            unit="",
            equal="nothing pinned that NCCL and UCX choose themselves",
            derivation=(f"this toolkit's table of settings, each with its reason ({GUIDE})",),
            source=criterion.source,
        )
        text = "; ".join(map(str, facts.library_env.settings if facts.library_env else ())) or None
        judged.append(judgement(criterion, name, verdict, code, why, [measurement.id], text=text, bound=bound))
    return judged


def _judge(env: LibraryEnv | None, rdma: bool) -> tuple[VerdictName, ReasonCode, str]:
    if env is None:
        return "not-measured", "missing-metric", "the facts say nothing of what is set for NCCL and UCX"
    wrong = [f"{s}: {pin.why}" for s in env.settings if (pin := pinned(s.name, s.value, rdma)) is not None]
    if wrong:
        return "fail", "not-equal", "; ".join(wrong)
    if env.unread:
        return "not-measured", "missing-metric", f"not judged because it could not be read: {env.unread}"
    count = len(env.settings)
    return "pass", "within-bounds", f"{count} settings, all of which leave the choice to NCCL and UCX"
