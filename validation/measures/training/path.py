"""Judging what carried training between nodes: RDMA on the fabric's own devices where the fabric has RDMA."""

from __future__ import annotations

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.kinds.record import names
from validation.measures.rdma.ports_judge import port_of
from validation.measures.training.facts import TrainingFacts
from validation.model import Endpoint, Judgement, Measurement
from validation.rules.criterion import Criterion


@method("path", "what MPI and NCCL say that they send with between nodes", counts="jobs")
def judge_path(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job across nodes, by what its libraries said in their logs."""
    return [_path(case, criterion, job) for job in case.serving(criterion)]


def _path(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = subject_of(job)
    facts = facts_for(case, criterion, subject, job.id, TrainingFacts, None)
    if isinstance(facts, Judgement):
        return facts
    if not facts.carriers:
        why = f"the log of {job.id} does not tell what MPI or NCCL took between the nodes"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    said = "; ".join(map(str, facts.carriers))
    other = [str(c) for c in facts.carriers if not c.rdma]
    if other:
        why = f"{'; '.join(other)}; {case.fabric.name} has RDMA, and training did not take it"
        return judgement(criterion, subject, "fail", "not-working", why, [job.id], text=said)
    mine = _devices(case, job)
    astray = [str(c) for c in facts.carriers if mine and c.device and c.device not in mine]
    if astray:
        why = f"{'; '.join(astray)}; the fabric ports are {', '.join(sorted(mine))}"
        return judgement(criterion, subject, "fail", "not-working", why, [job.id], text=said)
    return judgement(criterion, subject, "pass", "within-bounds", said, [job.id], text=said)


def _devices(case: Case, job: Measurement) -> set[str]:
    """`mlx5_0:1` of the fabric ports of each host, all of which NCCL may take; empty where one of them was not read."""
    found = set()
    for name in names(job, "hosts"):
        for port in [p for p in case.nodes[name].ports if p.rdma]:
            seen = port_of(case, Endpoint(node=name, port=port.interface))
            if seen is None or not seen.device:
                return set()
            found.add(f"{seen.device}:{seen.port}")
    return found
