"""Judging whether leases got what they were promised: the GPUs or parts that they asked for, for as long as they may.

By Slurm's accounting of each. That a lease was taken back for another class of users is the policy's own word, and that
one ended with its server is that server's fault: both are counted, and are no breach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.pool.use import PoolRequest, PoolUseFacts
from validation.model import Bound, Judgement, Subject
from validation.rules.criterion import Criterion

SLACK_S = 300
"""From how much more than its limit on a lease counts as longer: Slurm looks once a minute, and a program has a grace
to end. Project default."""
SOON_S = 60
"""How much earlier a lease may end by its limit: Slurm counts it in minutes."""
MOST = 3
ENDED_BY_OTHERS = {"PREEMPTED": "given to another class of users", "NODE_FAIL": "ended with the server"}


@method("pool-promised", "what each lease asked for and how long it may last beside what it had, by accounting")
def judge_promised(case: Case, criterion: Criterion) -> list[Judgement]:
    """All leases of the time together: what was not kept is named."""
    bound = Bound(
        metric="leases_not_kept",
        unit="",
        equal="every lease with all it asked for, and none ended by its limit before its time",
        derivation=(
            "Slurm's accounting: ReqTRES beside AllocTRES; Start and End beside TimelimitRaw",
            f"by its limit not earlier than {SOON_S} s before it (project default)",
        ),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        subject, ids = Subject(kind="cluster"), [measurement.id]
        facts = facts_for(case, criterion, subject, measurement.id, PoolUseFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        # a job may have GPUs without asking for any, as with --exclusive: nothing was promised to it
        known = [one for one in facts.requests if one.asked]
        if not known:
            none = "no lease asked for GPUs by this record"
            before = "this record does not say what leases asked for"
            why = f"reported: {none if any(one.asked == 0 for one in facts.requests) else before}"
            judged.append(judgement(criterion, subject, "not-applicable", "reported", why, ids))
            continue
        wrong, text = list(_wrong(known, facts.until_s, facts.parts_per_gpu)), _text(known, facts.until_s)
        if wrong:
            more = f"; and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
            why = f"{len(wrong)} of {number_of(len(known), 'lease')} not kept: {'; '.join(wrong[:MOST])}{more}"
            judged.append(judgement(criterion, subject, "fail", "not-equal", why, ids, text=text, bound=bound))
        else:
            judged.append(judgement(criterion, subject, "pass", "within-bounds", text, ids, text=text, bound=bound))
    return judged


def _wrong(requests: Sequence[PoolRequest], until_s: int, per_gpu: int) -> Iterator[str]:
    for one in requests:
        who = f"one of {one.users} on {one.gpu_class}"
        lasted = _lasted(one, until_s)
        if one.asked is not None and one.parts < one.asked:
            yield f"{who} asked for {one.asked / per_gpu:.3g} GPUs and had {one.parts / per_gpu:.3g}"
        elif one.limit_s is not None and one.state == "TIMEOUT" and lasted < one.limit_s - SOON_S:
            yield f"{who} may last {one.limit_s / 3600:.3g} h and was ended by its limit after {lasted / 3600:.3g} h"


def _lasted(one: PoolRequest, until_s: int) -> int:
    return (until_s if one.ended_s is None else one.ended_s) - one.started_s


def _text(requests: Sequence[PoolRequest], until_s: int) -> str:
    """A lease that lasted longer may have been suspended meanwhile, which accounting of it does not tell."""
    longer = sum(one.limit_s is not None and _lasted(one, until_s) > one.limit_s + SLACK_S for one in requests)
    waits = [one.started_s - one.arrived_s for one in requests]
    states = Counter(one.state for one in requests)
    said = [f"{number_of(len(requests), 'lease')} with the GPUs and the time that they asked for"]
    said += [f"{longer} longer than its limit"] if longer else []
    said += [f"{states[state]} {words}" for state, words in ENDED_BY_OTHERS.items() if states[state]]
    return "; ".join([*said, f"the longest wait was {max(waits) / 60:.3g} min"])
